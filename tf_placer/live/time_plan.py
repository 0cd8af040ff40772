"""How the time of a live search is shared out, so that the confirmation always has its part."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence

from tf_placer.confirmation.choice import choose_finalists, drop_slow_finalists
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS, MOST_ROUNDS
from tf_placer.search.trial_log import ORIGINAL, Trial, best_trial
from tf_placer.text.units import format_duration

__all__ = ["SHORTEST_TIMEOUT_SECS", "ConfirmationPlan", "TimePlan"]

# How long the graph as it came may take to be measured, and how many times that, but not less than
# a minute, a placement: one that is far slower is of no use.
_TIMEOUT_SECS = 120.0
_TIMEOUT_RATIO = 5.0
_LEAST_TIMEOUT_SECS = 60.0
# Where little time is left, a placement may still take this many times as long as the original.
_LAST_TIMEOUT_RATIO = 2.0
#: Less time than this says nothing about a step.
SHORTEST_TIMEOUT_SECS = 10.0

# Rounds that time is kept for: what it usually takes to confirm a tenth; and blocks of a round,
# those before steps count included.
_USUAL_ROUNDS, _USUAL_BLOCKS = 7, 9
# Time is kept for choosing among so many.
_MOST_CANDIDATES = 4
# The confirmation and all after it take no more than this of the time from the search, unless that
# is too short to confirm anything.
_MOST_RESERVED = 0.5
# What opening a session of the confirmation takes, by what it took in the search: that of the graph
# as it came ran the first steps of new processes, too; those of placements found variables with
# values, and now Grappler optimizes them as for the user.
_OPENING_ORIGINAL, _OPENING = 0.5, 1.5
# For comparing what the graphs compute, three sessions are opened.
_SESSIONS_FOR_VALUES = 3
_EXPLAIN_SHARE, _MOST_EXPLAIN_SECS = 0.02, 5.0
# What a start of processes takes as long as none was timed.
_RESTART_SECS = 10.0
# A profile takes so long to begin with, beside opening a session, runs so many steps, half of them
# traced, and measures links that are not known for about so long.
_PROFILE_SETUP_SECS, _PROFILE_STEPS, _LINKS_SECS = 3.0, 25, 12.0
# How far estimates may be too long: a confirmation that seems to take so much more than there is
# begins where nothing could be confirmed otherwise. It ends in time all the same.
_TOLERANCE = 0.15
# Share of the time to search that each baseline may take before the next one has its turn: beside
# GPUs, steps that compute on the CPU, or run out of memory, may take a minute each.
_BASELINE_SHARE = 0.25
# As many of the last trials tell how slow the machine is now.
_RECENT_TRIALS = 5


@dataclasses.dataclass(frozen=True)
class ConfirmationPlan:
    """What is confirmed, decided before the first round, so that it proves nothing.

    Attributes:
        labels: what is measured, the graph as it came first.
        max_secs: seconds that it may take; infinite where somebody waits for it to end.
        most_rounds: rounds of the chosen candidate at most.
    """

    labels: tuple[str, ...]
    max_secs: float
    most_rounds: int = MOST_ROUNDS


class TimePlan:
    """Knows how long a search may still take.

    The time begins with the call, not with the first trial: starting, reading and grouping count.
    What trials of earlier calls took counts, too. Whatever runs when it is over is broken off;
    estimates of what is still to come only decide what begins.

    Attributes:
        max_secs: seconds for all.
        explain_secs: seconds for the search of the explanation.
    """

    def __init__(
        self,
        max_secs: float,
        start_secs: float,
        trials: Sequence[Trial],
        baselines: Sequence[str],
    ) -> None:
        """Starts to plan.

        Args:
            max_secs: seconds for all.
            start_secs: when the call came, by `time.monotonic`.
            trials: of earlier calls.
            baselines: the finalists that are the best of a baseline.
        """
        self.max_secs = max_secs
        self._baselines = baselines
        self.explain_secs = min(_MOST_EXPLAIN_SECS, _EXPLAIN_SHARE * max_secs)
        self._end_secs = start_secs + max_secs - (trials[-1].elapsed_secs if trials else 0.0)

    def compute_secs_left(self) -> float:
        """Seconds left in all."""
        return self._end_secs - time.monotonic()

    def finalists(self, trials: Sequence[Trial]) -> dict[str, Trial]:
        """Chooses what a confirmation would measure again; see `choose_finalists`."""
        return choose_finalists(trials, self._baselines)

    def compute_search_secs_left(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial] | None = None
    ) -> float:
        """Seconds left before the confirmation should begin.

        Time is kept for confirming a tenth, and where that were most of all time, for the least
        that may confirm something. Where even this is more than what is left, nothing is kept; a
        little more is taken only for a placement that is there and may be faster.

        Args:
            trials: all so far.
            finalists: what would be confirmed, were the search over; `finalists` by default.
        """
        finalists = self.finalists(trials) if finalists is None else finalists
        left_secs = self.compute_secs_left()
        tolerance = _TOLERANCE if _is_any_hopeful(finalists) else 0.0
        if not self._can_confirm(trials, finalists, tolerance):
            return left_secs
        candidates = self._candidates(finalists)[:_MOST_CANDIDATES]
        after_secs = self._after_secs(trials)
        least_secs = self._confirmation_secs(trials, candidates[:1], LEAST_ROUNDS) + after_secs
        usual_secs = self._confirmation_secs(trials, candidates, _USUAL_ROUNDS) + after_secs
        return left_secs - max(least_secs, min(usual_secs, _MOST_RESERVED * self.max_secs))

    def compute_measuring_secs_left(self, trials: Sequence[Trial]) -> float:
        """Seconds left until what is measured for the search is broken off.

        As long as nothing is measured, there is nothing to keep time for.
        """
        return self.compute_search_secs_left(trials) if trials else self.compute_secs_left()

    def first_timeout_secs(self) -> float:
        """Seconds that something may take as long as nothing is known of the graph."""
        most_secs = max(self.max_secs, SHORTEST_TIMEOUT_SECS)
        return min(max(_TIMEOUT_SECS, self.max_secs / 4), most_secs)

    def timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Seconds that the next trial may take."""
        secs = self.first_timeout_secs()
        # Where the original does not fit, the fastest trial tells how long a step should take.
        original = trials[0] if trials else None
        ran = original if original and original.measurement.step_secs else best_trial(trials)
        if ran is None:
            return secs
        ran_secs = ran.measurement.total_secs
        left_secs = max(
            self.compute_search_secs_left(trials),
            _LAST_TIMEOUT_RATIO * ran_secs,
            SHORTEST_TIMEOUT_SECS,
        )
        return min(secs, max(_LEAST_TIMEOUT_SECS, _TIMEOUT_RATIO * ran_secs), left_secs)

    def confirming_timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Seconds that a placement may take in the confirmation."""
        secs = max(_LEAST_TIMEOUT_SECS, self.timeout_secs(trials))
        return min(self.first_timeout_secs(), secs)

    def had_baseline_share(self, begin_secs: float, left_secs: float) -> bool:
        """Says whether a baseline has had its share of the time to search.

        Args:
            begin_secs: what was used when its turn began, by compute_used_secs.
            left_secs: what is left to search.
        """
        used_secs = self.compute_used_secs()
        search_secs = used_secs + max(0.0, left_secs)
        return used_secs - begin_secs > _BASELINE_SHARE * search_secs

    def can_confirm(self, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> bool:
        """Says whether the time that is left is enough for a confirmation of the fastest.

        Args:
            trials: all so far.
            finalists: what would be confirmed, were the search over.
        """
        return self._can_confirm(trials, finalists, _TOLERANCE)

    def _can_confirm(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial], tolerance: float
    ) -> bool:
        needed_secs = self.estimate_needed_secs(trials, finalists) + self._after_secs(trials)
        return needed_secs <= self.compute_secs_left() + tolerance * self.max_secs

    def estimate_needed_secs(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial]
    ) -> float:
        """Seconds that a confirmation of the fastest takes at least."""
        return self._confirmation_secs(trials, self._candidates(finalists)[:1], LEAST_ROUNDS)

    def profile_secs(self, trials: Sequence[Trial], *, links_known: bool) -> float:
        """Estimates what a profile takes, by what the graph as it came took.

        Args:
            trials: all so far, the graph as it came first.
            links_known: whether the links of the machine need not be measured.
        """
        original = trials[0].measurement
        steps_secs = _PROFILE_STEPS * (original.median_secs or 0.0)
        secs = _PROFILE_SETUP_SECS + original.setup_secs + steps_secs
        return _slowness(trials) * (secs + (0.0 if links_known else _LINKS_SECS))

    def compute_used_secs(self) -> float:
        """Seconds used so far, earlier calls included."""
        return self.max_secs - self.compute_secs_left()

    def describe_progress(self) -> str:
        """Says how much of the time is used."""
        return (
            f"{format_duration(self.compute_used_secs())} of {format_duration(self.max_secs)} used"
        )

    def confirmation(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial], *, impatient: bool
    ) -> ConfirmationPlan | None:
        """Says what can be confirmed in the time that is left.

        Where it is too short to choose among all finalists and to confirm one of them, those that
        matter least are left out: in this order the graph as it came, the fastest, the fastest
        baseline (the others come in the order that they have).

        Args:
            trials: of the search.
            finalists: by label, the graph as it came first.
            impatient: whether somebody waits for the search to end.

        Returns:
            The plan; None where the time is too short even for the fastest alone.
        """
        left_secs = self.compute_secs_left() - self._after_secs(trials)
        labels = _by_importance(finalists, self._baselines)
        if len(labels) < 2:
            return None
        if impatient:
            return ConfirmationPlan(labels[:2], math.inf, LEAST_ROUNDS)
        candidates = self._candidates(finalists)
        for count in range(len(candidates), 0, -1):
            needed_secs = self._confirmation_secs(trials, candidates[:count], _USUAL_ROUNDS)
            if needed_secs <= left_secs:
                break
        else:
            if not self.can_confirm(trials, finalists):
                return None
            count = 1
        chosen = [label for label in finalists if label in labels[: count + 1]]
        return ConfirmationPlan(tuple(chosen), max(left_secs, 0.0))

    def _candidates(self, finalists: Mapping[str, Trial]) -> list[Trial]:
        """Lists what is confirmed beside the graph as it came, those first that matter most."""
        return [finalists[label] for label in _by_importance(finalists, self._baselines)[1:]]

    def _confirmation_secs(
        self, trials: Sequence[Trial], candidates: Sequence[Trial], rounds: int
    ) -> float:
        """Seconds to choose among candidates and to confirm the first of them, if there is one."""
        if not trials:
            return rounds * _RESTART_SECS

        original = trials[0].measurement
        restart_secs = _restart_secs(trials)
        if original.failure is not None:
            rounds = 1  # If it fails again, that is enough.

        def round_secs(beside: Sequence[Trial]) -> float:
            secs = restart_secs + _OPENING_ORIGINAL * original.setup_secs
            secs += _OPENING * sum(trial.measurement.setup_secs for trial in beside)
            steps = [original, *(trial.measurement for trial in beside)]
            return secs + _USUAL_BLOCKS * sum(each.median_secs or 0.0 for each in steps)

        selection_secs = round_secs(candidates) if len(candidates) > 1 else 0.0
        return _slowness(trials) * (selection_secs + rounds * round_secs(candidates[:1]))

    def _after_secs(self, trials: Sequence[Trial]) -> float:
        """Seconds that all behind the confirmation takes."""
        setup_secs = trials[0].measurement.setup_secs if trials else 0.0
        opening_secs = _SESSIONS_FOR_VALUES * _OPENING_ORIGINAL * setup_secs
        secs = 0.5 * _restart_secs(trials) + opening_secs
        return _slowness(trials) * secs + 2.0 * self.explain_secs


def _is_any_hopeful(finalists: Mapping[str, Trial]) -> bool:
    return ORIGINAL in finalists and len(drop_slow_finalists(finalists)) > 1


def _by_importance(finalists: Mapping[str, Trial], baselines: Sequence[str]) -> tuple[str, ...]:
    """Sorts the labels, those first that are confirmed before others where time is short."""

    def median_secs(label: str) -> float:
        return finalists[label].measurement.median_secs or math.inf

    others = sorted((label for label in finalists if label != ORIGINAL), key=median_secs)
    best_baseline = [label for label in others if label in baselines][:1]
    if ORIGINAL not in finalists:
        return ()  # Nothing has run so far.
    return tuple(dict.fromkeys([ORIGINAL, *others[:1], *best_baseline, *finalists]))


def _slowness(trials: Sequence[Trial]) -> float:
    """Computes how many times as slow as for the first trial the machine is; at least 1.

    What is still to come is estimated by the first trial, and other programs may have begun since.
    """
    recent = [trial for trial in trials[1:] if trial.repeats is None][-_RECENT_TRIALS:]
    return max(1.0, statistics.median([each.measurement.drift for each in recent] or [1.0]))


def _restart_secs(trials: Sequence[Trial]) -> float:
    """Computes what the first trial took to start its processes."""
    if not trials:
        return _RESTART_SECS
    return max(0.0, trials[0].elapsed_secs - trials[0].measurement.total_secs)
