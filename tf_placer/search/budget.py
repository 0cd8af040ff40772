"""The budget of a search in time and trials, and its progress."""

from __future__ import annotations

import dataclasses

from graph_passes.util.messages import quote
from tf_placer.search.trial_log import Trial

__all__ = ["Budget", "Progress", "compute_gap"]


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits of a search, which ends at the first one it reaches.

    Attributes:
        max_trials: the number of trials, including trial 0 (the original graph) and repeats.
        max_secs: seconds of searching. No trial starts later; a running trial is completed.
    """

    max_trials: int
    max_secs: float

    def __post_init__(self) -> None:
        if self.max_trials < 1:
            raise ValueError(f"max_trials must be at least 1, not {quote(self.max_trials)}")
        if not self.max_secs > 0:
            raise ValueError(f"max_secs must be positive, not {self.max_secs}")

    def eta_secs(self, num_trials: int, elapsed_secs: float) -> float:
        """Estimates the time until the end, from the number of trials per second so far."""
        by_trials_secs = (self.max_trials - num_trials) * elapsed_secs / num_trials
        return max(0.0, min(by_trials_secs, self.max_secs - elapsed_secs))


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of a search after a trial.

    Attributes:
        trial_count: the number of trials so far.
        budget: the limits of the search.
        best: the fastest trial so far; None while all have failed.
        elapsed_secs: time spent searching.
        eta_secs: estimated time until the budget ends.
        bound_secs: a lower bound of the step time of any placement, by simulation with the costs
            that are known; None while they are not.
    """

    trial_count: int
    budget: Budget
    best: Trial | None
    elapsed_secs: float
    eta_secs: float
    bound_secs: float | None = None

    @property
    def gap(self) -> float | None:
        """The best step time over the bound, minus 1; None if one of them is unknown."""
        best_secs = None if self.best is None else self.best.measurement.median_secs
        return compute_gap(best_secs, self.bound_secs)


def compute_gap(best_secs: float | None, bound_secs: float | None) -> float | None:
    """Computes by how much the best step time may still fall, as a share of the bound.

    Returns:
        The share, at least 0; None if a time is unknown or the bound is 0.
    """
    if best_secs is None or not bound_secs:
        return None
    return max(0.0, best_secs / bound_secs - 1.0)
