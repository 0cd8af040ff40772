"""The confirmation of a live job: its finalists are measured again, side by side."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.races import asynchronous_values
from tf_placer.confirmation.choice import choose_winner, hopeful_finalists
from tf_placer.confirmation.comparable_tensors import comparable_tensors
from tf_placer.confirmation.confirmation import Confirmation, confirm
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.session import SessionEnvironment
from tf_placer.interrupts import TimeIsOver
from tf_placer.live.job import LiveJob
from tf_placer.live.time_plan import ConfirmationPlan
from tf_placer.runs.search_result import (
    confirmed_measurement,
    found_placement,
)
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.text.units import format_duration

__all__ = ["Confirmed", "confirm_job"]


@dataclasses.dataclass(frozen=True, eq=False)
class Confirmed:
    """What the confirmation of a search came to.

    Attributes:
        outcome: how the search ended.
        confirmation: what was measured; None if nothing was.
        winner: the label of the finalist that was found; None if none was.
        note: what else to say, if there is something.
    """

    outcome: Outcome
    confirmation: Confirmation | None = None
    winner: str | None = None
    note: str | None = None


def confirm_job(job: LiveJob, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> Confirmed:
    """Measures the finalists of a search again, side by side, and writes the one that wins.

    Args:
        job: what was searched, and with what.
        trials: of the search.
        finalists: by label, the graph as it came first.

    Raises:
        OSError: the placement that was found cannot be written anywhere.
        WorkerStartError: nothing can be measured.
    """
    while True:
        try:
            return _confirm_hopeful(job, trials, finalists)
        except WorkerLostError as error:
            job.stages.say(f"{error}: what it has confirmed does not count, and another begins")


def _confirm_hopeful(
    job: LiveJob, trials: Sequence[Trial], finalists: Mapping[str, Trial]
) -> Confirmed:
    """Does what `confirm_job` says, by one worker if there are workers.

    Raises:
        WorkerLostError: that worker was lost.
    """
    asked_before = job.interrupts.count
    if asked_before:
        job.stages.say("interrupted: confirming the best so far; once more ends this, too")
    hopeful = hopeful_finalists(finalists)
    if len(hopeful) < 2:
        return Confirmed(Outcome.NOT_FASTER, note="no trial was, so none was measured again")
    plan = job.plan.confirmation(trials, hopeful, impatient=asked_before > 0)
    if plan is None:
        return Confirmed(Outcome.NOT_CONFIRMED, note=_too_little_time(job, trials, hopeful))
    labels = {label: job.assignment(finalists[label]) for label in plan.labels}
    where = "processes" if job.hosted is None else "sessions of the calling process"
    job.others.look()
    stage = f"confirming: {', '.join(plan.labels)} side by side in new {where}"
    if math.isfinite(plan.max_secs):
        stage += f", {format_duration(plan.max_secs)} at most"
    job.stages.begin(stage)
    with _sessions(job) as fresh:
        fresh.timeout_secs = job.confirming_timeout_secs(trials)
        try:
            confirmed = _confirm(job, fresh, plan, labels, hopeful, asked_before)
        except TimeIsOver:
            return Confirmed(Outcome.NOT_CONFIRMED, note=_too_little_time(job, trials, hopeful))
        except KeyboardInterrupt:
            return Confirmed(Outcome.INTERRUPTED)
    if confirmed.winner is not None and confirmed.confirmation is not None:
        job.found = found_placement(
            job.request,
            job.header,
            labels[confirmed.winner],
            finalists[confirmed.winner],
            confirmed_measurement(confirmed.confirmation, confirmed.winner),
        )
        job.keep(job.write_found)
    return confirmed


def _sessions(job: LiveJob) -> SessionEnvironment | RemoteSessions:
    """Makes what a confirmation runs in."""
    if job.crew is None:
        return job.environment(meta_optimizer=True)
    return job.crew.sessions(job.first_timeout_secs())


def _confirm(
    job: LiveJob,
    fresh: SessionEnvironment | RemoteSessions,
    plan: ConfirmationPlan,
    labels: Mapping[str, Mapping[str, str]],
    finalists: Mapping[str, Trial],
    asked_before: int,
) -> Confirmed:
    """Confirms finalists until one wins, or none can."""
    original = finalists[ORIGINAL].measurement
    original_secs = original.median_secs
    hints = {
        label: math.log(original_secs / secs)
        for label, secs in ((each, finalists[each].measurement.median_secs) for each in labels)
        if original_secs and secs and label != ORIGINAL
    }

    def report(line: str) -> None:
        job.stages.say(f"confirming: {line}")
        job.others.look()

    start_secs, request_secs = time.monotonic(), fresh.timeout_secs
    candidates, notes = dict(labels), []
    while True:
        fresh.timeout_secs = request_secs
        # Who interrupts waits for the fewest rounds, and may interrupt once more.
        max_secs = math.inf if asked_before else job.plan.left_secs()
        with job.interrupts.breakable(asked_before + 1 if asked_before else 2, max_secs):
            confirmation = confirm(
                fresh,
                candidates,
                ORIGINAL,
                hints=hints,
                reference_failure=original.failure,
                max_secs=plan.max_secs - (time.monotonic() - start_secs),
                most_rounds=plan.most_rounds,
                report=report,
                should_stop=lambda: job.interrupts.count > asked_before,
                seed=job.request.seed,
            )
        fresh.timeout_secs = job.first_timeout_secs()
        outcome, winner, note = choose_winner(
            _TimedValues(job, fresh, is_timed=not asked_before),
            confirmation,
            candidates,
            tensors=comparable_tensors(job.grouped.op_graph, job.grouped.colocation),
            mixed_devices=len({d.type for d in job.request.machine.devices}) > 1,
            computes_values=job.request.machine.computes_values,
            asynchronous=asynchronous_values(job.grouped.op_graph, job.grouped.colocation.races),
        )
        notes += [note] if note else []
        if outcome is not Outcome.DIFFERENT_VALUES or job.interrupts.count > asked_before:
            break
        # Another one may compute the same.
        others = {label: each for label, each in candidates.items() if label != confirmation.best}
        left_secs = plan.max_secs - (time.monotonic() - start_secs)
        if len(others) < 2 or left_secs <= 0:
            break
        candidates = others
    return Confirmed(outcome, confirmation, winner, "; ".join(notes) or None)


class _TimedValues:
    """Computes what graphs compute as long as there is time; see `ValuesEnvironment`."""

    def __init__(
        self, job: LiveJob, sessions: SessionEnvironment | RemoteSessions, *, is_timed: bool
    ) -> None:
        """Computes nothing yet.

        Args:
            job: whose time it is. An interrupt breaks off what is under way, too.
            sessions: run the steps.
            is_timed: whether the end of the time breaks off what is under way.
        """
        self._job, self._sessions, self._is_timed = job, sessions, is_timed

    def fetched_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = ()
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches what a few steps compute; see `ValuesEnvironment.fetched_values`."""
        interrupts = self._job.interrupts
        max_secs = self._job.plan.left_secs() if self._is_timed else math.inf
        try:
            with interrupts.breakable(interrupts.count + 1, max_secs):
                return self._sessions.fetched_values(assignment, tensors=tensors)
        except TimeIsOver:
            self._sessions.stop()
            return Failure(
                FailureKind.TIMEOUT, f"{self._job.request.max_secs:g} s were over before"
            )


def _too_little_time(job: LiveJob, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> str:
    """Says why nothing was confirmed, and how much time would do."""
    needed_secs = job.plan.needed_secs(trials, finalists)
    enough_secs = math.ceil(job.request.max_secs + needed_secs)
    return (
        f"there was no time left of {job.request.max_secs:g} s to measure the graph as it "
        f"came and the fastest placement again, which takes about "
        f"{format_duration(needed_secs)} here: allow {enough_secs} s"
    )
