"""Tests of kinds and directions of operations, found from their types and names."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.report.colors import (
    DEVICE_COLORS,
    DIRECTION_COLORS,
    FAILURE_COLOR,
    GRAY,
    KIND_COLORS,
    layer_colors,
)
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds, strip_calls


def find_kinds(*operations: tuple[str, str]) -> OperationKinds:
    """Finds the kinds of operations with these names and types."""
    names, types = zip(*operations, strict=True)
    problem = make_problem([[1.0]] * len(names), names=list(names))
    return operation_kinds(dataclasses.replace(problem, operation_types=types))


class TypesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("Conv2D", "convolution"),
        ("Conv2DBackpropInput", "convolution"),
        ("Conv3DBackpropFilterV2", "convolution"),
        ("DepthwiseConv2dNative", "convolution"),
        ("_FusedConv2D", "convolution"),
        ("BatchMatMulV2", "matrix product"),
        ("Einsum", "matrix product"),
        ("MaxPoolGrad", "pooling"),
        ("SparseSoftmaxCrossEntropyWithLogits", "softmax"),
        ("ConcatV2", "concat and split"),
        ("SplitV", "concat and split"),
        ("StridedSliceGrad", "concat and split"),
        ("FusedBatchNormGradV3", "normalization"),
        ("RandomStandardNormal", "other"),
        ("ResourceGather", "lookup"),
        ("UnsortedSegmentSum", "lookup"),
        ("ResourceSparseApplyAdagrad", "update"),
        ("ApplyMomentum", "update"),
        ("AssignSubVariableOp", "update"),
        ("Mul", "arithmetic"),
        ("SigmoidGrad", "arithmetic"),
        ("StatelessWhile", "loop, branch or call"),
        ("StatefulPartitionedCall", "loop, branch or call"),
        ("Transpose", "other"),
    )
    def test_the_type_decides_the_kind_and_not_the_name(self, of_type, kind):
        self.assertEqual(find_kinds(("a/name/that/misleads/Conv2D", of_type)).kinds, (kind,))
        self.assertIn(kind, KIND_COLORS)

    def test_arithmetic_in_the_scope_of_an_update_is_of_the_update(self):
        kinds = find_kinds(
            ("train/update_w/mul", "Mul"),
            ("train/gradients/w_grad/mul", "Mul"),
            ("train/layer/dense", "MatMul"),
        )
        self.assertEqual(kinds.kinds, ("update", "arithmetic", "matrix product"))

    def test_types_of_gradients_are_backward_under_any_name(self):
        kinds = find_kinds(
            ("relu", "Relu"),
            ("a", "ReluGrad"),
            ("b", "FusedBatchNormGradV3"),
            ("c", "Conv2DBackpropFilter"),
            ("upsample", "Conv2DBackpropInput"),
            ("gradients/d", "Conv2DBackpropInput"),
            ("e", "ResourceApplyAdam"),
        )
        self.assertEqual(kinds.backward.tolist(), [False, True, True, True, False, True, True])


class ColorsTest(absltest.TestCase):
    def test_no_color_means_two_things(self):
        palettes = [
            KIND_COLORS.values(),
            DEVICE_COLORS,
            DIRECTION_COLORS,
            (GRAY,),
            (FAILURE_COLOR,),
            *(layer_colors(count) for count in (1, 2, 12, 40)),
        ]
        for one, other in itertools.combinations(palettes[:5], 2):
            self.assertNoCommonElements(one, other)
        for layers in palettes[5:]:
            for other in palettes[:5]:
                self.assertNoCommonElements(layers, other)
        for palette in palettes:
            self.assertLen(set(palette), len(palette))


class LayerNamesTest(absltest.TestCase):
    def find_layer_names(self, *layers: list[str]) -> tuple[str, ...]:
        names = [name for layer in layers for name in layer]
        numbers = [number for number, layer in enumerate(layers) for _ in layer]
        problem = make_problem([[1.0]] * len(names), names=names)
        problem = dataclasses.replace(problem, layers=np.array(numbers))
        return operation_kinds(problem).layer_names

    def test_layers_of_keras_3_have_their_names_in_keras(self):
        # Keras 3 numbers the scopes of all calls, and names updates after the optimizer.
        names = [
            "adam/learning_rate",
            "functional_1/user_0_1/MatMul/ReadVariableOp",
            "functional_1/user_0_1/MatMul",
            "functional_1/item_1/MatMul",
            "compile_loss/mse/sub",
            "gradient_tape/functional_1/item_1/MatMul/MatMul",
            "gradient_tape/functional_1/user_0_1/MatMul/MatMul",
            *("adam/mul", "adam/mul_1", "adam/sub", "adam/sub_1"),
        ]
        feeds = [(1, 2), (2, 4), (3, 4), (4, 5), (4, 6), (0, 8), (0, 7), (6, 7), (5, 8), (7, 9)]
        tensors = [(a, 1, [b]) for a, b in [*feeds, (8, 10)]]
        problem = make_problem([[1.0]] * len(names), names=names, tensors=tensors)
        kinds = operation_kinds(problem)
        found = [kinds.layer_names[layer] for layer in kinds.layers.tolist()]
        self.assertCountEqual(kinds.layer_names, ("user_0", "item", "compile_loss"))
        self.assertEqual(found[1:5], ["user_0", "user_0", "item", "compile_loss"])
        # Gradients and updates belong to the layer of the variable.
        self.assertEqual(found[5:], ["item", "user_0", "user_0", "item", "user_0", "item"])

    def test_layers_of_a_saved_model_have_their_names_in_keras(self):
        # Calls have scopes, and Keras 3 numbers those of the layers; variables have neither.
        call = "StatefulPartitionedCall_1/StatefulPartitionedCall"
        names = [
            "item_0/kernel",
            "item_1/kernel",
            f"{call}/model_1/item_0_1/Cast/ReadVariableOp",
            f"{call}/model_1/item_0_1/MatMul",
            f"{call}/model_1/item_1_1/MatMul",
            f"{call}/model_1/score_1/Relu",
            f"{call}/Identity",
        ]
        edges = [(0, 2), (2, 3), (1, 4), (3, 4), (4, 5), (5, 6)]
        tensors = [(a, 1, [b]) for a, b in edges]
        kinds = operation_kinds(make_problem([[1.0]] * len(names), names=names, tensors=tensors))
        found = [kinds.layer_names[layer] for layer in kinds.layers.tolist()]
        self.assertEqual(
            found, ["item_0", "item_1", "item_0", "item_0", "item_1", "score", "score"]
        )

    def test_a_layer_without_scopes_has_the_names_of_its_variables(self):
        names = ["a0", "Call/MatMul", "b0", "b1", "Call/MatMul_1"]
        names = [name.replace("Call", "StatefulPartitionedCall") for name in names]
        problem = dataclasses.replace(
            make_problem([[1.0]] * len(names), names=names),
            operation_types=("VarHandleOp", "MatMul", "VarHandleOp", "VarHandleOp", "MatMul"),
            layers=np.array([0, 0, 1, 1, 1]),
        )
        self.assertEqual(operation_kinds(problem).layer_names, ("a0", "b0, b1"))

    def test_strips_the_scopes_of_calls_alone(self):
        for name, stripped in (
            ("StatefulPartitionedCall/dense/MatMul", "dense/MatMul"),
            ("lstm_1/PartitionedCall_3/PartitionedCall_call/mul", "lstm_1/mul"),
            ("StatefulPartitionedCall_1/StatefulPartitionedCall", "StatefulPartitionedCall"),
            ("MyPartitionedCall/mul", "MyPartitionedCall/mul"),
        ):
            self.assertEqual(strip_calls(name), stripped)

    def test_a_layer_of_many_scopes_is_named_after_the_first_and_the_last(self):
        layers = [
            [f"{tower}_{layer}/{op}" for layer in range(3) for op in ("MatMul", "Relu")]
            for tower in ("user", "item")
        ]
        self.assertEqual(self.find_layer_names(*layers), ("user_0 … user_2", "item_0 … item_2"))

    def test_a_layer_is_named_after_what_takes_most_of_its_time(self):
        # Tied logits are in the layer of the embedding, with a normalization of many operations.
        small = ["wte/Gather", *(f"h0/ln1/{each}" for each in ("mean", "sub", "mul", "add"))]
        for logits, expected in (("logits/MatMul", "logits"), ("logits", "logits")):
            names = [*small, logits, "h1/mlp/MatMul"]
            problem = make_problem([[0.1]] * len(small) + [[9.0], [1.0]], names=names)
            problem = dataclasses.replace(problem, layers=np.array([0] * len(small) + [0, 1]))
            self.assertEqual(operation_kinds(problem).layer_names, (expected, "h1/mlp"))

    def test_the_metrics_and_the_loss_of_keras_3_hide_no_layers(self):
        # Keras 3 has metrics outside of the model, which may be more than the model.
        names = [f"functional_1/{layer}_1/MatMul" for layer in ("left", "right", "head")]
        names += [f"compile_loss/mse/op_{i}" for i in range(5)]
        names += [f"metric_{i}/Sum" for i in range(5)]
        tensors = [(0, 1, [2]), (1, 1, [2]), (2, 1, [3])]
        tensors += [(i, 1, [i + 1]) for i in range(3, len(names) - 1)]
        kinds = operation_kinds(make_problem([[1.0]] * len(names), names=names, tensors=tensors))
        self.assertEqual(set(kinds.layer_names), {"left", "right", "head", "compile_loss"})
        self.assertTrue(kinds.is_keras)

    def test_the_loop_of_a_forward_pass_is_forward_with_what_reads_it(self):
        # A loop fills lists for its gradient, which TensorFlow names after the gradient.
        names = [
            "gradient_tape/lstm/while_grad/Length",
            "gradient_tape/lstm/while/Tanh_0/accumulator",
            *("lstm/while", "head/MatMul", "gradient_tape/lstm/while_grad"),
        ]
        tensors = [(0, 1, [1]), (1, 1, [2]), (2, 1, [3]), (3, 1, [4])]
        kinds = operation_kinds(make_problem([[1.0]] * 5, names=names, tensors=tensors))
        self.assertEqual(kinds.backward.tolist()[2:], [False, False, True])

    def test_layers_of_keras_2_have_their_names_in_keras(self):
        layers = [
            [f"model/{name}/MatMul", "Adam/Adam/update/mul", "Adam/Adam/update/Sub"]
            for name in ("user", "item")
        ]
        self.assertEqual(self.find_layer_names(*layers), ("user", "item"))

    def test_numbers_that_tell_layers_apart_stay(self):
        layers = (["net_1/layer_0/MatMul"], ["net_1/layer_1/MatMul"])
        self.assertEqual(self.find_layer_names(*layers), ("layer_0", "layer_1"))

    def test_scopes_that_layers_do_not_share_stay(self):
        layers = (["encoder/dense/MatMul"], ["decoder/dense/MatMul"])
        self.assertEqual(self.find_layer_names(*layers), ("encoder/dense", "decoder/dense"))


class NamesTest(absltest.TestCase):
    def test_kinds_follow_from_names_without_types(self):
        names = ["tower/conv_0/Conv2D", "dense/MatMul_1", "gradients/x_grad/Reshape", "train/mul"]
        kinds = operation_kinds(make_problem([[1.0]] * len(names), names=names))
        self.assertEqual(kinds.kinds, ("convolution", "matrix product", "other", "update"))
        self.assertEqual(kinds.backward.tolist(), [False, False, True, True])


if __name__ == "__main__":
    absltest.main()
