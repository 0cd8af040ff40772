"""The search loop: propose, measure, log, observe, until the budget ends."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

from graph_passes.util.messages import quoted
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.concurrent import ConcurrentPlacer, run_concurrently
from tf_placer.search.measuring import Measuring
from tf_placer.search.proposals import Measured, propose_and_observe, proposed
from tf_placer.search.replay import as_measured, by_position, complete, logged_batches
from tf_placer.search.trial_log import ORIGINAL, Trial, TrialLog

__all__ = [
    "ORIGINAL",
    "Budget",
    "GraphDoesNotRunError",
    "LaterStage",
    "Progress",
    "best_trial",
    "search",
]

# The graph itself is broken, so no placement can help; other failures another placement may cure.
_FATAL = (FailureKind.RUNTIME_ERROR, FailureKind.INVALID_PLACEMENT)
_ADVICE = {
    FailureKind.INVALID_PLACEMENT: "; clear the devices that it came with (--clear_devices), or "
    "allow soft placement in the session_config"
}


class GraphDoesNotRunError(RuntimeError):
    """The graph fails as it came, in a way that every placement of it would."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a search ends: whichever comes first.

    Attributes:
        max_trials: trials, counting trial 0 (the graph as it came) and repeats.
        max_secs: seconds of searching. No trial starts after them; the one that runs is finished.
    """

    max_trials: int
    max_secs: float

    def __post_init__(self) -> None:
        if self.max_trials < 1:
            raise ValueError(f"max_trials must be at least 1, not {quoted(self.max_trials)}")
        if not self.max_secs > 0:
            raise ValueError(f"max_secs must be positive, not {self.max_secs}")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a search stands after a trial.

    Attributes:
        trial_count: trials so far.
        budget: when the search ends.
        best: the fastest trial so far; None while all have failed.
        elapsed_secs: time spent searching.
        eta_secs: expected time until the budget ends, from the pace so far.
    """

    trial_count: int
    budget: Budget
    best: Trial | None
    elapsed_secs: float
    eta_secs: float


