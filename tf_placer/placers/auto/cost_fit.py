"""A correction of the costs by measured step times."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["CostFactors", "fit_factors", "scale_costs"]

# Step sizes and deviations are on the logarithmic scale.
_FIRST_STEP, _LAST_STEP = 0.4, 0.02
# The prior keeps a factor near 1 where the few measurements carry no information about it.
_PRIOR_DEVIATION, _NOISE_DEVIATION = 0.5, 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class CostFactors:
    """The ratios of the real costs to the assumed costs.

    Attributes:
        compute: float64 [num_devices], the factors of operations on each device.
        transfer: the factor of all transfers.
        deviation: standard deviation of the logarithm of measured by simulated step times, about 0,
            with these factors.
    """

    compute: np.ndarray
    transfer: float
    deviation: float

    @property
    def spread(self) -> float:
        """The largest factor over the smallest one."""
        factors = [*self.compute.tolist(), self.transfer]
        return max(factors) / min(factors)


def scale_costs(
    problem: PlacementProblem, compute: np.ndarray, transfer: float
) -> PlacementProblem:
    """Copies the problem with its costs multiplied by factors.

    Args:
        problem: the problem.
        compute: float64 [num_devices], the factors of operations on each device.
        transfer: the factor of all transfers.
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

    Minimizes the squared logarithms of the ratios of measured to simulated step times, plus the
    squared logarithms of the factors, by coordinate descent.

    Args:
        problem: the placement problem.
        placements: int32 [num_measured, num_groups].
        measured_secs: float64 [num_measured], positive.

    Raises:
        ValueError: there is no measurement, or the arguments do not fit together.
    """
    measured_secs = np.asarray(measured_secs, np.float64)
    if not len(placements) or measured_secs.shape != (len(placements),):
        raise ValueError(
            f"there must be a step time for each placement, not {measured_secs.shape} for "
            f"{len(placements)}"
        )
    if not (np.isfinite(measured_secs) & (measured_secs > 0)).all():
        raise ValueError("measured step times must be positive")

    def compute_errors(logs: np.ndarray) -> np.ndarray:
        factors = np.exp(logs)
        corrected = scale_costs(problem, factors[:-1], float(factors[-1]))
        simulated = Simulator(corrected, memory=False, threads=1).simulate(placements).step_secs
        # A step that takes no time by the costs carries no information about them.
        return np.where(simulated > 0, np.log(measured_secs / np.maximum(simulated, 1e-300)), 0.0)

    def compute_loss(logs: np.ndarray) -> float:
        squares = np.square(compute_errors(logs)).sum() / _NOISE_DEVIATION**2
        return float(squares + np.square(logs).sum() / _PRIOR_DEVIATION**2)

    logs = np.zeros(problem.num_devices + 1)
    least = compute_loss(logs)
    step = _FIRST_STEP
    # Start with one factor for all costs, because the usual error is a slower or faster machine.
    together = logs + np.median(compute_errors(logs))
    if compute_loss(together) < least:
        logs, least = together, compute_loss(together)
    while step >= _LAST_STEP:
        improved = False
        for index, sign in itertools.product(range(len(logs)), (1.0, -1.0)):
            tried = logs.copy()
            tried[index] += sign * step
            now = compute_loss(tried)
            if now < least:
                logs, least, improved = tried, now, True
        if not improved:
            step /= 2
    factors = np.exp(logs)
    deviation = float(np.sqrt(np.square(compute_errors(logs)).mean()))
    return CostFactors(factors[:-1], float(factors[-1]), deviation)
