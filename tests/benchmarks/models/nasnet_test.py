"""NASNet-A has the published size and cells, and trains."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import nasnet
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"cells": 1, "filters": 8, "batch": 16, "image_size": 32, "classes": 4}


class FullSizeTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # With the optimizer that needs the fewest operations.
        cls.model = nasnet.build(optimizer="sgd")

    def test_parameters_are_as_many_as_published(self):
        # The counts of NASNetMobile in Keras; the paper says 5.3 million.
        with self.model.graph.as_default():
            trained = sum(v.shape.num_elements() for v in tf1.trainable_variables())
            averages = [
                v.shape.num_elements()
                for v in tf1.global_variables()
                if v.op.name.endswith(("moving_mean", "moving_variance"))
            ]
        self.assertEqual((trained, sum(averages)), (5_289_978, 36_738))

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
            found = self.model.graph.get_tensor_by_name(f"{name}:0").shape
            self.assertEqual(tuple(found), (32, *shape), name)

    def test_operations_are_those_of_12_normal_and_4_reduction_cells(self):
        types = collections.Counter(op.type for op in self.model.graph.get_operations())
        # Five separable branches of either cell, each of them twice.
        depthwise = 2 * 5 * (12 + 4)
        self.assertEqual(types["DepthwiseConv2dNative"], depthwise)
        self.assertEqual(types["DepthwiseConv2dNativeBackpropFilter"], depthwise)
        # Three sums pool in a normal cell (one of them both of its terms). A reduction pools in
        # five places, two of them for maxima; four times both paths pick every other pixel: in
        # front of the second cell of the stem and of the first of each row.
        self.assertEqual(types["AvgPool"], 3 * 12 + 2 * 4 + 2 * 4)
        self.assertEqual(types["MaxPool"], 2 * 4)

    def test_normal_cell_is_the_one_of_the_paper(self):
        graph = self.model.graph
        cell = "row_0/cell_2"

        def inputs(name: str) -> list[str]:
            return [value.op.name for value in graph.get_operation_by_name(name).inputs]

        before, now = f"{cell}/before/FusedBatchNormV3", f"{cell}/now/FusedBatchNormV3"
        sums = [f"{cell}/sum_{i}/add" for i in range(5)]
        self.assertEqual(inputs(f"{cell}/concat")[:6], [before, *sums])
        self.assertEqual(inputs(f"{cell}/before/Relu"), ["row_0/cell_0/concat"])
        self.assertEqual(inputs(f"{cell}/now/Relu"), ["row_0/cell_1/concat"])
        branches = {
            "sum_0/left": (now, 5),
            "sum_0/right": (before, 3),
            "sum_1/left": (before, 5),
            "sum_1/right": (before, 3),
            "sum_4/left": (now, 3),
        }
        variables = {v.op.name: v for v in graph.get_collection("variables")}
        for branch, (read, size) in branches.items():
            first = f"{cell}/{branch}/separable_0"
            self.assertEqual(inputs(f"{first}/Relu"), [read])
            self.assertEqual(variables[f"{first}/depthwise"].shape, [size, size, 44, 1])
        self.assertEqual(inputs(sums[4])[1], now)
        pools = [(f"{cell}/sum_2/AvgPool2D", now), (f"{cell}/sum_3/AvgPool2D", before)]
        for pool, read in (*pools, (f"{cell}/sum_3/AvgPool2D_1", before)):
            self.assertEqual(inputs(pool), [read])

    def test_reduction_cell_is_the_one_of_the_paper(self):
        graph = self.model.graph
        cell = "reduction_1"

        def inputs(name: str) -> list[str]:
            return [value.op.name for value in graph.get_operation_by_name(name).inputs]

        sums = [f"{cell}/sum_{i}/add" for i in range(5)]
        self.assertEqual(inputs(f"{cell}/concat")[:4], sums[1:])
        before, now = f"{cell}/before/FusedBatchNormV3", f"{cell}/now/FusedBatchNormV3"
        self.assertEqual(inputs(f"{cell}/before/Relu"), ["row_0/cell_2/concat"])
        branches = {
            "0/left": (now, 5),
            "0/right": (before, 7),
            "1/right": (before, 7),
            "2/right": (before, 5),
            "4/left": (sums[0], 3),
        }
        variables = {v.op.name: v for v in graph.get_collection("variables")}
        for branch, (read, size) in branches.items():
            first = f"{cell}/sum_{branch}/separable_0"
            self.assertEqual(inputs(f"{first}/Relu"), [read])
            self.assertEqual(variables[f"{first}/depthwise"].shape, [size, size, 88, 1])
        self.assertEqual(inputs(f"{cell}/sum_3/AvgPool2D"), [sums[0]])
        self.assertEqual(inputs(sums[3])[1], sums[1])
        for pool in ("sum_1/MaxPool2d", "sum_2/AvgPool2D", "sum_4/MaxPool2d"):
            self.assertEqual(inputs(f"{cell}/{pool}"), [now])


class SmallSizeTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = nasnet.build(**SMALL)

    def test_loss_falls(self):
        model = self.model
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 10)
            ]
        # Before learning, all classes are about equally likely.
        self.assertNear(values[0], np.log(4), 0.3)
        self.assertLess(np.mean(values[-5:]), values[0] - 0.4, values)

    def test_second_path_sees_the_pixels_that_the_first_one_skips(self):
        graph = self.model.graph
        scope = "row_0/cell_0/before"
        names = [f"{scope}/Relu:0", f"{scope}/path_0/AvgPool2D:0", f"{scope}/path_1/AvgPool2D:0"]
        relu, first, second = (graph.get_tensor_by_name(name) for name in names)
        value = np.random.default_rng(0).random(relu.shape.as_list(), np.float32)
        with tf1.Session(graph=graph) as session:
            even, odd = session.run((first, second), {relu: value})
        self.assertAllEqual(even, value[:, ::2, ::2])
        self.assertAllEqual(odd[:, :-1, :-1] if value.shape[1] % 2 else odd, value[:, 1::2, 1::2])

    @parameterized.parameters(
        ("cells", 0),
        ("filters", 0),
        ("filters", 6),
        ("batch", 0),
        ("classes", 0),
        ("image_size", 31),
        ("optimizer", "adagrad"),
    )
    def test_bad_argument_is_named(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name} must be .*{value}"):
            nasnet.build(**SMALL | {name: value})


if __name__ == "__main__":
    tf.test.main()
