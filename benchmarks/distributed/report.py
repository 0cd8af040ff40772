"""The table and the picture of searches with waiting workers."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.pictures import save_picture
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["trials_per_minute", "write_report"]


def trials_per_minute(run: Mapping[str, Any]) -> float:
    """Computes how many placements were measured in a minute."""
    return 60.0 * float(run["measured"]) / float(run["wall_secs"])


def write_report(directory: pathlib.Path, runs: Sequence[Mapping[str, Any]]) -> str:
    """Writes the page and the picture.

    Args:
        directory: where to.
        runs: as `run_case` gives them.

    Returns:
        The page.
    """
    speeds = {run["workers"]: trials_per_minute(run) for run in runs if _is_speed(run)}
    parts = []
    if speeds:
        one = speeds.get(1)
        parts.append(
            markdown_table(
                ["workers", "trials per minute", "of linear"],
                [
                    [str(n), f"{rate:.0f}", f"{rate / one / n:.0%}" if one else ""]
                    for n, rate in sorted(speeds.items())
                ],
            )
        )
    names = list(dict.fromkeys(run["case"] for run in runs if not _is_speed(run)))
    if names:
        rows = [_row(name, [run for run in runs if run["case"] == name]) for name in names]
        head = ["search", "seeds", "samples", "best step", "mean of the last tenth", "wall time"]
        parts.append(markdown_table([*head, "idle", "staleness", "largest"], rows))
    page = "\n\n".join(parts) + "\n"
    (directory / "waiting_workers.md").write_text(page)
    _plot(directory / "waiting_workers.png", speeds, runs)
    return page


def _is_speed(run: Mapping[str, Any]) -> bool:
    return str(run["case"]).startswith("random")


def _row(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    best = [run["best_secs"] for run in runs]
    stale = [run["staleness"] for run in runs if run["staleness"]]
    largest = [run["largest_staleness"] for run in runs if run["largest_staleness"]]
    return [
        name,
        str(len(runs)),
        str(runs[0]["samples"]),
        f"{format_step(min(best))} to {format_step(max(best))}",
        format_step(statistics.fmean(run["last_secs"] for run in runs if run["last_secs"])),
        f"{statistics.fmean(run['wall_secs'] for run in runs):.0f} s",
        f"{statistics.fmean(run['idle_share'] for run in runs):.0%}",
        f"{statistics.fmean(stale):.1f}" if stale else "",
        str(max(largest)) if largest else "",
    ]


def _plot(
    path: pathlib.Path, speeds: Mapping[int, float], runs: Sequence[Mapping[str, Any]]
) -> None:
    """Draws trials per minute, and quality against wall time; without matplotlib, nothing."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    counts = sorted(speeds)
    if counts:
        left.plot(counts, [speeds[n] for n in counts], "o-", label="measured")
        first = speeds[counts[0]] / counts[0]
        left.plot(counts, [first * n for n in counts], "--", color="gray", label="linear")
        left.legend()
    left.set(xlabel="workers", ylabel="trials per minute", ylim=(0, None))
    names = list(dict.fromkeys(run["case"] for run in runs if not _is_speed(run)))
    for name in names:
        own = [run for run in runs if run["case"] == name]
        right.plot(
            [run["wall_secs"] for run in own],
            [1e3 * run["best_secs"] for run in own],
            "o",
            label=name,
        )
    if names:
        right.set_xscale("log")
        right.legend(fontsize=8)
    right.set(xlabel="wall time, seconds", ylabel="best simulated step, ms")
    save_picture(figure, path)
    pyplot.close(figure)
