"""The samples of runs, the share of them that failed, and the commits that made the runs."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.harness.placement_runs import Run
from benchmarks.harness.timed_search import Found

__all__ = ["explain_counts", "format_commits", "format_counts", "format_failures"]

_COUNTS_LEGEND = (
    "Samples of a run, the median of the seeds, and the share of all of them that failed: nothing "
    "but what did not fit into memory fails here. Without a share, it is not known."
)


def explain_counts(runs: Iterable[Run]) -> str:
    """Says how to read `format_counts` of these runs."""
    windows = {run.found.window for run in runs if run.found and run.found.window_failures}
    if not windows:
        return _COUNTS_LEGEND
    last = " to ".join(f"{each:,}" for each in sorted({min(windows), max(windows)}))
    return f"{_COUNTS_LEGEND} In brackets is the share of the last {last} samples of each run."


def format_counts(runs: Sequence[Run]) -> str:
    """Formats the samples of a run and the share that failed; "" without runs.

    "2,400, 12%", or with the share of the last ones "2,400, 12% (3%)".
    """
    found = [run.found for run in runs if run.found is not None]
    if not found:
        return ""
    text = f"{statistics.median_low(each.samples for each in found):,}"
    if failed := format_failures(runs):
        text += f", {failed}"
    if all(each.window_failures for each in found):
        failures = sum(each.window_failures[-1] for each in found)
        text += f" ({_format_share(failures, sum(map(_count_last, found)))})"
    return text


def format_failures(runs: Sequence[Run]) -> str:
    """Formats the share of all samples that failed: "0%", "<1%", "12%"; "" if not known."""
    found = [run.found for run in runs if run.found is not None]
    failures = [each.failures for each in found if each.failures is not None]
    samples = sum(each.samples for each in found)
    if not samples or len(failures) < len(found):
        return ""
    return _format_share(sum(failures), samples)


def _format_share(failed: int, samples: int) -> str:
    if 0 < failed < 0.01 * samples:
        return "<1%"
    if 0.99 * samples < failed < samples:
        return ">99%"
    return f"{failed / samples:.0%}"


def _count_last(found: Found) -> int:
    """Counts the samples of the last window."""
    return found.samples - found.window * (len(found.window_failures) - 1)


def format_commits(runs: Iterable[Run]) -> str:
    """Says at which commits runs were made, and of how many that is not kept."""
    counts = collections.Counter(run.commit or "" for run in runs if run.found is not None)
    unknown = counts.pop("", 0)
    parts = [f"{count:,} at {commit[:7]}" for commit, count in sorted(counts.items())]
    if unknown:
        parts.append(
            f"{unknown:,} before runs kept their commit, which docs/results.md has. In those, "
            "failures of learned systems count as 100 s, and 1 % of the units of learned groups "
            "begin in random ones"
        )
    return f"Runs were made: {'; '.join(parts)}."
