"""The tensors that the calls of PyTorch take in place of an operation's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from benchmarks.gpu_model.cases import Case

__all__ = ["Maker", "Run", "make_inputs", "make_values"]

Run = Callable[[], object]
"""Starts a call."""
Maker = Callable[[Case, torch.device], tuple[str, Run]]
"""Makes the tensors of an operation on a device; returns the name of the call, and the call."""


def make_values(shape: Sequence[int], device: torch.device, dtype: str = "float32") -> torch.Tensor:
    """Makes a tensor of values from 0.1 to 1, which all functions here take."""
    if dtype == "bool":
        return torch.rand(tuple(shape), device=device) > 0.5
    if dtype in ("int32", "int64"):
        return torch.zeros(tuple(shape), device=device, dtype=getattr(torch, dtype))
    return torch.rand(tuple(shape), device=device, dtype=getattr(torch, dtype)).mul_(0.9).add_(0.1)


def make_inputs(case: Case, device: torch.device, *numbers: int) -> list[torch.Tensor]:
    """Makes inputs of an operation, of their types and shapes."""
    given = [case.inputs[number] for number in numbers]
    return [make_values(each.shape, device, each.dtype) for each in given]
