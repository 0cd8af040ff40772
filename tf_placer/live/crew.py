"""The workers of one live search: from the connection to Ray to what is said of them."""

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

__all__ = ["FleetMaker", "WorkerGroup", "ray_fleet"]

# Between two looks at all workers, for people and the log.
_STATUS_SECS = 30.0


class FleetMaker(Protocol):
    """Connects to machines and makes what starts workers there."""

    def __call__(
        self, workers: Workers, setup: MeasuringSetup
    ) -> contextlib.AbstractContextManager[ActorBackend]:
        """Gives the fleet of some workers, each made with a setup."""
        ...


@contextlib.contextmanager
def ray_fleet(workers: Workers, setup: MeasuringSetup) -> Iterator[ActorBackend]:
    """Starts workers by Ray; see `FleetMaker`."""
    with connect_to_ray(workers):
        yield RayBackend(workers, MeasuringWorker, setup)


class WorkerGroup:
    """The workers of one search, its log of them, and what it says of them; see `Measurers`."""

    fresh, can_move = "processes", False  # Workers have the request of the old place.

    def __init__(
        self,
        graph: bytes,
        directory: pathlib.Path,
        say: Callable[[str], None],
        make_fleet: FleetMaker,
    ) -> None:
        """Connects to nothing yet.

        Args:
            graph: the serialized graph of the request.
            directory: of the run.
            say: called with lines of text for people.
            make_fleet: connects to the machines.
        """
        self._graph = graph
        self._directory = directory
        self._say = say
        self._make_fleet = make_fleet
        self._stack = contextlib.ExitStack()
        self._pool: WorkerPool | None = None
        self._log: WorkerLog | None = None
        self._scalars: Scalars | None = None
        self._told_secs = time.monotonic()

    @contextlib.contextmanager
    def for_search(self, context: SearchContext) -> Iterator[Measurer]:
        """Starts the workers, and gives what measures by them; see `Measurers.for_search`."""
        config, log, workers = context.config, context.log, context.config.wanted_workers
        assert workers is not None
        self._say(f"starting workers={workers.address!r}")
        setup = MeasuringSetup(
            self._graph,
            context.workload.step,
            config.found_machine,
            config.found_session_config.SerializeToString(),
        )
        fleet = self._stack.enter_context(self._make_fleet(workers, setup))
        self._log = self._stack.enter_context(WorkerLog(self._directory, context.header))
        self._pool = WorkerPool(
            fleet,
            context.assign,
            timeout_secs=lambda: context.plan.timeout_secs(log.trials),
            best_secs=lambda: _median_secs(best_trial(log.trials)),
            reference_secs=_median_secs(log.trials[0]) if log.trials else None,
            num_before=find_last_worker_number(log.trials),
            should_cancel=context.is_over,
            report=self._report_event,
        )
        self._stack.callback(self._pool.close)
        # Trial 0 is to take what it takes to start processes, and not what Ray needs before.
        self._pool.wait_for_machine()
        yield _WorkerGroupMeasurer(self._pool, self._on_trial)
        self._report_status(None)

    def for_confirmation(self, context: SearchContext) -> RemoteSessions:
        """Makes what a confirmation runs in, by one of the workers."""
        assert self._pool is not None
        return RemoteSessions(self._pool, context.plan.first_timeout_secs())

    def close(self) -> None:
        """Ends all workers."""
        if self._scalars is not None:
            self._scalars.close()
        self._stack.close()

    def _report_event(self, text: str) -> None:
        """Says and logs that a worker has come or gone."""
        self._say(text)
        self._write(text, ())

    def _on_trial(self, trial: Trial, progress: Progress) -> None:
        """Says and logs now and then how the workers are used."""
        if time.monotonic() - self._told_secs >= _STATUS_SECS:
            self._report_status(progress)

    def _report_status(self, progress: Progress | None) -> None:
        assert self._pool is not None
        self._told_secs = time.monotonic()
        tallies, now_secs = self._pool.list_statistics(), self._pool.now_secs()
        best, eta_secs = _describe_best(progress), None if progress is None else progress.eta_secs
        line = format_all_workers(tallies, now_secs, best, eta_secs)
        for text in [
            *(format_worker(each, now_secs) for each in tallies if _is_worth_showing(each)),
            line,
        ]:
            self._say(text)
        uses = [_summarize_use(tally, now_secs) for tally in tallies]
        self._write(line, uses)
        if self._scalars is None:
            self._scalars = Scalars(self._directory / TENSORBOARD / "workers")
        step = sum(tally.trials for tally in tallies)
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
    """Measures by workers; see `Measurer`."""

    def __init__(self, pool: WorkerPool, on_trial: Callable[[Trial, Progress], None]) -> None:
        self._pool = pool
        self._on_trial = on_trial
        self.runner: Runner = pool

    def measure_original(self) -> Measurement:
        """Measures the graph as it came; see `Measurer.measure_original`."""
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
        """Has a worker profile the graph; see `Measurer.make_problem`."""
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
        """Says now and then how the workers are used; see `Measurer.on_trial`."""
        self._on_trial(trial, progress)


def _is_worth_showing(tally: WorkerStatistics) -> bool:
    """Says whether people want to see a worker: it is there, or it has measured something."""
    return tally.state not in ("lost", "ended") or tally.trials > 0


def _summarize_use(tally: WorkerStatistics, now_secs: float) -> WorkerUse:
    return WorkerUse(
        tally.name,
        tally.place,
        tally.state,
        tally.trials,
        tally.failures,
        round(tally.trials_per_minute(now_secs), 3),
        round(tally.idle_share(now_secs), 4),
        None if tally.relative_step_time is None else round(tally.relative_step_time, 4),
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
