"""What came of live searches: tables, a CSV of every trial, and a picture."""

from __future__ import annotations

import csv
import dataclasses
import pathlib
import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.pictures import save_picture
from tf_placer.live.confirmation import Comparison, Confirmation
from tf_placer.search.loop import best_trial
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["Search", "placer_table", "plot", "search_table", "write_trials"]


@dataclasses.dataclass(frozen=True)
class Search:
    """One finished search.

    Attributes:
        placer: its placer.
        seed: of the placer.
        num_groups: what a placement is made of.
        batch_size: how many placements the placer wants measured between two updates.
        trials: of the graph as it came, and then of what the placer proposed.
    """

    placer: str
    seed: int
    num_groups: int
    batch_size: int
    trials: Sequence[Trial]

    @property
    def label(self) -> str:
        """What the confirmation calls it."""
        return f"{self.placer} {self.seed}"

    @property
    def proposed(self) -> Sequence[Trial]:
        """The trials of the placer."""
        return [trial for trial in self.trials if trial.placer != ORIGINAL]

    @property
    def found(self) -> Trial | None:
        """The fastest trial of the placer; None if all failed."""
        return best_trial(self.proposed)

    def quarter_secs(self) -> tuple[float | None, float | None]:
        """Computes the mean step of the first and the last quarter of the trials that ran."""
        secs = [t.measurement.median_secs for t in self.proposed if t.measurement.median_secs]
        quarter = max(1, len(secs) // 4)
        return (
            (statistics.fmean(secs[:quarter]), statistics.fmean(secs[-quarter:]))
            if secs
            else (None, None)
        )


def search_table(searches: Sequence[Search], confirmation: Confirmation) -> str:
    """Formats a table with one line per search.

    Args:
        searches: in the order of the lines.
        confirmation: of what they have found, by their labels.
    """
    rows = []
    for run in searches:
        found, again = run.found, confirmation.comparisons.get(run.label)
        rows.append(
            [
                run.placer,
                run.seed,
                len(run.proposed),
                sum(trial.measurement.failure is not None for trial in run.proposed),
                len({trial.assignment for trial in run.proposed}),
                *map(_step, run.quarter_secs()),
                found and _step(found.measurement.median_secs),
                found and found.index,
                _step(_again_secs(confirmation, run)),
                again and _speedup(again),
            ]
        )
    headers = ["placer", "seed", "trials", "failed", "distinct", "first quarter", "last quarter"]
    headers += ["found", "at trial", "again", "speed-up (95 % interval)"]
    return table(headers, rows, "l" + "r" * (len(headers) - 1))


def placer_table(searches: Sequence[Search], confirmation: Confirmation) -> str:
    """Formats one line per placer, in the order of their first searches: medians over its seeds.

    Args:
        searches: all of them.
        confirmation: of what they have found, by their labels.
    """
    rows = []
    for placer in dict.fromkeys(run.placer for run in searches):
        runs = [run for run in searches if run.placer == placer]
        first, last = zip(*(run.quarter_secs() for run in runs), strict=True)
        again = [confirmation.comparisons.get(run.label) for run in runs]
        found = [run.found.measurement.median_secs for run in runs if run.found is not None]
        rows.append(
            [
                placer,
                runs[0].num_groups,
                runs[0].batch_size,
                len(runs),
                _median_step(first),
                _median_step(last),
                _median_step(found),
                _median_step([_again_secs(confirmation, run) for run in runs]),
                ", ".join("-" if c is None else _factor(c.speedup) for c in again),
            ]
        )
    headers = ["placer", "groups", "batch", "seeds", "first quarter", "last quarter", "found"]
    return table([*headers, "again", "speed-up by seed"], rows, "lrrrrrrrl")


def _again_secs(confirmation: Confirmation, run: Search) -> float | None:
    """Looks up the step when measured again; None where nothing was found."""
    return confirmation.step_secs(run.label) if run.label in confirmation.comparisons else None


def _speedup(comparison: Comparison) -> str:
    text = _factor(comparison.speedup)
    if comparison.interval is not None:
        text += " ({:.3f} to {:.3f})".format(*comparison.interval)
    return text


def _factor(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.3f}x"


def _step(secs: float | None) -> str | None:
    return None if secs is None else format_step(secs)


def _median_step(secs: Sequence[float | None]) -> str | None:
    known = [value for value in secs if value is not None]
    return _step(statistics.median(known)) if known else None


def write_trials(path: pathlib.Path, searches: Sequence[Search]) -> None:
    """Writes a CSV of every trial; trial 0 of each search is the graph as it came."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["placer", "seed", "trial", "batch", "step_secs", "failure", "repeats"])
        for run in searches:
            for trial in run.trials:
                failure = trial.measurement.failure
                secs = trial.measurement.median_secs
                row = [run.placer, run.seed, trial.index, trial.batch]
                writer.writerow([*row, secs, failure and failure.kind.value, trial.repeats])


def plot(path: pathlib.Path, searches: Sequence[Search]) -> None:
    """Draws the best step time so far, one line per search; says so without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), constrained_layout=True)
    colours = list(dict.fromkeys(run.placer for run in searches))
    for run in searches:
        secs = [trial.measurement.median_secs or np.inf for trial in run.proposed]
        best = np.minimum.accumulate(secs)
        original = run.trials[0].measurement.median_secs or np.nan
        axes.step(
            np.arange(1, len(best) + 1),
            original / np.where(np.isinf(best), np.nan, best),
            where="post",
            color=f"C{colours.index(run.placer) % 10}",
            alpha=0.5 + 0.5 / (1 + run.seed),
            marker="." if len(best) < 5 else None,  # A baseline is a point or two.
            label=run.placer if run.seed == 0 else None,
        )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("live trials")
    axes.set_ylabel("original / best step time so far")
    axes.set_title("placers from nothing, one line per seed")
    axes.legend()
    save_picture(figure, path, dpi=120)
