"""How the time of a live search is shared out, so that the confirmation always has its part."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence

from tf_placer.environments.environment import Measurement
from tf_placer.trial_log import ORIGINAL, Trial

__all__ = ["ConfirmationPlan", "TimePlan", "trial_secs"]

_MIN_ROUNDS, _MAX_ROUNDS = 5, 9
# An interval needs two; three are what an impatient user waits for.
_LEAST_ROUNDS, _IMPATIENT_ROUNDS = 2, 3
# Time is kept for the graph as it came, the fastest and the best baseline; the others take what is
# left.
_MOST_IMPORTANT = 3
# The confirmation and all after it never take more than this of the time from the search.
_MOST_RESERVED = 0.4
# Sessions of the confirmation take longer to open: Grappler optimises the graph as for the user.
_MARGIN = 1.2
# For comparing what the graphs compute, three sessions are opened.
_SESSIONS_FOR_VALUES = 3
_EXPLAIN_SHARE, _MOST_EXPLAIN_SECS = 0.02, 5.0
# What a start of processes takes as long as none was timed.
_RESTART_SECS = 10.0
# How far the time may be exceeded where nothing could be confirmed otherwise.
_TOLERANCE = 0.08


@dataclasses.dataclass(frozen=True)
class ConfirmationPlan:
    """What is confirmed, decided before the first round, so that it proves nothing.

    Attributes:
        labels: what is measured, the graph as it came first.
        rounds: how often at most.
        deadline_secs: seconds after which no further round starts.
    """

    labels: tuple[str, ...]
    rounds: int
    deadline_secs: float


class TimePlan:
    """Knows how long a search may still take.

    The time begins with the call, not with the first trial: starting, reading and grouping count.
    What trials of earlier calls took counts, too.

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

    def postpone(self, secs: float) -> None:
        """Does not count seconds that have passed: everything may end so much later."""
        self._end_secs += secs

    def left_secs(self) -> float:
        """Seconds left in all."""
        return self._end_secs - time.monotonic()

    def left_to_search_secs(self, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> float:
        """Seconds left before the confirmation should begin.

        Args:
            trials: all so far.
            finalists: what would be confirmed, were the search over.
        """
        needed = _by_importance(finalists, self._baselines)[:_MOST_IMPORTANT]
        round_secs = _restart_secs(trials) + sum(
            trial_secs(finalists[label].measurement) for label in needed
        )
        reserved_secs = _MIN_ROUNDS * _MARGIN * round_secs + self._after_secs(trials)
        return self.left_secs() - min(reserved_secs, _MOST_RESERVED * self.max_secs)

    def can_profile(self, trials: Sequence[Trial], left_secs: float) -> bool:
        """Whether there is time for what a profile takes at least: two starts and a measurement.

        Args:
            trials: all so far, the graph as it came first.
            left_secs: seconds that are left to search.
        """
        return left_secs > 2.0 * _restart_secs(trials) + trial_secs(trials[0].measurement)

    def confirmation(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial], *, impatient: bool
    ) -> ConfirmationPlan | None:
        """Says what can be confirmed in the time that is left.

        Where it is too short for enough rounds of all finalists, those that matter least are left
        out: in this order the graph as it came, the fastest, the fastest baseline (the others come
        in the order that they have).

        Args:
            trials: of the search.
            finalists: by label, the graph as it came first.
            impatient: whether somebody waits for the search to end.

        Returns:
            None if there is not even time for two rounds of the fastest.
        """
        left_secs = self.left_secs() - self._after_secs(trials)
        labels = _by_importance(finalists, self._baselines)
        secs = [trial_secs(finalists[label].measurement) for label in labels]
        restart_secs = _restart_secs(trials)

        def rounds_of(count: int, left_secs: float) -> int:
            round_secs = _MARGIN * (restart_secs + sum(secs[:count]))
            return int(min(left_secs / max(round_secs, 1e-3), _MAX_ROUNDS))

        if impatient:
            return ConfirmationPlan(labels[:2], _IMPATIENT_ROUNDS, math.inf)
        for count in range(len(labels), 1, -1):
            if rounds_of(count, left_secs) >= _MIN_ROUNDS:
                # More prove more, and may fit: the first start, which rounds are reckoned by, is
                # the slowest.
                rounds = _MAX_ROUNDS
                break
        else:
            rounds = rounds_of(2, left_secs)
            if rounds < _LEAST_ROUNDS:
                if rounds_of(2, left_secs + _TOLERANCE * self.max_secs) < _LEAST_ROUNDS:
                    return None
                rounds = _LEAST_ROUNDS
        chosen = [label for label in finalists if label in labels[:count]]
        # A round that starts is finished.
        last_round_secs = _MARGIN * (restart_secs + sum(secs[:count]))
        return ConfirmationPlan(tuple(chosen), rounds, max(0.0, left_secs - last_round_secs))

    def _after_secs(self, trials: Sequence[Trial]) -> float:
        """Seconds that all behind the confirmation takes."""
        setup_secs = trials[0].measurement.setup_secs if trials else 0.0
        values_secs = 0.5 * _restart_secs(trials) + _SESSIONS_FOR_VALUES * setup_secs
        return values_secs + 2.0 * self.explain_secs


def _by_importance(finalists: Mapping[str, Trial], baselines: Sequence[str]) -> tuple[str, ...]:

    def median_secs(label: str) -> float:
        return finalists[label].measurement.median_secs or math.inf

    others = sorted((label for label in finalists if label != ORIGINAL), key=median_secs)
    best_baseline = [label for label in others if label in baselines][:1]
    if ORIGINAL not in finalists:
        return ()  # Nothing has run so far.
    return tuple(dict.fromkeys([ORIGINAL, *others[:1], *best_baseline, *finalists]))


def _restart_secs(trials: Sequence[Trial]) -> float:
    """What the first trial took to start its processes."""
    if not trials:
        return _RESTART_SECS
    return max(0.0, trials[0].elapsed_secs - trial_secs(trials[0].measurement))


def trial_secs(measurement: Measurement) -> float:
    """Seconds that a measurement took."""
    return measurement.setup_secs + sum(measurement.step_secs or ())
