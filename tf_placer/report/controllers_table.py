"""Tables of the controllers of a search: their progress and the staleness of their weights."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tf_placer.placers.update_record import UpdateRecord
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["controllers_table", "staleness_line"]


def controllers_table(updates: Sequence[UpdateRecord]) -> str:
    """Formats the progress of each controller; empty if there was only one."""
    rows = []
    for number in sorted({each.controller for each in updates if each.controller is not None}):
        own = [update for update in updates if update.controller == number]
        # An algorithm may update twice after a batch.
        batches = {update.samples: update for update in own}.values()
        stale = [update.staleness or 0 for update in batches]
        mean = [update.mean_step_secs for update in batches if update.mean_step_secs is not None]
        rows.append(
            [
                number,
                len(batches),
                sum(update.batch_size for update in batches),
                sum(update.failures for update in batches),
                f"{statistics.fmean(stale):.1f}",
                max(stale),
                format_step(mean[-1]) if mean else None,
                f"{own[-1].baseline:.4g}",
            ]
        )
    if not rows:
        return ""
    head = ["controller", "batches", "placements", "failed", "staleness", "largest"]
    return table([*head, "mean step", "baseline"], rows, "rrrrrrrr")


def staleness_line(updates: Sequence[UpdateRecord]) -> str:
    """Formats the staleness of gradients: the updates between sampling and applying.

    Empty if there was only one controller.
    """
    by_batch = {update.samples: update.staleness for update in updates}
    stale = [each for each in by_batch.values() if each is not None]
    if not stale:
        return ""
    return (
        f"{len(stale)} updates of the weights; staleness {statistics.fmean(stale):.1f} updates in "
        f"the mean, {max(stale)} at most"
    )