@dataclasses.dataclass(frozen=True)
class LaterStage:
    """A stage whose placer is made when its turn comes.

    Attributes:
        name: of the placer.
        make: makes it; None where that is not possible, and the stage is left out.
    """

    name: str
    make: Callable[[], Placer | ConcurrentPlacer | None]


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Finds the trial with the lowest median step time, the first of equals; None if all failed."""
    ran = [trial for trial in trials if trial.measurement.median_secs is not None]
    return min(ran, key=_median_secs, default=None)


def search(
    measure_original: Callable[[], Measurement],
    measuring: Measuring,
    stages: Sequence[Placer | ConcurrentPlacer | LaterStage],
    log: TrialLog,
    budget: Budget,
    *,
    ask: Callable[[Placer, int], np.ndarray] = proposed,
    report: Callable[[Trial, Progress], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Trial]:
    """Measures what placers propose, and lets them learn from it.

    Trial 0 is the graph as it came. Then each stage in turn proposes batches of `batch_size`
    placements and observes their measurements, until it proposes nothing; the last one usually
    goes on until the budget ends. A stage observes its own batches only. Of a batch as many
    placements are measured at once as can be, each goes to the log when it ends, and the placer
    observes the batch, in its own order, when all have ended. Where several can be measured at
    once, a placer whose batches are smaller is asked for so many.

    A placement that any stage has had measured is not measured again: its trial takes over the
    measurement and says which trial it `repeats`. Such a trial counts towards `max_trials` like
    any other, so a placer that has settled on one placement does not search for ever.

    A stage of several controllers has each of them propose, wait for its own batch, and observe it;
    see `run_concurrently`.

    With a log that has trials, the search goes on where it was: the placers observe the logged
    batches again, and a batch that was cut short is completed. Nothing that is in the log is
    measured again, and the time that it took counts towards `max_secs`.

    Args:
        measure_original: measures the graph as it came.
        measuring: measures placements.
        stages: placers with different names, not yet used.
        log: a new log, or that of the search to go on with.
        budget: when to end. It may be larger than the budget that the log was written under.
        ask: asks a placer for so many placements.
        report: called after each new trial (not for those already in the log).
        observed: called with a stage whenever it has observed a batch, those of the log included.
        should_stop: asked before each trial; true ends the search as the budget would. A failure
            measured while it became true is not recorded, because what stops the search (such as
            an interrupt from the terminal) may have hit the measurement, too.

    Returns:
        All trials of the log, old and new; none if the search was stopped before trial 0.

    Raises:
        GraphDoesNotRunError: the graph as it came fails with RUNTIME_ERROR or INVALID_PLACEMENT.
        LogError: the log has trials that these stages did not propose.
        ValueError: two stages have one name, or a placer broke its contract.
    """
    names = [stage.name for stage in stages]
    if len({ORIGINAL, *names}) <= len(names):
        raise ValueError(f"stages need names of their own, other than {ORIGINAL!r}: {names}")
    batches = logged_batches(log, names)
    run = _Run(measuring, log, budget, ask, report, observed, should_stop)
    if not log.trials:
        if run.original(measure_original) is None:
            return []
        resumed = ""
    else:
        resumed = f" (measured earlier: {log.path} has it; use another log to try again)"
        logging.info("going on after %d trials of %s", len(log.trials), log.path)
    failure = log.trials[0].measurement.failure
    if failure is not None and failure.kind in _FATAL:
        advice = _ADVICE.get(failure.kind, "")
        raise GraphDoesNotRunError(
            f"the graph does not run as it came, so no placement of it will: "
            f"{failure.message}{advice}{resumed}"
        )
    stage_in_log = log.trials[-1].placer if batches else ORIGINAL
    for stage in stages:
        if run.is_over():
            break
        placer = stage.make() if isinstance(stage, LaterStage) else stage
        if placer is None:
            continue
        if isinstance(placer, ConcurrentPlacer):
            own = [trial for trial in log.trials if trial.placer == stage.name]
            run_concurrently(run, placer, own, run.observed)
            continue
        logged = batches.get(stage.name, [])
        # The last batch of the log may lack placements, and the stage may go on after it; all
        # before it is history.
        is_history = stage_in_log in names[names.index(stage.name) + 1 :]
        for batch in logged if is_history else logged[:-1]:
            if run.is_over():
                break
            run.replay(placer, batch)
        if not is_history:
            run.stage(placer, max(0, len(logged) - 1), logged[-1] if logged else [])
    return list(log.trials)


class _Run:
    """What the steps of one search share: budget, log, and what has been measured already."""

    def __init__(
        self,
        measuring: Measuring,
        log: TrialLog,
        budget: Budget,
        ask: Callable[[Placer, int], np.ndarray],
        report: Callable[[Trial, Progress], None] | None,
        observed: Callable[[Placer | ConcurrentPlacer], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.measuring = measuring
        self._log = log
        self._budget = budget
        self._ask = ask
        self._report = report
        self._observed = observed
        self._should_stop = should_stop or (lambda: False)
        self._stopped = False
        self._measured: dict[tuple[int, ...], Trial] = {}
        for trial in log.trials:
            if trial.assignment is not None:
                self._measured.setdefault(trial.assignment, trial)
        self._num_trials = len(log.trials)
        self._best = best_trial(log.trials)
        earlier_secs = log.trials[-1].elapsed_secs if log.trials else 0.0
        self._start_secs = time.monotonic() - earlier_secs

    def is_over(self, under_way: int = 0) -> bool:
        """Says whether no further trial may start, where some are being measured."""
        return (
            self._num_trials + under_way >= self._budget.max_trials
            or self._elapsed_secs() >= self._budget.max_secs
            or self.was_stopped()
        )

    def stage(self, placer: Placer, batch: int, logged: Sequence[Trial]) -> None:
        """Lets a placer propose and observe until it has nothing more or the search is over.

        Args:
            placer: it has observed all batches before this one.
            batch: number of the batch to propose next.
            logged: the trials of that batch that are in the log already.
        """

        def count() -> int:
            # The whole batch even where the budget has no room for it: so a search that goes on
            # with a larger budget completes the same batch.
            known = max(by_position(logged), default=-1) + 1
            return 0 if self.is_over() else max(placer.batch_size, self.measuring.capacity, known)

        def measure(proposal: np.ndarray) -> Measured | None:
            nonlocal batch, logged
            rows = [tuple(row) for row in proposal.tolist()]
            trials = self._batch(placer, batch, logged, rows)
            if trials is None:
                return None
            batch, logged = batch + 1, []
            return as_measured(trials) if trials else None

        for _ in propose_and_observe(placer, count, measure, ask=self._ask):
            self.observed(placer)

    def replay(self, placer: Placer, trials: Sequence[Trial]) -> None:
        """Shows a placer one of its batches, which was measured to the end."""
        placer.observe(*as_measured(trials))
        self.observed(placer)

    def observed(self, placer: Placer | ConcurrentPlacer) -> None:
        """Tells who asked to be told that a placer has observed a batch."""
        if self._observed is not None:
            self._observed(placer)

    def _batch(
        self, placer: Placer, batch: int, logged: Sequence[Trial], rows: list[tuple[int, ...]]
    ) -> list[Trial] | None:
        """Measures what a log lacks of a batch; None if the search is over before it is whole.

        Args:
            placer: who proposed it.
            batch: its number.
            logged: its trials in the log.
            rows: what was proposed for it.
        """
        known = by_position(logged)
        assignments = complete(placer, batch, known, rows)
        waiting = collections.deque(n for n in assignments if n not in known)
        trials, under_way = list(logged), set[int]()
        while waiting or under_way:
            while waiting and len(under_way) < self.measuring.capacity:
                row = assignments[waiting[0]]
                if row in (assignments[n] for n in under_way):
                    break  # It takes over that measurement.
                if self.is_over(len(under_way)):
                    waiting.clear()
                    break
                n = waiting.popleft()
                same = self.measured_before(row)
                if same is not None:
                    measurement, repeats = same.measurement, same.index
                    place = None if n == len(trials) else n
                    trials.append(self.record(placer.name, batch, row, measurement, repeats, place))
                else:
                    self.measuring.start(n, np.array(row, dtype=np.int32))
                    under_way.add(n)
            if not under_way:
                continue
            for ended in self.measuring.finished():
                under_way.remove(ended.key)
                row, measurement = assignments[ended.key], ended.measurement
                if measurement.failure is None or not self.was_stopped():
                    place = None if ended.key == len(trials) else ended.key
                    trials.append(
                        self.record(placer.name, batch, row, measurement, None, place, ended.worker)
                    )
        return trials if len(trials) == len(assignments) else None

    def original(self, measure: Callable[[], Measurement]) -> Trial | None:
        """Measures the graph as it came and logs it; None if it failed while being stopped."""
        if self.was_stopped():
            return None
        measurement = measure()
        if measurement.failure is not None and self.was_stopped():
            return None
        return self.record(ORIGINAL, 0, None, measurement)

    def measured_before(self, row: tuple[int, ...]) -> Trial | None:
        """Finds the trial that measured a placement; see `Recording.measured_before`."""
        return self._measured.get(row)

    def record(
        self,
        placer: str,
        batch: int,
        assignment: tuple[int, ...] | None,
        measurement: Measurement,
        repeats: int | None = None,
        position: int | None = None,
        worker: str | None = None,
        controller: int | None = None,
        version: int | None = None,
    ) -> Trial:
        """Puts a trial into the log; see `Trial` for the arguments."""
        elapsed_secs = self._elapsed_secs()
        trial = Trial(
            index=self._num_trials,
            placer=placer,
            batch=batch,
            assignment=assignment,
            measurement=measurement,
            repeats=repeats,
            elapsed_secs=round(elapsed_secs, 3),
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            position=position,
            worker=worker,
            controller=controller,
            version=version,
        )
        self._log.append(trial)
        self._num_trials += 1
        if assignment is not None:
            self._measured.setdefault(assignment, trial)
        self._best = best_trial(best for best in (self._best, trial) if best is not None)
        if self._report is not None:
            self._report(trial, self._progress(elapsed_secs))
        return trial

    def _progress(self, elapsed_secs: float) -> Progress:
        trials_left = self._budget.max_trials - self._num_trials
        eta_secs = min(
            trials_left * elapsed_secs / self._num_trials, self._budget.max_secs - elapsed_secs
        )
        return Progress(
            self._num_trials, self._budget, self._best, elapsed_secs, max(0.0, eta_secs)
        )

    def was_stopped(self) -> bool:
        """Says whether the search was stopped; see `Recording.was_stopped`."""
        # Once stopped, a search stays so: a batch that it left is not to be followed by another.
        self._stopped = self._stopped or self._should_stop()
        return self._stopped

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs


def _median_secs(trial: Trial) -> float:
    secs = trial.measurement.median_secs
    assert secs is not None
    return secs
