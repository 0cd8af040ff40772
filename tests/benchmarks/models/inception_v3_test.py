"""Inception-V3 has the published size, trains, and is made of the branches it should be."""

from __future__ import annotations

import collections
import functools
import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import inception_v3
from benchmarks.models.image_classifier import ImageClassifier
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"batch": 16, "image_size": 75, "classes": 4, "width": 0.125, "learning_rate": 0.01}


@functools.cache
def small_model() -> ImageClassifier:
    return inception_v3.build(**SMALL)


@functools.cache
def two_towers() -> ImageClassifier:
    return inception_v3.build(**SMALL, optimizer="sgd", aux=False, towers=2)


def parameters(model: ImageClassifier, auxiliary: bool) -> tuple[int, int]:
    """How many are trained, and how many are moving averages, of either classifier."""
    with model.graph.as_default():
        variables = [
            v for v in tf1.global_variables() if v.name.startswith("auxiliary/") == auxiliary
        ]
        trained = {v.ref() for v in tf1.trainable_variables()}
    averages = [v for v in variables if "moving_" in v.name and "RMS" not in v.name]
    return (
        sum(v.shape.num_elements() for v in variables if v.ref() in trained),
        sum(v.shape.num_elements() for v in averages),
    )


class FullSizeTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = inception_v3.build()
        cls.operations = cls.model.graph.get_operations()

    def test_parameters_are_as_many_as_published(self):
        # The count of the model in Keras, which like this one has offsets but no scales: 23,851,784
        # with 34,432 moving averages.
        self.assertEqual(parameters(self.model, auxiliary=False), (23_817_352, 34_432))
        # Two convolutions with offsets, 1 x 1 and 5 x 5, and a dense layer of 1000 classes.
        auxiliary = 768 * 128 + 128 + 25 * 128 * 768 + 768 + 768 * 1000 + 1000
        self.assertEqual(parameters(self.model, auxiliary=True), (auxiliary, 2 * 896))

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
        types = collections.Counter(op.type for op in self.operations)
        self.assertEqual(types["Conv2D"], 96)
        self.assertEqual(types["FusedBatchNormV3"], 96)
        self.assertEqual(types["FusedBatchNormGradV3"], 96)
        self.assertEqual(types["Conv2DBackpropFilter"], 96)
        # The gradient of the images is there too, although nothing needs it.
        self.assertEqual(types["Conv2DBackpropInput"], 96)
        self.assertEqual(types["AssignSubVariableOp"], 2 * 96)
        self.assertEqual(types["ResourceApplyRMSProp"], 2 * 96 + 2 * 2)
        self.assertBetween(len(self.operations), 5_000, 20_000)

    def test_each_branch_is_a_group(self):
        graph_def = self.model.graph.as_graph_def()
        placeholders = (self.model.images, self.model.labels)
        graph = OpGraph.from_graph_def(graph_def, (self.model.train_op,), placeholders)
        grouped = group_operations(graph)
        kinds = collections.Counter(grouped.grouping.kinds)
        # Four of each block of 35 x 35 and of 17 x 17 pixels; the two convolutional ones of the two
        # halving blocks; six ends of those of 8 x 8, whose forks are layers.
        self.assertEqual(kinds["branch"], 7 * 4 + 2 * 2 + 2 * 6)
        self.assertEqual(kinds["softmax_step"], 2)
        self.assertBetween(grouped.grouping.num_groups, 60, 100)
        of_operation = grouped.grouping.of_operations(grouped.colocation)
        group = dict(zip(graph.names, of_operation.tolist(), strict=True))
        inner = [f"mixed_6b/branch_2/conv_{i}/Conv2D" for i in range(5)]
        backward = [f"gradients/{name}_grad/Conv2DBackpropFilter" for name in inner]
        self.assertLen({group[name] for name in (*inner, *backward)}, 1)
        self.assertNotEqual(group[inner[0]], group["mixed_6b/branch_1/conv_0/Conv2D"])


