"""The choice of the trials to measure again after a search, and of the winner among them."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.equal_values import describe_difference
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = [
    "ValuesEnvironment",
    "choose_finalists",
    "choose_winner",
    "drop_slow_finalists",
    "explain_no_finalists",
]

# Fetches the values of a few steps; takes the names of more tensors as `tensors`.
_FetchValues = Callable[..., dict[str, np.ndarray] | Failure]
_NUM_OTHERS = 2
# A slower trial can hardly be the fastest placement, even with the error of a single trial.
_MAX_RATIO_TO_FASTEST, _MAX_RATIO_TO_ORIGINAL = 1.15, 1.0


class ValuesEnvironment(Protocol):
    """The part of a live environment that comparing values needs."""

    def fetch_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = (), alone: bool = False
    ) -> dict[str, np.ndarray] | Failure:
        """Runs a few steps and returns fetched tensors, variables and the given tensors by name.

        The devices are given by operation name. The names of fetched and given tensors end in the
        number of the step: "x:0@1". If `alone`, the steps run on the CPU of this computer.
        """
        ...


def choose_finalists(trials: Sequence[Trial], baselines: Sequence[str]) -> dict[str, Trial]:
    """Chooses the trials to measure again, side by side.

    Args:
        trials: all trials of a search; the first is the original.
        baselines: the placers whose best trial is always a finalist.

    Returns:
        By label: the original, the best trial of each baseline, and the fastest two of the others,
        because the fastest of many noisy measurements is often not the fastest placement. Empty if
        no placement ran.
    """
    ran = [t for t in trials[1:] if t.measurement.median_secs is not None and t.repeats is None]
    ran.sort(key=lambda t: (t.measurement.median_secs or 0.0, t.index))
    if not ran:
        return {}
    chosen = {ORIGINAL: trials[0]}
    for name in baselines:
        best = next((t for t in ran if t.placer == name), None)
        if best is not None:
            chosen[name] = best
    others = [t for t in ran if t.placer not in baselines]
    for number, trial in enumerate(others[:_NUM_OTHERS]):
        chosen[trial.placer if number == 0 else f"{trial.placer} ({number + 1})"] = trial
    return chosen


def drop_slow_finalists(finalists: Mapping[str, Trial]) -> dict[str, Trial]:
    """Drops finalists that were so slow in the search that they can hardly be the fastest.

    Args:
        finalists: by label, the original first.

    Returns:
        The original and the placements that may be faster than it; the original alone if there
        are none.
    """
    secs = {label: trial.measurement.median_secs for label, trial in finalists.items()}
    original_secs = secs[ORIGINAL]
    limit_secs = _MAX_RATIO_TO_FASTEST * min(each for each in secs.values() if each is not None)
    if original_secs is not None:
        limit_secs = min(limit_secs, _MAX_RATIO_TO_ORIGINAL * original_secs)
    return {
        label: trial
        for label, trial in finalists.items()
        if label == ORIGINAL or (secs[label] or math.inf) <= limit_secs
    }


def explain_no_finalists(
    trials: Sequence[Trial], max_trials: int, max_secs: float, advice: str = "allow more time"
) -> tuple[Outcome, str]:
    """Finds out why there are no finalists: no placement ran, or the budget was too small.

    A placement that exceeded its time limit may run with a larger one, so time-outs alone do not
    show that no placement runs.

    Args:
        trials: all trials of the search, the original first; no other trial ran.
        max_trials: the maximum number of trials.
        max_secs: the time limit of the search in seconds.
        advice: advice on the time that would be enough.

    Returns:
        The outcome, and the reason for users.
    """
    failures = [
        trial.measurement.failure
        for trial in trials[1:]
        if trial.measurement.failure is not None and trial.repeats is None
    ]
    plural = "" if max_trials == 1 else "s"
    if len(trials) >= max_trials:
        advice = "allow more trials"
    budget = f"within {max_trials} trial{plural} and {max_secs:g} s: {advice}"
    if not failures:
        original = trials[0].measurement.failure if trials else None
        if not trials:
            return Outcome.NO_TIME, f"not even the original was measured {budget}"
        if original is None:
            return Outcome.NO_TIME, f"only the original was measured {budget}"
        without = (
            "; or without a search let activations wait on the CPU (tf_placer.offload)"
            if original.kind is FailureKind.OUT_OF_MEMORY
            else ""
        )
        return Outcome.NO_TIME, (
            f"the original does not run ({original.kind.value}: {original.message}), and "
            f"nothing else was tried {budget}{without}"
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


def choose_winner(
    environment: ValuesEnvironment,
    confirmation: Confirmation,
    candidates: Mapping[str, Mapping[str, str]],
    *,
    tensors: Sequence[str] = (),
    mixed_devices: bool = False,
    by_chance: Collection[str] = (),
    computes_values: bool = True,
) -> tuple[Outcome, str | None, str | None]:
    """Accepts the best candidate of a confirmation if it is faster and computes the same values.

    Args:
        environment: computes the values to compare.
        confirmation: the comparison of the candidates with the original.
        candidates: per label the full device name by operation name.
        tensors: names of tensors in a topological order, to locate the first difference.
        mixed_devices: whether the devices are of several types, whose kernels round differently.
        by_chance: names of operations whose values depend on the order of others that have none.
        computes_values: whether the machine computes values, not shapes alone.

    Returns:
        The outcome of the search, the label of the winner if there is one, and a note for users.
    """
    label = confirmation.best
    compared = None if label is None else confirmation.comparisons.get(label)
    if label is None or compared is None:
        return Outcome.NOT_FASTER, None, None
    if not compared.faster and compared.speedup is None:
        why = f"there was time for one round, in which {label} ran, and {compared.reason}"
        return Outcome.NOT_CONFIRMED, None, why
    if compared.speedup is not None and compared.interval is None:
        why = f"there was no time for more, and {label} is {compared.reason}"
        return Outcome.NOT_CONFIRMED, None, why
    if not compared.faster:
        return Outcome.NOT_FASTER, None, None
    if not computes_values:
        return Outcome.FASTER, label, "values were not compared: the machine computes shapes only"
    placed = candidates[label]
    fetch_original = functools.partial(environment.fetch_values, {})
    if compared.speedup is None:
        # The original does not run on the machine, but it may on the CPU of this computer.
        anywhere = dict.fromkeys(placed, "")
        fetch_original = functools.partial(environment.fetch_values, anywhere, alone=True)
    fetch_placed = functools.partial(environment.fetch_values, placed)
    difference, note = _compare_values(fetch_original, fetch_placed, mixed_devices)
    if difference is None:
        return Outcome.FASTER, label, note
    first = _find_first_difference(fetch_original, fetch_placed, tensors)
    if first is not None:
        name, step = first
        difference = f"{difference}; the first to differ is {name!r} in step {step}"
        if name.partition(":")[0] in by_chance:
            note = f"what the graph leaves to chance came in another order: {difference}"
            return Outcome.FASTER, label, note
    return Outcome.DIFFERENT_VALUES, None, f"{label} does not compute the same: {difference}"


def _compare_values(
    fetch_original: _FetchValues, fetch_placed: _FetchValues, mixed_devices: bool
) -> tuple[str | None, str | None]:
    """Compares the values of the original and the placed graph.

    Returns:
        A description of the first difference, or None; and a note, such as the reason why the
        values could not be compared.
    """
    values: list[dict[str, np.ndarray]] = []
    for fetch in (fetch_original, fetch_placed, fetch_original):
        computed = fetch()
        if isinstance(computed, Failure):
            return None, f"what the graphs compute could not be compared: {computed.message}"
        values.append(computed)
        if len(values) == 2 and describe_difference(*values) is None:
            return None, None
    original, placed, again = values
    if describe_difference(original, again) is not None:
        return None, "two runs of the original do not compute the same: not compared"
    difference = describe_difference(original, placed)
    if mixed_devices and _may_be_rounding(original, placed):
        return None, f"only variables differ, as by rounding: {difference}"
    return difference, None


def _find_first_difference(
    fetch_original: _FetchValues, fetch_placed: _FetchValues, tensors: Sequence[str]
) -> tuple[str, str] | None:
    """Finds the first tensor whose value differs in the placed graph, and the step."""
    if not tensors:
        return None
    original, placed = (fetch(tensors=tensors) for fetch in (fetch_original, fetch_placed))
    if isinstance(original, Failure) or isinstance(placed, Failure):
        return None
    wanted = {name: order for order, name in enumerate(tensors)}
    shared = [key for key in original if key in placed and key.partition("@")[0] in wanted]

    def step_and_order(key: str) -> tuple[int, int]:
        name, _, step = key.partition("@")
        return int(step), wanted[name]

    for key in sorted(shared, key=step_and_order):
        if describe_difference({key: original[key]}, {key: placed[key]}) is not None:
            name, _, step = key.partition("@")
            return name, step
    return None


def _may_be_rounding(expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]) -> bool:
    """Returns whether all fetched tensors and most variables are the same.

    Adam makes a full step of any gradient, however small. Where a gradient is nothing but rounding
    (of a bias before a batch normalization, say), a variable follows the rounding of the kernels.
    """
    if expected.keys() != actual.keys():
        return False
    same = {
        name: describe_difference({name: expected[name]}, {name: actual[name]}) is None
        for name in expected
    }
    # Fetched tensors carry the number of their step.
    variables = [name for name in same if "@" not in name]
    fetched_are_same = all(same[name] for name in same if "@" in name)
    return fetched_are_same and 2 * sum(same[name] for name in variables) > len(variables)
