"""How a search ends that has nothing to confirm: no placement ran, or there was no time for one."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import FailureKind
from tf_placer.search.trial_log import Trial

__all__ = ["outcome_without_finalists"]


def outcome_without_finalists(
    trials: Sequence[Trial], max_trials: int, max_secs: float
) -> tuple[Outcome, str]:
    """Tells whether no placement ran, or the time or the trials were over before one could.

    A placement that was given up because its time was over may run where there is more: only
    another failure says that it does not.

    Args:
        trials: of the search, the graph as it came first; none of the others ran.
        max_trials: how many there may be.
        max_secs: seconds that the search may take.

    Returns:
        How the search ends, and why.
    """
    failures = [
        trial.measurement.failure
        for trial in trials[1:]
        if trial.measurement.failure is not None and trial.repeats is None
    ]
    plural = "" if max_trials == 1 else "s"
    budget = f"within {max_trials} trial{plural} and {max_secs:g} s: allow more"
    if not failures:
        original = trials[0].measurement.failure if trials else None
        if not trials:
            return Outcome.NO_TIME, f"not even the graph as it came was measured {budget}"
        if original is None:
            return Outcome.NO_TIME, f"only the graph as it came was measured {budget}"
        return Outcome.NO_TIME, (
            f"the graph as it came does not run ({original.kind.value}: {original.message}), and "
            f"nothing else was tried {budget}"
        )
    counts = collections.Counter(failure.kind for failure in failures)
    tried = "1 placement was tried" if len(failures) == 1 else f"{len(failures)} were tried"
    last = failures[-1].message
    if list(counts) == [FailureKind.TIMEOUT]:
        return Outcome.NO_TIME, (
            f"{tried}, and each was given up when its time was over; the last: {last}: allow more "
            "time, in another directory, because this one has what was given up"
        )
    kinds = ", ".join(f"{count} {kind.value}" for kind, count in counts.most_common())
    return Outcome.NOTHING_RUNS, f"{tried} ({kinds}); the last: {last}"
