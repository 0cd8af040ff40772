"""What `optimize` returns."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from graph_passes.placement import Placement
from tf_placer.auto.explanation import Explanation
from tf_placer.confirmation import Confirmation
from tf_placer.report.auto_table import explanation_table
from tf_placer.report.table import table
from tf_placer.report.units import format_step
from tf_placer.trial_log import ORIGINAL, Trial

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["OptimizeResult"]


@dataclasses.dataclass(frozen=True, eq=False)
class OptimizeResult:
    """What came of placing a graph.

    Attributes:
        graph_def: the graph, with devices if a faster placement was found, else as it came.
        changed: whether it has devices that it came without.
        reason: one sentence on why it was changed or not.
        placement: the placement that was found, or None.
        winner: its label in `confirmation`, or None.
        speedup: step time of the original / of the placed graph, as confirmed; None where there
            was nothing to compare.
        speedup_interval: its 95 % confidence interval.
        confirmation: original and finalists measured side by side, or None.
        finalists: per label in `confirmation`, the trial it is.
        trials: every trial of the search.
        explanation: predicted and measured steps, what bounds the best placement, and what would
            help it; None where the costs are not known, or nothing ran.
        log_dir: the directory with the log, to be given again to go on; None if nothing was
            measured.
    """

    graph_def: tf.compat.v1.GraphDef
    changed: bool
    reason: str
    placement: Placement | None = None
    winner: str | None = None
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    confirmation: Confirmation | None = None
    finalists: dict[str, Trial] = dataclasses.field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    log_dir: pathlib.Path | None = None
    explanation: Explanation | None = None

    @property
    def original_secs(self) -> float | None:
        """Median step time of the graph as it came, in the confirmation."""
        return self.confirmation.step_secs(ORIGINAL) if self.confirmation else None

    @property
    def placed_secs(self) -> float | None:
        """Median step time of the placed graph, in the confirmation."""
        if self.confirmation is None or self.winner is None:
            return None
        return self.confirmation.step_secs(self.winner)

    def table(self) -> str:
        """Original and finalists side by side, for people; empty if nothing was compared."""
        if self.confirmation is None:
            return ""
        rows = []
        for label, trial in self.finalists.items():
            if not any(label in measurements for measurements in self.confirmation.rounds):
                continue  # There was no time for it.
            comparison = self.confirmation.comparisons.get(label)
            secs = self.confirmation.step_secs(label)
            low, high = (comparison.interval if comparison else None) or (None, None)
            rows.append(
                [
                    label,
                    str(trial.index),
                    "failed" if secs is None else format_step(secs),
                    "1" if comparison is None else _ratio(comparison.speedup),
                    "" if low is None or high is None else f"{low:.3f} to {high:.3f}",
                    "found" if label == self.winner else "",
                ]
            )
        headers = ["placement", "trial", "step", "speed-up", "95 % interval", ""]
        return table(headers, rows, "lrrrll")

    def explanation_table(self) -> str:
        """The explanation for people; empty if there is none."""
        return "" if self.explanation is None else explanation_table(self.explanation)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}x"
