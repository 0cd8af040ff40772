"""Calls of PyTorch that do what operations of TensorFlow do, with the same libraries below.

Both hand matrix products to cuBLAS, and convolutions and batch normalization to cuDNN; for the rest
each has kernels of its own. Where PyTorch has no single call for an operation, the closest one that
moves about the same bytes stands in, and its name says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.image_kernels import IMAGE_MAKERS
from benchmarks.gpu_model.kernel_tensors import INSTEAD, Maker, Run, make_input, make_values
from benchmarks.gpu_model.variable_kernels import VARIABLE_MAKERS

__all__ = ["CONTRACTIONS", "Kernel", "has_kernel", "make_kernel"]

#: Kinds of cases that TF32 makes faster.
CONTRACTIONS = frozenset(
    [
        *("matrix product", "convolution"),
        *("convolution, input gradient", "convolution, filter gradient"),
    ]
)

_aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A call that does what an operation does, with tensors of its own.

    Attributes:
        call: the name of the call, and what differs from the operation.
        run: starts it.
    """

    call: str
    run: Run


def has_kernel(op_type: str) -> bool:
    """Tells if there is a call for a type of operation."""
    return op_type in _MAKERS


def make_kernel(case: Case, device: torch.device) -> Kernel:
    """Makes the tensors of an operation and the call.

    Args:
        case: the operation.
        device: the device to run on.

    Raises:
        KeyError: there is no call for its type.
        RuntimeError: PyTorch refuses it, or memory is short.
    """
    return Kernel(*_MAKERS[case.op_type](case, device))


def _matmul(case: Case, device: torch.device) -> tuple[str, Run]:
    a, b = make_input(case, 0, device), make_input(case, 1, device)
    if case.attributes.get("transpose_a") or case.attributes.get("adj_x"):
        a = a.transpose(-1, -2)
    if case.attributes.get("transpose_b") or case.attributes.get("adj_y"):
        b = b.transpose(-1, -2)
    if a.dim() == 2:
        return "torch.mm", lambda: torch.mm(a, b)
    if a.shape[:-2] == b.shape[:-2]:
        a, b = a.flatten(0, -3), b.flatten(0, -3)
        return "torch.bmm", lambda: torch.bmm(a, b)
    return "torch.matmul", lambda: torch.matmul(a, b)


