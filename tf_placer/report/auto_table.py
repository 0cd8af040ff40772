"""Tables that explain the result of a search: candidates, limits and other machines."""

from __future__ import annotations

import collections
import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_placer.placers import PLACERS
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.heuristics.single_device import SingleDevice
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels, label_single_device
from tf_placer.report.explanation import Explanation
from tf_placer.report.limits import (
    FOR_WANT_OF_MEMORY,
    LEAST_DISPLACED_SHARE,
    Limit,
    Limits,
)
from tf_placer.report.what_if import THIS_MACHINE, WhatIf
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "auto_table",
    "change_rows",
    "changes_table",
    "describe_bound",
    "describe_gain_here",
    "explanation_table",
    "limit_rows",
    "limits_table",
]

_KINDS = ("compute", "link", "memory", FOR_WANT_OF_MEMORY)
_OF = {"memory": "it"}
_CHANGE_HEADERS = ("what if", "simulated step", "speedup", "lower bound")
# A step that is shorter by less looks the same in a table.
_LEAST_GAIN = 1.005
# A gain of no more than this many errors of predicted steps may be none.
_DOUBTFUL_ERRORS = 2.0
_LEAST_BOUND_SHARE, _LEAST_BUSY_SHARE, _LEAST_FULL_SHARE = 0.97, 0.9, 0.9
# Characters of a line.
_MAX_WIDTH = 120
# The devices or links of one kind that may each have a row although they are hardly used.
_MAX_UNUSED = 3
# From this share of the step on, transfers on the critical path are worth a word, and so is the
# device that has most of the work.
_LEAST_TRANSFER_SHARE, _LEAST_UNEVEN_SHARE = 0.1, 0.5
_BOUNDS = {
    "critical path": "the longest chain of operations",
    "work": "all work, divided among the devices",
    "joins": "inputs of an operation wait for their turn or for a transfer",
    "groups": "one group on one device",
    "windows": "the work that falls into one part of the step, divided among the devices",
}


_ONLY_STARTS = (
    "a row has the best of the placer's proposals that this search had time for; alone, with its "
    "own groups and time, it may find others"
)


def auto_table(
    problem: PlacementProblem,
    result: AutoResult,
    changes: Sequence[WhatIf],
    limits: Limits | None = None,
) -> str:
    """Formats the candidates of a search, the limits of the best, and the effect of other machines.

    Args:
        problem: the problem that was searched.
        result: the result of the search.
        changes: the steps of its best placement on other machines.
        limits: the limits of its best placement; None if that has no step.

    Returns:
        Tables without a final newline.
    """
    bound_secs, best_secs = result.lower_bound_secs, result.best.step_secs
    rows = [
        [
            _label_candidate(problem, name, found.placement),
            format_step(found.step_secs),
            _ratio(found.step_secs, bound_secs),
            _describe_fit(problem, found),
        ]
        for name, found in [("found", result.best), *result.starts]
    ]
    candidates = table(["candidate", "simulated step", "to lower bound", "fits"], rows, "lrrl")
    if {name for name, _ in result.starts} & (PLACERS.keys() - {SingleDevice.name}):
        candidates += f"\n{_ONLY_STARTS}"
    parts = [candidates]
    if limits is not None:
        parts.append(limits_table(limits, "found"))
    if changes:
        parts.append(changes_table(changes, best_secs))
    return "\n\n".join(parts)


def _describe_fit(problem: PlacementProblem, found: Candidate) -> str:
    """Tells whether a candidate fits, and if not, the device that lacks most memory."""
    if not found.excess_bytes:
        return "yes"
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])
    lacking = found.peak_bytes - memory_bytes
    names = [device.name for device in problem.devices]
    fullest = device_labels(names)[names[int(lacking.argmax())]]
    num_lacking = int((lacking > 0).sum())
    most = f", most of {num_lacking} devices" if num_lacking > 1 else ""
    return f"no: {fullest} lacks {format_bytes(int(lacking.max()))}{most}"


def _label_candidate(problem: PlacementProblem, name: str, placement: np.ndarray) -> str:
    """Adds the device to the name of the candidate with everything on one device."""
    device = label_single_device(problem, placement) if name == SingleDevice.name else None
    return name if device is None else f"{name} ({device})"


