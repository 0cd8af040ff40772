"""Tests of kinds and directions of operations, found from their types and names."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest, parameterized

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.report.colors import KIND_COLORS
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds


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
        ("Mul", "other"),
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
        self.assertEqual(kinds.kinds, ("update", "other", "matrix product"))

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
    def test_no_two_kinds_look_the_same(self):
        self.assertLen(set(KIND_COLORS.values()), len(KIND_COLORS))


class NamesTest(absltest.TestCase):
    def test_kinds_follow_from_names_without_types(self):
        names = ["tower/conv_0/Conv2D", "dense/MatMul_1", "gradients/x_grad/Reshape", "train/mul"]
        kinds = operation_kinds(make_problem([[1.0]] * len(names), names=names))
        self.assertEqual(kinds.kinds, ("convolution", "matrix product", "other", "update"))
        self.assertEqual(kinds.backward.tolist(), [False, False, True, True])


if __name__ == "__main__":
    absltest.main()
