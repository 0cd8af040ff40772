"""What placements lose where: a page of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.harness.found_steps import seconds
from benchmarks.paper_tables.cause_placements import FOUND, ONE_GPU, Placed
from benchmarks.paper_tables.step_causes import StepCauses
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes

__all__ = ["causes_markdown"]


def causes_markdown(placed: Sequence[Placed]) -> str:
    """Formats a page with everything.

    Args:
        placed: all placements of all problems.
    """
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
        "## Every placement",
    ]
    for problem in dict.fromkeys(each.problem for each in placed):
        of_problem = [each for each in placed if each.problem == problem]
        parts += [f"### {problem}", _details(of_problem)]
        failed = [f"- {each.label}: {each.failure}" for each in of_problem if each.failure]
        if failed:
            parts.append("\n".join(failed))
    return "\n\n".join(parts)


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
                " ".join(f"{share:.0%}" for share in causes.busy),
                format_bytes(causes.sent_bytes),
                f"{causes.num_transfers:,}",
                f"{causes.full:.0%} of {causes.fullest.rsplit('device:', 1)[-1]}",
                _factor(each.break_even),
            ]
        )
    headers = ["placement", "s per step", "/ bound", "cause", "lost to, s"]
    headers += ["devices busy", "sent", "transfers", "fullest", "until one GPU"]
    return markdown_table(headers, rows, "lrrlllrrrr")


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
