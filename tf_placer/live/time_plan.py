"""The division of the time of a live search, with a reserve for the confirmation."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence

from tf_placer.confirmation.finalists import choose_finalists, drop_slow_finalists
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS, MOST_ROUNDS
from tf_placer.search.trial_log import ORIGINAL, Trial, best_trial
from tf_placer.text.units import format_duration

__all__ = ["SHORTEST_TIMEOUT_SECS", "ConfirmationPlan", "TimePlan", "TimePlanSettings"]

#: A shorter time limit cannot show that a step is too slow.
SHORTEST_TIMEOUT_SECS = 10.0


@dataclasses.dataclass(frozen=True)
class TimePlanSettings:
    """The shares and estimates by which the time of a search is divided.

    Attributes:
        max_original_secs: time limit of the trial of the original; a quarter of the whole time
            where this is more.
        max_ratio_to_original: time limit of a trial of a placement, as a multiple of the original's
            trial: a much slower placement is useless.
        min_trial_secs: lower bound of the time limit of a placement's trial.
        max_ratio_at_end: the same multiple where little time is left.
        usual_rounds: estimate of the rounds that confirm a speed-up of a tenth.
        blocks_per_round: estimate of the blocks of a round, warm-up included.
        max_selected_candidates: time is reserved to compare at most this many finalists.
        max_reserved_share: share of the time that is reserved for the confirmation and all after it
            at most, unless a shorter time could not confirm anything.
        original_opening_ratio: time to open the original in the confirmation, as a ratio of the
            time in the search, where it also ran the first steps of new processes.
        opening_ratio: the same for placements. It is higher, because in the search their variables
            had values already, and Grappler optimizes them only in the confirmation.
        sessions_for_values: number of sessions that compare values.
        explanation_share: share of the time for the explanation.
        max_explanation_secs: time for the explanation at most.
        restart_secs: estimate of a start of processes before one was timed.
        profile_setup_secs: estimate of the start of profiling, without opening a session.
        profile_step_secs: time for the traced steps of a profile.
        min_profile_steps: number of traced steps at least.
        max_profile_steps: number of traced steps at most, as the command `profile` traces.
        profile_steps_ratio: ratio of all steps of a profile to the traced ones.
        links_secs: estimate of measuring the links of a machine.
        max_profile_ratio: time limit of profiling, as a multiple of its estimate, where the share
            below is less.
        profile_share: share of the time left that profiling may always take, so that with more time
            it ends where the estimate is wrong.
        given_up_ratio: the time that profiling is expected to take after it was given up, as a
            multiple of its time until then.
        round_ratio: the time that a round of a confirmation is expected to take, as a multiple of
            its time in a confirmation that lacked time.
        trials_share: share of the time for trials in the estimate of the time that is enough.
        shortage_ratio: the time that is enough, as a multiple of a time that was enough by the
            estimate, and was not.
        tolerance: share of the time by which the estimate of a confirmation may exceed the time
            left, if nothing can be confirmed otherwise. The confirmation ends in time nevertheless.
        baseline_share: share of the search time that each baseline may take. Next to GPUs, steps
            that compute on the CPU or run out of memory may take a minute each.
        recent_trials: number of the last trials that show the current speed of the machine.
    """

    max_original_secs: float = 120.0
    max_ratio_to_original: float = 5.0
    min_trial_secs: float = 60.0
    max_ratio_at_end: float = 2.0
    usual_rounds: int = 7
    blocks_per_round: int = 6
    max_selected_candidates: int = 4
    max_reserved_share: float = 0.5
    original_opening_ratio: float = 0.5
    opening_ratio: float = 1.5
    sessions_for_values: int = 2
    explanation_share: float = 0.02
    max_explanation_secs: float = 5.0
    restart_secs: float = 10.0
    profile_setup_secs: float = 3.0
    profile_step_secs: float = 2.0
    min_profile_steps: int = 4
    max_profile_steps: int = 10
    profile_steps_ratio: float = 2.5
    links_secs: float = 12.0
    max_profile_ratio: float = 3.0
    profile_share: float = 0.5
    given_up_ratio: float = 2.0
    round_ratio: float = 1.25
    trials_share: float = 0.25
    shortage_ratio: float = 1.5
    tolerance: float = 0.15
    baseline_share: float = 0.25
    recent_trials: int = 5


_TIMES = TimePlanSettings()
_TENS = 10


@dataclasses.dataclass(frozen=True)
class ConfirmationPlan:
    """The plan of a confirmation, made before its first round, so that it cannot bias the verdict.

    Attributes:
        labels: labels to measure, the original first.
        max_secs: time limit in seconds.
        most_rounds: maximum number of rounds of the chosen candidate.
    """

    labels: tuple[str, ...]
    max_secs: float
    most_rounds: int = MOST_ROUNDS


class TimePlan:
    """The time of a search, divided among its stages.

    The time begins with the call, not with the first trial: starting, reading and grouping count.
    The time of trials of earlier calls counts, too. At the end of the time, running work is
    canceled; estimates of future work only decide whether it begins.

    Attributes:
        max_secs: seconds for the whole search.
        explain_secs: seconds for the search of the explanation.
    """

    def __init__(
        self,
        max_secs: float,
        start_secs: float,
        trials: Sequence[Trial],
        baselines: Sequence[str],
    ) -> None:
        """Starts the time.

        Args:
            max_secs: seconds for the whole search.
            start_secs: time of the call, by `time.monotonic`.
            trials: trials of earlier calls.
            baselines: names of the baseline placers.
        """
        self.max_secs = max_secs
        self._baselines = baselines
        self.explain_secs = min(_TIMES.max_explanation_secs, _TIMES.explanation_share * max_secs)
        self._reading_secs = time.monotonic() - start_secs
        self._end_secs = start_secs + max_secs - (trials[-1].elapsed_secs if trials else 0.0)

    def compute_secs_left(self) -> float:
        """Computes the seconds left for the whole search."""
        return self._end_secs - time.monotonic()

    def finalists(self, trials: Sequence[Trial]) -> dict[str, Trial]:
        """Chooses the finalists of a confirmation; see `choose_finalists`."""
        return choose_finalists(trials, self._baselines)

    def compute_search_secs_left(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial] | None = None
    ) -> float:
        """Computes the seconds left before the confirmation should begin.

        The reserve is enough to confirm a speed-up of a tenth or, if this were most of the whole
        time, the minimum for any verdict. If even the minimum exceeds the time left, there is no
        reserve; a small excess is accepted only for a placement that may be faster. Nor is there
        one if no placement has been measured, and it would leave no time for that.

        Args:
            trials: all trials so far.
            finalists: the finalists if the search ended now; `finalists` by default.
        """
        finalists = self.finalists(trials) if finalists is None else finalists
        left_secs = self.compute_secs_left()
        tolerance = _TIMES.tolerance if _is_any_hopeful(finalists) else 0.0
        if not self._can_confirm(trials, finalists, tolerance):
            return left_secs
        candidates = self._candidates(finalists)[: _TIMES.max_selected_candidates]
        after_secs = self._after_secs(trials)
        least_secs = self._confirmation_secs(trials, candidates[:1], LEAST_ROUNDS) + after_secs
        usual_secs = self._confirmation_secs(trials, candidates, _TIMES.usual_rounds) + after_secs
        reserved_secs = max(least_secs, min(usual_secs, _TIMES.max_reserved_share * self.max_secs))
        secs = left_secs - reserved_secs
        if not candidates and trials and secs < trials[0].measurement.total_secs:
            return left_secs  # Without another trial there would be nothing to confirm.
        return secs

    def compute_measuring_secs_left(self, trials: Sequence[Trial]) -> float:
        """Computes the seconds left until measurements of the search are canceled.

        No time is reserved while there is nothing to confirm: before the first trial, and as long
        as only baselines have run and none may be faster than the original. The placer needs that
        time to find what could be confirmed.
        """
        are_baselines = all(trial.placer in (ORIGINAL, *self._baselines) for trial in trials)
        if are_baselines and not self.has_hope(trials):
            return self.compute_secs_left()
        return self.compute_search_secs_left(trials)

    def has_hope(self, trials: Sequence[Trial]) -> bool:
        """Returns whether a trial may be faster than the original."""
        return _is_any_hopeful(self.finalists(trials))

    def first_timeout_secs(self) -> float:
        """Computes the time limit of requests before the first trial, in seconds."""
        most_secs = max(self.max_secs, SHORTEST_TIMEOUT_SECS)
        return min(max(_TIMES.max_original_secs, self.max_secs / 4), most_secs)

    def timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Computes the time limit of the next trial, in seconds."""
        secs = self.first_timeout_secs()
        # Use the fastest trial if the original does not fit.
        original = trials[0] if trials else None
        ran = original if original and original.measurement.step_secs else best_trial(trials)
        if ran is None:
            return secs
        ran_secs = ran.measurement.total_secs
        left_secs = max(
            self.compute_search_secs_left(trials),
            _TIMES.max_ratio_at_end * ran_secs,
            SHORTEST_TIMEOUT_SECS,
        )
        return min(
            secs,
            max(_TIMES.min_trial_secs, _TIMES.max_ratio_to_original * ran_secs),
            left_secs,
        )

    def confirming_timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Computes the time limit of a placement in the confirmation, in seconds."""
        secs = max(_TIMES.min_trial_secs, self.timeout_secs(trials))
        return min(self.first_timeout_secs(), secs)

    def had_baseline_share(self, begin_secs: float, left_secs: float) -> bool:
        """Returns whether a baseline has used its share of the time to search.

        Args:
            begin_secs: the result of `compute_used_secs` when the baseline began.
            left_secs: seconds left to search.
        """
        used_secs = self.compute_used_secs()
        search_secs = used_secs + max(0.0, left_secs)
        return used_secs - begin_secs > _TIMES.baseline_share * search_secs

    def can_confirm(self, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> bool:
        """Returns whether the time left is enough to confirm the fastest finalist.

        Args:
            trials: all trials so far.
            finalists: the finalists if the search ended now.
        """
        return self._can_confirm(trials, finalists, _TIMES.tolerance)

    def _can_confirm(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial], tolerance: float
    ) -> bool:
        needed_secs = self.estimate_needed_secs(trials, finalists) + self._after_secs(trials)
        return needed_secs <= self.compute_secs_left() + tolerance * self.max_secs

    def estimate_needed_secs(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial]
    ) -> float:
        """Estimates the minimum time to confirm the fastest finalist, in seconds."""
        return self._confirmation_secs(trials, self._candidates(finalists)[:1], LEAST_ROUNDS)

    def estimate_enough_secs(
        self,
        trials: Sequence[Trial],
        *,
        profile_secs: float,
        was_too_short: bool,
        given_up_secs: float = 0.0,
        round_secs: float = 0.0,
    ) -> int:
        """Estimates the seconds, in tens, in which this search would come to a verdict.

        All advice on the time of a search is this number. It is the time until the first trial, of
        profiling, of the shortest confirmation and of the work after it, and a share for trials.
        The placement to confirm counts as being as fast as the original, so that the number hardly
        changes while faster ones are found.

        Args:
            trials: all trials so far, at least one.
            profile_secs: the seconds of profiling, estimated or measured; 0 without profiling.
            was_too_short: whether the time of this search has not been enough.
            given_up_secs: the seconds after which profiling was given up; 0 if it was not.
            round_secs: the seconds of a round in a confirmation that lacked time; 0 if none did.
        """
        expected_secs = max(profile_secs, _TIMES.given_up_ratio * given_up_secs)
        other_secs = self.compute_first_trial_secs(trials)
        confirming_secs = LEAST_ROUNDS * _TIMES.round_ratio * round_secs
        other_secs += max(self.estimate_usual_secs(trials), confirming_secs)
        other_secs += self._after_secs(trials)
        secs = (other_secs + expected_secs) / (1.0 - _TIMES.trials_share)
        if given_up_secs > 0.0:
            # The limit of profiling has to be as long, after the trials that precede it.
            before_secs = trials[-1].elapsed_secs - trials[0].elapsed_secs
            secs = max(secs, other_secs + before_secs + expected_secs / _TIMES.profile_share)
        if was_too_short and secs <= self.max_secs:
            secs = _TIMES.shortage_ratio * self.max_secs
        return _TENS * math.ceil(secs / _TENS)

    def estimate_usual_secs(self, trials: Sequence[Trial]) -> float:
        """Estimates the minimum time to confirm a placement as fast as the original, in seconds.

        Args:
            trials: all trials so far, at least one.
        """
        original = trials[0]
        if original.measurement.failure is not None:
            return self.estimate_needed_secs(trials, self.finalists(trials))
        return self._confirmation_secs(trials, [original], LEAST_ROUNDS)

    def compute_first_trial_secs(self, trials: Sequence[Trial]) -> float:
        """Computes the seconds from the call to the end of the first trial.

        Args:
            trials: all trials so far, at least one.
        """
        return self._reading_secs + trials[0].elapsed_secs

    def limit_profile_secs(self, trials: Sequence[Trial], *, links_known: bool) -> float:
        """Computes the time limit of profiling, in seconds.

        It leaves a confirmation its time, and ends profiling that exceeds its estimate by far and
        takes most of the time.

        Args:
            trials: all trials so far, the original first.
            links_known: whether the links of the machine need not be measured.
        """
        expected_secs = self.profile_secs(trials, links_known=links_known)
        left_secs = self.compute_measuring_secs_left(trials)
        limit_secs = max(
            SHORTEST_TIMEOUT_SECS,
            _TIMES.max_profile_ratio * expected_secs,
            _TIMES.profile_share * left_secs,
        )
        return min(limit_secs, left_secs)

    def profile_secs(self, trials: Sequence[Trial], *, links_known: bool) -> float:
        """Estimates the duration of profiling from the trial of the original, in seconds.

        Args:
            trials: all trials so far, the original first.
            links_known: whether the links of the machine need not be measured.
        """
        original = trials[0].measurement
        steps_secs = self.choose_profile_steps(trials) * (original.median_secs or 0.0)
        steps_secs *= _TIMES.profile_steps_ratio
        secs = _TIMES.profile_setup_secs + original.setup_secs + steps_secs
        return _slowness(trials) * (secs + (0.0 if links_known else _TIMES.links_secs))

    def choose_profile_steps(self, trials: Sequence[Trial]) -> int:
        """Chooses the number of steps to trace: fewer if they are long.

        Args:
            trials: all trials so far, the original first.
        """
        step_secs = trials[0].measurement.median_secs if trials else None
        fitting = _TIMES.profile_step_secs / step_secs if step_secs else math.inf
        return int(min(max(fitting, _TIMES.min_profile_steps), _TIMES.max_profile_steps))

    def compute_used_secs(self) -> float:
        """Computes the seconds used so far, earlier calls included."""
        return self.max_secs - self.compute_secs_left()

    def describe_progress(self) -> str:
        """Describes how much of the time is used."""
        return (
            f"{format_duration(self.compute_used_secs())} of {format_duration(self.max_secs)} used"
        )

    def confirmation(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial], *, impatient: bool
    ) -> ConfirmationPlan | None:
        """Plans a confirmation in the time left.

        If the time is too short to compare all finalists and to confirm one, the least important
        are left out. The order of importance is: the original, the fastest, the fastest baseline,
        and the others in their given order.

        Args:
            trials: all trials of the search.
            finalists: by label, the original first.
            impatient: whether the user has interrupted the search. Then only the fastest is
                confirmed, by as few rounds as a verdict needs.

        Returns:
            The plan; None if the time is too short even for the fastest alone.
        """
        left_secs = self.compute_secs_left() - self._after_secs(trials)
        labels = _by_importance(finalists, self._baselines)
        if len(labels) < 2:
            return None
        candidates = self._candidates(finalists)[: 1 if impatient else None]
        for count in range(len(candidates), 0, -1):
            needed_secs = self._confirmation_secs(trials, candidates[:count], _TIMES.usual_rounds)
            if needed_secs <= left_secs:
                break
        else:
            if not self.can_confirm(trials, finalists):
                return None
            count = 1
        chosen = [label for label in finalists if label in labels[: count + 1]]
        most_rounds = LEAST_ROUNDS if impatient else MOST_ROUNDS
        return ConfirmationPlan(tuple(chosen), max(left_secs, 0.0), most_rounds)

    def _candidates(self, finalists: Mapping[str, Trial]) -> list[Trial]:
        """Lists the finalists without the original, the most important first."""
        return [finalists[label] for label in _by_importance(finalists, self._baselines)[1:]]

    def _confirmation_secs(
        self, trials: Sequence[Trial], candidates: Sequence[Trial], rounds: int
    ) -> float:
        """Estimates the time to compare candidates and to confirm the first, in seconds."""
        if not trials:
            return rounds * _TIMES.restart_secs

        original = trials[0].measurement
        restart_secs = _restart_secs(trials)

        def candidate_secs(trial: Trial) -> float:
            opening_secs = _TIMES.opening_ratio * trial.measurement.setup_secs
            return opening_secs + _TIMES.blocks_per_round * (trial.measurement.median_secs or 0.0)

        def round_secs(beside: Sequence[Trial]) -> float:
            secs = sum(candidate_secs(trial) for trial in beside)
            if original.failure is not None:
                # Each runs in processes of its own, and TensorFlow waits for memory again.
                return secs + len(beside) * restart_secs + trials[0].elapsed_secs
            secs += restart_secs + _TIMES.original_opening_ratio * original.setup_secs
            return secs + _TIMES.blocks_per_round * (original.median_secs or 0.0)

        if original.failure is not None:
            rounds = 1  # One more failure is enough.
        selection_secs = round_secs(candidates) if len(candidates) > 1 else 0.0
        return _slowness(trials) * (selection_secs + rounds * round_secs(candidates[:1]))

    def _after_secs(self, trials: Sequence[Trial]) -> float:
        """Estimates the time of all work after the confirmation, in seconds."""
        setup_secs = trials[0].measurement.setup_secs if trials else 0.0
        opening_secs = _TIMES.sessions_for_values * _TIMES.original_opening_ratio * setup_secs
        secs = 0.5 * _restart_secs(trials) + opening_secs
        return _slowness(trials) * secs + 2.0 * self.explain_secs


def _is_any_hopeful(finalists: Mapping[str, Trial]) -> bool:
    return ORIGINAL in finalists and len(drop_slow_finalists(finalists)) > 1


def _by_importance(finalists: Mapping[str, Trial], baselines: Sequence[str]) -> tuple[str, ...]:
    """Sorts the labels by their importance for a confirmation in little time."""

    def median_secs(label: str) -> float:
        return finalists[label].measurement.median_secs or math.inf

    others = sorted((label for label in finalists if label != ORIGINAL), key=median_secs)
    best_baseline = [label for label in others if label in baselines][:1]
    if ORIGINAL not in finalists:
        return ()  # Nothing has run so far.
    return tuple(dict.fromkeys([ORIGINAL, *others[:1], *best_baseline, *finalists]))


def _slowness(trials: Sequence[Trial]) -> float:
    """Computes the ratio of current step times to those of the first trial, at least 1.

    Estimates use the first trial, but other programs may have started since.
    """
    recent = [trial for trial in trials[1:] if trial.repeats is None][-_TIMES.recent_trials :]
    # A single slow trial counts for nothing, not even if it is the only one.
    return max(1.0, statistics.median_low([1.0, *(each.measurement.drift for each in recent)]))


def _restart_secs(trials: Sequence[Trial]) -> float:
    """Computes the seconds in which processes start: as in the first trial, if that ran."""
    if not trials:
        return _TIMES.restart_secs
    first = trials[0]
    if first.measurement.failure is not None:
        return min(first.elapsed_secs, _TIMES.restart_secs)
    return max(0.0, first.elapsed_secs - first.measurement.total_secs)
