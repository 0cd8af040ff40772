"""The live table: what each placer has found, measured again side by side."""

from __future__ import annotations

import csv
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.live.confirmation import Comparison, Confirmation
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["LiveCell", "live_table_markdown", "write_live_csv"]


@dataclasses.dataclass(frozen=True)
class LiveCell:
    """What a placer came to on a model.

    Attributes:
        model: of the catalogue.
        placer: its name; `ORIGINAL` for the graph as it came.
        trials: how many placements it had measured.
        failed: how many of them did not run.
        label: what the confirmation calls its best placement: another placer where that one has
            found the same; None if nothing ran.
        confirmation: of all placers on the model; None if no placer has found anything.
    """

    model: str
    placer: str
    trials: int
    failed: int
    label: str | None
    confirmation: Confirmation | None = None

    @property
    def step_secs(self) -> float | None:
        """The step when measured again, in seconds; None if it did not run."""
        if self.confirmation is None or self.label is None:
            return None
        return self.confirmation.step_secs(self.label)

    @property
    def comparison(self) -> Comparison | None:
        """How it compares with the graph as it came; None for that graph."""
        if self.confirmation is None or self.label is None:
            return None
        return self.confirmation.comparisons.get(self.label)


def live_table_markdown(
    cells: Sequence[LiveCell],
    made_by: Mapping[str, Any],
    *,
    trials: int,
    max_secs: float,
    rounds: int,
    machine: str,
) -> str:
    """Formats a page with the table.

    Args:
        cells: of all models.
        made_by: as `provenance` gives it.
        trials: that each placer had at most.
        max_secs: that each placer had at most.
        rounds: of measuring again.
        machine: name of the machine.
    """
    models = list(dict.fromkeys(cell.model for cell in cells))
    placers = list(dict.fromkeys(cell.placer for cell in cells))
    by_name = {(cell.model, cell.placer): cell for cell in cells}
    steps = [
        [model, *(_step(by_name.get((model, placer))) for placer in placers)] for model in models
    ]
    speedups = [
        [model, *(_speedup(by_name.get((model, placer))) for placer in placers)] for model in models
    ]
    counts = [
        [model, *(_trials(by_name.get((model, placer))) for placer in placers)] for model in models
    ]
    alignment = "l" + "r" * len(placers)
    headers = ["model", *placers]
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    return (
        "\n\n".join(
            [
                "# A live table",
                f"Small models on `{machine}`. Each placer had at most {trials} live trials "
                f"and {max_secs:g} s; its best placement was measured again in {rounds} rounds, "
                f"side by side with all others. {ORIGINAL}: the graph as it came, everything on "
                f"the first device. Steps: the mean of all rounds for {ORIGINAL}; that, divided by "
                "the speed-up, for the others.",
                "## Step",
                markdown_table(headers, steps, alignment),
                f"## Speed-up over {ORIGINAL}, round by round, and its 95 % interval",
                markdown_table(headers, speedups, alignment),
                "## Trials, and how many of them did not run",
                markdown_table(headers, counts, alignment),
                f"Made by `{made_by['command']}` at commit {made_by['commit'] or 'unknown'} with "
                f"{versions}, on {made_by['processor']}, {made_by['cores']} cores.",
            ]
        )
        + "\n"
    )


def write_live_csv(path: pathlib.Path, cells: Sequence[LiveCell]) -> None:
    """Writes a line for each cell.

    Args:
        path: where to.
        cells: of all models.

    Raises:
        OSError: it cannot be written.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ["model", "placer", "trials", "failed", "same_as", "step_secs"]
        writer.writerow([*names, "speedup", "speedup_low", "speedup_high", "faster"])
        for cell in cells:
            comparison = cell.comparison
            low, high = (comparison and comparison.interval) or (None, None)
            line = [cell.model, cell.placer, cell.trials, cell.failed, cell.label, cell.step_secs]
            line += [comparison and comparison.speedup, low, high]
            writer.writerow([*line, comparison and comparison.faster])


def _step(cell: LiveCell | None) -> str:
    if cell is None:
        return ""
    return "none ran" if cell.step_secs is None else format_step(cell.step_secs)


def _speedup(cell: LiveCell | None) -> str:
    comparison = None if cell is None else cell.comparison
    if comparison is None or comparison.speedup is None:
        return ""
    text = f"{comparison.speedup:.3f}"
    if comparison.interval is not None:
        text += " ({:.3f}–{:.3f})".format(*comparison.interval)
    return text


def _trials(cell: LiveCell | None) -> str:
    if cell is None or cell.placer == ORIGINAL:
        return ""
    return f"{cell.trials}" + (f", {cell.failed}" if cell.failed else "")
