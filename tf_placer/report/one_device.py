"""The step without a placement: everything on one accelerator, or the batch divided among all."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.data_parallel import (
    compute_data_parallel_bound,
    count_gradient_bytes,
)
from tf_placer.simulation.simulator import Simulator

__all__ = ["OneDevice", "place_on_one", "place_on_one_of_each_kind", "simulate_one_device"]


@dataclasses.dataclass(frozen=True)
class OneDevice:
    """The steps that a placement is compared with.

    Attributes:
        secs: the step with everything on the fastest accelerator that has room for it; None if
            there is none.
        data_parallel_secs: no data-parallel step is shorter; see `compute_data_parallel_bound`.
        is_divided: whether groups may only be on different accelerators, as pins want it, so that
            there are no such steps.
        needed_bytes: the memory that an accelerator needs for everything; 0 if there is no such
            step.
        lacks_shared_memory: whether there is no data parallelism because the model with a share of
            the batch does not fit on each accelerator.
    """

    secs: float | None
    data_parallel_secs: float | None = None
    is_divided: bool = False
    lacks_shared_memory: bool = False
    needed_bytes: int = 0


def simulate_one_device(problem: PlacementProblem) -> OneDevice:
    """Simulates steps with everything on each accelerator, and bounds those of data parallelism."""
    accelerators = find_accelerators(problem)
    rows = place_on_one(problem)
    if any(
        np.isin(row, np.setdiff1d(accelerators, [one])).any()
        for row, one in zip(rows, accelerators, strict=True)
    ):
        return OneDevice(None, is_divided=True)
    simulated = Simulator(problem).simulate(rows)
    fitting = simulated.step_secs[simulated.feasible]
    peak_bytes = simulated.peak_bytes[np.arange(len(accelerators)), accelerators]
    bound_secs = compute_data_parallel_bound(problem, simulated.step_secs, peak_bytes)
    may_share = len(accelerators) > 1 and count_gradient_bytes(problem) > 0
    return OneDevice(
        float(fitting.min()) if len(fitting) else None,
        bound_secs,
        lacks_shared_memory=may_share and bound_secs is None,
        needed_bytes=int(peak_bytes.min()),
    )


def place_on_one(problem: PlacementProblem) -> np.ndarray:
    """Places everything on each accelerator in turn, as far as it may go there.

    Returns:
        int32 [num_accelerators, num_groups].
    """
    legal = legal_devices(problem)
    on_each = [
        np.where(legal[:, index], index, legal.argmax(axis=1))
        for index in find_accelerators(problem)
    ]
    return np.stack(on_each).astype(np.int32)


def place_on_one_of_each_kind(problem: PlacementProblem) -> np.ndarray:
    """Places everything on one accelerator of each kind; see `place_on_one`."""
    kinds = [problem.devices[index].kind for index in find_accelerators(problem)]
    return place_on_one(problem)[[kinds.index(kind) for kind in dict.fromkeys(kinds)]]
