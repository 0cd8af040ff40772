"""What a live search measures with: the processes of this computer, or workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol, Self

import numpy as np
import tensorflow as tf

from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.environment import Measurement
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.sources import Source
from tf_placer.interrupts import Interrupts
from tf_placer.live.breakable import BreakableEnvironment
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.budget import Progress
from tf_placer.search.runner import Runner, SequentialRunner
from tf_placer.search.trial_log import Trial

__all__ = ["Measurer", "OwnProcesses"]


class Measurer(Protocol):
    """Measures the graph as it came, placements, and what the operations cost."""

    @property
    def runner(self) -> Runner:
        """What measures placements."""
        ...

    def measure_original(self) -> Measurement:
        """Measures the graph as it came.

        Raises:
            WorkerStartError: no process runs it.
        """
        ...

    def make_problem(
        self,
        *,
        steps: int,
        granularity: str,
        known_secs: Mapping[tuple[int, ...], float],
        timeout_secs: float,
        report: Callable[[str], None],
    ) -> PlacementProblem:
        """Finds out what the graph costs on the machine of the search.

        Args:
            steps: how many steps to trace on each kind of device.
            granularity: how fine the groups of the graph are.
            known_secs: by placement, seconds of a step that was measured already.
            timeout_secs: seconds that each trace may take; links are measured where all of it
                leaves time for that.
            report: called with what is being done.

        Raises:
            SearchError, WorkerStartError: the graph cannot be profiled.
        """
        ...

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Is told about each new trial."""
        ...


class OwnProcesses:
    """Measures by processes of this computer; see `Measurer`."""

    def __init__(
        self,
        environment: SessionEnvironment,
        assign: Callable[[np.ndarray], Mapping[str, str]],
        source: Source,
        machine: Machine,
        session_config: tf.compat.v1.ConfigProto,
        work_dir: str | os.PathLike[str],
        *,
        interrupts: Interrupts,
        timeout_secs: Callable[[], float],
        left_secs: Callable[[], float],
        best_secs: Callable[[], float | None],
        reference_secs: float | None,
        report: Callable[[str], None],
    ) -> None:
        """Measures nothing yet.

        Args:
            environment: runs the steps; closed at the end.
            assign: turns a placement, int32 [num_groups], into device names by operation name.
            source: the graph and its step.
            machine: where to run.
            session_config: the configuration of the user's sessions.
            work_dir: directory for logs and exchange files.
            interrupts: break off what is under way.
            timeout_secs: says how long the next measurement may take.
            left_secs: says how long it is until measurements are broken off.
            best_secs: says what the fastest placement so far takes.
            reference_secs: what a step of the graph as it came took in trial 0, if that is over.
            report: called with a line for people when something is measured once more.
        """
        self._environment = environment
        self._source = source
        self._machine = machine
        self._session_config = session_config
        self._work_dir = work_dir
        paired = PairedEnvironment(
            environment,
            assign,
            reference_secs=reference_secs,
            best_secs=best_secs,
            report=report,
        )
        self._live = BreakableEnvironment(environment, paired, interrupts, timeout_secs, left_secs)
        self.runner: Runner = SequentialRunner(self._live)

    def measure_original(self) -> Measurement:
        """Measures the graph as it came; see `Measurer.measure_original`."""
        return self._live.measure_original()

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
                self._source,
                self._machine,
                steps=steps,
                granularity=granularity,
                session_config=self._session_config,
                work_dir=self._work_dir,
                environment=self._environment,
                max_secs=timeout_secs,
                known_secs=known_secs,
                report=report,
            ).problem()
        except KeyboardInterrupt:
            # What the processes are doing is of no interest any more.
            self._environment.stop()
            raise

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Does nothing; see `Measurer.on_trial`."""

    def __enter__(self) -> Self:
        self._environment.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.__exit__(None, None, None)
