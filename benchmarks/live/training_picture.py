"""Draws loss against time of models that are trained: the mean of the runs, and their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.live.training_curves import Curve
from tf_placer.report.colors import DEVICE_COLORS

__all__ = ["draw_training"]

# The order of the curves is the same in all pictures, and so are their colors.
_DASHES = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))


def draw_training(
    axes: Any, runs: Mapping[str, Sequence[Curve]], *, perplexity: bool = False
) -> None:
    """Draws a curve for each placement, and a band from the lowest to the highest run.

    Args:
        axes: of matplotlib.
        runs: by placement; one without runs keeps its color.
        perplexity: its exponential instead of the loss.
    """
    for (name, curves), color, dashes in zip(runs.items(), DEVICE_COLORS, _DASHES, strict=False):
        if not curves:
            continue
        first_secs, last_secs = max(c.secs[0] for c in curves), min(c.secs[-1] for c in curves)
        grid = np.linspace(first_secs, last_secs, 400)
        losses = np.array([np.interp(grid, curve.secs, curve.losses) for curve in curves])
        values = np.exp(losses) if perplexity else losses
        axes.plot(grid, values.mean(axis=0), color=color, linestyle=dashes, label=name)
        axes.fill_between(
            grid, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("perplexity" if perplexity else "loss")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
