"""Sentences below the charts of the page, which say what the charts show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.report.colors import TRANSPARENT, device_colors
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.page.run_view import RUN_NAMES, ComparedPlacement, RunView, StepView
from tf_placer.report.step_shares import copy_secs_by_kind, find_computers
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.units import format_bytes, format_duration, format_step

__all__ = [
    "describe_comparison",
    "describe_copies",
    "describe_load",
    "describe_memory",
    "describe_pair",
    "describe_placement",
    "describe_search",
    "describe_transfers",
    "describe_work",
    "find_subject",
    "subject",
]

# A fed tensor with a batch size, as headers of searches describe it: "float32[512, 256]".
_BATCHED = re.compile(r"(\w+\[)([1-9]\d*)(.*)")
# A device that is busy for a smaller share of the step is hardly used.
_LEAST_USED_SHARE = 0.1
_MAX_NAMED_DEVICES = 3
# A smaller speed-up of a trial is within its noise.
_CLEARLY_FASTER = 1.02
# Computers whose originals differ by less are about as fast.
_LEAST_SLOWDOWN = 1.1


def describe_comparison(view: RunView) -> str:
    """Describes the placements beside the first, which stands for the original."""
    first, *others = view.compared
    known = [each for each in others if each.speedup is not None]
    if not known:
        return ""
    least = _CLEARLY_FASTER if view.is_measured else 1.0
    # A confirmed placement is faster; that of a plan may be slower.
    faster = [
        each
        for each in known
        if (view.is_measured and each.is_found) or (each.speedup or 0.0) > least
    ]
    text = (
        f"{len(faster)} of {len(known)} other {_plural('placement', len(known))} "
        f"{'is' if len(faster) == 1 else 'are'} {'more than 2 % ' if view.is_measured else ''}"
        f"faster than {subject(first.label)}."
    )
    if faster and view.is_measured and not any(each.is_found for each in known):
        text = f"{text[:-1]} in the search, and none is confirmed."
    for each in known:
        if each.is_found:
            name = (
                "The placement found"
                if each.label == "found"
                else f"{each.label}, which was found,"
            )
            text += f" {name} is {each.speedup:.2f} times as fast"
            if each.interval is not None:
                low, high = each.interval
                text += f", with 95 % confidence {low:.2f} to {high:.2f} times"
            text += "."
    if view.num_left_out:
        is_one = view.num_left_out == 1
        text += f" {view.num_left_out} that {'is' if is_one else 'are'} slower or failed "
        text += f"{'is' if is_one else 'are'} left out."
    subject_label = view.steps[-1].label if view.steps else ORIGINAL
    if view.is_measured and not view.is_better and subject_label != ORIGINAL:
        text += f" The pictures and the timeline are of {subject_label}."
    return text


def describe_placement(view: StepView) -> str:
    """Describes the shares of the devices in the computing time of a placement."""
    names = _names(view)
    secs = np.array([device.compute_secs for device in view.report.devices])
    shares = secs / max(float(secs.sum()), 1e-300)
    busiest = [d for d in np.argsort(-shares, kind="stable").tolist() if shares[d] > 0]
    named = [f"{names[device]} has {shares[device]:.0%}" for device in busiest[:_MAX_NAMED_DEVICES]]
    text = f"{', '.join(named)} of the computing time" if named else "No operation takes time"
    others, idle = len(busiest) - len(named), len(secs) - len(busiest)
    if others:
        rest = float(shares[busiest[_MAX_NAMED_DEVICES:]].sum())
        text += f"; {others} more {_plural('device', others)} {rest:.0%}"
    if idle and named:
        text += f"; {idle} {_plural('device', idle)} {'has' if idle == 1 else 'have'} none"
    return f"{text}."


def describe_load(view: StepView) -> str:
    """Describes the load of the devices over a step; a CPU beside GPUs does not count."""
    devices = view.report.devices
    shown = [
        number
        for number, color in enumerate(device_colors(view.trace.problem.devices))
        if color != TRANSPARENT
    ]
    step_secs = max(view.report.step_secs, 1e-300)
    shares = [device.busy_secs / step_secs for device in devices]
    names = _names(view)
    is_gpu = all("GPU" in devices[number].name.upper() for number in shown)
    noun = _plural("GPU" if is_gpu else "device", len(shown))
    unused = [number for number in shown if shares[number] < _LEAST_USED_SHARE]
    most = int(np.argmax(shares))
    text = f"{names[most]} is busy {shares[most]:.0%} of the step"
    if len(shown) == 1:
        return f"{text}."
    if unused:
        verb = "is" if len(unused) == 1 else "are"
        counted = f"{len(unused)} of {len(shown)} {noun} {verb}"
        return f"{counted} busy less than {_LEAST_USED_SHARE:.0%} of the step; {text}."
    least = min(shown, key=shares.__getitem__)
    text = f"{text}, {names[least]} {shares[least]:.0%}"
    average = sum(shares[number] for number in shown)
    return f"{text}: on average {average:.1f} of {len(shown)} {noun} compute."


def describe_work(view: StepView, kinds: OperationKinds) -> str:
    """Describes the parts of the computing time of a step, and the device that copies longest."""
    secs = view.trace.end_secs - view.trace.start_secs
    total_secs = float(secs.sum())
    text = f"{view.label}: operations take {format_step(total_secs)} in all"
    if kinds.has_backward:
        backward = float(secs[kinds.backward].sum()) / max(total_secs, 1e-300)
        part = f"{backward:.0%} of the computing time"
        text = f"{view.label}: {part} is the backward pass and the update"
    copying = [device.copy_secs for device in view.report.devices]
    most = int(np.argmax(copying))
    if not copying[most]:
        return f"{text}; nothing is copied."
    share = copying[most] / max(view.report.step_secs, 1e-300)
    return f"{text}; {_names(view)[most]} copies longest, {share:.0%} of the step."


def describe_transfers(views: Sequence[StepView]) -> str:
    """Describes the amount that each placement moves between devices in a step."""
    parts: list[str] = []
    for view in views:
        count = sum(link.transfers for link in view.report.links)
        size = format_bytes(sum(link.bytes for link in view.report.links))
        amount = f"{size} in {count:,} {_plural('transfer', count)}" if count else "nothing"
        name = subject(view.label)
        amount += _describe_network(view) if count else ""
        parts.append(f"{name} {amount}" if parts else f"{name} moves {amount}")
    return f"Between devices, {', '.join(parts)}."


def _describe_network(view: StepView) -> str:
    """Says how much of what a placement moves crosses the network; "" on one computer."""
    problem = view.trace.problem
    computers = find_computers(problem)
    if computers is None:
        return ""
    by_name = dict(zip((device.name for device in problem.devices), computers, strict=True))
    size = sum(
        link.bytes
        for link in view.report.links
        if by_name[link.source] != by_name[link.destination]
    )
    return f", {format_bytes(size)} of it over the network" if size else ", none over the network"


def describe_copies(views: Sequence[StepView]) -> str:
    """Describes the slowest kind of link of each placement."""
    parts = []
    for view in views:
        secs = copy_secs_by_kind(view.trace)
        if secs:
            kind = max(secs, key=secs.__getitem__)
            took = format_step(secs[kind])
            parts.append(f"{subject(view.label)} spends most on {kind}, {took}")
        else:
            parts.append(f"{subject(view.label)} has none")
    return f"Of transfers, {'; '.join(parts)}."


def describe_memory(view: StepView) -> str:
    """Describes the device whose memory is fullest in a step."""
    fullest = max(view.report.devices, key=lambda d: d.peak_bytes / max(d.memory_bytes, 1))
    name = device_labels([device.name for device in view.report.devices])[fullest.name]
    share = fullest.peak_bytes / max(fullest.memory_bytes, 1)
    return (
        f"{name} is the fullest: {format_bytes(fullest.peak_bytes)} after "
        f"{format_step(fullest.peak_secs)}, {_percent(share)} of its memory"
        f"{', which is too much' if share > 1 else ''}."
    )


def describe_search(view: RunView) -> str:
    """Describes the course of a search: its best steps and its failures."""
    noun = "trial" if view.is_measured else "sample"
    parts = []
    if view.best:
        first, last = view.best[0], view.best[-1]
        fell = f"from {format_step(first.step_secs or 0.0)} to {format_step(last.step_secs or 0.0)}"
        place = f"{noun} {last.number:,}"
        if view.points:
            place += f" of {view.points[-1].number:,}"
        parts.append(
            f"The best step fell {fell}: the last improvement is {place}, after "
            f"{format_duration(last.elapsed_secs)}."
            if len(view.best) > 1
            else f"No {noun} is faster than the first, {format_step(first.step_secs or 0.0)}."
        )
    if view.points:
        failed = sum(bool(point.failure) for point in view.points)
        count = len(view.points)
        parts.append(f"{count:,} {_plural(noun, count)} are shown, {failed:,} of them failed.")
    else:
        parts.append("The placer reports only the best so far, at the end of each stage.")
    return " ".join(parts)


def describe_pair(a: RunView, b: RunView) -> str:
    """Compares the steps that two runs are about: by their speed-ups over the same original.

    Where the originals differ, steps are compared that were measured in the same way.
    """
    if a.original_id and a.original_id == b.original_id:
        text = _compare_speedups(a, b)
        if text is not None:
            return text
    of_a, of_b = find_subject(a), find_subject(b)
    a_secs, b_secs = of_a.step_secs, of_b.step_secs
    confirmed = [_is_confirmed(view) for view in (a, b)]
    remark = "They were measured at different times, so small differences may be noise"
    if a.is_measured != b.is_measured:
        remark = "One was measured and the other simulated"
    elif not a.is_measured:
        remark = "Both are simulated"
        samples = [view.points[-1].number if view.points else None for view in (a, b)]
        if None not in samples and samples[0] != samples[1]:
            remark += f", with {samples[0]:,} samples in A and {samples[1]:,} in B"
    elif confirmed[0] != confirmed[1]:
        missing = RUN_NAMES[confirmed.index(False)]
        remark = (
            f"{missing} was not confirmed, so both steps are those of the search, one trial each"
        )
        a_secs, b_secs = of_a.searched_secs, of_b.searched_secs
    if a_secs is None or b_secs is None:
        return "Only one of both has a step time"
    batches, difference = _compare_feeds(a.feeds, b.feeds)
    sizes, per = ("", ""), ""
    if batches is not None:
        sizes, per = (f" of {batches[0]:,}", f" of {batches[1]:,}"), " per example"
    steps = (
        f"{format_step(a_secs)} a step{sizes[0]} in A{_name_subject(of_a)}, "
        f"{format_step(b_secs)}{sizes[1]} in B{_name_subject(of_b)}"
    )
    if batches is not None:
        a_secs, b_secs = a_secs / batches[0], b_secs / batches[1]
    faster, ratio = ("A", b_secs / a_secs) if a_secs < b_secs else ("B", a_secs / b_secs)
    text = f"{faster} is {ratio:.2f} times as fast" if ratio >= 1.005 else "A and B are as fast"
    return ". ".join(filter(None, [f"{text}{per}: {steps}", difference, remark]))


def _compare_speedups(a: RunView, b: RunView) -> str | None:
    """Compares two runs by their speed-ups over the same original; None if it did not run."""
    subjects, originals = [find_subject(view) for view in (a, b)], [a.compared[0], b.compared[0]]
    if any(each.speedup is None or not each.step_secs for each in [*subjects, *originals]):
        return None
    claims, steps, remarks = [], [], []
    for view, name, placement, original in zip(
        (a, b), RUN_NAMES[:2], subjects, originals, strict=True
    ):
        step = f"{format_step(placement.step_secs or 0.0)} in {name}{_name_subject(placement)}"
        if placement is original:
            claims.append(f"{name} keeps the original")
        else:
            claims.append(f"{name} is {placement.speedup:.2f} times as fast")
            step += f", where the original takes {format_step(original.step_secs or 0.0)}"
            if not (placement.is_found or _is_confirmed(view)):
                remarks.append(f"{name} is not confirmed, so its speed-up may be noise")
        steps.append(step)
    if subjects[0] is not originals[0]:
        claims[0] += " as the original"
    elif subjects[1] is originals[1]:
        claims = ["A and B keep the original"]
    slowdown = (originals[1].step_secs or 0.0) / (originals[0].step_secs or 1.0)
    slower, ratio = ("B", slowdown) if slowdown > 1 else ("A", 1 / slowdown)
    remarks.append(
        f"The same original took {ratio:.2f} times as long in {slower}: the computer was slower "
        "then, so that only speed-ups compare"
        if ratio >= _LEAST_SLOWDOWN
        else "They were measured at different times, so small differences may be noise"
    )
    return ". ".join([", ".join(claims), f"A step takes {', and '.join(steps)}", *remarks])


def _is_confirmed(view: RunView) -> bool:
    return any(each.interval is not None for each in view.compared)


def find_subject(view: RunView) -> ComparedPlacement:
    """Finds the placement that a run is about: found, the fastest so far, or the original."""
    found = next((each for each in view.compared if each.is_found), None)
    if found is not None or (view.has_ended and _is_confirmed(view)):
        return found or view.compared[0]
    return min(view.compared, key=lambda each: each.step_secs or math.inf)


def _name_subject(placement: ComparedPlacement) -> str:
    return "" if placement.is_found else f" ({subject(placement.label)})"


def _compare_feeds(
    a: Mapping[str, str], b: Mapping[str, str]
) -> tuple[tuple[int, int] | None, str]:
    """Compares the types and shapes that two steps are fed.

    Returns:
        The batch sizes, if these are the only difference, and a sentence about any other one.
    """
    sizes = set()
    for name in sorted(a.keys() & b.keys()):
        if a[name] == b[name]:
            continue
        of_a, of_b = _BATCHED.fullmatch(a[name]), _BATCHED.fullmatch(b[name])
        if of_a is None or of_b is None or of_a[1] + of_a[3] != of_b[1] + of_b[3]:
            return None, f"Their steps differ: {name!r} is {a[name]} in A and {b[name]} in B"
        sizes.add((int(of_a[2]), int(of_b[2])))
    if len(sizes) > 1:
        return None, "Their steps differ in the sizes of what is fed"
    return (sizes.pop() if sizes else None), ""


def _names(view: StepView) -> list[str]:
    labels = device_labels([device.name for device in view.report.devices])
    return [labels[device.name] for device in view.report.devices]


def _percent(share: float) -> str:
    """Formats a share that may be small."""
    if 0 < share < 0.001:
        return "less than 0.1%"
    return f"{share:.1%}" if share < 0.01 else f"{share:.0%}"


def subject(label: str) -> str:
    """Names a placement in a sentence."""
    return f"the {label}" if label == ORIGINAL else label


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