def explanation_table(explanation: Explanation) -> str:
    """Formats the limits of the best placement, its steps on other machines, and the error.

    Returns:
        Tables without a final newline.
    """
    limits = explanation.limits
    # The progress of the search has a bound, too, from fewer trials.
    basis = "by costs that all measurements have corrected"
    parts = [limits_table(limits, explanation.label, basis)]
    if explanation.changes:
        error = math.inf if explanation.label == ORIGINAL else explanation.error
        # A live search gives these searches no more time, whatever it is allowed.
        parts.append(changes_table(explanation.changes, limits.step_secs, error=error, advice=""))
    parts.append(f"predicted steps are off by {explanation.error:.0%}")
    return "\n\n".join(parts)


def describe_bound(limits: Limits) -> str:
    """Describes the tightest limit of a placement, as a clause."""
    by_kind = {kind: [each for each in limits.limits if each.kind == kind] for kind in _KINDS}
    return _describe_tightest(limits, by_kind, _make_namer(limits))


def _make_namer(limits: Limits) -> Callable[[Limit], str]:
    """Returns a function that names the device or the link of a limit, in short."""
    labels = device_labels([limit.where for limit in limits.limits if limit.kind == "compute"])
    return lambda limit: " -> ".join(labels.get(part, part) for part in limit.where.split(" -> "))


def limit_rows(limits: Limits) -> list[tuple[str, str, str]]:
    """Makes a row for each limit: its kind, its device or link, and the share in use."""
    where = _make_namer(limits)
    return [
        (limit.kind, where(limit), f"{limit.share:.0%} of {_OF.get(limit.kind, 'the step')}")
        for limit in limits.limits
    ]


def change_rows(changes: Sequence[WhatIf], now_secs: float) -> list[tuple[str, str, str, str]]:
    """Makes a row for each machine: its step, speed-up and lower bound.

    The speed-up of other machines is over the better of the present step and that of a search of
    the machine as it is.
    """
    here_secs = min(now_secs, _find_searched_secs(changes) or now_secs)
    return [
        (change.change, "not searched", "-", "-")
        if change.step_secs is None or change.lower_bound_secs is None
        else (
            change.change,
            format_step(change.step_secs),
            _ratio(now_secs if change.change == THIS_MACHINE else here_secs, change.step_secs),
            format_step(change.lower_bound_secs),
        )
        for change in changes
    ]


def describe_gain_here(changes: Sequence[WhatIf], now_secs: float, error: float = 0.0) -> str:
    """Says that a better placement of the present machine was found; "" if none was.

    Args:
        changes: the steps of searches.
        now_secs: the present step.
        error: the typical relative error of simulated steps; 0 where nothing was measured, and
            infinite where no measured placement was faster than the original.
    """
    searched_secs = _find_searched_secs(changes)
    if searched_secs is None or now_secs < _LEAST_GAIN * searched_secs:
        return ""
    if math.log(now_secs / searched_secs) <= _DOUBTFUL_ERRORS * error:
        return (
            "what that search found may not be faster when it is measured: the speed-ups of other "
            "machines are over it"
        )
    return (
        "a longer search is faster without another machine, too: the speed-ups of the others are "
        "over that"
    )


def _find_searched_secs(changes: Sequence[WhatIf]) -> float | None:
    """Finds the step of the search of the machine as it is; None without such a search."""
    return next((each.step_secs for each in changes if each.change == THIS_MACHINE), None)


def _describe_left_out(changes: Sequence[WhatIf], advice: str) -> list[str]:
    """Describes the machines that were not searched, in sentences."""
    lines = []
    if any(change.step_secs is None for change in changes):
        lines.append(f"not searched: there was no time{advice}")
    if not any("memory" in change.change for change in changes):
        lines.append(
            "more memory would not help: all that the step needs, on all devices together, fits on "
            "one of them"
        )
    return lines


def changes_table(
    changes: Sequence[WhatIf],
    now_secs: float,
    *,
    error: float = 0.0,
    advice: str = "; allow more seconds",
) -> str:
    """Formats the steps of searches on this and other machines, beside the present step.

    Args:
        changes: the steps.
        now_secs: the present step.
        error: see `describe_gain_here`.
        advice: the end of the sentence about machines that there was no time for.
    """
    rows = table(_CHANGE_HEADERS, change_rows(changes, now_secs), "lrrr")
    gain = describe_gain_here(changes, now_secs, error)
    return "\n".join([rows, *([gain] if gain else []), *_describe_left_out(changes, advice)])


