"""What placements lose where: tables in Markdown and CSV, and a picture."""

from __future__ import annotations

import csv
import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper_tables.cause_placements import FOUND, ONE_GPU, Against, Placed
from benchmarks.paper_tables.report import seconds
from benchmarks.paper_tables.step_causes import StepCauses
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes

__all__ = [
    "causes_markdown",
    "write_causes_csv",
]


def causes_markdown(
    placed: Sequence[Placed],
    cut: Sequence[Placed],
    against: Sequence[Against],
    made_by: Mapping[str, Any],
) -> str:
    """Formats a page with everything.

    Args:
        placed: all placements of all problems.
        cut: what partitioners make of finer parts; may be empty.
        against: published steps beside ours; may be empty.
        made_by: as `provenance` gives it.
    """
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    parts = [
        "# Why placements take as long as they do",
        "Simulated steps of full-size models; nothing here is measured. The seconds above the "
        "lower bound are lost to: **transfers**, what the step gains where every transfer takes no "
        "time; **turns**, what it then still takes beyond its busiest device, its longest chain "
        "and the bound, because devices wait for each other; and **imbalance** of the busiest "
        "device or **chain** of operations beyond the bound. The cause is the largest; **slow "
        "device**: the device, or most of the chain, is the CPU. OOM: does not fit; the step is "
        "what it would take. *found*: the fastest placement of the runs that were there. *until "
        "one GPU*: how many times longer all transfers may take until everything on one GPU is as "
        "fast.",
        "## Problems",
        _summary(placed),
    ]
    if cut:
        parts += [
            "## Partitioners, by what they cut",
            "Groups are what all placers here place; colocation groups are what TensorFlow keeps "
            "together; TensorFlow would not run placements of single operations, which tear "
            "variables from their updates.",
            _cut(cut),
        ]
    if against:
        parts += [
            "## Splits against one GPU, published and here",
            "The step by that of everything on one GPU, and how many times longer all transfers "
            "would have to take here for ours to be as much as published.",
            _against(against),
        ]
    parts.append("## Every placement")
    for problem in dict.fromkeys(each.problem for each in placed):
        of_problem = [each for each in placed if each.problem == problem]
        parts += [f"### {problem}", _details(of_problem)]
        failed = [f"- {each.label}: {each.failure}" for each in of_problem if each.failure]
        if failed:
            parts.append("\n".join(failed))
    parts.append(
        f"Made by `{made_by['command']}` at commit {made_by['commit'] or 'unknown'} with "
        f"{versions}."
    )
    return "\n\n".join(parts) + "\n"


def _summary(placed: Sequence[Placed]) -> str:
    rows = []
    for problem in dict.fromkeys(each.problem for each in placed):
        of_problem = [each for each in placed if each.problem == problem and each.causes]
        fitting = sorted(
            (each for each in of_problem if each.fits), key=lambda each: _causes(each).step_secs
        )
        quick = [each for each in fitting if each.placer != FOUND]
        one_gpu = next((each for each in of_problem if each.placer == ONE_GPU), None)
        found = next((each for each in fitting if each.placer == FOUND), None)
        best = fitting[0] if fitting else None
        rows.append(
            [
                problem,
                seconds(_causes(of_problem[0]).bound_secs) if of_problem else "",
                _step(one_gpu),
                f"{quick[0].label} {_step(quick[0])}" if quick else "none fits",
                "" if found is None else f"{found.found_by} {_step(found)}",
                "" if best is None else f"{best.to_bound:.2f}",
                "" if best is None else _causes(best).cause,
                ", ".join(e.placer for e in of_problem if not e.fits) or "none",
            ]
        )
    headers = ["problem", "lower bound", "one GPU", "fastest in seconds", "fastest found"]
    headers += ["fastest / bound", "what it loses most to", "out of memory"]
    return markdown_table(headers, rows, "lrrllrll")


def _cut(cut: Sequence[Placed]) -> str:
    rows = [
        [
            each.problem,
            each.placer,
            each.parts,
            _step(each),
            f"{each.to_bound:.2f}",
            format_bytes(_causes(each).sent_bytes),
            f"{_causes(each).num_transfers:,}",
            _causes(each).cause,
        ]
        for each in sorted(cut, key=lambda each: (each.problem, each.placer))
        if each.causes
    ]
    headers = ["problem", "placer", "cuts", "s per step", "/ bound", "sent", "transfers", "cause"]
    return markdown_table(headers, rows, "lllrrrrl")


def _against(against: Sequence[Against]) -> str:
    rows = [
        [
            each.table,
            each.problem,
            each.method,
            f"{each.published:.2f}",
            f"{each.ours:.2f}",
            _factor(each.factor),
        ]
        for each in against
    ]
    headers = ["table", "problem", "method", "published", "ours", "transfers would take"]
    return markdown_table(headers, rows, "lllrrr")


def _details(of_problem: Sequence[Placed]) -> str:
    rows = []
    for each in sorted(
        of_problem, key=lambda e: (not e.fits, _causes(e).step_secs if e.causes else 0)
    ):
        causes = each.causes
        if causes is None:
            continue
        rows.append(
            [
                each.label,
                _step(each),
                f"{each.to_bound:.2f}",
                causes.cause,
                ", ".join(f"{name} {secs:.3f}" for name, secs in causes.losses.items()),
                f"{causes.path_needed:.0%} + {causes.path_busy:.0%} + {causes.path_sent:.0%}",
                " ".join(f"{share:.0%}" for share in causes.busy),
                format_bytes(causes.sent_bytes),
                f"{causes.num_transfers:,}",
                f"{causes.full:.0%} of {causes.fullest.rsplit('device:', 1)[-1]}",
                _factor(each.break_even),
            ]
        )
    headers = ["placement", "s per step", "/ bound", "cause", "lost to, s"]
    headers += ["path: needed + keeps busy + sent", "devices busy", "sent", "transfers"]
    headers += ["fullest", "until one GPU"]
    return markdown_table(headers, rows, "lrrllrlrrrr")


def write_causes_csv(path: pathlib.Path, placed: Sequence[Placed]) -> None:
    """Writes a line for each placement.

    Args:
        path: where to.
        placed: all placements.

    Raises:
        OSError: it cannot be written.
    """
    fields = [field.name for field in dataclasses.fields(StepCauses)]
    names = ["model", "machine", "parts", "placer", "found_by", "cause", "to_bound"]
    names += [*fields, "lost_to_transfers_secs", "lost_to_turns_secs", "lost_to_load_secs"]
    names += ["break_even", "failure"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for each in placed:
            line: dict[str, object] = {
                name: getattr(each, name)
                for name in ("model", "machine", "parts", "placer", "found_by", "failure")
            }
            if each.causes is not None:
                transfers, turns, load = each.causes.losses.values()
                line |= dataclasses.asdict(each.causes)
                line |= {
                    "cause": each.causes.cause,
                    "to_bound": each.to_bound,
                    "busy": " ".join(f"{share:.4f}" for share in each.causes.busy),
                    "lost_to_transfers_secs": transfers,
                    "lost_to_turns_secs": turns,
                    "lost_to_load_secs": load,
                    "break_even": each.break_even,
                }
            writer.writerow(line)


def _causes(each: Placed) -> StepCauses:
    assert each.causes is not None
    return each.causes


def _step(each: Placed | None) -> str:
    if each is None or each.causes is None:
        return ""
    text = seconds(each.causes.step_secs)
    return text if each.causes.fits else f"OOM ({text})"


def _factor(factor: float | None) -> str:
    if factor is None:
        return ""
    return "> 10,000 ×" if math.isinf(factor) else f"{factor:,.3g} ×"
