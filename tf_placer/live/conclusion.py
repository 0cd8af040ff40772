"""The end of a live search: confirms, explains and writes its result."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.races import list_values_of_chance
from graph_passes.unordered_takes import find_unordered_takes
from tf_placer.confirmation.comparable_tensors import list_comparable_tensors
from tf_placer.confirmation.confirmation import Confirmation, confirm
from tf_placer.confirmation.finalists import (
    choose_winner,
    drop_slow_finalists,
    explain_no_finalists,
)
from tf_placer.confirmation.outcome import Outcome
from tf_placer.costs.original_devices import find_original_assignment
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.given_devices import describe_given_devices
from tf_placer.interrupts import TimeLimitReached
from tf_placer.live.context import SearchContext
from tf_placer.live.time_plan import ConfirmationPlan
from tf_placer.problem.accelerators import is_gpu
from tf_placer.report.explanation import Explanation
from tf_placer.report.least_memory import describe_least_memory, describe_offload, find_least_memory
from tf_placer.report.memory_use import describe_memory_use
from tf_placer.runs.explanation import explain_trials
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.search_result import build_placement, summarize_comparison
from tf_placer.runs.verdict import describe_winner, lacks_rounds
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.simulation.host_offload import find_offload
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_duration

__all__ = ["conclude"]

# An interrupt during the search or the confirmation leaves these open.
_OPEN_AFTER_INTERRUPT = (Outcome.NOT_FASTER, Outcome.DIFFERENT_VALUES, Outcome.NOT_CONFIRMED)
_LEAST_MEMORY_SECS = 10.0
# Less time that was kept for a confirmation needs no word.
_LEAST_KEPT_SECS = 10.0
# A computer whose speed has changed by less since the first trial is as fast.
_NOTABLE_DRIFT = 1.3
# The original in one process is measured in bursts, for some seconds.
_NOT_COMPARED = (
    "not compared with the original in one process on all cores, which may be faster: it did not "
    "run there in the time that was left"
)
_BURST_STEPS = 4
_MOST_BURSTS = 40
_ONE_PROCESS_SECS = 5.0
# The measurement of one process decides whether to apply a placement on workers, and so it may take
# this share of the time limit even if the confirmation has used all of it.
_ONE_PROCESS_GRACE = 0.1


def conclude(context: SearchContext, trials: Sequence[Trial], digest: str) -> Outcome:
    """Confirms and explains the result of a search, and writes it.

    Args:
        context: the search.
        trials: all trials of the search.
        digest: digest of the request; see `request_digest`.

    Raises:
        OSError: the result cannot be written anywhere.
        WorkerStartError: nothing can be measured.
    """
    config, interrupts = context.config, context.interrupts
    was_interrupted = interrupts.count > 0
    fits = config.is_fit and bool(trials) and trials[0].measurement.failure is None
    finalists = {} if fits else context.plan.finalists(trials)
    original = find_original_assignment(context.grouped, config.found_machine.devices)
    confirmation, winner, note, one_process_secs = None, None, None, None
    # A confirmation takes time, which the placer did not lack.
    missing = None if was_interrupted else _explain_missing_placer(context, trials)
    notes = list(context.notes)
    if fits:
        outcome = Outcome.FITS
    elif finalists:
        confirmed = _confirm_finalists(context, trials, finalists)
        outcome, confirmation = confirmed.outcome, confirmed.confirmation
        winner, note = confirmed.winner, confirmed.note
        one_process_secs = confirmed.one_process_secs
        if interrupts.count and outcome in _OPEN_AFTER_INTERRUPT:
            # Trials or rounds that the interrupt has prevented may have shown a faster placement.
            outcome = Outcome.INTERRUPTED
        if outcome in (Outcome.FASTER, Outcome.NOT_FASTER) and not was_interrupted:
            lacked_time = missing is not None or context.lack_of_time is not None
            if winner is None and lacked_time:
                # The placements of the placer may be faster than the baselines.
                outcome = Outcome.NO_TIME
            elif lacked_time:
                # A speed-up was found, so that want of time is no failure.
                notes = [each for each in notes if each != context.lack_of_time]
                missing = (
                    f"with {context.describe_enough_time()}, placer {config.placer!r} would try "
                    "more placements"
                )
            note = join_sentences(note, missing)
        if winner is not None and _is_out_of_memory(trials[0]):
            note = join_sentences(_describe_memory(context, finalists[winner], original), note)
        note = join_sentences(note, context.others.note)
    elif was_interrupted:
        outcome = Outcome.INTERRUPTED
    else:
        outcome, note = explain_no_finalists(
            trials, config.max_trials, config.max_secs, context.advise_time()
        )
        if outcome is Outcome.NOTHING_RUNS:
            note = join_sentences(note, missing, _find_enough_memory(context))
        if any(_is_out_of_memory(trial) for trial in trials):
            # Mention other searches: a process takes all free memory of a GPU.
            note = join_sentences(
                note, describe_given_devices(context.grouped.op_graph), context.others.note
            )
    explanation = _explain(context, trials, finalists, confirmation, winner, original)

    result = RunResult(
        outcome=outcome,
        num_trials=len(trials),
        max_trials=config.max_trials,
        max_secs=config.max_secs if math.isfinite(config.max_secs) else None,
        winner=winner,
        note=join_sentences(*notes, note, *_describe_drift(trials)) or None,
        confirmation=confirmation,
        finalists={label: trial.index for label, trial in finalists.items()},
        unfitting=dict(context.unfitting),
        explanation=None if explanation is None else explanation.to_json(),
        original_assignment=None if original is None else tuple(original),
        # The same call resumes an incomplete search.
        is_complete=not interrupts.count and not context.notes,
        request_digest=digest,
        one_process_secs=one_process_secs,
        has_placer_ended=context.has_placer_ended,
    )
    if lacks_rounds(result):
        advice = join_sentences(result.note, context.advise_time())
        result = dataclasses.replace(result, note=advice)

    def write() -> None:
        context.write_found()
        context.directory.write_result(result)

    context.keep(write)
    return outcome


def _describe_drift(trials: Sequence[Trial]) -> list[str]:
    """Says in a sentence, if so, that step times are those of another speed of the machine."""
    drift = trials[-1].measurement.drift if trials else 1.0
    if 1.0 / _NOTABLE_DRIFT < drift < _NOTABLE_DRIFT:
        return []
    return [
        "the machine has changed its speed since the first trial, to which all step times are "
        f"scaled: beside the last one the original took {drift:.2f} times as long"
    ]


def _explain(
    context: SearchContext,
    trials: Sequence[Trial],
    finalists: Mapping[str, Trial],
    confirmation: Confirmation | None,
    winner: str | None,
    original_assignment: Sequence[int] | None,
) -> Explanation | None:
    """Explains the result if costs are known and there is time."""
    plan, interrupts = context.plan, context.interrupts
    context.stages.enter("explaining the result")
    if context.costs is None or not finalists:
        return None
    if interrupts.count < 2:
        with (
            contextlib.suppress(KeyboardInterrupt),
            interrupts.interruptible(interrupts.count + 1, plan.compute_secs_left()),
        ):
            return explain_trials(
                context.costs.problem,
                context.grouped.group_graph,
                trials,
                finalists,
                confirmation,
                winner,
                original_assignment=original_assignment,
                search_secs=plan.explain_secs,
                seed=context.config.seed,
            )
    if not interrupts.count:
        context.stages.say("there was no time left to explain the result")
    return None


def _describe_memory(
    context: SearchContext, trial: Trial, original: Sequence[int] | None
) -> str | None:
    """Describes the memory of a placement beside that of the original, if costs are known."""
    if context.costs is None or trial.assignment is None:
        return None
    return describe_memory_use(context.costs.problem, trial.assignment, original)


def _find_enough_memory(context: SearchContext) -> str | None:
    """Finds the memory with which a placement would run, if costs are known and there is time."""
    if context.costs is None or context.interrupts.count:
        return None
    problem, legal = context.costs.problem, context.legal
    search_secs = min(_LEAST_MEMORY_SECS, context.plan.compute_secs_left())
    clauses = []
    with contextlib.suppress(KeyboardInterrupt), context.interrupts.interruptible(1, search_secs):
        least_bytes = find_least_memory(
            problem,
            context.grouped.group_graph,
            legal.argmax(axis=1).astype(np.int32),
            search_secs=search_secs / 2,
            seed=context.config.seed,
        )
        if least_bytes is not None:
            clauses.append(describe_least_memory(problem, least_bytes))
        on_one_gpu = (
            np.where(legal[:, number], number, legal.argmax(axis=1)).astype(np.int32)
            for number, device in enumerate(problem.devices)
            if is_gpu(device)
        )
        offload = find_offload(problem, on_one_gpu, max_secs=search_secs / 2)
        if offload is not None and offload.num_tensors:
            clauses.append(describe_offload(offload))
    return f"by simulation {'; '.join(clauses)}" if clauses else None


def _is_out_of_memory(trial: Trial) -> bool:
    failure = trial.measurement.failure
    return failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY


def _explain_missing_placer(context: SearchContext, trials: Sequence[Trial]) -> str | None:
    """Explains that the time was over before a placement of the placer; None if it was not."""
    config = context.config
    has_ended = config.placer in context.begun and not context.is_over()
    had_its_turn = has_ended or any(trial.placer == config.placer for trial in trials)
    if had_its_turn or context.notes or len(trials) >= config.max_trials or context.has_found_fit():
        return None
    return (
        f"{config.max_secs:g} s were over after {len(trials)} trials, before a placement of placer "
        f"{config.placer!r} was measured: {context.advise_time()}"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Conclusion:
    """The conclusion of a search after its confirmation.

    Attributes:
        outcome: the outcome of the search.
        confirmation: the measurements; None if there are none.
        winner: the label of the winner; None if there is none.
        note: a note for users, or None.
        one_process_secs: see `RunResult`.
    """

    outcome: Outcome
    confirmation: Confirmation | None = None
    winner: str | None = None
    note: str | None = None
    one_process_secs: float | None = None


def _confirm_finalists(
    context: SearchContext, trials: Sequence[Trial], finalists: Mapping[str, Trial]
) -> _Conclusion:
    """Measures the finalists of a search again, side by side, and writes the one that wins.

    Args:
        context: the search.
        trials: all trials of the search.
        finalists: by label, the original first.

    Raises:
        OSError: the placement cannot be written anywhere.
        WorkerStartError: nothing can be measured.
    """
    while True:
        try:
            return _confirm_hopeful(context, trials, drop_slow_finalists(finalists))
        except WorkerLostError as error:
            context.stages.say(f"{error}: what it has confirmed does not count, and another begins")


def _confirm_hopeful(
    context: SearchContext, trials: Sequence[Trial], hopeful: Mapping[str, Trial]
) -> _Conclusion:
    """Confirms finalists on one worker, or on this computer without workers.

    Raises:
        WorkerLostError: the worker was lost.
    """
    asked_before = context.interrupts.count
    if len(hopeful) < 2:
        note = "no trial was faster, so none was measured again"
        return _Conclusion(
            Outcome.NOT_FASTER,
            note=join_sentences(note, context.placer_end or _explain_time_kept(context)),
        )
    plan = context.plan.confirmation(trials, hopeful, impatient=asked_before > 0)
    if plan is None:
        return _Conclusion(Outcome.NOT_CONFIRMED, note=_explain_missing_time(context))
    labels = {label: context.assignment(hopeful[label]) for label in plan.labels}
    context.others.look()
    stage = f"confirming: {', '.join(plan.labels)} side by side in new {context.measurers.fresh}"
    if math.isfinite(plan.max_secs):
        stage += f", {format_duration(plan.max_secs)} at most"
    context.stages.begin(stage)
    with context.measurers.for_confirmation(context) as fresh:
        fresh.timeout_secs = context.plan.confirming_timeout_secs(trials)
        try:
            confirmed = _confirm(context, fresh, plan, labels, hopeful, asked_before)
        except TimeLimitReached:
            return _Conclusion(Outcome.NOT_CONFIRMED, note=_explain_missing_time(context))
        except KeyboardInterrupt:
            return _Conclusion(Outcome.INTERRUPTED)
    if confirmed.winner is not None and confirmed.confirmation is not None:
        context.found = build_placement(
            context.config,
            context.header,
            labels[confirmed.winner],
            hopeful[confirmed.winner],
            summarize_comparison(confirmed.confirmation, confirmed.winner),
        )
        context.keep(context.write_found)
        # The verdict does not wait for what only adds to it.
        context.stages.say(
            f"confirmed: {describe_winner(confirmed.winner, confirmed.confirmation)}"
        )
        placed_secs = confirmed.confirmation.step_secs(confirmed.winner)
        environment = context.measurers.for_one_process(context)
        if placed_secs is None or environment is None or context.interrupts.count:
            return confirmed
        secs = _measure_one_process(context, environment)
        missing = None if secs is not None else _NOT_COMPARED
        note = join_sentences(confirmed.note, missing)
        return dataclasses.replace(confirmed, one_process_secs=secs, note=note)
    return confirmed


def _explain_time_kept(context: SearchContext) -> str | None:
    """Explains the end of a search that has time left; None if its time is not why it ended."""
    kept_secs = context.plan.compute_secs_left() - context.plan.explain_secs
    if not context.ran_out_of_time or kept_secs < _LEAST_KEPT_SECS:
        return None
    return (
        f"the last {format_duration(kept_secs)} had been kept for a confirmation: with more time "
        "the search tries more placements"
    )


def _measure_one_process(context: SearchContext, environment: SessionEnvironment) -> float | None:
    """Measures the original in one process on all cores that the machine divides.

    Without workers, the program of the user runs so. The fastest of some bursts counts, because
    other programs only make a burst slower.

    Returns:
        The step in seconds; None without time.
    """
    left_secs = context.plan.compute_secs_left() - context.plan.explain_secs
    max_secs = max(left_secs, _ONE_PROCESS_GRACE * context.config.max_secs)
    context.stages.begin("measuring the original in one process on all cores")
    with (
        contextlib.suppress(KeyboardInterrupt),
        environment,
        context.interrupts.interruptible(1, max_secs),
    ):
        opened = environment.open_session(ORIGINAL, {})
        if isinstance(opened, Failure):
            return None
        bursts: list[float] = []
        end_secs = time.monotonic() + _ONE_PROCESS_SECS
        while not bursts or (len(bursts) < _MOST_BURSTS and time.monotonic() < end_secs):
            steps = environment.run_steps(ORIGINAL, _BURST_STEPS)
            if isinstance(steps, Failure):
                return None
            bursts.append(statistics.median(steps))
        return min(bursts)
    return None


def _confirm(
    context: SearchContext,
    fresh: SessionEnvironment | RemoteSessions,
    plan: ConfirmationPlan,
    labels: Mapping[str, Mapping[str, str]],
    finalists: Mapping[str, Trial],
    asked_before: int,
) -> _Conclusion:
    """Confirms finalists until one wins, or none can win."""
    original = finalists[ORIGINAL].measurement
    original_secs = original.median_secs
    hints = {
        label: math.log(original_secs / secs)
        for label, secs in ((each, finalists[each].measurement.median_secs) for each in labels)
        if original_secs and secs and label != ORIGINAL
    }

    def report(line: str) -> None:
        context.stages.say(f"confirming: {line}")
        context.others.look()

    start_secs, request_secs = time.monotonic(), fresh.timeout_secs
    candidates, notes = dict(labels), []
    while True:
        fresh.timeout_secs = request_secs
        # After an interrupt, only the minimum of rounds runs, and one more interrupt cancels them.
        at, max_secs = asked_before + 1 if asked_before else 2, context.plan.compute_secs_left()
        with context.interrupts.interruptible(at, max_secs):
            confirmation = confirm(
                fresh,
                candidates,
                ORIGINAL,
                hints=hints,
                reference_failure=original.failure,
                earlier_rounds=_find_earlier_rounds(context.earlier_result, finalists),
                max_secs=plan.max_secs - (time.monotonic() - start_secs),
                most_rounds=plan.most_rounds,
                report=report,
                should_stop=lambda: context.interrupts.count > asked_before,
                seed=context.config.seed,
            )
        fresh.timeout_secs = context.plan.first_timeout_secs()
        outcome, winner, note = choose_winner(
            _TimedValues(context, fresh),
            confirmation,
            candidates,
            tensors=list_comparable_tensors(
                context.grouped.op_graph, context.grouped.colocation.by_tensorflow
            ),
            mixed_devices=len({d.type for d in context.config.found_machine.devices}) > 1,
            computes_values=context.config.found_machine.computes_values,
            by_chance=list_values_of_chance(
                context.grouped.op_graph,
                context.grouped.colocation.races,
                find_unordered_takes(context.grouped.op_graph),
            ),
        )
        notes += [note] if note else []
        if outcome is Outcome.NOT_CONFIRMED:
            rounds_secs = time.monotonic() - start_secs
            context.round_secs = rounds_secs / max(len(confirmation.rounds), 1)
            notes.append(context.advise_time())
        if outcome is not Outcome.DIFFERENT_VALUES or context.interrupts.count > asked_before:
            break
        # Another finalist may compute the same values.
        others = {label: each for label, each in candidates.items() if label != confirmation.best}
        left_secs = plan.max_secs - (time.monotonic() - start_secs)
        if len(others) < 2 or left_secs <= 0:
            break
        candidates = others
    return _Conclusion(outcome, confirmation, winner, join_sentences(*notes) or None)


def _find_earlier_rounds(
    earlier: RunResult | None, finalists: Mapping[str, Trial]
) -> dict[str, list[Mapping[str, Measurement]]]:
    """Finds the rounds of a confirmation without a verdict, by the label of its placement now."""
    confirmation = None if earlier is None else earlier.confirmation
    if earlier is None or confirmation is None or not confirmation.would_gain_by_rounds:
        return {}
    best = confirmation.best or ""
    index = earlier.finalists.get(best)
    return {
        label: [{ORIGINAL: each[ORIGINAL], label: each[best]} for each in confirmation.rounds]
        for label, trial in finalists.items()
        if trial.index == index
    }


class _TimedValues:
    """A `ValuesEnvironment` with the time limit of the search."""

    def __init__(
        self, context: SearchContext, sessions: SessionEnvironment | RemoteSessions
    ) -> None:
        """Stores the settings.

        Args:
            context: the search with the time limit; its interrupts cancel running steps.
            sessions: runs the steps.
        """
        self._context, self._sessions = context, sessions

    def fetch_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = (), alone: bool = False
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches the values of a few steps; see `ValuesEnvironment.fetch_values`."""
        interrupts = self._context.interrupts
        max_secs = self._context.plan.compute_secs_left()
        self._context.stages.begin_once("comparing the values that the placed graph computes")
        try:
            with interrupts.interruptible(interrupts.count + 1, max_secs):
                return self._sessions.fetch_values(assignment, tensors=tensors, alone=alone)
        except TimeLimitReached:
            self._sessions.stop()
            return Failure(
                FailureKind.TIMEOUT, f"{self._context.config.max_secs:g} s were over before"
            )


def _explain_missing_time(context: SearchContext) -> str:
    """Explains that the time was too short for a confirmation, and how much is needed."""
    original_failed = context.log.trials[0].measurement.failure is not None
    placement = (
        "placement, which runs where the original does not," if original_failed else "placement"
    )
    return (
        f"there was no time left of {context.config.max_secs:g} s to measure the original and the "
        f"fastest {placement} again: {context.advise_time()}"
    )