def _unary(name: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        value, function = make_input(case, 0, device), getattr(torch, name)
        return f"torch.{name}", lambda: function(value)

    return make


def _binary(name: str, note: str = "") -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        a, b = make_input(case, 0, device), make_input(case, 1, device)
        function = getattr(torch, name)
        return f"torch.{name}{note}", lambda: function(a, b)

    return make


def _gradient(name: str, *numbers: float, note: str = "") -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        a, b = make_input(case, 0, device), make_input(case, 1, device)
        function = getattr(_aten, name)
        return f"aten.{name}{note}", lambda: function(a, b, *numbers)

    return make


def _add_n(case: Case, device: torch.device) -> tuple[str, Run]:
    if len(case.inputs) == 2:
        return _binary("add")(case, device)
    stacked = make_values((len(case.inputs), *case.inputs[0].shape), device)
    return "torch.sum of the first dimension of one tensor", lambda: torch.sum(stacked, 0)


def _select(case: Case, device: torch.device) -> tuple[str, Run]:
    condition, a, b = (make_input(case, number, device) for number in range(3))
    return "torch.where", lambda: torch.where(condition, a, b)


def _softmax(name: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        value, function = make_input(case, 0, device), getattr(torch, name)
        return f"torch.{name}", lambda: function(value, -1)

    return make


def _cross_entropy(case: Case, device: torch.device) -> tuple[str, Run]:
    logits, labels = make_input(case, 0, device), make_input(case, 1, device)
    if labels.dtype != torch.float32:
        labels = labels.long()

    def run() -> object:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")

    return "torch cross_entropy, without the gradient that TensorFlow's computes, too", run


def _reduction(name: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        value, function = make_input(case, 0, device), getattr(torch, name)
        axes = _ravel(case.inputs[1].values) or _reduced_axes(case)
        keep = bool(case.attributes.get("keep_dims", False))
        return f"torch.{name}", lambda: function(value, axes, keepdim=keep)

    return make


def _reduced_axes(case: Case) -> list[int]:
    """Guesses the axes from the sizes that are gone."""
    left = list(case.outputs[0].shape)
    gone = []
    for axis, size in enumerate(case.inputs[0].shape):
        if left and left[0] == size:
            left.pop(0)
        else:
            gone.append(axis)
    return gone


def _ravel(values: Any) -> list[int]:
    if values is None:
        return []
    if not isinstance(values, list):
        return [int(values)]
    return [each for value in values for each in _ravel(value)]


def _bias_gradient(case: Case, device: torch.device) -> tuple[str, Run]:
    value = make_input(case, 0, device).flatten(0, -2)
    return "torch.sum", lambda: torch.sum(value, 0)


def _l2_loss(case: Case, device: torch.device) -> tuple[str, Run]:
    value = make_input(case, 0, device)
    return "torch.linalg.vector_norm", lambda: torch.linalg.vector_norm(value)


def _concat(case: Case, device: torch.device) -> tuple[str, Run]:
    parts = [make_input(case, number, device) for number in range(len(case.inputs) - 1)]
    axis = _ravel(case.inputs[-1].values) or [_differing_axis(case)]
    return "torch.cat", lambda: torch.cat(parts, axis[0])


def _differing_axis(case: Case) -> int:
    pairs = zip(case.inputs[0].shape, case.outputs[0].shape, strict=True)
    return next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)


def _split(case: Case, device: torch.device) -> tuple[str, Run]:
    number = 1 if case.op_type == "Split" else 0
    value = make_input(case, number, device)
    shapes = [each.shape for each in case.outputs]
    pairs = zip(value.shape, shapes[0], strict=True)
    axis = next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)
    parts = [torch.empty(shape, device=device, dtype=value.dtype) for shape in shapes]
    sizes = [shape[axis] for shape in shapes]
    return "torch.split_with_sizes_copy", lambda: torch.split_with_sizes_copy(
        value, sizes, axis, out=parts
    )


def _pack(case: Case, device: torch.device) -> tuple[str, Run]:
    parts = [make_input(case, number, device) for number in range(len(case.inputs))]
    axis = int(case.attributes.get("axis", 0))
    return "torch.stack", lambda: torch.stack(parts, axis)


def _slice(case: Case, device: torch.device) -> tuple[str, Run]:
    value = make_input(case, 0, device)
    output = case.outputs[0].shape
    if len(output) == value.dim():
        part = value[tuple(slice(size) for size in output)]
    else:
        part = value.flatten()[: math.prod(output)]
    return "torch.clone of a slice", lambda: part.clone(memory_format=torch.contiguous_format)


def _pad(case: Case, device: torch.device) -> tuple[str, Run]:
    given = case.inputs[4 if case.op_type == "StridedSliceGrad" else 0].shape
    made = case.outputs[0].shape
    if len(given) != len(made):
        given, made = (math.prod(given),), (math.prod(made),)
    value = make_values(given, device)
    sizes: list[int] = []
    for size, padded in zip(reversed(given), reversed(made), strict=True):
        sizes += [0, padded - size]
    return "torch pad, which fills first", lambda: torch.nn.functional.pad(value, sizes)


def _transpose(case: Case, device: torch.device) -> tuple[str, Run]:
    value = make_input(case, 0, device)
    order = _ravel(case.inputs[1].values) or _order_of_axes(value.shape, case.outputs[0].shape)
    moved = value.permute(order)
    return "torch.clone of a permutation", lambda: moved.clone(
        memory_format=torch.contiguous_format
    )


def _order_of_axes(given: Sequence[int], made: Sequence[int]) -> list[int]:
    """Guesses the permutation from sizes; of equal ones, the first comes first."""
    free = list(range(len(given)))
    order = []
    for size in made:
        axis = next(axis for axis in free if given[axis] == size)
        free.remove(axis)
        order.append(axis)
    return order


def _tile(case: Case, device: torch.device) -> tuple[str, Run]:
    value = make_input(case, 0, device)
    copies = [a // b for a, b in zip(case.outputs[0].shape, value.shape, strict=True)]
    return "torch.Tensor.repeat", lambda: value.repeat(copies)


def _fill(case: Case, device: torch.device) -> tuple[str, Run]:
    shape = tuple(case.outputs[0].shape)
    return "torch.full", lambda: torch.full(shape, 0.5, device=device)


def _random(case: Case, device: torch.device) -> tuple[str, Run]:
    shape = tuple(case.outputs[0].shape)
    return "torch.rand", lambda: torch.rand(shape, device=device)


_MAKERS: dict[str, Maker] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    **IMAGE_MAKERS,
    **VARIABLE_MAKERS,
    "Mul": _binary("mul"),
    "Add": _binary("add"),
    "AddV2": _binary("add"),
    "Sub": _binary("sub"),
    "RealDiv": _binary("div"),
    "BiasAdd": _binary("add"),
    "Maximum": _binary("maximum"),
    "Minimum": _binary("minimum"),
    "Pow": _binary("pow"),
    "Greater": _binary("gt"),
    "GreaterEqual": _binary("ge"),
    "SquaredDifference": _binary("sub", INSTEAD),
    "AddN": _add_n,
    "Sigmoid": _unary("sigmoid"),
    "Tanh": _unary("tanh"),
    "Relu": _unary("relu"),
    "Neg": _unary("neg"),
    "Sqrt": _unary("sqrt"),
    "Rsqrt": _unary("rsqrt"),
    "Square": _unary("square"),
    "Log": _unary("log"),
    "Exp": _unary("exp"),
    "Floor": _unary("floor"),
    "SigmoidGrad": _gradient("sigmoid_backward"),
    "TanhGrad": _gradient("tanh_backward"),
    "ReluGrad": _gradient("threshold_backward", 0.0),
    "RsqrtGrad": _gradient("tanh_backward", note=INSTEAD),
    "Select": _select,
    "SelectV2": _select,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "Sum": _reduction("sum"),
    "Mean": _reduction("mean"),
    "Max": _reduction("amax"),
    "Min": _reduction("amin"),
    "L2Loss": _l2_loss,
    "BiasAddGrad": _bias_gradient,
    "ConcatV2": _concat,
    "Split": _split,
    "SplitV": _split,
    "Pack": _pack,
    "Slice": _slice,
    "StridedSlice": _slice,
    "StridedSliceGrad": _pad,
    "Pad": _pad,
    "Transpose": _transpose,
    "Tile": _tile,
    "Fill": _fill,
    "RandomUniform": _random,
}
