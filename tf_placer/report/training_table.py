"""The table of the updates of a learned placer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tf_placer.placers.update_record import UpdateRecord
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["training_table"]

_MAX_ROWS = 20
_HEADERS = (
    *("update", "samples", "kind", "reward", "baseline", "entropy", "divergence"),
    *("loss", "gradient", "mean step", "best step", "failures"),
)
# Columns to leave out of short lines, the least important first.
_OPTIONAL = ("divergence", "gradient", "baseline", "loss", "kind", "update")


def training_table(updates: Sequence[UpdateRecord], *, width: int | None = None) -> str:
    """Formats the updates of a search: all, or twenty from the first to the last.

    Args:
        updates: the updates; at least one.
        width: maximum characters of a line, for which columns are left out; None for no limit.
    """
    shown = np.linspace(0, len(updates) - 1, min(len(updates), _MAX_ROWS)).round().astype(int)
    rows = [_row(updates[index]) for index in shown.tolist()]
    text = table(_HEADERS, rows, "rrlrrrrrrrrr", width=width, optional=_OPTIONAL)
    notes = []
    if len(rows) < len(updates):
        notes.append(f"{len(updates) - len(rows)} updates between these are not shown")
    cut_short = sum(not math.isfinite(update.gradient_norm or 0.0) for update in updates)
    if cut_short:
        notes.append(
            f"updates cut short by a gradient that is not finite: {cut_short}; "
            "a lower learning_rate avoids them"
        )
    return "\n".join([text, *notes])


def _row(update: UpdateRecord) -> list[str | None]:
    return [
        str(update.update),
        str(update.samples),
        update.kind,
        *map(
            _number,
            (update.mean_reward, update.baseline, update.entropy, update.divergence),
        ),
        _number(update.loss),
        _number(update.gradient_norm),
        _step(update.mean_step_secs),
        _step(update.best_step_secs),
        f"{update.failures}/{update.batch_size}",
    ]


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _step(secs: float | None) -> str | None:
    return None if secs is None else format_step(secs)
