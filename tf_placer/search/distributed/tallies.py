"""What each worker has done so far, for people, the log and TensorBoard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf_placer.search.trial_log import Trial
from tf_placer.text.table import table
from tf_placer.text.units import format_duration

__all__ = ["Tally", "all_workers_line", "num_workers", "tally_line", "workers_table"]


@dataclasses.dataclass
class Tally:
    """What a worker has done.

    Attributes:
        name: of the worker.
        place: the computer that it runs on; empty before it is known.
        state: what it does: "waiting for a machine", "starting", "idle", "measuring", "set aside",
            "lost", or "ended" where the search has ended it.
        trials: that it has measured.
        failures: how many of these failed.
        ready_secs: since when it can measure, in seconds of the clock of the pool; None before.
        busy_secs: how long it has measured.
        slowness: how many times as slow as at the start of the search its machine is; None where
            that is not known.
    """

    name: str
    place: str = ""
    state: str = "starting"
    trials: int = 0
    failures: int = 0
    ready_secs: float | None = None
    busy_secs: float = 0.0
    slowness: float | None = None

    def trials_per_minute(self, now_secs: float) -> float:
        """Computes how many trials it has ended in a minute; 0 before it is ready."""
        there_secs = self._there_secs(now_secs)
        return 60.0 * self.trials / there_secs if there_secs > 0 else 0.0

    def idle_share(self, now_secs: float) -> float:
        """Computes in what share of its time it had nothing to measure; 0 before it is ready."""
        there_secs = self._there_secs(now_secs)
        return min(1.0, max(0.0, 1.0 - self.busy_secs / there_secs)) if there_secs > 0 else 0.0

    def _there_secs(self, now_secs: float) -> float:
        return 0.0 if self.ready_secs is None else now_secs - self.ready_secs


def tally_line(tally: Tally, now_secs: float) -> str:
    """Says on one line what a worker has done and does."""
    where = f" on {tally.place}" if tally.place else ""
    parts = [f"{tally.name}{where}: {tally.state}"]
    if tally.ready_secs is not None:
        parts += [
            f"{tally.trials} trials",
            f"{tally.trials_per_minute(now_secs):.1f} a minute",
            f"idle {tally.idle_share(now_secs):.0%}",
        ]
    if tally.failures:
        parts.append(f"{tally.failures} failed")
    if tally.slowness is not None:
        parts.append(f"steps take {tally.slowness:.2f}x as long as in trial 0")
    return ", ".join(parts)


def all_workers_line(
    tallies: Sequence[Tally], now_secs: float, best: str, eta_secs: float | None
) -> str:
    """Says on one line what all workers have done.

    Args:
        tallies: one per worker, also of those that were lost.
        now_secs: the time, by the clock of the pool.
        best: the best trial so far, in words.
        eta_secs: how long the search goes on; None where that is not known.
    """
    there = [tally for tally in tallies if tally.state not in ("lost", "ended")]
    measuring = [tally for tally in there if tally.ready_secs is not None]
    rate = sum(tally.trials_per_minute(now_secs) for tally in measuring)
    idle = sum(tally.idle_share(now_secs) for tally in measuring) / max(1, len(measuring))
    lost = sum(tally.state == "lost" for tally in tallies)
    parts = [
        f"{len(measuring)} of {len(there)} workers ready" + (f", {lost} lost" if lost else ""),
        f"{sum(tally.trials for tally in tallies)} trials, {rate:.1f} a minute, idle {idle:.0%}",
        best,
    ]
    if eta_secs is not None:
        parts.append(f"ETA {format_duration(eta_secs)}")
    return " | ".join(parts)


def num_workers(trials: Iterable[Trial]) -> int:
    """Finds the highest number of a worker in a log; 0 where there was none."""
    names = {trial.worker for trial in trials if trial.worker is not None}
    return max((int(name.rpartition(" ")[2]) for name in names), default=0)


def workers_table(trials: Iterable[Trial]) -> str:
    """Shows what the log of a search says of its workers; empty where there were none."""
    by_worker: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.worker is not None:
            by_worker.setdefault(trial.worker, []).append(trial)
    rows = []
    for worker, measured in sorted(by_worker.items(), key=lambda item: item[1][0].index):
        busy_secs = sum(trial.measurement.total_secs for trial in measured)
        failures = sum(trial.measurement.failure is not None for trial in measured)
        drifts = [t.measurement.drift for t in measured if t.measurement.step_secs is not None]
        slowness = f"{sorted(drifts)[len(drifts) // 2]:.2f}x" if drifts else None
        span = f"{measured[0].index} to {measured[-1].index}"
        rows.append([worker, len(measured), failures, format_duration(busy_secs), slowness, span])
    if not rows:
        return ""
    return table(
        ["worker", "trials", "failed", "measuring", "slowness", "from trial"], rows, "lrrrrl"
    )
