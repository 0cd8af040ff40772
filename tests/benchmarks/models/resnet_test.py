"""Residual networks have the published size and shapes."""

from __future__ import annotations

import collections

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import resnet
from tests.benchmarks.models.sessions import build_forward, small_model, variable_sizes


def count_by_hand(stages: tuple[int, ...], pre_activation: bool) -> int:
    """Parameters of a network of 1000 classes; two of each normalized channel."""
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
            normalized_before = 0 if stage == block == 0 else given
            total += 2 * 2 * inner + 2 * (normalized_before if pre_activation else outer)
            given = outer
    return total + (2 * given if pre_activation else 0)


class ResnetTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((50, (3, 4, 6, 3)), (101, (3, 4, 23, 3)), (200, (3, 24, 36, 3)))
    def test_parameters_are_as_many_as_published(self, depth, stages):
        # The stem, three convolutions per block and the dense layer.
        self.assertEqual(1 + 3 * sum(stages) + 1, depth)
        # The counts of the models in Keras, less the biases of their convolutions, which the paper
        # does not have, and in torchvision: 25.56 and 44.55 million.
        published = {50: 25_557_032, 101: 44_549_160}
        counted = count_by_hand(stages, depth == 200)
        self.assertEqual(counted, published.get(depth, counted))
        model = build_forward(resnet, depth=depth)
        self.assertEqual(sum(variable_sizes(model).values()), counted)
        types = collections.Counter(op.type for op in model.graph.get_operations())
        # All layers but the dense one, and a projection per stage.
        self.assertEqual(types["Conv2D"], 1 + 3 * sum(stages) + 4)
        if depth == 50:
            for name, shape in {
                "stem/Conv2D": (112, 112, 64),
                "stem/pool": (56, 56, 64),
                "stage_0/block_2/add": (56, 56, 256),
                "stage_1/block_3/add": (28, 28, 512),
                "stage_2/block_5/add": (14, 14, 1024),
                "stage_3/block_2/add": (7, 7, 2048),
            }.items():
                found = model.graph.get_tensor_by_name(f"{name}:0").shape
                self.assertEqual(tuple(found), (32, *shape), name)

    @parameterized.parameters("resnet_101", "resnet_200")
    def test_first_activation_of_a_block_is_where_its_paper_has_it(self, name):
        graph = small_model(name).graph

        def producer(name: str, index: int = 0) -> str:
            return graph.get_operation_by_name(name).inputs[index].op.name

        block, before = "stage_2/block_1", "stage_2/block_0"
        if name == "resnet_101":
            self.assertEqual(producer(f"{block}/conv_0/Conv2D"), f"{before}/Relu")
            self.assertEqual(producer(f"{block}/Relu"), f"{block}/add")
            self.assertEqual(producer(f"{block}/add"), f"{block}/conv_2/FusedBatchNormV3")
            self.assertEqual(producer(f"{block}/add", 1), f"{before}/Relu")
            strided = 0
        else:
            self.assertEqual(producer(f"{block}/conv_0/Conv2D"), f"{block}/preactivation/Relu")
            self.assertEqual(producer(f"{block}/conv_2/add"), f"{block}/conv_2/Conv2D")
            # The sum goes on as it is.
            self.assertEqual(producer(f"{block}/conv_2/add", 1), f"{before}/conv_2/add")
            # A projection sees what is activated.
            self.assertEqual(producer(f"{before}/shortcut/Conv2D"), f"{before}/preactivation/Relu")
            self.assertEqual(producer("stage_0/block_0/conv_0/Conv2D"), "stem/pool")
            strided = 1
        convolutions = [graph.get_operation_by_name(f"{before}/conv_{i}/Conv2D") for i in range(3)]
        strides = [each.get_attr("strides")[1] for each in convolutions]
        self.assertEqual(strides, [2 if i == strided else 1 for i in range(3)])


if __name__ == "__main__":
    tf.test.main()
