"""Calls of PyTorch for operations on variables and on rows of tables: look-ups and updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from benchmarks.gpu_model.cases import Case
from benchmarks.gpu_model.kernel_tensors import INSTEAD, Maker, Run, make_input, make_values

__all__ = ["VARIABLE_MAKERS"]


def _indices(count: int, rows: int, device: torch.device) -> torch.Tensor:
    return torch.randint(0, max(rows, 1), (count,), device=device)


def _gather(case: Case, device: torch.device) -> tuple[str, Run]:
    table = _table(case.inputs[0].shape, device)
    rows = _indices(math.prod(case.inputs[1].shape), table.shape[0], device)
    return "torch.index_select", lambda: torch.index_select(table, 0, rows)


def _table(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.zeros(tuple(shape), device=device)


def _segment_sum(case: Case, device: torch.device) -> tuple[str, Run]:
    data = make_input(case, 0, device).flatten(1)
    shape = (case.outputs[0].shape[0], data.shape[1])
    rows = _indices(data.shape[0], shape[0], device)

    def run() -> object:
        return torch.zeros(shape, device=device).index_add_(0, rows, data)

    return "torch.zeros, index_add_", run


def _scatter_add(case: Case, device: torch.device) -> tuple[str, Run]:
    table = _table(case.inputs[0].shape, device)
    updates = make_input(case, 2, device)
    rows = _indices(updates.shape[0], table.shape[0], device)
    return "torch.index_add_", lambda: table.index_add_(0, rows, updates)


def _sparse_adagrad(case: Case, device: torch.device) -> tuple[str, Run]:
    table, sums = (_table(case.inputs[number].shape, device) for number in range(2))
    updates = make_input(case, 3, device)
    rows = _indices(updates.shape[0], table.shape[0], device)

    def run() -> None:
        sums.index_add_(0, rows, updates)
        table.index_add_(0, rows, updates)

    return "torch.index_add_ twice: PyTorch has no sparse Adagrad in one call", run


def _adam(note: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        variable, first, second = (make_input(case, number, device) for number in range(3))
        gradient = make_values(case.inputs[0].shape, device)
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


def _momentum(note: str) -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        variable, velocity = make_input(case, 0, device), make_input(case, 1, device)
        gradient = make_values(case.inputs[0].shape, device)

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


def _gradient_descent(case: Case, device: torch.device) -> tuple[str, Run]:
    variable, gradient = make_input(case, 0, device), make_values(case.inputs[0].shape, device)
    return "torch.Tensor.add_", lambda: variable.add_(gradient, alpha=-1e-9)


def _assign(name: str, note: str = "") -> Maker:
    def make(case: Case, device: torch.device) -> tuple[str, Run]:
        value = make_input(case, 1, device)
        variable = make_values(case.inputs[1].shape, device)
        function = getattr(variable, name)
        return f"torch.Tensor.{name}{note}", lambda: function(value)

    return make


VARIABLE_MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "GatherV2": _gather,
        "ResourceGather": _gather,
        "UnsortedSegmentSum": _segment_sum,
        "ScatterAdd": _scatter_add,
        "ResourceScatterAdd": _scatter_add,
        "ResourceSparseApplyAdagrad": _sparse_adagrad,
        "ApplyAdam": _adam(""),
        "ResourceApplyAdam": _adam(""),
        "ApplyRMSProp": _adam(INSTEAD),
        "ResourceApplyRMSProp": _adam(INSTEAD),
        "ApplyMomentum": _momentum(""),
        "ResourceApplyMomentum": _momentum(""),
        "ApplyAdagrad": _momentum(INSTEAD),
        "ResourceApplyAdagrad": _momentum(INSTEAD),
        "ResourceApplyAdagradV2": _momentum(INSTEAD),
        "ApplyGradientDescent": _gradient_descent,
        "ResourceApplyGradientDescent": _gradient_descent,
        "Assign": _assign("copy_", "; TensorFlow may hand the memory over instead"),
        "AssignVariableOp": _assign("copy_", "; TensorFlow may hand the memory over instead"),
        "AssignAdd": _assign("add_"),
        "AssignAddVariableOp": _assign("add_"),
        "AssignSub": _assign("sub_"),
        "AssignSubVariableOp": _assign("sub_"),
    }
)
"""The makers of calls by the type of operation."""
