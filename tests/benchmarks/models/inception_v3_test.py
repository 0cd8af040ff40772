"""Inception-V3 has the published size and blocks."""

from __future__ import annotations

import collections

import tensorflow as tf

from benchmarks.models import inception_v3
from tests.benchmarks.models.sessions import build_forward, small_model, variable_sizes

tf1 = tf.compat.v1


class InceptionTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = build_forward(inception_v3)

    def test_parameters_are_as_many_as_published(self):
        sizes = variable_sizes(self.model)
        auxiliary = sum(n for name, n in sizes.items() if name.startswith("auxiliary/"))
        # The count of the model in Keras, which like this one has offsets but no scales: 23,851,784
        # with 34,432 moving averages.
        self.assertEqual(sum(sizes.values()) - auxiliary, 23_817_352)
        # Two convolutions with offsets, 1 x 1 and 5 x 5, and a dense layer of 1000 classes.
        expected = 768 * 128 + 128 + 25 * 128 * 768 + 768 + 768 * 1000 + 1000
        self.assertEqual(auxiliary, expected)
        averages = self.model.graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
        averages = [v for v in averages if "/moving_" in v.name and "auxiliary" not in v.name]
        self.assertEqual(sum(v.shape.num_elements() for v in averages), 34_432)

    def test_blocks_have_the_shapes_of_the_paper(self):
        for name, shape in {
            "stem/pool_1": (35, 35, 192),
            "mixed_5b/concat": (35, 35, 256),
            "mixed_5d/concat": (35, 35, 288),
            "mixed_6a/concat": (17, 17, 768),
            "mixed_6e/concat": (17, 17, 768),
            "auxiliary/AvgPool2D": (5, 5, 768),
            "mixed_7a/concat": (8, 8, 1280),
            "mixed_7c/concat": (8, 8, 2048),
            "logits/Mean": (2048,),
        }.items():
            found = self.model.graph.get_tensor_by_name(f"{name}:0").shape
            self.assertEqual(tuple(found), (32, *shape), name)

    def test_operations_are_those_of_94_convolutions_and_two_auxiliary_ones(self):
        operations = small_model("inception_v3").graph.get_operations()
        types = collections.Counter(op.type for op in operations)
        for op_type in ("Conv2D", "FusedBatchNormV3", "FusedBatchNormGradV3"):
            self.assertEqual(types[op_type], 96)
        self.assertEqual(types["Conv2DBackpropFilter"], 96)
        # The gradient of the images is there too, although nothing needs it.
        self.assertEqual(types["Conv2DBackpropInput"], 96)
        self.assertEqual(types["AssignSub"], 2 * 96)
        self.assertEqual(types["ApplyRMSProp"], 2 * 96 + 2 * 2)


if __name__ == "__main__":
    tf.test.main()
