"""The tensors that the calls of PyTorch take in place of an operation's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from benchmarks.gpu_model.cases import Case

__all__ = ["INSTEAD", "Maker", "Run", "make_input", "make_values"]

Run = Callable[[], object]
"""Starts a call."""
Maker = Callable[[Case, torch.device], tuple[str, Run]]
"""Makes the tensors of an operation on a device; returns the name of the call, and the call."""
INSTEAD = ", instead: PyTorch has no such call"
"""The end of the name of a call that moves about as many bytes as the operation."""


def make_values(shape: Sequence[int], device: torch.device, dtype: str = "float32") -> torch.Tensor:
    """Makes a tensor of values from 0.1 to 1, which all functions here take."""
    if dtype == "bool":
        return torch.rand(tuple(shape), device=device) > 0.5
    if dtype in ("int32", "int64"):
        return torch.zeros(tuple(shape), device=device, dtype=getattr(torch, dtype))
    return torch.rand(tuple(shape), device=device, dtype=getattr(torch, dtype)).mul_(0.9).add_(0.1)


def make_input(case: Case, number: int, device: torch.device) -> torch.Tensor:
    """Makes an input of an operation, of its type and shape."""
    return make_values(case.inputs[number].shape, device, case.inputs[number].dtype)
