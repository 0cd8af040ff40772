"""NASNet-A has the published size and cells."""

from __future__ import annotations

import collections

import tensorflow as tf

from benchmarks.models import nasnet
from tests.benchmarks.models.sessions import build_forward, variable_sizes


class NasnetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = build_forward(nasnet)
        cls.graph = cls.model.graph

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


if __name__ == "__main__":
    tf.test.main()
