"""Corrects costs by what steps really took."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["CostFactors", "fit_factors", "with_factors"]

# Factors are looked for in steps of this on the logarithmic scale, halved as long as that helps.
_FIRST_STEP, _LAST_STEP = 0.4, 0.02
# How far factors are from 1 before anything is measured, on the logarithmic scale, and how far
# measured steps are from simulated ones that are right. A few measurements must not move what they
# say nothing about.
_PRIOR_DEVIATION, _NOISE_DEVIATION = 0.5, 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class CostFactors:
    """By how much costs are larger than they were taken to be.

    Attributes:
        compute: float64 [num_devices], for the operations of each device.
        transfer: for all transfers.
        deviation: standard deviation of the logarithm of measured by simulated step times, about 0,
            with these factors.
    """

    compute: np.ndarray
    transfer: float
    deviation: float


def with_factors(
    problem: PlacementProblem, compute: np.ndarray, transfer: float
) -> PlacementProblem:
    """Copies the problem with other costs.

    Args:
        problem: the problem.
        compute: float64 [num_devices], what the seconds of operations on each device are
            multiplied with.
        transfer: what the seconds of transfers are multiplied with.
    """
    return dataclasses.replace(
        problem,
        compute_secs=problem.compute_secs * compute,
        links=tuple(
            dataclasses.replace(
                link,
                latency_secs=link.latency_secs * transfer,
                bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec / transfer,
            )
            for link in problem.links
        ),
    )


def fit_factors(
    problem: PlacementProblem, placements: np.ndarray, measured_secs: np.ndarray
) -> CostFactors:
    """Finds the factors with which the simulated steps come closest to the measured ones.

    Minimizes the squared logarithms of measured by simulated step times, together with those of
    the factors themselves, by coordinate descent.

    Args:
        problem: what was placed.
        placements: int32 [num_measured, num_groups].
        measured_secs: float64 [num_measured], positive.

    Raises:
        ValueError: there is nothing measured, or the arguments do not fit.
    """
    measured_secs = np.asarray(measured_secs, np.float64)
    if not len(placements) or measured_secs.shape != (len(placements),):
        raise ValueError(
            f"there must be a step time for each placement, not {measured_secs.shape} for "
            f"{len(placements)}"
        )
    if not (np.isfinite(measured_secs) & (measured_secs > 0)).all():
        raise ValueError("measured step times must be positive")

    def errors(logs: np.ndarray) -> np.ndarray:
        factors = np.exp(logs)
        corrected = with_factors(problem, factors[:-1], float(factors[-1]))
        simulated = Simulator(corrected, memory=False, threads=1).simulate(placements).step_secs
        # What takes no time by the costs says nothing about them.
        return np.where(simulated > 0, np.log(measured_secs / np.maximum(simulated, 1e-300)), 0.0)

    def badness(logs: np.ndarray) -> float:
        squares = np.square(errors(logs)).sum() / _NOISE_DEVIATION**2
        return float(squares + np.square(logs).sum() / _PRIOR_DEVIATION**2)

    logs = np.zeros(problem.num_devices + 1)
    least = badness(logs)
    step = _FIRST_STEP
    # A first guess for all at once: the usual error is that all is slower or faster.
    together = logs + np.median(errors(logs))
    if badness(together) < least:
        logs, least = together, badness(together)
    while step >= _LAST_STEP:
        improved = False
        for index, sign in itertools.product(range(len(logs)), (1.0, -1.0)):
            tried = logs.copy()
            tried[index] += sign * step
            now = badness(tried)
            if now < least:
                logs, least, improved = tried, now, True
        if not improved:
            step /= 2
    factors = np.exp(logs)
    deviation = float(np.sqrt(np.square(errors(logs)).mean()))
    return CostFactors(factors[:-1], float(factors[-1]), deviation)
