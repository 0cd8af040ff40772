"""The search on a problem: propose, simulate, observe, until the budget ends."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.search.budget import Budget
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.driver import Stage, drive
from tf_placer.search.proposals import proposed
from tf_placer.search.runner import SimulatedRunner
from tf_placer.search.trial_log import TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import SimulatedBatch

__all__ = ["SIMULATED_TRIALS", "SearchOutcome", "search_problem"]

#: Name of the log of controllers in the directory of a search.
SIMULATED_TRIALS = "simulated_trials.jsonl"


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
    placer: Placer | ConcurrentPlacer,
    *,
    max_trials: int,
    max_secs: float,
    seed: int = 0,
    log: TrialLog | None = None,
    report: Callable[[SearchOutcome, float], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    sampled: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> SearchOutcome:
    """Simulates what a placer proposes, a batch at a time on all cores, and lets it learn.

    The search ends with the budget, when the placer has nothing more to propose, or with an
    interrupt from the keyboard. The same seed gives the same placement where `max_trials` ends it,
    on any number of cores; but for several controllers, which do not wait for each other.

    The best placement is the fastest that is feasible, the earlier of equals. While there is none,
    it is the one that exceeds the memory of the devices by the fewest bytes in all.

    With a log, trial 0 is the graph as it came: every group on the first device where it may go. A
    log with trials is gone on with; what is in it counts towards the budget.

    Args:
        problem: what to place.
        placer: one for this problem that has observed nothing, or controllers that have not begun.
        max_trials: placements to simulate at most; the last batch is cut to that.
        max_secs: seconds after which no further batch starts. The first always runs.
        seed: of controllers; a placer has its own.
        log: keeps all trials; None to keep the best only.
        report: called after each batch with the outcome if the search ended there, and with the
            seconds until its budget ends, as expected from the pace so far.
        observed: called with the placer after each batch that it has observed, before `report`.
        sampled: called with the steps of each batch and whether they may run, as
            `SampledSteps.add` takes them.

    Returns:
        The best placement.

    Raises:
        KeyboardInterrupt: the search was interrupted in its first batch.
        SearchError: controllers die again and again.
        ValueError: the budget is not positive, the placer has nothing to propose at all, or it
            broke its contract.
    """
    budget = Budget(max_trials, max_secs)
    search = _Search(problem, placer, budget, seed, log, sampled)
    ask = proposed
    if log is None and isinstance(placer, Placer):
        # A batch that was asked for in time is simulated whole.
        ask, budget = search.ask, Budget(max_trials, math.inf)

    def on_observed(observer: Placer | ConcurrentPlacer) -> None:
        if observed is not None:
            observed(observer)
        if report is not None and search.has_best:
            report(search.outcome(), search.eta_secs())

    try:
        drive(
            [Stage.of(placer)],
            search.runner,
            log,
            budget,
            original=None if log is None else search.measure_original,
            ask=ask,
            observed=on_observed,
        )
    except KeyboardInterrupt:
        if not search.has_best:
            raise
        return search.outcome(interrupted=True)
    if not search.has_best:
        raise ValueError(f"placer {placer.name!r} has no placement to propose for this problem")
    return search.outcome()


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


class _Search:
    """The state of one search: what simulates, and the best so far."""

    def __init__(
        self,
        problem: PlacementProblem,
        placer: Placer | ConcurrentPlacer,
        budget: Budget,
        seed: int,
        log: TrialLog | None,
        sampled: Callable[[np.ndarray, np.ndarray], None] | None,
    ) -> None:
        # Preparing counts: it takes seconds where there are many operations.
        self._start_secs = time.monotonic()
        self._problem = problem
        self._placer = placer
        self._seed = placer.seed if isinstance(placer, Placer) else seed
        self._sampled = sampled
        self._budget = budget
        environment = SimulatedEnvironment(problem)
        self.runner = SimulatedRunner(environment, self._simulated)
        self._memory_bytes = np.array([d.memory_bytes for d in problem.devices], np.int64)
        self._lower_bound_secs = lower_bounds(problem).step_secs
        self._best: _Candidate | None = None
        self._log = log
        self._num_simulated = 0
        if log is not None and log.trials:
            trials, first = log.trials, self._first()
            self._start_secs -= trials[-1].elapsed_secs
            rows = [first if each.assignment is None else each.assignment for each in trials]
            placements = np.array(rows, np.int32)
            self._take(placements, environment.simulator.simulate(placements))

    @property
    def has_best(self) -> bool:
        """Whether a placement was simulated."""
        return self._best is not None

    @property
    def _num_trials(self) -> int:
        return self._num_simulated if self._log is None else len(self._log.records)

    def measure_original(self) -> Measurement:
        """Simulates the graph as it came."""
        self.runner.submit(0, self._first())
        [ended] = self.runner.wait()
        return ended.measurement

    def ask(self, placer: Placer, count: int) -> np.ndarray:
        """Asks a placer for no more than the budget allows; for nothing if it is over."""
        num_trials = self._num_trials
        if num_trials and self._elapsed_secs() >= self._budget.max_secs:
            return np.zeros([0, placer.groups.num_groups], np.int32)
        return proposed(placer, min(count, self._budget.max_trials - num_trials))

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
            seed=self._seed,
            interrupted=interrupted,
        )

    def eta_secs(self) -> float:
        """Estimates the time until the budget ends."""
        return self._budget.eta_secs(self._num_trials, self._elapsed_secs())

    def _first(self) -> np.ndarray:
        return np.argmax(legal_devices(self._problem), axis=1).astype(np.int32)

    def _simulated(self, placements: np.ndarray, batch: SimulatedBatch) -> None:
        self._num_simulated += len(placements)
        if self._sampled is not None:
            self._sampled(batch.step_secs, batch.feasible)
        self._take(placements, batch)

    def _take(self, placements: np.ndarray, batch: SimulatedBatch) -> None:
        """Keeps the best placement so far, the first of equals."""
        excess_bytes = kind = 0
        if batch.feasible.any():
            first = np.where(batch.feasible, batch.step_secs, np.inf).argmin()
        else:
            # One that cannot even be simulated is worse than any that is only too large.
            kinds = np.where(np.isfinite(batch.step_secs), 1, 2)
            excess = np.maximum(batch.peak_bytes - self._memory_bytes, 0).sum(axis=1)
            first = np.lexsort([batch.step_secs, excess, kinds])[0]
            kind, excess_bytes = int(kinds[first]), int(excess[first])
        secs = float(batch.step_secs[first])
        rank = (kind, excess_bytes, secs)
        if self._best is None or rank < self._best.rank:
            # The simulator may use the array again.
            peak_bytes = batch.peak_bytes[first].copy()
            self._best = _Candidate(rank, placements[first].copy(), secs, peak_bytes)

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs
