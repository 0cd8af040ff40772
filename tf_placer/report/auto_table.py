"""Why a search in simulation chose what it chose, for people."""

from __future__ import annotations

from collections.abc import Sequence

from tf_placer.auto.auto_search import AutoResult
from tf_placer.auto.what_if import WhatIf
from tf_placer.report.table import table
from tf_placer.report.units import format_step

__all__ = ["auto_table"]


def auto_table(result: AutoResult, changes: Sequence[WhatIf]) -> str:
    """Two tables without a final newline: what was compared, and what another machine would bring.

    Args:
        result: of the search.
        changes: what `what_if` says of its best placement.
    """
    bound_secs, best_secs = result.lower_bound_secs, result.best.step_secs
    rows = [
        [
            name,
            format_step(found.step_secs),
            _ratio(found.step_secs, bound_secs),
            "no" if found.excess_bytes else "yes",
        ]
        for name, found in [("found", result.best), *result.starts]
    ]
    parts = [table(["candidate", "simulated step", "to lower bound", "fits"], rows, "lrrl")]
    if changes:
        rows = [
            [
                change.change,
                format_step(change.step_secs) + (" (searched)" if change.is_searched else ""),
                _ratio(best_secs, change.step_secs),
                format_step(change.lower_bound_secs),
            ]
            for change in changes
        ]
        parts.append(table(["what if", "simulated step", "speedup", "lower bound"], rows, "lrrr"))
    return "\n\n".join(parts)


def _ratio(secs: float, by_secs: float) -> str:
    return f"{secs / by_secs:.2f}x" if by_secs > 0 else "-"
