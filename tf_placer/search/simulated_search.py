"""The search on a problem: propose, simulate, observe, until the budget ends."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.loop import Budget
from tf_placer.search.proposals import Measured, propose_and_observe
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import SimulatedBatch

__all__ = ["SearchOutcome", "search_problem"]


@dataclasses.dataclass(frozen=True)
class SearchOutcome:
    """The best placement of a search, and what the search cost.

    Attributes:
        step_secs: its simulated step time; None if an operation is where it may not go.
        feasible: whether it fits: every operation may go where it is, and no device holds more
            than its memory.
        assignment: its device index per group.
        peak_bytes: the most that each device holds at once.
        lower_bound_secs: no placement of the problem takes less.
        trials: placements simulated, repeats included.
        elapsed_secs: time spent searching.
        placer: name of the placer.
        seed: of the placer.
        interrupted: whether the search was ended from the keyboard.
    """

    step_secs: float | None
    feasible: bool
    assignment: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    lower_bound_secs: float
    trials: int
    elapsed_secs: float
    placer: str
    seed: int
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields but `interrupted`."""
        value = dataclasses.asdict(self)
        del value["interrupted"]
        return value | {"assignment": list(self.assignment), "peak_bytes": list(self.peak_bytes)}


def search_problem(
    problem: PlacementProblem,
    placer: Placer,
    *,
    max_trials: int,
    max_secs: float,
    report: Callable[[SearchOutcome, float], None] | None = None,
    observed: Callable[[Placer], None] | None = None,
    sampled: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> SearchOutcome:
    """Simulates what a placer proposes, a batch at a time on all cores, and lets it learn.

    The search ends with the budget, when the placer has nothing more to propose, or with an
    interrupt from the keyboard. The same seed gives the same placement where `max_trials` ends it,
    on any number of cores.

    The best placement is the fastest that is feasible, the earlier of equals. While there is none,
    it is the one that exceeds the memory of the devices by the fewest bytes in all.

    Args:
        problem: what to place.
        placer: one for this problem that has observed nothing.
        max_trials: placements to simulate at most; the last batch is cut to that.
        max_secs: seconds after which no further batch starts. The first always runs.
        report: called after each batch with the outcome if the search ended there, and with the
            seconds until its budget ends, as expected from the pace so far.
        observed: called with the placer after each batch that it has observed, before `report`.
        sampled: called with the steps of each batch and whether they may run, as
            `SampledSteps.add` takes them.

    Returns:
        The best placement.

    Raises:
        KeyboardInterrupt: the search was interrupted in its first batch.
        ValueError: the budget is not positive, the placer has nothing to propose at all, or it
            broke its contract.
    """
    run = _Run(problem, placer, Budget(max_trials, max_secs), sampled)
    try:
        for _ in propose_and_observe(placer, run.count, run.measure):
            if observed is not None:
                observed(placer)
            if report is not None:
                report(run.outcome(), run.eta_secs())
    except KeyboardInterrupt:
        if not run.has_best:
            raise
        return run.outcome(interrupted=True)
    if not run.has_best:
        raise ValueError(f"placer {placer.name!r} has no placement to propose for this problem")
    return run.outcome()


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A simulated placement; `rank` is lower for a better one."""

    rank: tuple[int, int, float]
    placement: np.ndarray
    step_secs: float
    peak_bytes: np.ndarray

    @property
    def feasible(self) -> bool:
        return self.rank[0] == 0


class _Run:
    """The state of one search."""

    def __init__(
        self,
        problem: PlacementProblem,
        placer: Placer,
        budget: Budget,
        sampled: Callable[[np.ndarray, np.ndarray], None] | None,
    ) -> None:
        # Preparing counts: it takes seconds where there are many operations.
        self._start_secs = time.monotonic()
        self._placer = placer
        self._sampled = sampled
        self._budget = budget
        self._environment = SimulatedEnvironment(problem)
        self._memory_bytes = np.array([d.memory_bytes for d in problem.devices], np.int64)
        self._lower_bound_secs = lower_bounds(problem).step_secs
        self._num_trials = 0
        self._best: _Candidate | None = None

    @property
    def has_best(self) -> bool:
        """Whether a placement was simulated."""
        return self._best is not None

    def count(self) -> int:
        """Counts the placements to ask for next; 0 if the search is over."""
        if self._num_trials and self._elapsed_secs() >= self._budget.max_secs:
            return 0
        return min(self._placer.batch_size, self._budget.max_trials - self._num_trials)

    def measure(self, placements: np.ndarray) -> Measured | None:
        """Simulates placements and keeps the best; None where there are none."""
        if not placements.size:
            return None
        batch = self._environment.simulator.simulate(placements)
        if self._sampled is not None:
            self._sampled(batch.step_secs, batch.feasible)
        best = self._best_of(placements, batch)
        if self._best is None or best.rank < self._best.rank:
            self._best = best
        self._num_trials += len(placements)
        return placements, self._environment.measurements(placements, batch)

    def outcome(self, *, interrupted: bool = False) -> SearchOutcome:
        """Sums up what there is so far; there must be something."""
        best = self._best
        assert best is not None
        return SearchOutcome(
            step_secs=best.step_secs if np.isfinite(best.step_secs) else None,
            feasible=best.feasible,
            assignment=tuple(best.placement.tolist()),
            peak_bytes=tuple(best.peak_bytes.tolist()),
            lower_bound_secs=float(self._lower_bound_secs),
            trials=self._num_trials,
            elapsed_secs=round(self._elapsed_secs(), 3),
            placer=self._placer.name,
            seed=self._placer.seed,
            interrupted=interrupted,
        )

    def eta_secs(self) -> float:
        """Estimates the time until the budget ends."""
        elapsed_secs = self._elapsed_secs()
        trials_left = self._budget.max_trials - self._num_trials
        by_trials_secs = trials_left * elapsed_secs / self._num_trials
        return max(0.0, min(by_trials_secs, self._budget.max_secs - elapsed_secs))

    def _best_of(self, placements: np.ndarray, batch: SimulatedBatch) -> _Candidate:
        """Finds the best placement of a batch, the first of equals."""
        excess_bytes = np.maximum(batch.peak_bytes - self._memory_bytes, 0).sum(axis=1)
        # One that cannot even be simulated is worse than any that is only too large.
        kinds = np.where(batch.feasible, 0, np.where(np.isfinite(batch.step_secs), 1, 2))
        first = np.lexsort([batch.step_secs, excess_bytes, kinds])[0]
        secs = float(batch.step_secs[first])
        return _Candidate(
            (int(kinds[first]), int(excess_bytes[first]), secs),
            placements[first].copy(),
            secs,
            # The simulator may use the array again.
            batch.peak_bytes[first].copy(),
        )

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs
