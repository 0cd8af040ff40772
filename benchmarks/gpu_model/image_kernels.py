"""Calls of PyTorch for operations on images: convolutions, pooling and batch normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.kernel_tensors import Maker, Run, make_values
from benchmarks.gpu_model.windows import Window, data_sizes

__all__ = ["IMAGE_MAKERS"]

_aten = torch.ops.aten


def _convolution(case: Case, device: torch.device) -> tuple[str, Run]:
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
        make_values(window.padded(data_sizes(image.shape, data_format)), device),
        make_values((*filter_shape, height, width), device),
        make_values(data_sizes(output.shape, data_format), device),
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


def _pooling(case: Case, device: torch.device) -> tuple[str, Run]:
    data_format = case.attributes.get("data_format", "NHWC")
    window = _window_of(case)
    is_gradient = case.op_type.endswith("Grad")
    shape = (case.outputs if is_gradient else case.inputs)[0].shape
    image = make_values(window.padded(data_sizes(shape, data_format)), device)
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


def _batch_normalization(case: Case, device: torch.device) -> tuple[str, Run]:
    data_format = case.attributes.get("data_format", "NHWC")
    is_gradient = case.op_type.endswith("GradV3")
    image = make_values(data_sizes(case.inputs[0].shape, data_format), device)
    channels = image.shape[1]
    scale, offset, mean, variance = (make_values((channels,), device) for _ in range(4))
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


IMAGE_MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
                *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"),
                "DepthwiseConv2dNativeBackpropFilter",
            ),
            _convolution,
        ),
        **dict.fromkeys(("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad"), _pooling),
        **dict.fromkeys(("FusedBatchNormV3", "FusedBatchNormGradV3"), _batch_normalization),
    }
)
"""The makers of calls by the type of operation."""
