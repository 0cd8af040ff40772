"""Calls of PyTorch that do what operations of TensorFlow do, with the same libraries below.

Both hand matrix products to cuBLAS, and convolutions and batch normalization to cuDNN; for the rest
each has kernels of its own. Where PyTorch has no single call for an operation, the closest one that
moves about the same bytes stands in, and its name says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.windows import Window, data_sizes

__all__ = ["CONTRACTIONS", "Kernel", "has_kernel", "make_kernel"]

#: Kinds of cases that TF32 makes faster.
CONTRACTIONS = frozenset(
    [
        *("matrix product", "convolution"),
        *("convolution, input gradient", "convolution, filter gradient"),
    ]
)

_aten = torch.ops.aten
_Run = Callable[[], object]
_Maker = Callable[[Case, torch.device], tuple[str, _Run]]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A call that does what an operation does, with tensors of its own.

    Attributes:
        call: the name of the call, and what differs from the operation.
        run: starts it.
    """

    call: str
    run: _Run


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


def _values(shape: Sequence[int], device: torch.device, dtype: str = "float32") -> torch.Tensor:
    """Makes a tensor of values from 0.1 to 1, which all functions here take."""
    if dtype == "bool":
        return torch.rand(tuple(shape), device=device) > 0.5
    if dtype in ("int32", "int64"):
        return torch.zeros(tuple(shape), device=device, dtype=getattr(torch, dtype))
    return torch.rand(tuple(shape), device=device, dtype=getattr(torch, dtype)).mul_(0.9).add_(0.1)


def _input(case: Case, number: int, device: torch.device) -> torch.Tensor:
    return _values(case.inputs[number].shape, device, case.inputs[number].dtype)


def _matmul(case: Case, device: torch.device) -> tuple[str, _Run]:
    a, b = _input(case, 0, device), _input(case, 1, device)
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


def _convolution(case: Case, device: torch.device) -> tuple[str, _Run]:
    image, kernel, output = _convolution_tensors(case, device)
    window = _window_of(case)
    groups = image.shape[1] if case.op_type.startswith("Depthwise") else 1
    stride, padding, dilation = window.strides, window.padding, window.dilations
    note = window.note
    if case.op_type.endswith("BackpropInput") or case.op_type.endswith("BackpropFilter"):
        mask = [True, False, False] if case.op_type.endswith("Input") else [False, True, False]
        return f"aten.convolution_backward{note}", lambda: _aten.convolution_backward(
            *(output, image, kernel, None, stride, padding, dilation),
            *(False, [0, 0], groups, mask),
        )
    return f"torch.conv2d{note}", lambda: torch.conv2d(
        image, kernel, None, stride, padding, dilation, groups
    )


