"""Which trials are measured again at the end of a search, and which of them wins."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.equal_values import describe_difference
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = ["ValuesEnvironment", "choose_finalists", "choose_winner", "hopeful_finalists"]

_NUM_OTHERS = 2
# Measured again is what may be the fastest, given how wrong a trial can be.
_HOPEFUL_TO_BEST, _HOPEFUL_TO_ORIGINAL = 1.15, 1.05


class ValuesEnvironment(Protocol):
    """A live environment as far as comparing values needs it."""

    def fetched_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = ()
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches what a few steps compute with devices given by operation name, or why nothing.

        Of fetched tensors and of the given ones the name ends in the number of the step, "x:0@1".
        """
        ...


def choose_finalists(trials: Sequence[Trial], baselines: Sequence[str]) -> dict[str, Trial]:
    """Chooses the trials to measure again, side by side.

    Args:
        trials: all trials of a search; the first is the graph as it came.
        baselines: the placers whose best trial is always one of them.

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


def hopeful_finalists(finalists: Mapping[str, Trial]) -> dict[str, Trial]:
    """Leaves out what was so slow in the search that it can hardly be the fastest.

    Args:
        finalists: by label, the graph as it came first.

    Returns:
        The graph as it came and the others that may be faster; only the former where the search
        found nothing.
    """
    secs = {label: trial.measurement.median_secs for label, trial in finalists.items()}
    original_secs = secs[ORIGINAL]
    limit_secs = _HOPEFUL_TO_BEST * min(each for each in secs.values() if each is not None)
    if original_secs is not None:
        limit_secs = min(limit_secs, _HOPEFUL_TO_ORIGINAL * original_secs)
    return {
        label: trial
        for label, trial in finalists.items()
        if label == ORIGINAL or (secs[label] or math.inf) <= limit_secs
    }


def choose_winner(
    environment: ValuesEnvironment,
    confirmation: Confirmation,
    candidates: Mapping[str, Mapping[str, str]],
    *,
    tensors: Sequence[str] = (),
    mixed_devices: bool = False,
    asynchronous: Collection[str] = (),
    computes_values: bool = True,
) -> tuple[Outcome, str | None, str | None]:
    """Accepts what a confirmation has chosen if it is faster, and computes the same.

    Args:
        environment: computes what is compared.
        confirmation: how the candidates compare with the graph as it came.
        candidates: per label the full device name by operation name.
        tensors: names of tensors, in a topological order, to tell where a difference begins.
        mixed_devices: whether the devices are of several types, whose kernels round differently.
        asynchronous: names of operations whose values hang on the order of asynchronous updates.
        computes_values: whether the machine computes values, not shapes alone.

    Returns:
        How the search ends, the label of the winner if there is one, and what else to say.
    """
    label = confirmation.best
    compared = None if label is None else confirmation.comparisons.get(label)
    if label is None or compared is None:
        return Outcome.NOT_FASTER, None, None
    if not compared.faster and compared.speedup is None:
        why = f"there was time for one round, in which {label} ran, and {compared.reason}"
        return Outcome.NOT_CONFIRMED, None, f"{why}: allow more time"
    if compared.speedup is not None and compared.interval is None:
        why = f"there was no time for more, and {label} is {compared.reason}"
        return Outcome.NOT_CONFIRMED, None, f"{why}: allow more time"
    if not compared.faster:
        return Outcome.NOT_FASTER, None, None
    if compared.speedup is None:
        # To see once more that the original does not run may take long.
        return Outcome.FASTER, label, "what the graphs compute could not be compared"
    if not computes_values:
        return Outcome.FASTER, label, "values were not compared: the machine computes shapes only"
    difference, note = _compare_values(environment, candidates[label], mixed_devices)
    if difference is None:
        return Outcome.FASTER, label, note
    first = _first_difference(environment, candidates[label], tensors)
    if first is not None:
        name, step = first
        difference = f"{difference}; the first to differ is {name!r} in step {step}"
        if name.partition(":")[0] in asynchronous:
            note = f"asynchronous updates come in another order: {difference}"
            return Outcome.FASTER, label, note
    return Outcome.DIFFERENT_VALUES, None, f"{label} does not compute the same: {difference}"


def _compare_values(
    environment: ValuesEnvironment, assignment: Mapping[str, str], mixed_devices: bool
) -> tuple[str | None, str | None]:
    """Compares what original and placed graph compute.

    Returns:
        What differs; and, where that could not be told, why.
    """
    values = []
    for devices in ({}, {}, assignment):
        computed = environment.fetched_values(devices)
        if isinstance(computed, Failure):
            return None, f"what the graphs compute could not be compared: {computed.message}"
        values.append(computed)
    original, again, placed = values
    if describe_difference(original, again) is not None:
        return None, "two runs of the graph as it came do not compute the same: not compared"
    difference = describe_difference(original, placed)
    if difference is not None and mixed_devices and _may_be_rounding(original, placed):
        return None, f"only variables differ, as by rounding: {difference}"
    return difference, None


def _first_difference(
    environment: ValuesEnvironment, assignment: Mapping[str, str], tensors: Sequence[str]
) -> tuple[str, str] | None:
    """Finds the first of the tensors that is another in the placed graph, and the step of that."""
    if not tensors:
        return None
    original, placed = (environment.fetched_values(d, tensors=tensors) for d in ({}, assignment))
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
    """Says whether all fetched tensors and most variables are the same.

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
