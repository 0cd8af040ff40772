"""Calls of PyTorch for operations on images: convolutions, pooling and batch normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.tensors import Maker, Run, make_values
from benchmarks.gpu_model.windows import channels_first, padding_of

__all__ = ["IMAGE_MAKERS"]

_aten = torch.ops.aten


def _padded(
    image: Sequence[int], output: Sequence[int], size: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], list[int], str]:
    """Finds the sizes of the images, the padding, and a note of what is done beforehand."""
    padding, extra = padding_of(image[1:3], output[1:3], size, strides)
    batch, channels, height, width = channels_first(image)
    note = ", image padded beforehand" if any(extra) else ""
    return (batch, channels, height + extra[0], width + extra[1]), padding, note


def _convolution(case: Case, device: torch.device) -> tuple[str, Run]:
    if case.op_type.endswith("BackpropInput"):
        image, kernel, output = case.outputs[0], case.inputs[1], case.inputs[2]
    elif case.op_type.endswith("BackpropFilter"):
        image, kernel, output = case.inputs[0], case.outputs[0], case.inputs[2]
    else:
        image, kernel, output = case.inputs[0], case.inputs[1], case.outputs[0]
    height, width, before, after = kernel.shape
    is_depthwise = case.op_type.startswith("Depthwise")
    filters = (before * after, 1) if is_depthwise else (after, before)
    stride = list(case.attributes["strides"][1:3])
    sizes, padding, note = _padded(image.shape, output.shape, (height, width), stride)
    images = make_values(sizes, device)
    kernels = make_values((*filters, height, width), device)
    dilation, groups = [1, 1], sizes[1] if is_depthwise else 1
    if "Backprop" not in case.op_type:
        run = partial(torch.conv2d, images, kernels, None, stride, padding, dilation, groups)
        return f"torch.conv2d{note}", run
    is_input = case.op_type.endswith("Input")
    return f"aten.convolution_backward{note}", partial(
        _aten.convolution_backward,
        *(make_values(channels_first(output.shape), device), images, kernels, None),
        *(stride, padding, dilation, False, [0, 0], groups, [is_input, not is_input, False]),
    )


def _pooling(case: Case, device: torch.device) -> tuple[str, Run]:
    is_gradient = case.op_type.endswith("Grad")
    image = (case.outputs if is_gradient else case.inputs)[0].shape
    output = (case.inputs[-1] if is_gradient else case.outputs[0]).shape
    size, stride = (list(case.attributes[name][1:3]) for name in ("ksize", "strides"))
    sizes, padding, note = _padded(image, output, size, stride)
    images = make_values(sizes, device)
    more: tuple[Any, ...]
    if case.op_type.startswith("Max"):
        forward = partial(_aten.max_pool2d_with_indices, images, size, stride, padding)
        made, places = forward()
        call, more = "aten.max_pool2d_with_indices", ([1, 1], False, places)
        backward = _aten.max_pool2d_with_indices_backward
    else:
        forward = partial(_aten.avg_pool2d, images, size, stride, padding, False, False)
        made = forward()
        call, more = "aten.avg_pool2d", (False, False, None)
        backward = _aten.avg_pool2d_backward
    if not is_gradient:
        return f"{call}{note}", forward
    gradient = torch.ones_like(made)
    run = partial(backward, gradient, images, size, stride, padding, *more)
    return f"{call}_backward{note}", run


def _batch_normalization(case: Case, device: torch.device) -> tuple[str, Run]:
    images = make_values(channels_first(case.inputs[0].shape), device)
    scale, offset, mean, variance = (make_values(images.shape[1:2], device) for _ in range(4))
    with_cudnn = device.type == "cuda" and torch.backends.cudnn.is_available()
    call = "cudnn_batch_norm" if with_cudnn else "native_batch_norm"
    forward = partial(getattr(_aten, call), images, scale, offset, mean, variance, True, 0.1, 1e-3)
    if not case.op_type.endswith("GradV3"):
        return f"aten.{call}", forward
    made, mean_then, spread, *reserve = forward()
    gradient = torch.ones_like(made)
    backward = getattr(_aten, f"{call}_backward")
    moments = (scale, mean, variance, mean_then, spread)
    if with_cudnn:
        run = partial(backward, images, gradient, *moments, 1e-3, *reserve)
    else:
        run = partial(backward, gradient, images, *moments, True, 1e-3, [True, True, True])
    return f"aten.{call}_backward", run


_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
IMAGE_MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        **{
            f"{name}{side}": _convolution
            for name in _CONVOLUTIONS
            for side in ("", "BackpropInput", "BackpropFilter")
        },
        **dict.fromkeys(("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad"), _pooling),
        **dict.fromkeys(("FusedBatchNormV3", "FusedBatchNormGradV3"), _batch_normalization),
    }
)
"""The makers of calls by the type of operation."""
