"""The loop of every search: propose placements, measure them, log them, and let placers learn.

`drive` runs it, live and in simulation, for one placer and for several controllers. A `BatchSource`
(`batches.py`) proposes batches, a `Runner` (`runner.py`) measures their placements, and
`StageTrials` (`trial_recorder.py`) tracks the placements under way and logs those that ended.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from graph_passes.clearing_advice import advise_clearing
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.batches import BatchSource
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.concurrent import ConcurrentPlacer, ControllerBatches
from tf_placer.search.proposals import PlacerBatches, propose_checked
from tf_placer.search.replay import find_logged_batches
from tf_placer.search.runner import UNLIMITED, Runner
from tf_placer.search.trial_log import ORIGINAL, Trial, TrialLog
from tf_placer.search.trial_recorder import StageTrials, TrialRecorder

__all__ = ["GraphDoesNotRunError", "SearchStage", "drive"]

# These failures mean that the graph itself is broken; another placement may cure all others.
_FATAL = (FailureKind.RUNTIME_ERROR, FailureKind.INVALID_PLACEMENT)


class GraphDoesNotRunError(RuntimeError):
    """The original graph fails in a way that no placement can cure."""


@dataclasses.dataclass(frozen=True)
class SearchStage:
    """A part of a search, whose placer is made when the stage begins.

    Attributes:
        name: the name of the placer.
        make: makes the placer, unused; returns None to skip the stage.
    """

    name: str
    make: Callable[[], Placer | ConcurrentPlacer | None]

    @classmethod
    def of(cls, placer: Placer | ConcurrentPlacer) -> SearchStage:
        """Makes a stage from an existing placer."""
        return cls(placer.name, lambda: placer)


def drive(
    stages: Sequence[SearchStage],
    runner: Runner,
    log: TrialLog | None,
    budget: Budget,
    *,
    original: Callable[[], Measurement] | None = None,
    propose: Callable[[Placer, int], np.ndarray] = propose_checked,
    report: Callable[[Trial, Progress], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Measures the placements that placers propose, and lets the placers learn from them.

    Trial 0 is the original graph. Then each stage in turn proposes batches of `batch_size`
    placements and observes their measurements, until it proposes nothing; the last stage usually
    continues until the budget ends. A stage observes its own batches only. The runner measures as
    many placements of a batch at once as it has room for. Each goes to the log when it ends, and
    the placer observes the batch, in its own order, when all have ended. A placer whose batches are
    smaller than the capacity of the runner is asked for as many placements as fit. In a stage of
    several controllers, each proposes, waits for its own batch, and observes it.

    A placement that any stage has had measured is not measured again: its trial copies the
    measurement and names the trial that it `repeats`. Such a trial counts towards `max_trials` like
    any other, so that a placer that has converged to one placement does not search forever.

    If the log has trials, the search resumes: the placers observe the logged batches again, and an
    incomplete batch is completed. No logged placement is measured again, and the logged time counts
    towards `max_secs`.

    Args:
        stages: placers with different names.
        runner: measures placements.
        log: a new log, or the log of the search to resume. It stays empty if the search is stopped
            before trial 0. None to log nothing, and to measure repeated placements again.
        budget: the limits of the search, possibly larger than when the log was written.
        original: measures the original graph for the log; None to have no such trial.
        propose: asks a placer for at most the given number of placements.
        report: called after each new trial (not for those already in the log).
        observed: called with a placer whenever it has observed a batch, logged ones included.
        should_stop: called before each trial; true ends the search as the budget would. A failure
            measured while it became true is not recorded, because the cause of the stop (such as an
            interrupt from the terminal) may have hit the measurement, too.

    Raises:
        GraphDoesNotRunError: the original graph fails with RUNTIME_ERROR or INVALID_PLACEMENT.
        LogError: the log has trials that these stages did not propose.
        SearchError: controllers die repeatedly.
        ValueError: two stages have the same name, or a placer broke its contract.
    """
    history = _History(log, [stage.name for stage in stages])
    recorder = TrialRecorder(log, budget, report, should_stop)
    if log is not None and original is not None and not _ensure_original(log, recorder, original):
        return
    for stage in stages:
        if recorder.is_over():
            break
        placer = stage.make()
        if placer is None:
            continue
        batches = history.make_batches(placer, runner, propose, observed or (lambda placer: None))
        trials = StageTrials(stage.name, recorder)
        while True:
            is_over = recorder.is_over(trials.num_under_way)
            sampled = None if is_over else batches.sample(trials.num_under_way > 0)
            if sampled is None and not trials.num_under_way:
                break
            for batch in sampled or ():
                trials.add(batch, batches.find_logged(batch))
            for batch, position in trials.take_next(runner.capacity):
                runner.submit((batch, position), batch.placements[position])
            if trials.num_under_way:
                trials.record(runner.wait(math.inf if is_over else batches.poll_secs))
            for batch, measurements in trials.pop_complete_batches():
                batches.observe(batch, measurements)
        batches.settle()


class _History:
    """The trials of the log of a resumed search, by stage."""

    def __init__(self, log: TrialLog | None, names: Sequence[str]) -> None:
        if len({ORIGINAL, *names}) <= len(names):
            raise ValueError(f"stages need names of their own, other than {ORIGINAL!r}: {names}")
        self._trials = () if log is None else log.trials
        self._batches = {} if log is None else find_logged_batches(log, names)
        # The last stage in the log may continue; those before it are complete.
        last = self._trials[-1].placer if self._batches else ORIGINAL
        self._past = names[: names.index(last)] if last in names else []

    def make_batches(
        self,
        placer: Placer | ConcurrentPlacer,
        runner: Runner,
        propose: Callable[[Placer, int], np.ndarray],
        observed: Callable[[Placer | ConcurrentPlacer], None],
    ) -> BatchSource:
        """Makes the source of a placer's batches, which begins with those of the log."""
        if isinstance(placer, ConcurrentPlacer):
            own = [trial for trial in self._trials if trial.placer == placer.name]
            return ControllerBatches(placer, own, observed)
        return PlacerBatches(
            placer,
            self._batches.get(placer.name, []),
            is_past=placer.name in self._past,
            min_count=lambda: 1 if runner.capacity == UNLIMITED else runner.capacity,
            propose=propose,
            observed=observed,
        )


def _ensure_original(
    log: TrialLog, recorder: TrialRecorder, measure: Callable[[], Measurement]
) -> bool:
    """Measures the original graph if the log lacks it.

    Returns:
        False if the search was stopped before it was measured.

    Raises:
        GraphDoesNotRunError: no placement of the graph can run.
    """
    resumed = ""
    if log.trials:
        resumed = f" (measured earlier: {log.path} has it; use another log to try again)"
        logging.info("resuming after %d trials of %s", len(log.trials), log.path)
    else:
        if recorder.was_stopped():
            return False
        measurement = measure()
        if measurement.failure is not None and recorder.was_stopped():
            return False
        recorder.record(ORIGINAL, None, measurement)
    failure = log.trials[0].measurement.failure
    if failure is not None and failure.kind in _FATAL:
        advice = ""
        if failure.kind is FailureKind.INVALID_PLACEMENT:
            advice = f"; {advise_clearing()}, or allow soft placement in the session_config"
        raise GraphDoesNotRunError(
            f"the original graph does not run, so no placement of it can: "
            f"{failure.message}{advice}{resumed}"
        )
    return True
