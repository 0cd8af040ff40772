"""The loop of every search: ask for placements, measure them, log that, and let placers learn.

`drive` is all of it: live and in simulation, for one placer and for several controllers. `Batches`
(`batches.py`) are what comes from a placer, a `Runner` (`runner.py`) measures them, `StageTrials`
(`trial_recorder.py`) knows what of them is under way and logs what ended.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.batches import Batches
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.concurrent import ConcurrentPlacer, ControllerBatches
from tf_placer.search.proposals import PlacerBatches, proposed
from tf_placer.search.replay import logged_batches
from tf_placer.search.runner import UNLIMITED, Runner
from tf_placer.search.trial_log import ORIGINAL, Trial, TrialLog
from tf_placer.search.trial_recorder import StageTrials, TrialRecorder

__all__ = ["GraphDoesNotRunError", "Stage", "drive"]

# The graph itself is broken, so no placement can help; other failures another placement may cure.
_FATAL = (FailureKind.RUNTIME_ERROR, FailureKind.INVALID_PLACEMENT)
_ADVICE = {
    FailureKind.INVALID_PLACEMENT: "; clear the devices that it came with (--clear_devices), or "
    "allow soft placement in the session_config"
}


class GraphDoesNotRunError(RuntimeError):
    """The graph fails as it came, in a way that every placement of it would."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a search, whose placer is made when its turn comes.

    Attributes:
        name: of the placer.
        make: makes it, not yet used; None where that is not possible, and the stage is left out.
    """

    name: str
    make: Callable[[], Placer | ConcurrentPlacer | None]

    @classmethod
    def of(cls, placer: Placer | ConcurrentPlacer) -> Stage:
        """Makes the stage of a placer that there is already."""
        return cls(placer.name, lambda: placer)


def drive(
    stages: Sequence[Stage],
    runner: Runner,
    log: TrialLog | None,
    budget: Budget,
    *,
    original: Callable[[], Measurement] | None = None,
    ask: Callable[[Placer, int], np.ndarray] = proposed,
    report: Callable[[Trial, Progress], None] | None = None,
    observed: Callable[[Placer | ConcurrentPlacer], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Measures what placers propose, and lets them learn from it.

    Trial 0 is the graph as it came. Then each stage in turn proposes batches of `batch_size`
    placements and observes their measurements, until it proposes nothing; the last one usually
    goes on until the budget ends. A stage observes its own batches only. Of a batch as many
    placements are measured at once as can be, each goes to the log when it ends, and the placer
    observes the batch, in its own order, when all have ended. Where several can be measured at
    once, a placer whose batches are smaller is asked for so many. Of a stage of several controllers
    each proposes, waits for its own batch, and observes it.

    A placement that any stage has had measured is not measured again: its trial takes over the
    measurement and says which trial it `repeats`. Such a trial counts towards `max_trials` like
    any other, so a placer that has settled on one placement does not search for ever.

    With a log that has trials, the search goes on where it was: the placers observe the logged
    batches again, and a batch that was cut short is completed. Nothing that is in the log is
    measured again, and the time that it took counts towards `max_secs`.

    Args:
        stages: placers with different names.
        runner: measures placements.
        log: a new log, or that of the search to go on with. It has no trial if the search is
            stopped before trial 0. Without one, what was measured before is measured again.
        budget: when to end. It may be larger than the budget that the log was written under.
        original: measures the graph as it came, for the log; None to have no such trial.
        ask: asks a placer for so many placements.
        report: called after each new trial (not for those already in the log).
        observed: called with a stage whenever it has observed a batch, those of the log included.
        should_stop: asked before each trial; true ends the search as the budget would. A failure
            measured while it became true is not recorded, because what stops the search (such as
            an interrupt from the terminal) may have hit the measurement, too.

    Raises:
        GraphDoesNotRunError: the graph as it came fails with RUNTIME_ERROR or INVALID_PLACEMENT.
        LogError: the log has trials that these stages did not propose.
        SearchError: controllers die again and again.
        ValueError: two stages have one name, or a placer broke its contract.
    """
    history = _History(log, [stage.name for stage in stages])
    recorder = TrialRecorder(log, budget, report, should_stop)
    if log is not None and original is not None and not _has_original(log, recorder, original):
        return
    for stage in stages:
        if recorder.is_over():
            break
        placer = stage.make()
        if placer is None:
            continue
        # Those of the log come first, and nothing of them is measured again.
        batches = history.batches(placer, runner, ask, observed or (lambda placer: None))
        trials = StageTrials(stage.name, recorder)
        while True:
            is_over = recorder.is_over(trials.num_under_way)
            sampled = None if is_over else batches.sample(trials.num_under_way > 0)
            if sampled is None and not trials.num_under_way:
                break
            for batch in sampled or ():
                trials.add(batch, batches.known(batch))
            for batch, place in trials.next_ones(runner.capacity):
                runner.submit((batch, place), batch.placements[place])
            if trials.num_under_way:
                trials.record(runner.wait(math.inf if is_over else batches.look_secs))
            for batch, measurements in trials.whole_batches():
                batches.observe(batch, measurements)
        batches.settle()


class _History:
    """The trials of a log, by the stages of a search that resumes."""

    def __init__(self, log: TrialLog | None, names: Sequence[str]) -> None:
        if len({ORIGINAL, *names}) <= len(names):
            raise ValueError(f"stages need names of their own, other than {ORIGINAL!r}: {names}")
        self._trials = () if log is None else log.trials
        self._batches = {} if log is None else logged_batches(log, names)
        # The last batch of the log may lack placements, and its stage may go on after it.
        last = self._trials[-1].placer if self._batches else ORIGINAL
        self._past = names[: names.index(last)] if last in names else []

    def batches(
        self,
        placer: Placer | ConcurrentPlacer,
        runner: Runner,
        ask: Callable[[Placer, int], np.ndarray],
        observed: Callable[[Placer | ConcurrentPlacer], None],
    ) -> Batches:
        """Makes the batches of a placer, those of the log first."""
        if isinstance(placer, ConcurrentPlacer):
            own = [trial for trial in self._trials if trial.placer == placer.name]
            return ControllerBatches(placer, own, observed)
        return PlacerBatches(
            placer,
            self._batches.get(placer.name, []),
            is_past=placer.name in self._past,
            least=lambda: 1 if runner.capacity == UNLIMITED else runner.capacity,
            ask=ask,
            observed=observed,
        )


def _has_original(
    log: TrialLog, recorder: TrialRecorder, measure: Callable[[], Measurement]
) -> bool:
    """Measures the graph as it came, if the log lacks it; false if the search was stopped.

    Raises:
        GraphDoesNotRunError: no placement of it will run.
    """
    resumed = ""
    if log.trials:
        resumed = f" (measured earlier: {log.path} has it; use another log to try again)"
        logging.info("going on after %d trials of %s", len(log.trials), log.path)
    else:
        if recorder.was_stopped():
            return False
        measurement = measure()
        if measurement.failure is not None and recorder.was_stopped():
            return False
        recorder.record(ORIGINAL, None, measurement)
    failure = log.trials[0].measurement.failure
    if failure is not None and failure.kind in _FATAL:
        raise GraphDoesNotRunError(
            f"the graph does not run as it came, so no placement of it will: "
            f"{failure.message}{_ADVICE.get(failure.kind, '')}{resumed}"
        )
    return True
