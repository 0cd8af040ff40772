"""NASNet-A has the published size and cells."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from benchmarks.models import nasnet
from tests.benchmarks.models.sessions import build_forward, variable_sizes

tf1 = tf.compat.v1


class NasnetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = build_forward(nasnet)
        cls.graph = cls.model.graph

    def inputs(self, name: str) -> list[str]:
        return [value.op.name for value in self.graph.get_operation_by_name(name).inputs]

    def check_branches(self, filters: int, branches: dict[str, tuple[str, int]]) -> None:
        """By the scope of a branch what it reads, and the size of its windows."""
        variables = {v.op.name: v for v in self.graph.get_collection("variables")}
        for branch, (read, size) in branches.items():
            self.assertEqual(self.inputs(f"{branch}/separable_0/Relu"), [read])
            shape = variables[f"{branch}/separable_0/depthwise"].shape
            self.assertEqual(shape, [size, size, filters, 1])

    def test_parameters_are_as_many_as_published(self):
        # The counts of NASNetMobile in Keras; the paper says 5.3 million.
        self.assertEqual(sum(variable_sizes(self.model).values()), 5_289_978)
        averages = [v for v in self.graph.get_collection("variables") if "/moving_" in v.name]
        self.assertEqual(sum(v.shape.num_elements() for v in averages), 36_738)

    def test_cells_have_the_shapes_of_the_paper(self):
        for name, shape in {
            "stem/Conv2D": (111, 111, 32),
            "stem_0/concat": (56, 56, 4 * 11),
            "stem_1/concat": (28, 28, 4 * 22),
            "row_0/cell_3/concat": (28, 28, 6 * 44),
            "reduction_1/concat": (14, 14, 4 * 88),
            "row_1/cell_3/concat": (14, 14, 6 * 88),
            "reduction_2/concat": (7, 7, 4 * 176),
            "row_2/cell_3/concat": (7, 7, 1056),
        }.items():
            found = self.graph.get_tensor_by_name(f"{name}:0").shape
            self.assertEqual(tuple(found), (32, *shape), name)

    def test_operations_are_those_of_12_normal_and_4_reduction_cells(self):
        types = collections.Counter(op.type for op in self.graph.get_operations())
        # Five separable branches of either cell, each of them twice.
        self.assertEqual(types["DepthwiseConv2dNative"], 2 * 5 * (12 + 4))
        # Three sums pool in a normal cell (one of them both of its terms). A reduction pools in
        # five places, two of them for maxima; four times both paths pick every other pixel: in
        # front of the second cell of the stem and of the first of each row.
        self.assertEqual(types["AvgPool"], 3 * 12 + 2 * 4 + 2 * 4)
        self.assertEqual(types["MaxPool"], 2 * 4)

    def test_normal_cell_is_the_one_of_the_paper(self):
        cell = "row_0/cell_2"
        before, now = f"{cell}/before/FusedBatchNormV3", f"{cell}/now/FusedBatchNormV3"
        sums = [f"{cell}/sum_{i}/add" for i in range(5)]
        self.assertEqual(self.inputs(f"{cell}/concat")[:6], [before, *sums])
        self.assertEqual(self.inputs(f"{cell}/before/Relu"), ["row_0/cell_0/concat"])
        self.assertEqual(self.inputs(f"{cell}/now/Relu"), ["row_0/cell_1/concat"])
        branches = {
            f"{cell}/sum_0/left": (now, 5),
            f"{cell}/sum_0/right": (before, 3),
            f"{cell}/sum_1/left": (before, 5),
            f"{cell}/sum_1/right": (before, 3),
            f"{cell}/sum_4/left": (now, 3),
        }
        self.check_branches(44, branches)
        self.assertEqual(self.inputs(sums[4])[1], now)
        pools = [(f"{cell}/sum_2/AvgPool2D", now), (f"{cell}/sum_3/AvgPool2D", before)]
        for pool, read in (*pools, (f"{cell}/sum_3/AvgPool2D_1", before)):
            self.assertEqual(self.inputs(pool), [read])

    def test_reduction_cell_is_the_one_of_the_paper(self):
        cell = "reduction_1"
        sums = [f"{cell}/sum_{i}/add" for i in range(5)]
        self.assertEqual(self.inputs(f"{cell}/concat")[:4], sums[1:])
        before, now = f"{cell}/before/FusedBatchNormV3", f"{cell}/now/FusedBatchNormV3"
        self.assertEqual(self.inputs(f"{cell}/before/Relu"), ["row_0/cell_2/concat"])
        branches = {
            f"{cell}/sum_0/left": (now, 5),
            f"{cell}/sum_0/right": (before, 7),
            f"{cell}/sum_1/right": (before, 7),
            f"{cell}/sum_2/right": (before, 5),
            f"{cell}/sum_4/left": (sums[0], 3),
        }
        self.check_branches(88, branches)
        self.assertEqual(self.inputs(f"{cell}/sum_3/AvgPool2D"), [sums[0]])
        self.assertEqual(self.inputs(sums[3])[1], sums[1])
        for pool in ("sum_1/MaxPool2d", "sum_2/AvgPool2D", "sum_4/MaxPool2d"):
            self.assertEqual(self.inputs(f"{cell}/{pool}"), [now])

    def test_second_path_sees_the_pixels_that_the_first_one_skips(self):
        scope = "stem_1/before"
        names = [f"{scope}/Relu:0", f"{scope}/path_0/AvgPool2D:0", f"{scope}/path_1/AvgPool2D:0"]
        relu, first, second = (self.graph.get_tensor_by_name(name) for name in names)
        value = np.random.default_rng(0).random(relu.shape.as_list(), np.float32)
        with tf1.Session(graph=self.graph) as session:
            even, odd = session.run((first, second), {relu: value})
        self.assertEqual(value.shape[1], 111)
        self.assertAllEqual(even, value[:, ::2, ::2])
        self.assertAllEqual(odd[:, :-1, :-1], value[:, 1::2, 1::2])


if __name__ == "__main__":
    tf.test.main()
