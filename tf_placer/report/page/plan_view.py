"""Contents of the page about a search on a problem."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import format_value
from tf_placer.files import read_json
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.auto_table import describe_bound
from tf_placer.report.device_labels import label_single_device
from tf_placer.report.limits import Limits, find_limits
from tf_placer.report.one_device import simulate_one_device
from tf_placer.report.page.run_view import (
    BASELINES,
    ONE_DEVICE,
    ComparedPlacement,
    Point,
    RunView,
    StepView,
    baseline_placements,
    view_step,
)
from tf_placer.report.plan_directory import PlanCandidate, PlanDirectory, PlanRecord
from tf_placer.search.log_header import HeaderFacts, format_settings
from tf_placer.search.sampled_steps import Sample
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes, format_duration, format_step

__all__ = ["view_placement", "view_plan"]

# At most this multiple of the lower bound, a longer search hardly helps.
_NEAR_BOUND = 1.02
# Steps that differ by a smaller share are equal.
_ROUNDING = 1e-9


def view_plan(
    result_path: str | os.PathLike[str],
    problem_path: str | os.PathLike[str],
    record: PlanRecord | None = None,
) -> RunView:
    """Reads the files of the command `search`, and simulates the steps to show.

    A problem has no original. A baseline stands in for it: everything on the best device, or a
    split by layer if the model does not fit on one device.

    Args:
        result_path: the file of the result.
        problem_path: the file of the problem.
        record: the record of the search; None if it was not kept.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is wrong.
    """
    problem = read_problem(os.fspath(problem_path))
    placement = read_assignment(os.fspath(result_path), problem, os.fspath(problem_path))
    view = view_placement(problem, placement, read_json(result_path), record, problem_path)
    if view is None:
        raise ValueError(
            f"{os.fspath(result_path)}: an operation is on a device that cannot run it"
        )
    return view


def view_placement(
    problem: PlacementProblem,
    placement: np.ndarray,
    result: Mapping[str, Any],
    record: PlanRecord | None = None,
    problem_path: str | os.PathLike[str] | None = None,
) -> RunView | None:
    """Makes the contents of the page about a placement of a problem; see `view_plan`.

    Args:
        problem: the problem.
        placement: int32 [num_groups], the placement that was found.
        result: the JSON form of the outcome of the search.
        record: the record of the search; None if it was not kept.
        problem_path: the file of the problem; None if there is none.

    Returns:
        The contents; None if an operation is on a device that cannot run it.
    """
    found = view_step("found", problem, placement)
    if found is None:
        return None
    reference, compared = _baselines(problem)
    fits = found.report.fits
    limits = find_limits(problem, placement)
    chosen = ComparedPlacement(
        "found",
        found.trace.step_secs,
        speedup=None
        if reference is None
        else reference.trace.step_secs / max(found.trace.step_secs, 1e-300),
        basis="simulated" if fits else "does not fit",
        is_found=True,
    )
    # The search starts from the baselines, too, which have rows already.
    candidates = [
        each
        for each in (() if record is None else record.candidates)
        if each.label != "found" and not _is_baseline(each, compared)
    ]
    others = [
        ComparedPlacement(
            f"{each.label} (search)",
            each.step_secs,
            speedup=reference.trace.step_secs / each.step_secs
            if reference is not None and each.step_secs and each.fits
            else None,
            basis="simulated" if each.fits else "does not fit",
        )
        for each in candidates
    ]
    is_better = fits and (
        reference is None or _is_faster(found.trace.step_secs, reference.trace.step_secs)
    )
    placer = str(result.get("placer", "unknown"))
    settings = "" if record is None else format_settings(record.placer_options)
    return RunView(
        title=_title(problem),
        graph=_describe_graph(problem),
        verdict=_verdict(found, reference, compared, limits, fits),
        is_better=is_better,
        is_measured=False,
        compared=(*compared, chosen, *others),
        steps=(found,) if reference is None else (reference, found),
        points=() if record is None else _points(record.samples, placer),
        best=() if record is None else _points(record.best, placer),
        limits=limits,
        changes=() if record is None else record.changes,
        memory_curve=() if record is None else record.memory_curve,
        problem=problem,
        notes=_notes(record, fits=fits),
        facts=_facts(result, record, problem_path, settings),
        placer=f"{placer} with {settings}" if settings else placer,
        needed=None if record is None else record.needed,
        least_memory_bytes=None if record is None else record.least_memory_bytes,
        more_memory=None if record is None else record.more_memory,
        gpus_only_secs=None if record is None else record.gpus_only_secs,
    )


def _baselines(problem: PlacementProblem) -> tuple[StepView | None, list[ComparedPlacement]]:
    """Chooses the baseline that stands in for the original, and compares all baselines."""
    is_divided = simulate_one_device(problem).is_divided
    labels, placements = zip(
        *(each for each in baseline_placements(problem) if each[0] != ONE_DEVICE or not is_divided),
        strict=True,
    )
    batch = Simulator(problem).simulate(np.stack(placements))
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])
    excess_bytes = np.maximum(batch.peak_bytes - memory_bytes, 0).sum(axis=1)
    # Nobody runs everything on the CPU beside GPUs.
    accelerators = find_accelerators(problem).tolist()
    is_aside = [
        label == ONE_DEVICE and np.bincount(placement).argmax() not in accelerators
        for label, placement in zip(labels, placements, strict=True)
    ]
    best = {}
    for label in dict.fromkeys(labels):
        rows = [i for i, each in enumerate(labels) if each == label]
        best[label] = min(
            rows,
            key=lambda i: (
                is_aside[i],
                not batch.feasible[i],
                excess_bytes[i],
                batch.step_secs[i],
            ),
        )
    if ONE_DEVICE in best:
        device = label_single_device(problem, placements[best[ONE_DEVICE]])
        best = {
            f"{label} ({device})" if label == ONE_DEVICE and device else label: row
            for label, row in best.items()
        }
    # One device comes first, if the model fits there.
    chosen = next((label for label, i in best.items() if batch.feasible[i]), None)
    reference = None
    if chosen is not None:
        reference = view_step(chosen, problem, placements[best[chosen]])
    compared = []
    for label, i in best.items():
        secs = float(batch.step_secs[i])
        fits = bool(batch.feasible[i])
        compared.append(
            ComparedPlacement(
                label,
                secs if fits else None,
                speedup=reference.trace.step_secs / max(secs, 1e-300)
                if fits and reference is not None
                else None,
                basis="simulated"
                if fits
                else f"does not fit: {format_bytes(int(excess_bytes[i]))} too much",
            )
        )
    # The chosen baseline comes first, as an original would.
    compared.sort(key=lambda each: each.label != chosen)
    return reference, compared


def _verdict(
    found: StepView,
    reference: StepView | None,
    baselines: Sequence[ComparedPlacement],
    limits: Limits,
    fits: bool,
) -> str:
    step = format_step(found.trace.step_secs)
    if not fits:
        return (
            f"No placement that fits was found: the closest takes {step} a step. More memory or a "
            "smaller batch would help"
        )
    if reference is None:
        text = f"Planned: {step} a step, where neither one device nor a split by layer fits"
    else:
        text = _compare(found, reference, baselines)
    near = found.trace.step_secs / max(limits.lower_bound_secs, 1e-300)
    bound = (
        f"no placement can be more than {near:.2f} times as fast as the placement found"
        if near > _NEAR_BOUND
        else "no placement can be faster by more than 2 %"
    )
    return (
        f"{text}. It is simulated, not measured; {bound}. It is bound by {describe_bound(limits)}"
    )


def _compare(found: StepView, reference: StepView, baselines: Sequence[ComparedPlacement]) -> str:
    """Compares a placement that fits with the baselines, of which the reference is one."""
    secs, before_secs = found.trace.step_secs, reference.trace.step_secs
    step = format_step(secs)
    faster = " and than ".join(
        f"{_name_baseline(each.label)} ({format_step(each.step_secs)})"
        for each in baselines
        if each.step_secs is not None and _is_faster(each.step_secs, secs)
    )
    if _is_faster(secs, before_secs):
        text = (
            f"Planned: {step} a step, {before_secs / max(secs, 1e-300):.2f} times as fast as "
            f"{reference.label} ({format_step(before_secs)} a step)"
        )
        return f"{text}, but slower than {faster}" if faster else text
    if faster:
        return f"The placement found ({step}) is slower than {faster}"
    return f"The placement found is as fast as {reference.label}: {step} a step"


def _is_baseline(candidate: PlanCandidate, baselines: Sequence[ComparedPlacement]) -> bool:
    """Tells whether a baseline is the same placement as a candidate of the search."""
    if candidate.label not in BASELINES:
        return False
    return not candidate.fits or any(
        candidate.step_secs is not None
        and each.step_secs is not None
        and math.isclose(candidate.step_secs, each.step_secs, rel_tol=_ROUNDING)
        for each in baselines
    )


def _is_faster(secs: float, than_secs: float) -> bool:
    return secs < than_secs * (1 - _ROUNDING)


def _name_baseline(label: str) -> str:
    """Names a baseline in a sentence, without the device in parentheses."""
    name = label.partition(" (")[0]
    return name if name == ONE_DEVICE else f"the {name}"


def _points(samples: tuple[Sample, ...], placer: str) -> tuple[Point, ...]:
    return tuple(
        Point(
            each.number,
            each.elapsed_secs,
            each.step_secs,
            placer,
            failure="" if each.step_secs is not None else "does not fit, or cannot run",
        )
        for each in samples
    )


def _title(problem: PlacementProblem) -> str:
    kinds = [device.kind for device in problem.devices]
    # The name of a kind may begin with a number: 2xE5-2650v4 is two sockets.
    counts = {kind: "one" if (n := kinds.count(kind)) == 1 else n for kind in kinds}
    devices = " and ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{problem.num_operations:,} operations planned on {devices}"


def _describe_graph(problem: PlacementProblem) -> str:
    batch = "" if problem.batch_size is None else f"batch of {problem.batch_size:,}"
    return ", ".join(filter(None, [problem.graph_name, batch]))


def _notes(record: PlanRecord | None, *, fits: bool) -> tuple[str, ...]:
    # Like the command `search`, the page offers no placement that does not fit.
    notes = [
        "The command apply puts the plan on the graph. On the machine itself, optimize confirms a "
        "placement by real steps."
        if fits
        else "The placement shown does not fit, so it is of no use on the graph: it only shows how "
        "much memory is missing, and where."
    ]
    if record is None:
        notes.append(
            "The record of the search was not kept: with search --log_dir the page also shows the "
            "search over time and other machines."
        )
    else:
        notes += record.remarks
    return tuple(notes)


def _facts(
    result: Mapping[str, Any],
    record: PlanRecord | None,
    problem_path: str | os.PathLike[str] | None,
    settings: str,
) -> tuple[tuple[str, str], ...]:
    facts = [] if problem_path is None else [("problem", os.fspath(problem_path))]
    facts += [
        ("placer", format_value(result.get("placer", "unknown")).strip('"')),
        *([("settings", settings)] if settings else []),
        ("seed", format_value(result.get("seed", "unknown")).strip('"')),
    ]
    if isinstance(result.get("trials"), int):
        facts.append(("placements simulated", f"{result['trials']:,}"))
    if isinstance(result.get("elapsed_secs"), int | float):
        facts.append(("searched for", format_duration(result["elapsed_secs"])))
    if record is not None:
        known = [("command", record.command), ("began", record.time)]
        facts += [(name, value) for name, value in known if value]
        facts += read_record(HeaderFacts, record.header).versions.items()
    return tuple(facts)


def read_plan(path: pathlib.Path) -> RunView:
    """Reads the directory of a search on a problem.

    Raises:
        OSError, ValueError: as `view_plan` raises them.
    """
    directory = PlanDirectory(path)
    return view_plan(directory.result, directory.problem, directory.read_record())