def _convolution_tensors(
    case: Case, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Makes image, filter and output in the layout that TensorFlow gives cuDNN: channels first."""
    data_format = case.attributes.get("data_format", "NHWC")
    if case.op_type.endswith("BackpropInput"):
        image, kernel, output = case.outputs[0], case.inputs[1], case.inputs[2]
    elif case.op_type.endswith("BackpropFilter"):
        image, kernel, output = case.inputs[0], case.outputs[0], case.inputs[2]
    else:
        image, kernel, output = case.inputs[0], case.inputs[1], case.outputs[0]
    height, width, before, after = kernel.shape
    is_depthwise = case.op_type.startswith("Depthwise")
    filter_shape = (before * after, 1) if is_depthwise else (after, before)
    window = _window_of(case)
    return (
        _values(window.padded(data_sizes(image.shape, data_format)), device),
        _values((*filter_shape, height, width), device),
        _values(data_sizes(output.shape, data_format), device),
    )


def _window_of(case: Case) -> Window:
    data_format = case.attributes.get("data_format", "NHWC")
    if case.kind == "pooling":
        size: Sequence[int] = data_sizes(case.attributes["ksize"], data_format)[2:]
        is_gradient = case.op_type.endswith("Grad")
        image = (case.outputs if is_gradient else case.inputs)[0].shape
        output = (case.inputs[-1] if is_gradient else case.outputs[0]).shape
    else:
        is_input_gradient = case.op_type.endswith("BackpropInput")
        is_filter_gradient = case.op_type.endswith("BackpropFilter")
        size = (case.outputs[0] if is_filter_gradient else case.inputs[1]).shape[:2]
        image = (case.outputs if is_input_gradient else case.inputs)[0].shape
        is_gradient = is_input_gradient or is_filter_gradient
        output = (case.inputs[2] if is_gradient else case.outputs[0]).shape
    return Window.of(
        data_sizes(image, data_format)[2:],
        data_sizes(output, data_format)[2:],
        size,
        data_sizes(case.attributes["strides"], data_format)[2:],
        data_sizes(case.attributes.get("dilations", (1, 1, 1, 1)), data_format)[2:],
    )


def _pooling(case: Case, device: torch.device) -> tuple[str, _Run]:
    data_format = case.attributes.get("data_format", "NHWC")
    window = _window_of(case)
    is_gradient = case.op_type.endswith("Grad")
    shape = (case.outputs if is_gradient else case.inputs)[0].shape
    image = _values(window.padded(data_sizes(shape, data_format)), device)
    size, stride, padding, note = window.size, window.strides, window.padding, window.note
    is_max = case.op_type.startswith("Max")
    if is_max:
        made, places = _aten.max_pool2d_with_indices(image, size, stride, padding)
        gradient = torch.ones_like(made)
        if not is_gradient:
            return f"aten.max_pool2d_with_indices{note}", lambda: _aten.max_pool2d_with_indices(
                image, size, stride, padding
            )
        return (
            f"aten.max_pool2d_with_indices_backward{note}",
            lambda: _aten.max_pool2d_with_indices_backward(
                gradient, image, size, stride, padding, [1, 1], False, places
            ),
        )
    made = _aten.avg_pool2d(image, size, stride, padding, False, False)
    gradient = torch.ones_like(made)
    if not is_gradient:
        return f"aten.avg_pool2d{note}", lambda: _aten.avg_pool2d(
            image, size, stride, padding, False, False
        )
    return f"aten.avg_pool2d_backward{note}", lambda: _aten.avg_pool2d_backward(
        gradient, image, size, stride, padding, False, False, None
    )


def _batch_normalization(case: Case, device: torch.device) -> tuple[str, _Run]:
    data_format = case.attributes.get("data_format", "NHWC")
    is_gradient = case.op_type.endswith("GradV3")
    image = _values(data_sizes(case.inputs[0].shape, data_format), device)
    channels = image.shape[1]
    scale, offset, mean, variance = (_values((channels,), device) for _ in range(4))
    with_cudnn = device.type == "cuda" and torch.backends.cudnn.is_available()
    if with_cudnn:
        made, mean_then, spread, reserve = _aten.cudnn_batch_norm(
            image, scale, offset, mean, variance, True, 0.1, 1e-3
        )
    else:
        made, mean_then, spread = _aten.native_batch_norm(
            image, scale, offset, mean, variance, True, 0.1, 1e-3
        )
        reserve = None
    if not is_gradient:
        if with_cudnn:
            return "aten.cudnn_batch_norm", lambda: _aten.cudnn_batch_norm(
                image, scale, offset, mean, variance, True, 0.1, 1e-3
            )
        return "aten.native_batch_norm", lambda: _aten.native_batch_norm(
            image, scale, offset, mean, variance, True, 0.1, 1e-3
        )
    gradient = torch.ones_like(made)
    if with_cudnn:
        return "aten.cudnn_batch_norm_backward", lambda: _aten.cudnn_batch_norm_backward(
            *(image, gradient, scale, mean, variance, mean_then, spread, 1e-3, reserve)
        )
    return "aten.native_batch_norm_backward", lambda: _aten.native_batch_norm_backward(
        *(gradient, image, scale, mean, variance, mean_then, spread, True, 1e-3),
        [True, True, True],
    )


def _unary(name: str) -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        value, function = _input(case, 0, device), getattr(torch, name)
        return f"torch.{name}", lambda: function(value)

    return make


def _binary(name: str, note: str = "") -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        a, b = _input(case, 0, device), _input(case, 1, device)
        function = getattr(torch, name)
        return f"torch.{name}{note}", lambda: function(a, b)

    return make


def _gradient(name: str, *numbers: float, note: str = "") -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        a, b = _input(case, 0, device), _input(case, 1, device)
        function = getattr(_aten, name)
        return f"aten.{name}{note}", lambda: function(a, b, *numbers)

    return make


def _add_n(case: Case, device: torch.device) -> tuple[str, _Run]:
    if len(case.inputs) == 2:
        return _binary("add")(case, device)
    stacked = _values((len(case.inputs), *case.inputs[0].shape), device)
    return "torch.sum of the first dimension of one tensor", lambda: torch.sum(stacked, 0)


def _select(case: Case, device: torch.device) -> tuple[str, _Run]:
    condition, a, b = (_input(case, number, device) for number in range(3))
    return "torch.where", lambda: torch.where(condition, a, b)


def _softmax(name: str) -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        value, function = _input(case, 0, device), getattr(torch, name)
        return f"torch.{name}", lambda: function(value, -1)

    return make


def _cross_entropy(case: Case, device: torch.device) -> tuple[str, _Run]:
    logits, labels = _input(case, 0, device), _input(case, 1, device)
    if labels.dtype != torch.float32:
        labels = labels.long()

    def run() -> object:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")

    return "torch cross_entropy, without the gradient that TensorFlow's computes, too", run


def _reduction(name: str) -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        value, function = _input(case, 0, device), getattr(torch, name)
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


def _bias_gradient(case: Case, device: torch.device) -> tuple[str, _Run]:
    value = _input(case, 0, device).flatten(0, -2)
    return "torch.sum", lambda: torch.sum(value, 0)


def _l2_loss(case: Case, device: torch.device) -> tuple[str, _Run]:
    value = _input(case, 0, device)
    return "torch.linalg.vector_norm", lambda: torch.linalg.vector_norm(value)


def _concat(case: Case, device: torch.device) -> tuple[str, _Run]:
    parts = [_input(case, number, device) for number in range(len(case.inputs) - 1)]
    axis = _ravel(case.inputs[-1].values) or [_differing_axis(case)]
    return "torch.cat", lambda: torch.cat(parts, axis[0])


def _differing_axis(case: Case) -> int:
    pairs = zip(case.inputs[0].shape, case.outputs[0].shape, strict=True)
    return next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)


def _split(case: Case, device: torch.device) -> tuple[str, _Run]:
    number = 1 if case.op_type == "Split" else 0
    value = _input(case, number, device)
    shapes = [each.shape for each in case.outputs]
    pairs = zip(value.shape, shapes[0], strict=True)
    axis = next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)
    parts = [torch.empty(shape, device=device, dtype=value.dtype) for shape in shapes]
    sizes = [shape[axis] for shape in shapes]
    return "torch.split_with_sizes_copy", lambda: torch.split_with_sizes_copy(
        value, sizes, axis, out=parts
    )


def _pack(case: Case, device: torch.device) -> tuple[str, _Run]:
    parts = [_input(case, number, device) for number in range(len(case.inputs))]
    axis = int(case.attributes.get("axis", 0))
    return "torch.stack", lambda: torch.stack(parts, axis)


def _slice(case: Case, device: torch.device) -> tuple[str, _Run]:
    value = _input(case, 0, device)
    output = case.outputs[0].shape
    if len(output) == value.dim():
        part = value[tuple(slice(size) for size in output)]
    else:
        part = value.flatten()[: math.prod(output)]
    return "torch.clone of a slice", lambda: part.clone(memory_format=torch.contiguous_format)


def _pad(case: Case, device: torch.device) -> tuple[str, _Run]:
    given = case.inputs[4 if case.op_type == "StridedSliceGrad" else 0].shape
    made = case.outputs[0].shape
    if len(given) != len(made):
        given, made = (math.prod(given),), (math.prod(made),)
    value = _values(given, device)
    sizes: list[int] = []
    for size, padded in zip(reversed(given), reversed(made), strict=True):
        sizes += [0, padded - size]
    return "torch pad, which fills first", lambda: torch.nn.functional.pad(value, sizes)


def _transpose(case: Case, device: torch.device) -> tuple[str, _Run]:
    value = _input(case, 0, device)
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


def _tile(case: Case, device: torch.device) -> tuple[str, _Run]:
    value = _input(case, 0, device)
    copies = [a // b for a, b in zip(case.outputs[0].shape, value.shape, strict=True)]
    return "torch.Tensor.repeat", lambda: value.repeat(copies)


def _indices(count: int, rows: int, device: torch.device) -> torch.Tensor:
    return torch.randint(0, max(rows, 1), (count,), device=device)


def _gather(case: Case, device: torch.device) -> tuple[str, _Run]:
    table = _table(case.inputs[0].shape, device)
    rows = _indices(math.prod(case.inputs[1].shape), table.shape[0], device)
    return "torch.index_select", lambda: torch.index_select(table, 0, rows)


def _table(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.zeros(tuple(shape), device=device)


def _segment_sum(case: Case, device: torch.device) -> tuple[str, _Run]:
    data = _input(case, 0, device).flatten(1)
    shape = (case.outputs[0].shape[0], data.shape[1])
    rows = _indices(data.shape[0], shape[0], device)

    def run() -> object:
        return torch.zeros(shape, device=device).index_add_(0, rows, data)

    return "torch.zeros, index_add_", run


def _scatter_add(case: Case, device: torch.device) -> tuple[str, _Run]:
    table = _table(case.inputs[0].shape, device)
    updates = _input(case, 2, device)
    rows = _indices(updates.shape[0], table.shape[0], device)
    return "torch.index_add_", lambda: table.index_add_(0, rows, updates)


def _sparse_adagrad(case: Case, device: torch.device) -> tuple[str, _Run]:
    table, sums = (_table(case.inputs[number].shape, device) for number in range(2))
    updates = _input(case, 3, device)
    rows = _indices(updates.shape[0], table.shape[0], device)

    def run() -> None:
        sums.index_add_(0, rows, updates)
        table.index_add_(0, rows, updates)

    return "torch.index_add_ twice: PyTorch has no sparse Adagrad in one call", run


def _adam(note: str) -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        variable, first, second = (_input(case, number, device) for number in range(3))
        gradient = _values(case.inputs[0].shape, device)
        step = torch.ones((), device=device)

        def run() -> None:
            torch._fused_adam_(
                *([variable], [gradient], [first], [second], [], [step]),
                lr=1e-3,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )

        return f"torch._fused_adam_{note}", run

    return make


def _momentum(note: str) -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        variable, velocity = _input(case, 0, device), _input(case, 1, device)
        gradient = _values(case.inputs[0].shape, device)

        def run() -> None:
            torch._fused_sgd_(
                *([variable], [gradient], [velocity]),
                weight_decay=0.0,
                momentum=0.9,
                lr=1e-3,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )

        return f"torch._fused_sgd_{note}", run

    return make


def _gradient_descent(case: Case, device: torch.device) -> tuple[str, _Run]:
    variable, gradient = _input(case, 0, device), _values(case.inputs[0].shape, device)
    return "torch.Tensor.add_", lambda: variable.add_(gradient, alpha=-1e-9)


def _assign(name: str, note: str = "") -> _Maker:
    def make(case: Case, device: torch.device) -> tuple[str, _Run]:
        value = _input(case, 1, device)
        variable = _values(case.inputs[1].shape, device)
        function = getattr(variable, name)
        return f"torch.Tensor.{name}{note}", lambda: function(value)

    return make


def _fill(case: Case, device: torch.device) -> tuple[str, _Run]:
    shape = tuple(case.outputs[0].shape)
    return "torch.full", lambda: torch.full(shape, 0.5, device=device)


def _random(case: Case, device: torch.device) -> tuple[str, _Run]:
    shape = tuple(case.outputs[0].shape)
    return "torch.rand", lambda: torch.rand(shape, device=device)


_INSTEAD = ", instead: PyTorch has no such call"
_MAKERS: dict[str, _Maker] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    **dict.fromkeys(
        (
            *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNative"),
            *("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
        ),
        _convolution,
    ),
    **dict.fromkeys(("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad"), _pooling),
    **dict.fromkeys(("FusedBatchNormV3", "FusedBatchNormGradV3"), _batch_normalization),
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
    "SquaredDifference": _binary("sub", _INSTEAD),
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
    "RsqrtGrad": _gradient("tanh_backward", note=_INSTEAD),
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
    "GatherV2": _gather,
    "ResourceGather": _gather,
    "UnsortedSegmentSum": _segment_sum,
    "ScatterAdd": _scatter_add,
    "ResourceScatterAdd": _scatter_add,
    "ResourceSparseApplyAdagrad": _sparse_adagrad,
    "ApplyAdam": _adam(""),
    "ResourceApplyAdam": _adam(""),
    "ApplyRMSProp": _adam(_INSTEAD),
    "ResourceApplyRMSProp": _adam(_INSTEAD),
    "ApplyMomentum": _momentum(""),
    "ResourceApplyMomentum": _momentum(""),
    "ApplyAdagrad": _momentum(_INSTEAD),
    "ResourceApplyAdagrad": _momentum(_INSTEAD),
    "ResourceApplyAdagradV2": _momentum(_INSTEAD),
    "ApplyGradientDescent": _gradient_descent,
    "ResourceApplyGradientDescent": _gradient_descent,
    "Assign": _assign("copy_", "; TensorFlow may hand the memory over instead"),
    "AssignVariableOp": _assign("copy_", "; TensorFlow may hand the memory over instead"),
    "AssignAdd": _assign("add_"),
    "AssignAddVariableOp": _assign("add_"),
    "AssignSub": _assign("sub_"),
    "AssignSubVariableOp": _assign("sub_"),
    "Fill": _fill,
    "RandomUniform": _random,
}
