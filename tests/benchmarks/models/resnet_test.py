"""Residual networks have the published size and shapes, and train."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import resnet
from benchmarks.models.image_classifier import ImageClassifier
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"batch": 16, "image_size": 32, "classes": 4, "width": 0.125, "blocks": (1, 1, 1, 1)}


@functools.cache
def resnet_50() -> ImageClassifier:
    return resnet.build(50, optimizer="sgd")


def parameters(model: ImageClassifier) -> int:
    with model.graph.as_default():
        return sum(v.shape.num_elements() for v in tf1.trainable_variables())


def counted_by_hand(stages: tuple[int, ...], pre_activation: bool) -> int:
    """Parameters of a network of 1000 classes; two of each normalised channel."""
    total = 7 * 7 * 3 * 64 + 2 * 64 + 2048 * 1000 + 1000
    given = 64
    for stage, blocks in enumerate(stages):
        inner = 64 * 2**stage
        outer = 4 * inner
        # A projection at the start of each stage.
        total += given * outer
        if not pre_activation:
            total += 2 * outer
        for block in range(blocks):
            total += given * inner + 9 * inner * inner + inner * outer
            # After each convolution, or before each of them (the stem's serves the first one).
            normalised_before = 0 if stage == block == 0 else given
            total += 2 * 2 * inner + 2 * (normalised_before if pre_activation else outer)
            given = outer
    return total + (2 * given if pre_activation else 0)


class FullSizeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((50, (3, 4, 6, 3)), (101, (3, 4, 23, 3)), (200, (3, 24, 36, 3)))
    def test_blocks_are_as_many_as_published(self, depth, stages):
        self.assertEqual(resnet.BLOCKS[depth], stages)
        # The stem, three convolutions per block and the dense layer.
        self.assertEqual(1 + 3 * sum(stages) + 1, depth)

    # The deep ones with fewer blocks: a block more is one more of the same.
    @parameterized.parameters((50, None), (101, (1, 2, 1, 1)), (200, (1, 2, 2, 1)))
    def test_parameters_are_as_many_as_published(self, depth, blocks):
        # The counts of the models in Keras, less the biases of their convolutions, which the paper
        # does not have, and in torchvision: 25.56 and 44.55 million.
        for known_depth, known in {50: 25_557_032, 101: 44_549_160}.items():
            self.assertEqual(counted_by_hand(resnet.BLOCKS[known_depth], False), known)
        stages = blocks or resnet.BLOCKS[depth]
        model = resnet.build(depth, optimizer="sgd", blocks=blocks) if blocks else resnet_50()
        self.assertEqual(parameters(model), counted_by_hand(stages, depth == 200))
        types = collections.Counter(op.type for op in model.graph.get_operations())
        # All layers but the dense one, and a projection per stage.
        self.assertEqual(types["Conv2D"], 1 + 3 * sum(stages) + 4)

    def test_stages_have_the_shapes_of_the_paper(self):
        graph = resnet_50().graph
        for name, shape in {
            "stem/Conv2D": (112, 112, 64),
            "stem/pool": (56, 56, 64),
            "stage_0/block_2/add": (56, 56, 256),
            "stage_1/block_3/add": (28, 28, 512),
            "stage_2/block_5/add": (14, 14, 1024),
            "stage_3/block_2/add": (7, 7, 2048),
            "logits/Mean": (2048,),
        }.items():
            found = graph.get_tensor_by_name(f"{name}:0").shape
            self.assertEqual(tuple(found), (32, *shape), name)


class SmallSizeTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = resnet.build(50, **SMALL)

    @parameterized.parameters((50, True), (200, False))
    def test_loss_falls(self, depth, use_resource):
        model = self.model
        if (depth, use_resource) != (50, True):
            model = resnet.build(depth, **SMALL, use_resource=use_resource)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 30)
            ]
        # Before learning, all classes are about equally likely.
        self.assertNear(values[0], np.log(4), 0.3)
        self.assertLess(np.mean(values[-10:]), 0.5, values)

    @parameterized.parameters(50, 200)
    def test_first_activation_of_a_block_is_where_its_paper_has_it(self, depth):
        graph = resnet.build(depth, **SMALL | {"blocks": (2, 1, 1, 1)}, optimizer="sgd").graph

        def producer(name: str, index: int = 0) -> str:
            return graph.get_operation_by_name(name).inputs[index].op.name

        block = "stage_0/block_1"
        if depth == 50:
            self.assertEqual(producer(f"{block}/conv_0/Conv2D"), "stage_0/block_0/Relu")
            self.assertEqual(producer(f"{block}/Relu"), f"{block}/add")
            self.assertEqual(producer(f"{block}/add"), f"{block}/conv_2/FusedBatchNormV3")
            self.assertEqual(producer(f"{block}/add", 1), "stage_0/block_0/Relu")
            strided = "conv_0"
        else:
            self.assertEqual(producer(f"{block}/conv_0/Conv2D"), f"{block}/preactivation/Relu")
            self.assertEqual(producer(f"{block}/conv_2/add"), f"{block}/conv_2/Conv2D")
            # The sum goes on as it is.
            self.assertEqual(producer(f"{block}/conv_2/add", 1), "stage_0/block_0/conv_2/add")
            # A projection sees what is activated.
            projection = "stage_1/block_0/shortcut/Conv2D"
            self.assertEqual(producer(projection), "stage_1/block_0/preactivation/Relu")
            self.assertEqual(producer("stage_0/block_0/conv_0/Conv2D"), "stem/pool")
            strided = "conv_1"
        strides = {
            i: graph.get_operation_by_name(f"stage_1/block_0/conv_{i}/Conv2D").get_attr("strides")[
                1
            ]
            for i in range(3)
        }
        self.assertEqual(strides, {i: 2 if strided == f"conv_{i}" else 1 for i in range(3)})

    def test_step_moves_the_averages_towards_the_batch(self):
        model = self.model
        names = ["stem/FusedBatchNormV3:1", "stem/FusedBatchNormV3:2"]
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            feeds = next(model.feeds())
            (mean, variance), _ = session.run((names, model.train_op), feeds)
            with model.graph.as_default():
                variables = {v.op.name: v for v in tf1.global_variables()}
            moving = [variables[f"stem/moving_{name}"] for name in ("mean", "variance")]
            moving_mean, moving_variance = session.run(moving)
            self.assertEqual(session.run(variables["global_step"]), 1)
        self.assertAllClose(moving_mean, 0.0003 * mean)
        self.assertAllClose(moving_variance, 1 + 0.0003 * (variance - 1))

    def test_training_operation_is_in_its_collection(self):
        model = self.model
        trains = model.graph.get_collection("train_op")
        self.assertEqual(trains, [model.graph.get_operation_by_name(model.train_op)])

    @parameterized.parameters(
        ("depth", 34),
        ("batch", 0),
        ("classes", 0),
        ("width", 0.0),
        ("image_size", 31),
        ("blocks", (1, 1, 0, 1)),
        ("optimizer", "adagrad"),
    )
    def test_bad_argument_is_named(self, name, value):
        with self.assertRaises(ValueError) as raised:
            resnet.build(**SMALL | {name: value})
        self.assertRegex(str(raised.exception), f"^{name} must be .*")
        self.assertIn(str(value), str(raised.exception))


if __name__ == "__main__":
    tf.test.main()
