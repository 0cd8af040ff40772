"""Measurers of a live search that use processes of this computer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Self

import numpy as np

from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.alone import AloneEnvironment
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.measuring_protocol import COLOCRL, MeasuringProtocol
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.live.context import SearchContext
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.budget import Progress
from tf_placer.search.runner import Runner, SequentialRunner
from tf_placer.search.trial_log import Trial, best_trial

__all__ = ["OwnProcesses"]

_ONE_PROCESS = "local:1"


class OwnProcesses:
    """Makes measurers that use processes of this computer; see `Measurers`."""

    can_move = True

    def __init__(
        self, environment_type: Callable[..., SessionEnvironment], host: int | None = None
    ) -> None:
        """Stores the settings without starting processes.

        Args:
            environment_type: makes the environments that measure.
            host: file descriptor of a `WorkerHost` that runs the sessions of all environments; None
                if each has processes of its own.
        """
        self._environment_type = environment_type
        self._host = host
        self._hosted: LiveProcesses | None = None
        self.fresh = "processes" if host is None else "sessions of the calling process"

    def for_search(self, context: SearchContext) -> _LocalMeasurer:
        """Makes the measurer of the search; see `Measurers.for_search`."""
        environment = self._environment(
            context,
            context.config.found_machine,
            meta_optimizer=False,
            protocol=context.config.alone_protocol or COLOCRL,
        )
        return _LocalMeasurer(context, environment)

    def for_confirmation(self, context: SearchContext) -> SessionEnvironment:
        """Makes the environment of a confirmation, with the user's Grappler configuration."""
        return self._environment(context, context.config.found_machine, meta_optimizer=True)

    def for_one_process(self, context: SearchContext) -> SessionEnvironment | None:
        """Makes the environment of one process on all cores, without limits of memory.

        Returns:
            The environment; None if the machine is not processes that divide these cores.
        """
        machine = context.config.found_machine
        is_limited = any(device.memory_bytes is not None for device in machine.devices)
        if self._host is not None or not machine.backend.starts_servers or is_limited:
            return None
        return self._environment(context, find_machine(_ONE_PROCESS), meta_optimizer=True)

    def close(self) -> None:
        """Ends the processes that all environments share."""
        if self._hosted is not None:
            self._hosted.close()

    def _environment(
        self,
        context: SearchContext,
        machine: Machine,
        *,
        meta_optimizer: bool,
        protocol: MeasuringProtocol = COLOCRL,
    ) -> SessionEnvironment:
        say = context.stages.say
        if self._host is not None and self._hosted is None:
            self._hosted = LiveProcesses(machine, context.directory.path, self._host, report=say)
        shared = {} if self._hosted is None else {"processes": self._hosted}
        return self._environment_type(
            context.directory.graph,
            context.workload.step,
            machine,
            context.assign,
            protocol=protocol,
            session_config=context.config.found_session_config,
            meta_optimizer=meta_optimizer,
            work_dir=context.directory.path,
            timeout_secs=context.plan.first_timeout_secs(),
            report=say,
            **shared,
        )


class _LocalMeasurer:
    """A cancelable `Measurer` that uses processes of this computer."""

    def __init__(self, context: SearchContext, environment: SessionEnvironment) -> None:
        self._context, self._environment = context, environment
        self._trials: AloneEnvironment | PairedEnvironment
        if context.config.alone_protocol is not None:
            self._trials = AloneEnvironment(environment, context.assign)
        else:
            trials = context.log.trials
            self._trials = PairedEnvironment(
                environment,
                context.assign,
                reference_secs=trials[0].measurement.median_secs if trials else None,
                best_secs=self._best_secs,
                report=context.stages.say,
            )
        self.runner: Runner = SequentialRunner(self)

    def _best_secs(self) -> float | None:
        best = best_trial(self._context.log.trials)
        return None if best is None else best.measurement.median_secs

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements by the protocol of the search."""

        def measure_one(row: np.ndarray) -> Measurement:
            [measurement] = self._trials.measure(row[None])
            return measurement

        return [self._measure(functools.partial(measure_one, row)) for row in placements]

    def measure_original(self) -> Measurement:
        """Measures the original by the protocol of the search."""
        return self._measure(self._trials.measure_original)

    def _measure(self, measure: Callable[[], Measurement]) -> Measurement:
        self._environment.timeout_secs = self._context.plan.timeout_secs(self._context.log.trials)
        try:
            with self._context.interruptible():
                return measure()
        except KeyboardInterrupt:
            self._environment.stop()
            return Measurement(failure=Failure(FailureKind.TIMEOUT, "canceled"))

    def make_problem(
        self,
        *,
        steps: int,
        granularity: str,
        known_secs: Mapping[tuple[int, ...], float],
        timeout_secs: float,
        report: Callable[[str], None],
    ) -> PlacementProblem:
        """Profiles the graph; see `Measurer.make_problem`."""
        self._environment.timeout_secs = timeout_secs
        try:
            return cost_graph(
                self._context.workload,
                self._context.config.found_machine,
                steps=steps,
                granularity=granularity,
                session_config=self._context.config.found_session_config,
                work_dir=self._context.directory.path,
                environment=self._environment,
                max_secs=timeout_secs,
                known_secs=known_secs,
                restrictions=self._context.config.restrictions,
                report=report,
            ).problem()
        except KeyboardInterrupt:
            self._environment.stop()
            raise

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Does nothing; see `Measurer.on_trial`."""

    def __enter__(self) -> Self:
        self._environment.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.__exit__(None, None, None)