class SmallSizeTest(tf.test.TestCase, parameterized.TestCase):
    def test_loss_falls(self):
        model = small_model()
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 35)
            ]
        # Before learning, all classes are about equally likely to both classifiers.
        self.assertNear(values[0], 1.4 * np.log(4), 0.3)
        self.assertLess(np.mean(values[-10:]), values[0] - 0.3, values)

    @parameterized.parameters(True, False)
    def test_step_moves_the_averages_towards_the_batch(self, use_resource):
        model = small_model()
        if not use_resource:
            model = inception_v3.build(**SMALL, use_resource=False)
        types = collections.Counter(op.type for op in model.graph.get_operations())
        wanted, unwanted = "VarHandleOp", "VariableV2"
        if not use_resource:
            wanted, unwanted = unwanted, wanted
        # Kernel and offset of 96 convolutions, weights and bias of two classifiers, all with two
        # slots; two averages of each convolution; the global step.
        self.assertEqual(types[wanted], 3 * (2 * 96 + 2 * 2) + 2 * 96 + 1)
        self.assertEqual(types[unwanted], 0)
        layer = "auxiliary/conv_1"
        names = [f"{layer}/FusedBatchNormV3:1", f"{layer}/FusedBatchNormV3:2"]
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            feeds = next(model.feeds())
            (mean, variance), _ = session.run((names, model.train_op), feeds)
            with model.graph.as_default():
                variables = {v.op.name: v for v in tf1.global_variables()}
            moving = [variables[f"{layer}/moving_{name}"] for name in ("mean", "variance")]
            moving_mean, moving_variance = session.run(moving)
        self.assertNotAllClose(mean, np.zeros_like(mean))
        self.assertAllClose(moving_mean, 0.0003 * mean)
        self.assertAllClose(moving_variance, 1 + 0.0003 * (variance - 1))

    def test_small_images_and_narrow_layers_keep_all_blocks(self):
        # `small_test` has other sizes.
        model = small_model()
        last = model.graph.get_tensor_by_name("mixed_7c/concat:0").shape
        self.assertEqual(last[3], 2048 * SMALL["width"])
        self.assertGreaterEqual(last[1], 1)
        squeezed = model.graph.get_tensor_by_name("auxiliary/Squeeze:0").shape
        self.assertEqual(squeezed, [16, round(768 * SMALL["width"])])

    def test_towers_are_replicas_that_share_the_variables(self):
        model = two_towers()
        types = collections.Counter(op.type for op in model.graph.get_operations())
        self.assertEqual(types["Conv2D"], 2 * 94)
        # Kernel and offset of each convolution, weights and bias of a classifier.
        self.assertEqual(types["ResourceApplyGradientDescent"], 2 * 94 + 2)
        self.assertEqual(types["VarHandleOp"], 2 * 94 + 2 + 2 * 94 + 1)
        for tower in range(2):
            branch = model.graph.get_tensor_by_name(f"tower_{tower}/mixed_5b/concat:0")
            self.assertEqual(branch.shape[0], 8)

    def test_asynchronous_towers_are_asked_for(self):
        # What they are then is tested with `train_towers`.
        with (
            mock.patch.object(inception_v3, "train_towers", side_effect=ArithmeticError) as train,
            self.assertRaises(ArithmeticError),
        ):
            inception_v3.build(**SMALL, towers=2, asynchronous=True)
        self.assertEqual(train.call_args.args[3], 2)
        self.assertTrue(train.call_args.kwargs["asynchronous"])

    def test_towers_train(self):
        model = two_towers()
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 3)
            ]
        self.assertNear(values[0], np.log(4), 0.3)
        self.assertAllInRange(values, 0, 2 * np.log(4))

    def test_names_are_in_the_graph_and_the_training_operation_is_in_its_collection(self):
        model = small_model()
        graph = model.graph
        self.assertEqual(
            graph.get_collection("train_op"), [graph.get_operation_by_name(model.train_op)]
        )
        self.assertEqual(graph.get_tensor_by_name(model.loss).shape, [])
        self.assertEqual(graph.get_tensor_by_name(model.images).shape, [16, 75, 75, 3])
        self.assertEqual(graph.get_tensor_by_name(model.labels).shape, [16])
        self.assertEqual(graph.get_operation_by_name(model.initializer).type, "NoOp")

    @parameterized.parameters(
        ("batch", 0),
        ("classes", 0),
        ("width", 0.0),
        ("image_size", 74),
        ("optimizer", "adagrad"),
        ("towers", 0),
        ("towers", 3),
        ("asynchronous", True),
    )
    def test_bad_argument_is_named(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name} must be .*{value}"):
            inception_v3.build(**SMALL | {name: value})


if __name__ == "__main__":
    tf.test.main()
