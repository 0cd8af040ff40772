"""Calls of PyTorch that do what operations of TensorFlow do, with the same libraries below.

Both hand matrix products to cuBLAS, and convolutions and batch normalization to cuDNN; for the rest
each has kernels of its own. Where PyTorch has no single call for an operation, the closest one that
moves about the same bytes stands in, and its name says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.image_kernels import IMAGE_MAKERS
from benchmarks.gpu_model.tensors import Maker, Run, make_inputs, make_values

__all__ = ["CONTRACTIONS", "MAKERS"]

#: Kinds of cases that TF32 makes faster.
CONTRACTIONS = frozenset(
    [
        *("matrix product", "convolution"),
        *("convolution, input gradient", "convolution, filter gradient"),
    ]
)
#: The end of the name of a call that moves about as many bytes as the operation.
_INSTEAD = ", instead: PyTorch has no such call"

_aten = torch.ops.aten


def _matmul(case: Case, device: torch.device) -> tuple[str, Run]:
    a, b = make_inputs(case, device, 0, 1)
    if case.attributes.get("transpose_a") or case.attributes.get("adj_x"):
        a = a.transpose(-1, -2)
    if case.attributes.get("transpose_b") or case.attributes.get("adj_y"):
        b = b.transpose(-1, -2)
    if a.dim() == 2:
        return "torch.mm", partial(torch.mm, a, b)
    if a.shape[:-2] == b.shape[:-2]:
        return "torch.bmm", partial(torch.bmm, a.flatten(0, -3), b.flatten(0, -3))
    return "torch.matmul", partial(torch.matmul, a, b)


def _function(name: str, inputs: int, *more: Any, note: str = "") -> Maker:
    """Calls a function of PyTorch with the first inputs and further arguments."""
    package, _, function = name.rpartition(".")
    call = getattr({"aten": _aten, "torch.linalg": torch.linalg}.get(package, torch), function)

    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        return f"{name}{note}", partial(call, *make_inputs(case, device, *range(inputs)), *more)

    return make


def _add_n(case: Case, device: torch.device) -> tuple[str, Run]:
    if len(case.inputs) == 2:
        return _function("torch.add", 2)(case, device)
    stacked = make_values((len(case.inputs), *case.inputs[0].shape), device)
    return "torch.sum of the first dimension of one tensor", partial(torch.sum, stacked, 0)


def _cross_entropy(case: Case, device: torch.device) -> tuple[str, Run]:
    logits, labels = make_inputs(case, device, 0, 1)
    if labels.dtype != torch.float32:
        labels = labels.long()
    run = partial(torch.nn.functional.cross_entropy, logits, labels, reduction="none")
    return "torch cross_entropy, without the gradient that TensorFlow's computes, too", run


def _reduction(name: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        (value,) = make_inputs(case, device, 0)
        axes, keep = _ravel(case.inputs[1].values), bool(case.attributes.get("keep_dims", False))
        return f"torch.{name}", partial(getattr(torch, name), value, axes, keepdim=keep)

    return make


def _ravel(values: Any) -> list[int]:
    if not isinstance(values, list):
        return [int(values)]
    return [each for value in values for each in _ravel(value)]


def _bias_gradient(case: Case, device: torch.device) -> tuple[str, Run]:
    (value,) = make_inputs(case, device, 0)
    return "torch.sum", partial(torch.sum, value.flatten(0, -2), 0)


def _concat(case: Case, device: torch.device) -> tuple[str, Run]:
    parts = make_inputs(case, device, *range(len(case.inputs) - 1))
    return "torch.cat", partial(torch.cat, parts, _ravel(case.inputs[-1].values)[0])


def _split(case: Case, device: torch.device) -> tuple[str, Run]:
    (value,) = make_inputs(case, device, 1 if case.op_type == "Split" else 0)
    shapes = [each.shape for each in case.outputs]
    pairs = zip(value.shape, shapes[0], strict=True)
    axis = next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)
    parts = [torch.empty(shape, device=device, dtype=value.dtype) for shape in shapes]
    sizes = [shape[axis] for shape in shapes]
    run = partial(torch.split_with_sizes_copy, value, sizes, axis, out=parts)
    return "torch.split_with_sizes_copy", run


def _pack(case: Case, device: torch.device) -> tuple[str, Run]:
    parts = make_inputs(case, device, *range(len(case.inputs)))
    return "torch.stack", partial(torch.stack, parts, int(case.attributes.get("axis", 0)))


def _slice(case: Case, device: torch.device) -> tuple[str, Run]:
    (value,) = make_inputs(case, device, 0)
    output = case.outputs[0].shape
    if len(output) == value.dim():
        part = value[tuple(slice(size) for size in output)]
    else:
        part = value.flatten()[: math.prod(output)]
    return "torch.clone of a slice", partial(part.clone, memory_format=torch.contiguous_format)


def _pad(case: Case, device: torch.device) -> tuple[str, Run]:
    given = case.inputs[4 if case.op_type == "StridedSliceGrad" else 0].shape
    made = case.outputs[0].shape
    if len(given) != len(made):
        given, made = (math.prod(given),), (math.prod(made),)
    value = make_values(given, device)
    sizes: list[int] = []
    for size, padded in zip(reversed(given), reversed(made), strict=True):
        sizes += [0, padded - size]
    return "torch pad, which fills first", partial(torch.nn.functional.pad, value, sizes)


def _transpose(case: Case, device: torch.device) -> tuple[str, Run]:
    (value,) = make_inputs(case, device, 0)
    known = case.inputs[1].values
    order = _order_of_axes(value.shape, case.outputs[0].shape) if known is None else _ravel(known)
    run = partial(value.permute(order).clone, memory_format=torch.contiguous_format)
    return "torch.clone of a permutation", run


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
    (value,) = make_inputs(case, device, 0)
    copies = [a // b for a, b in zip(case.outputs[0].shape, value.shape, strict=True)]
    return "torch.Tensor.repeat", partial(value.repeat, copies)


def _created(name: str, *more: float) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        shape = tuple(case.outputs[0].shape)
        return f"torch.{name}", partial(getattr(torch, name), shape, *more, device=device)

    return make


def _table(case: Case, number: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(tuple(case.inputs[number].shape), device=device)


def _indices(count: int, rows: int, device: torch.device) -> torch.Tensor:
    return torch.randint(0, max(rows, 1), (count,), device=device)


def _gather(case: Case, device: torch.device) -> tuple[str, Run]:
    table = _table(case, 0, device)
    rows = _indices(math.prod(case.inputs[1].shape), table.shape[0], device)
    return "torch.index_select", partial(torch.index_select, table, 0, rows)


def _segment_sum(case: Case, device: torch.device) -> tuple[str, Run]:
    data = make_inputs(case, device, 0)[0].flatten(1)
    shape = (case.outputs[0].shape[0], data.shape[1])
    rows = _indices(data.shape[0], shape[0], device)

    def run() -> object:
        return torch.zeros(shape, device=device).index_add_(0, rows, data)

    return "torch.zeros, index_add_", run


def _scatter_add(case: Case, device: torch.device) -> tuple[str, Run]:
    table = _table(case, 0, device)
    (updates,) = make_inputs(case, device, 2)
    rows = _indices(updates.shape[0], table.shape[0], device)
    return "torch.index_add_", partial(table.index_add_, 0, rows, updates)


def _sparse_adagrad(case: Case, device: torch.device) -> tuple[str, Run]:
    table, sums = _table(case, 0, device), _table(case, 1, device)
    (updates,) = make_inputs(case, device, 3)
    rows = _indices(updates.shape[0], table.shape[0], device)

    def run() -> None:
        sums.index_add_(0, rows, updates)
        table.index_add_(0, rows, updates)

    return "torch.index_add_ twice: PyTorch has no sparse Adagrad in one call", run


def _adam(note: str) -> Maker:
    settings = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}

    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        variable, first, second = make_inputs(case, device, 0, 1, 2)
        gradient = make_values(case.inputs[0].shape, device)
        step = torch.ones((), device=device)
        run = partial(
            torch._fused_adam_,
            *([variable], [gradient], [first], [second], [], [step]),
            **settings,
            amsgrad=False,
            maximize=False,
        )
        return f"torch._fused_adam_{note}", run

    return make


def _momentum(note: str) -> Maker:
    settings = {"weight_decay": 0.0, "momentum": 0.9, "lr": 1e-3, "dampening": 0.0}
    switches = {"nesterov": False, "maximize": False, "is_first_step": False}

    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        variable, velocity = make_inputs(case, device, 0, 1)
        gradient = make_values(case.inputs[0].shape, device)
        lists = ([variable], [gradient], [velocity])
        return f"torch._fused_sgd_{note}", partial(
            torch._fused_sgd_, *lists, **settings, **switches
        )

    return make


def _gradient_descent(case: Case, device: torch.device) -> tuple[str, Run]:
    (variable,) = make_inputs(case, device, 0)
    gradient = make_values(case.inputs[0].shape, device)
    return "torch.Tensor.add_", partial(variable.add_, gradient, alpha=-1e-9)


def _assign(name: str, note: str = "") -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        (value,) = make_inputs(case, device, 1)
        variable = make_values(case.inputs[1].shape, device)
        return f"torch.Tensor.{name}{note}", partial(getattr(variable, name), value)

    return make


def _of_variables(types: Mapping[str, Maker]) -> dict[str, Maker]:
    """Adds the makers of operations on resource variables."""
    kinds = {"Assign": "AssignVariableOp", "AssignAdd": "AssignAddVariableOp"}
    kinds["AssignSub"] = "AssignSubVariableOp"
    return {**types, **{kinds.get(name, f"Resource{name}"): each for name, each in types.items()}}


MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        **IMAGE_MAKERS,
        **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
        **dict.fromkeys(("Add", "AddV2", "BiasAdd"), _function("torch.add", 2)),
        "Mul": _function("torch.mul", 2),
        "Sub": _function("torch.sub", 2),
        "RealDiv": _function("torch.div", 2),
        "Maximum": _function("torch.maximum", 2),
        "Minimum": _function("torch.minimum", 2),
        "Pow": _function("torch.pow", 2),
        "Greater": _function("torch.gt", 2),
        "GreaterEqual": _function("torch.ge", 2),
        "SquaredDifference": _function("torch.sub", 2, note=_INSTEAD),
        **{
            name.capitalize(): _function(f"torch.{name}", 1)
            for name in (
                *("sigmoid", "tanh", "relu", "neg", "sqrt", "rsqrt"),
                *("square", "log", "exp", "floor"),
            )
        },
        "SigmoidGrad": _function("aten.sigmoid_backward", 2),
        "TanhGrad": _function("aten.tanh_backward", 2),
        "ReluGrad": _function("aten.threshold_backward", 2, 0.0),
        "RsqrtGrad": _function("aten.tanh_backward", 2, note=_INSTEAD),
        **dict.fromkeys(("Select", "SelectV2"), _function("torch.where", 3)),
        "Softmax": _function("torch.softmax", 1, -1),
        "LogSoftmax": _function("torch.log_softmax", 1, -1),
        "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
        "SoftmaxCrossEntropyWithLogits": _cross_entropy,
        "AddN": _add_n,
        "Sum": _reduction("sum"),
        "Mean": _reduction("mean"),
        "Max": _reduction("amax"),
        "Min": _reduction("amin"),
        "L2Loss": _function("torch.linalg.vector_norm", 1),
        "BiasAddGrad": _bias_gradient,
        "ConcatV2": _concat,
        **dict.fromkeys(("Split", "SplitV"), _split),
        "Pack": _pack,
        **dict.fromkeys(("Slice", "StridedSlice"), _slice),
        **dict.fromkeys(("Pad", "StridedSliceGrad"), _pad),
        "Transpose": _transpose,
        "Tile": _tile,
        "Fill": _created("full", 0.5),
        "RandomUniform": _created("rand"),
        **dict.fromkeys(("GatherV2", "ResourceGather"), _gather),
        "UnsortedSegmentSum": _segment_sum,
        "ResourceSparseApplyAdagrad": _sparse_adagrad,
        "ResourceApplyAdagradV2": _momentum(_INSTEAD),
        **_of_variables(
            {
                "ScatterAdd": _scatter_add,
                "ApplyAdam": _adam(""),
                "ApplyRMSProp": _adam(_INSTEAD),
                "ApplyMomentum": _momentum(""),
                "ApplyAdagrad": _momentum(_INSTEAD),
                "ApplyGradientDescent": _gradient_descent,
                "Assign": _assign("copy_", "; TensorFlow may hand the memory over instead"),
                "AssignAdd": _assign("add_"),
                "AssignSub": _assign("sub_"),
            }
        ),
    }
)
"""The makers of calls by the type of operation."""
