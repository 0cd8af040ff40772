"""The result of a search as HTML for a notebook: verdict, table and a picture."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence

from tf_placer.report.pictures.notebook_figure import draw_figure
from tf_placer.runs.run_page import read_run_view
from tf_placer.runs.verdict import SLOWER_THAN_ONE_PROCESS
from tf_placer.search.trial_log import ORIGINAL

__all__ = ["format_result_html"]

_WARNING_STYLE = "border-left: 4px solid #d97706; padding-left: 8px"


def format_result_html(
    verdict: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    log_dir: str | os.PathLike[str] | None,
) -> str:
    """Formats a result as HTML.

    Args:
        verdict: the outcome and its reason.
        headers: the headers of the table of placements.
        rows: its cells.
        log_dir: the directory of the search, from which the best placement is drawn; None to draw
            nothing.
    """
    parts = _format_verdict(verdict)
    if rows:
        head = "".join(f"<th>{html.escape(each)}</th>" for each in headers)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        parts.append(f"<table><tr>{head}</tr>{body}</table>")
    if log_dir is not None:
        parts.append(_draw(log_dir))
    return "<div>" + "".join(parts) + "</div>"


def _format_verdict(verdict: str) -> list[str]:
    """Formats the first sentence in bold, and a warning in a paragraph of its own."""
    first, *others = verdict.split(". ")
    warnings = [each for each in others if each.startswith(SLOWER_THAN_ONE_PROCESS)]
    if warnings:
        first += ", but slower than one process on all cores"
    parts = [f"<p><b>{html.escape(first)}.</b></p>"]
    for warning in warnings:
        others.remove(warning)
        # The bold sentence has the "but".
        text = warning.removeprefix("But ")
        text = html.escape(text[:1].upper() + text[1:])
        parts.append(f'<p style="{_WARNING_STYLE}">\u26a0 {text}.</p>')
    if others:
        parts.append(f"<p>{html.escape('. '.join(others))}.</p>")
    return parts


def _draw(log_dir: str | os.PathLike[str]) -> str:
    """Draws the best placement of a search; "" if it is unknown."""
    try:
        view = read_run_view(log_dir)
    except (OSError, ValueError):  # The directory was deleted; the result itself is complete.
        return ""
    steps = [step for step in view.steps if step.label != ORIGINAL]
    if view.problem is None or not steps:
        return ""
    label = steps[-1].label if view.is_better else f"{steps[-1].label}, not placed"
    return draw_figure(view.problem, steps[-1].trace.operation_devices, label)
