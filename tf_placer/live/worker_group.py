"""The group of workers of one live search: their connection, log and status."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tf_placer.environments.environment import Measurement
from tf_placer.errors import SearchError
from tf_placer.live.context import Measurer, SearchContext
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.budget import Progress
from tf_placer.search.distributed.actor_backend import ActorBackend, WorkerLostError
from tf_placer.search.distributed.measuring_worker import MeasuringSetup, MeasuringWorker
from tf_placer.search.distributed.ray_backend import RayBackend, connect_to_ray
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.distributed.worker_events import WorkerEvent, WorkerLog, WorkerUse
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.distributed.worker_statistics import (
    WorkerStatistics,
    find_last_worker_number,
    format_all_workers,
    format_worker,
)
from tf_placer.search.distributed.workers import Workers
from tf_placer.search.runner import Runner
from tf_placer.search.training_log import TENSORBOARD
from tf_placer.search.training_scalars import Scalars
from tf_placer.search.trial_log import Trial, best_trial
from tf_placer.text.units import format_step

__all__ = ["BackendMaker", "WorkerGroup", "connect_ray_backend"]

_SECS_BETWEEN_STATUS_REPORTS = 30.0


class BackendMaker(Protocol):
    """Connects to machines and makes the actors of workers there."""

    def __call__(
        self, workers: Workers, setup: MeasuringSetup
    ) -> contextlib.AbstractContextManager[ActorBackend]:
        """Yields the backend that starts workers, each with the given setup."""
        ...


@contextlib.contextmanager
def connect_ray_backend(workers: Workers, setup: MeasuringSetup) -> Iterator[ActorBackend]:
    """Connects to Ray; see `BackendMaker`."""
    with connect_to_ray(workers):
        yield RayBackend(workers, MeasuringWorker, setup)


class WorkerGroup:
    """The workers of one search, with their log and status reports; see `Measurers`."""

    fresh, can_move = "processes", False  # Workers use the request in the old directory.

    def __init__(
        self,
        graph: bytes,
        directory: pathlib.Path,
        say: Callable[[str], None],
        make_backend: BackendMaker,
    ) -> None:
        """Stores the settings without connecting.

        Args:
            graph: the serialized graph of the request.
            directory: the directory of the run.
            say: called with lines for users.
            make_backend: connects to the machines.
        """
        self._graph = graph
        self._directory = directory
        self._say = say
        self._make_backend = make_backend
        self._stack = contextlib.ExitStack()
        self._pool: WorkerPool | None = None
        self._log: WorkerLog | None = None
        self._scalars: Scalars | None = None
        self._reported_secs = time.monotonic()

    @contextlib.contextmanager
    def for_search(self, context: SearchContext) -> Iterator[Measurer]:
        """Starts the workers and yields their measurer; see `Measurers.for_search`."""
        config, log, workers = context.config, context.log, context.config.wanted_workers
        assert workers is not None
        self._say(f"starting workers={workers.address!r}")
        setup = MeasuringSetup(
            self._graph,
            context.workload.step,
            config.found_machine,
            config.found_session_config.SerializeToString(),
            config.restrictions,
            config.alone_protocol,
        )
        backend = self._stack.enter_context(self._make_backend(workers, setup))
        self._log = self._stack.enter_context(WorkerLog(self._directory, context.header))
        self._pool = WorkerPool(
            backend,
            context.assign,
            timeout_secs=lambda: context.plan.timeout_secs(log.trials),
            best_secs=lambda: _median_secs(best_trial(log.trials)),
            reference_secs=_median_secs(log.trials[0]) if log.trials else None,
            num_before=find_last_worker_number(log.trials),
            should_cancel=context.is_over,
            report=self._report_event,
        )
        self._stack.callback(self._pool.close)
        # Wait here, so that trial 0 includes the start of processes, but not the start of Ray.
        self._pool.wait_for_machine()
        yield _WorkerGroupMeasurer(self._pool, self._on_trial)
        self._report_status(None)

    def for_confirmation(self, context: SearchContext) -> RemoteSessions:
        """Makes the environment of a confirmation, on one of the workers."""
        assert self._pool is not None
        return RemoteSessions(self._pool, context.plan.first_timeout_secs())

    def for_one_process(self, context: SearchContext) -> None:
        """Makes no environment: the cores are those of other computers."""

    def close(self) -> None:
        """Ends all workers."""
        if self._scalars is not None:
            self._scalars.close()
        self._stack.close()

    def _report_event(self, text: str) -> None:
        """Reports and logs the start or loss of a worker."""
        self._say(text)
        self._write(text, ())

    def _on_trial(self, trial: Trial, progress: Progress) -> None:
        """Reports and logs the use of workers from time to time."""
        if time.monotonic() - self._reported_secs >= _SECS_BETWEEN_STATUS_REPORTS:
            self._report_status(progress)

    def _report_status(self, progress: Progress | None) -> None:
        assert self._pool is not None
        self._reported_secs = time.monotonic()
        statistics, now_secs = self._pool.list_statistics(), self._pool.now_secs()
        best, eta_secs = _describe_best(progress), None if progress is None else progress.eta_secs
        line = format_all_workers(statistics, now_secs, best, eta_secs)
        for text in [
            *(format_worker(each, now_secs) for each in statistics if _is_worth_showing(each)),
            line,
        ]:
            self._say(text)
        uses = [_summarize_use(each, now_secs) for each in statistics]
        self._write(line, uses)
        if self._scalars is None:
            self._scalars = Scalars(self._directory / TENSORBOARD / "workers")
        step = sum(each.trials for each in statistics)
        self._scalars.write(
            (f"{use.name.replace(' ', '_')}/{name}", value, step)
            for use in uses
            for name, value in (
                ("trials_per_minute", use.trials_per_minute),
                ("idle_share", use.idle_share),
                ("slowness", use.slowness),
            )
            if value is not None
        )

    def _write(self, text: str, uses: Sequence[WorkerUse]) -> None:
        if self._log is not None:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            self._log.extend([WorkerEvent(now, text, tuple(uses))])


class _WorkerGroupMeasurer:
    """A `Measurer` that uses workers."""

    def __init__(self, pool: WorkerPool, on_trial: Callable[[Trial, Progress], None]) -> None:
        self._pool = pool
        self._on_trial = on_trial
        self.runner: Runner = pool

    def measure_original(self) -> Measurement:
        """Measures the original; see `Measurer.measure_original`."""
        return self._pool.measure_original()

    def make_problem(
        self,
        *,
        steps: int,
        granularity: str,
        known_secs: Mapping[tuple[int, ...], float],
        timeout_secs: float,
        report: Callable[[str], None],
    ) -> PlacementProblem:
        """Profiles the graph on a worker; see `Measurer.make_problem`."""
        while True:
            report(f"tracing {steps} steps of the graph on each kind of device of a worker")
            try:
                problem: PlacementProblem = self._pool.call_one(
                    "profile", steps, granularity, known_secs, timeout_secs
                )
                return problem
            except WorkerLostError as error:
                if error.has_failed:
                    raise SearchError(str(error)) from None
                report(f"{error}: another one profiles")
            except KeyboardInterrupt:
                self._pool.cancel()
                raise

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Reports the use of workers from time to time; see `Measurer.on_trial`."""
        self._on_trial(trial, progress)


def _is_worth_showing(worker: WorkerStatistics) -> bool:
    """Returns whether a worker is running or has measured trials."""
    return worker.state not in ("lost", "ended") or worker.trials > 0


def _summarize_use(worker: WorkerStatistics, now_secs: float) -> WorkerUse:
    return WorkerUse(
        worker.name,
        worker.place,
        worker.state,
        worker.trials,
        worker.failures,
        round(worker.trials_per_minute(now_secs), 3),
        round(worker.idle_share(now_secs), 4),
        None if worker.relative_step_time is None else round(worker.relative_step_time, 4),
    )


def _median_secs(trial: Trial | None) -> float | None:
    return None if trial is None else trial.measurement.median_secs


def _describe_best(progress: Progress | None) -> str:
    if progress is None:
        return "the search is over"
    best = progress.best
    if best is None or best.measurement.median_secs is None:
        return "best none"
    return f"best {format_step(best.measurement.median_secs)} (trial {best.index})"
