"""The search on a problem by several controllers: each batch is simulated by this process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.loop import Budget, Progress, search
from tf_placer.search.measuring import InTurn, Measuring
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import SimulatedBatch

__all__ = ["SIMULATED_TRIALS", "controlled_search"]

#: Name of the log in the directory of a search.
SIMULATED_TRIALS = "simulated_trials.jsonl"


def controlled_search(
    problem: PlacementProblem,
    controllers: ConcurrentPlacer,
    log: TrialLog,
    *,
    seed: int,
    max_trials: int,
    max_secs: float,
    measuring: Measuring | None = None,
    report: Callable[[SearchOutcome, float], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    sampled: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> SearchOutcome:
    """Simulates what controllers propose, and lets them learn from it.

    Trial 0, the graph as it came, has every group on the first device where it may go. A log with
    trials is gone on with; what is in it counts towards the budget.

    Args:
        problem: what to place.
        controllers: for this problem, not begun.
        log: of the trials.
        seed: of the controllers.
        max_trials: placements to simulate at most.
        max_secs: seconds after which no further one starts.
        measuring: what simulates; this process when None.
        report: called after each trial with the outcome if the search ended there, and with the
            seconds until its budget ends, as expected from the pace so far.
        observed: called with the controllers after they may have learned.
        sampled: called with the step of each placement and whether it may run, arrays of one each.

    Returns:
        The best placement, as `search_problem` says.

    Raises:
        KeyboardInterrupt: the search was interrupted before its first trial.
        SearchError: controllers die again and again.
    """
    environment = SimulatedEnvironment(problem)
    first = np.argmax(legal_devices(problem), axis=1).astype(np.int32)
    outcomes = _Outcomes(problem, environment, controllers.name, seed, first)
    for trial in log.trials:
        outcomes.add(trial)

    def original() -> Measurement:
        [measurement] = environment.measure(first[np.newaxis])
        return measurement

    def on_trial(trial: Trial, progress: Progress) -> None:
        outcomes.add(trial)
        secs = trial.measurement.median_secs
        if sampled is not None:
            sampled(np.array([np.inf if secs is None else secs]), np.array([secs is not None]))
        if report is not None:
            report(outcomes.outcome(), progress.eta_secs)

    interrupted = False
    try:
        search(
            original,
            measuring or InTurn(environment),
            [controllers],
            log,
            Budget(max_trials, max_secs),
            report=on_trial,
            observed=observed,
        )
    except KeyboardInterrupt:
        if not log.trials:
            raise
        interrupted = True
    return outcomes.outcome(interrupted=interrupted)


class _Outcomes:
    """The best of the trials so far: the fastest that fits, or the one nearest to fitting."""

    def __init__(
        self,
        problem: PlacementProblem,
        environment: SimulatedEnvironment,
        placer: str,
        seed: int,
        first: np.ndarray,
    ) -> None:
        self._environment = environment
        self._memory_bytes = np.array([d.memory_bytes for d in problem.devices], np.int64)
        self._lower_bound_secs = float(lower_bounds(problem).step_secs)
        self._placer = placer
        self._seed = seed
        self._first = first
        self._rank: tuple[float, float] = (np.inf, np.inf)
        self._best = first
        self._simulated: SimulatedBatch | None = None
        self._num_trials = 0
        self._elapsed_secs = 0.0

    def add(self, trial: Trial) -> None:
        """Takes in the next trial."""
        measurement = trial.measurement
        peak_bytes = np.array(measurement.peak_bytes or self._memory_bytes)
        excess_bytes = float(np.maximum(peak_bytes - self._memory_bytes, 0).sum())
        secs = measurement.median_secs
        rank = (0.0, secs) if secs is not None else (max(1.0, excess_bytes), np.inf)
        self._num_trials, self._elapsed_secs = trial.index + 1, trial.elapsed_secs
        if rank < self._rank:
            self._rank = rank
            is_first = trial.assignment is None
            self._best = self._first if is_first else np.array(trial.assignment, np.int32)
            self._simulated = self._environment.simulator.simulate(self._best[np.newaxis])

    def outcome(self, *, interrupted: bool = False) -> SearchOutcome:
        """Sums up what there is so far."""
        batch = self._simulated
        assert batch is not None
        secs = float(batch.step_secs[0])
        return SearchOutcome(
            step_secs=secs if np.isfinite(secs) else None,
            feasible=bool(batch.feasible[0]),
            assignment=tuple(self._best.tolist()),
            peak_bytes=tuple(batch.peak_bytes[0].tolist()),
            lower_bound_secs=self._lower_bound_secs,
            trials=self._num_trials,
            elapsed_secs=round(self._elapsed_secs, 3),
            placer=self._placer,
            seed=self._seed,
            interrupted=interrupted,
        )