def limits_table(limits: Limits, label: str, basis: str = "") -> str:
    """Formats the limits of a placement: a sentence, and the share of each limit in use.

    Args:
        limits: the limits.
        label: the name of the placement.
        basis: the costs behind the lower bound, as a clause; "" for those of the problem.
    """
    about = "; ".join(filter(None, [_BOUNDS.get(limits.bound or ""), basis]))
    by = f" ({about})" if about else ""
    sentence = (
        f"lower bound {format_step(limits.lower_bound_secs)}{by}; {label} is bound by "
        f"{describe_bound(limits)}"
    )
    shown = table(["limit", "where", "used"], _merge_unused(limit_rows(limits)), "llr")
    return f"{textwrap.fill(sentence, _MAX_WIDTH)}\n{shown}"


def _merge_unused(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Merges the rows of devices or links that are hardly used, of each kind, if there are many."""
    unused = collections.Counter(kind for kind, _, used in rows if used.startswith("0%"))
    merged: list[tuple[str, str, str]] = []
    for kind, of_kind in itertools.groupby(rows, key=lambda row: row[0]):
        of_one_kind = list(of_kind)
        if (count := unused[kind]) > _MAX_UNUSED:
            rest = next(used for _, _, used in of_one_kind if used.startswith("0%"))
            of_one_kind = [row for row in of_one_kind if not row[2].startswith("0%")]
            of_one_kind.append((kind, f"{count} others", rest))
        merged += of_one_kind
    return merged


def _describe_tightest(
    limits: Limits,
    by_kind: Mapping[str, Sequence[Limit]],
    where: Callable[[Limit], str],
) -> str:
    """Describes the tightest limit of a placement, as a clause."""
    displaced = max(by_kind[FOR_WANT_OF_MEMORY], key=_get_share, default=None)
    if displaced is not None and displaced.share >= LEAST_DISPLACED_SHARE:
        return (
            f"memory: {displaced.share:.0%} of the step is on {where(displaced)}, because the "
            "memory of the GPUs is short"
        )
    bound_share = limits.lower_bound_secs / max(limits.step_secs, 1e-300)
    is_work = (
        limits.bound == "work" if limits.bound else limits.critical_path_secs < limits.work_secs
    )
    compute = max(by_kind["compute"], key=_get_share)
    link = max(by_kind["link"], key=_get_share, default=None)
    if bound_share >= _LEAST_BOUND_SHARE:
        text = (
            "compute: the devices share the work, and hardly ever wait"
            if is_work
            else "the critical path: operations that wait for each other"
        )
    elif link is not None and link.share >= max(_LEAST_BUSY_SHARE, compute.share):
        text = f"the link {where(link)}"
    elif compute.share >= _LEAST_BUSY_SHARE:
        text = f"compute on {where(compute)}"
    elif not is_work and bound_share >= _LEAST_BUSY_SHARE:
        text = "the critical path: operations that wait for each other, wherever they are"
    else:
        text = _describe_waiting(limits, compute, where)
    full = [where(limit) for limit in by_kind["memory"] if limit.share >= _LEAST_FULL_SHARE]
    return f"{text}; memory is nearly full on {', '.join(full)}" if full else text


def _describe_waiting(limits: Limits, busiest: Limit, where: Callable[[Limit], str]) -> str:
    """Describes a step in which all devices wait, in a clause."""
    others = [
        each.share for each in limits.limits if each.kind == "compute" and each is not busiest
    ]
    text = "the critical path: operations wait for each other"
    transfers = [each.share for each in limits.limits if each.kind == "transfers on it"]
    if not transfers or max(transfers) >= _LEAST_TRANSFER_SHARE:
        text += ", and for transfers"
    if others and busiest.share >= _LEAST_UNEVEN_SHARE and max(others) < busiest.share / 2:
        text += (
            f"; {where(busiest)} computes in {busiest.share:.0%} of it, no other in half as much"
        )
    return text


def _get_share(limit: Limit) -> float:
    return limit.share


def _ratio(secs: float, by_secs: float) -> str:
    return f"{secs / by_secs:.2f}x" if by_secs > 0 else "-"
