"""Statistics of workers, for people, the log and TensorBoard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf_placer.search.trial_log import Trial
from tf_placer.text.table import table
from tf_placer.text.units import format_duration

__all__ = [
    "WorkerStatistics",
    "find_last_worker_number",
    "format_all_workers",
    "format_worker",
    "format_workers_table",
]


@dataclasses.dataclass
class WorkerStatistics:
    """Statistics of a worker.

    Attributes:
        name: name of the worker.
        place: name of its computer; empty before it is known.
        state: "waiting for a machine", "starting", "idle", "measuring", "set aside", "lost", or
            "ended" if the search has ended the worker.
        trials: the number of trials that it has measured.
        failures: the number of them that failed.
        ready_secs: the time from which it can measure, by the clock of the pool; None before.
        busy_secs: the time that it has spent measuring.
        relative_step_time: step time of the original graph on its machine, relative to that in
            trial 0; None if unknown.
    """

    name: str
    place: str = ""
    state: str = "starting"
    trials: int = 0
    failures: int = 0
    ready_secs: float | None = None
    busy_secs: float = 0.0
    relative_step_time: float | None = None

    def trials_per_minute(self, now_secs: float) -> float:
        """Computes the number of trials per minute; 0 before it is ready."""
        ready_for_secs = self._ready_for_secs(now_secs)
        return 60.0 * self.trials / ready_for_secs if ready_for_secs > 0 else 0.0

    def idle_share(self, now_secs: float) -> float:
        """Computes the share of its time without a trial to measure; 0 before it is ready."""
        ready_for_secs = self._ready_for_secs(now_secs)
        return (
            min(1.0, max(0.0, 1.0 - self.busy_secs / ready_for_secs)) if ready_for_secs > 0 else 0.0
        )

    def _ready_for_secs(self, now_secs: float) -> float:
        return 0.0 if self.ready_secs is None else now_secs - self.ready_secs


def format_worker(statistics: WorkerStatistics, now_secs: float) -> str:
    """Formats the statistics of a worker on one line."""
    where = f" on {statistics.place}" if statistics.place else ""
    parts = [f"{statistics.name}{where}: {statistics.state}"]
    if statistics.ready_secs is not None:
        parts += [
            f"{statistics.trials} trials",
            f"{statistics.trials_per_minute(now_secs):.1f} a minute",
            f"idle {statistics.idle_share(now_secs):.0%}",
        ]
    if statistics.failures:
        parts.append(f"{statistics.failures} failed")
    if statistics.relative_step_time is not None:
        parts.append(f"steps take {statistics.relative_step_time:.2f}x as long as in trial 0")
    return ", ".join(parts)


def format_all_workers(
    workers: Sequence[WorkerStatistics], now_secs: float, best: str, eta_secs: float | None
) -> str:
    """Formats the statistics of all workers on one line.

    Args:
        workers: statistics of each worker, including those that were lost.
        now_secs: the time, by the clock of the pool.
        best: the best trial so far, in words.
        eta_secs: the estimated time until the end of the search; None if unknown.
    """
    current = [each for each in workers if each.state not in ("lost", "ended")]
    ready = [each for each in current if each.ready_secs is not None]
    rate = sum(each.trials_per_minute(now_secs) for each in ready)
    idle = sum(each.idle_share(now_secs) for each in ready) / max(1, len(ready))
    lost = sum(each.state == "lost" for each in workers)
    parts = [
        f"{len(ready)} of {len(current)} workers ready" + (f", {lost} lost" if lost else ""),
        f"{sum(each.trials for each in workers)} trials, {rate:.1f} a minute, idle {idle:.0%}",
        best,
    ]
    if eta_secs is not None:
        parts.append(f"ETA {format_duration(eta_secs)}")
    return " | ".join(parts)


def find_last_worker_number(trials: Iterable[Trial]) -> int:
    """Finds the highest number of a worker in a log; 0 if there was none."""
    names = {trial.worker for trial in trials if trial.worker is not None}
    return max((int(name.rpartition(" ")[2]) for name in names), default=0)


def format_workers_table(trials: Iterable[Trial]) -> str:
    """Formats a table of the workers in a log; empty if there were none."""
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
