"""The simulated search for a placement of a problem."""

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
from tf_placer.search.driver import SearchStage, drive
from tf_placer.search.proposals import propose_checked
from tf_placer.search.runner import SimulatedRunner
from tf_placer.search.trial_log import TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import SimulatedBatch

__all__ = ["SIMULATED_TRIALS", "SearchOutcome", "search_problem"]

#: Name of the trial log of controllers in the directory of a search.
SIMULATED_TRIALS = "simulated_trials.jsonl"
# No batch begins that, if it takes as long as the last one, ends later than this share after the
# limit. The first batch of a network also compiles it; later ones take half of its time or less.
_MAX_EXCESS_SHARE, _FIRST_BATCH_SHARE = 0.1, 0.5


@dataclasses.dataclass(frozen=True)
class SearchOutcome:
    """The best placement of a search, and the cost of the search.

    Attributes:
        step_secs: the simulated step time; None if an operation is on a device that it may not go
            to.
        feasible: whether every operation may go to its device and no device holds more than its
            memory.
        assignment: the device index of each group.
        peak_bytes: the peak memory of each device.
        lower_bound_secs: a lower bound on the step time of every placement of the problem.
        trials: the number of simulated placements, including repeats.
        elapsed_secs: time spent searching.
        placer: name of the placer.
        seed: seed of the placer.
        interrupted: whether Ctrl-C ended the search, or the function `progress` of `plan`.
    """

    step_secs: float | None
    feasible: bool
    # The indices of thousands of groups would hide everything else.
    assignment: tuple[int, ...] = dataclasses.field(repr=False)
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
    stop_secs: float = 0.0,
    seed: int = 0,
    log: TrialLog | None = None,
    report: Callable[[SearchOutcome, float], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    sampled: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> SearchOutcome:
    """Simulates the batches that a placer proposes, on all cores, and lets the placer learn.

    The search ends with the budget, when the placer has nothing more to propose, or with Ctrl-C. If
    `max_trials` ends it, the same seed gives the same placement on any number of cores, except with
    several controllers, which do not wait for each other.

    The best placement is the fastest feasible one; ties go to the earlier. Before any is feasible,
    it is the one that exceeds the memory of the devices by the fewest bytes in all.

    With a log, trial 0 is the original graph: every group on the first device that it may go to. A
    search resumes with a log that has trials, and these count towards the budget.

    Args:
        problem: the problem to place.
        placer: a placer of the problem that has observed nothing, or controllers before `begin`.
        max_trials: the maximum number of placements to simulate; the last batch is cut to it.
        max_secs: seconds after which no further batch starts, and none that would take much longer,
            by the time of the last one. The first always runs.
        stop_secs: the search ends once a feasible placement has a step of at most this time.
        seed: seed of controllers; a placer has its own.
        log: stores all trials; None to remember only the best.
        report: called after each batch with the outcome so far, and with an estimate of the seconds
            until the budget ends.
        observed: called with the placer after each batch that it has observed, before `report`.
        sampled: called with the step times of each batch and whether they are feasible, the
            arguments of `SampledSteps.add`.

    Returns:
        The best placement.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed during the first batch.
        SearchError: controllers die repeatedly.
        ValueError: the budget is not positive, the placer proposes nothing at all, or it broke its
            contract.
    """
    budget = Budget(max_trials, max_secs)
    search = _Search(problem, placer, budget, seed, log, sampled)
    propose = propose_checked
    if log is None and isinstance(placer, Placer):
        # Limit the time when a batch is requested, so that a requested batch is simulated whole.
        propose, budget = search.propose, Budget(max_trials, math.inf)

    def on_observed(observer: Placer | ConcurrentPlacer) -> None:
        if observed is not None:
            observed(observer)
        if report is not None and search.has_best:
            report(search.outcome(), search.eta_secs())

    try:
        drive(
            [SearchStage.of(placer)],
            search.runner,
            log,
            budget,
            original=None if log is None else search.measure_original,
            propose=propose,
            observed=on_observed,
            should_stop=lambda: search.has_step_of(stop_secs),
        )
    except KeyboardInterrupt:
        if not search.has_best:
            raise
        return search.outcome(interrupted=True)
    if not search.has_best:
        raise ValueError(f"placer {placer.name!r} has no placement to propose for this problem")
    return search.outcome()


@dataclasses.dataclass(frozen=True)
class _RankedPlacement:
    """A simulated placement; a better one has a lower `rank`."""

    rank: tuple[int, int, float]
    placement: np.ndarray
    step_secs: float
    peak_bytes: np.ndarray

    @property
    def feasible(self) -> bool:
        return self.rank[0] == 0


class _Search:
    """The state of one search: its runner, its clock, and the best placement so far."""

    def __init__(
        self,
        problem: PlacementProblem,
        placer: Placer | ConcurrentPlacer,
        budget: Budget,
        seed: int,
        log: TrialLog | None,
        sampled: Callable[[np.ndarray, np.ndarray], None] | None,
    ) -> None:
        # Count the time of preparation, which takes seconds for many operations.
        self._start_secs = time.monotonic()
        self._problem = problem
        self._placer = placer
        # A placer of a user may lack it.
        self._seed = getattr(placer, "seed", seed)
        self._sampled = sampled
        self._budget = budget
        environment = SimulatedEnvironment(problem)
        self.runner = SimulatedRunner(environment, self._add_batch)
        self._memory_bytes = np.array([d.memory_bytes for d in problem.devices], np.int64)
        self._lower_bound_secs = lower_bounds(problem).step_secs
        self._best: _RankedPlacement | None = None
        self._log = log
        self._num_simulated = 0
        self._num_batches = 0
        self._batch_began_secs = 0.0
        if log is not None and log.trials:
            trials, original = log.trials, self._build_original()
            self._start_secs -= trials[-1].elapsed_secs
            rows = [original if each.assignment is None else each.assignment for each in trials]
            placements = np.array(rows, np.int32)
            self._update_best(placements, environment.simulator.simulate(placements))

    @property
    def has_best(self) -> bool:
        """True if a placement was simulated."""
        return self._best is not None

    def has_step_of(self, secs: float) -> bool:
        """Returns whether the best placement is feasible and takes at most this time."""
        return self._best is not None and self._best.feasible and self._best.step_secs <= secs

    @property
    def _num_trials(self) -> int:
        return self._num_simulated if self._log is None else len(self._log.records)

    def measure_original(self) -> Measurement:
        """Simulates the original graph."""
        self.runner.submit(0, self._build_original())
        [completed] = self.runner.wait()
        return completed.measurement

    def propose(self, placer: Placer, count: int) -> np.ndarray:
        """Asks a placer for at most as many placements as the budget has left."""
        num_trials = self._num_trials
        if num_trials and not self._has_time_for_batch():
            return np.zeros([0, placer.groups.num_groups], np.int32)
        self._batch_began_secs = self._measure_elapsed()
        self._num_batches += 1
        return propose_checked(placer, min(count, self._budget.max_trials - num_trials))

    def _has_time_for_batch(self) -> bool:
        """Returns whether the limit leaves time for a batch, which the last one predicts."""
        elapsed_secs, max_secs = self._measure_elapsed(), self._budget.max_secs
        batch_secs = elapsed_secs - self._batch_began_secs
        if self._num_batches == 1:
            batch_secs *= _FIRST_BATCH_SHARE
        is_short = elapsed_secs + batch_secs <= (1.0 + _MAX_EXCESS_SHARE) * max_secs
        return elapsed_secs < max_secs and is_short

    def outcome(self, *, interrupted: bool = False) -> SearchOutcome:
        """Builds the outcome so far; a placement must have been simulated."""
        best = self._best
        assert best is not None
        return SearchOutcome(
            step_secs=best.step_secs if np.isfinite(best.step_secs) else None,
            feasible=best.feasible,
            assignment=tuple(best.placement.tolist()),
            peak_bytes=tuple(best.peak_bytes.tolist()),
            lower_bound_secs=float(self._lower_bound_secs),
            trials=self._num_trials,
            elapsed_secs=round(self._measure_elapsed(), 3),
            placer=self._placer.name,
            seed=self._seed,
            interrupted=interrupted,
        )

    def eta_secs(self) -> float:
        """Estimates the time until the budget ends."""
        return self._budget.eta_secs(self._num_trials, self._measure_elapsed())

    def _build_original(self) -> np.ndarray:
        return np.argmax(legal_devices(self._problem), axis=1).astype(np.int32)

    def _add_batch(self, placements: np.ndarray, batch: SimulatedBatch) -> None:
        self._num_simulated += len(placements)
        if self._sampled is not None:
            self._sampled(batch.step_secs, batch.feasible)
        self._update_best(placements, batch)

    def _update_best(self, placements: np.ndarray, batch: SimulatedBatch) -> None:
        """Updates the best placement so far; ties go to the earlier."""
        excess_bytes = kind = 0
        if batch.feasible.any():
            first = np.where(batch.feasible, batch.step_secs, np.inf).argmin()
        else:
            # An illegal placement is worse than any that only exceeds the memory.
            kinds = np.where(np.isfinite(batch.step_secs), 1, 2)
            excess = np.maximum(batch.peak_bytes - self._memory_bytes, 0).sum(axis=1)
            first = np.lexsort([batch.step_secs, excess, kinds])[0]
            kind, excess_bytes = int(kinds[first]), int(excess[first])
        secs = float(batch.step_secs[first])
        rank = (kind, excess_bytes, secs)
        if self._best is None or rank < self._best.rank:
            # Copy, because the simulator may reuse the array.
            peak_bytes = batch.peak_bytes[first].copy()
            self._best = _RankedPlacement(rank, placements[first].copy(), secs, peak_bytes)

    def _measure_elapsed(self) -> float:
        return time.monotonic() - self._start_secs
