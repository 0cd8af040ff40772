"""The state that the parts of a live search share."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from graph_passes.pipeline import GroupedGraph
from graph_passes.placement import Placement, write_placement
from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.errors import describe_error
from tf_placer.inputs.workload import Workload
from tf_placer.interrupts import Interrupts
from tf_placer.live.costs import LiveCosts
from tf_placer.live.time_plan import TimePlan
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.runs.other_searches import RunLock
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.budget import Progress
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.runner import Runner
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.text.stages import Stages

__all__ = ["Measurer", "Measurers", "SearchContext", "relocate_run"]


class Measurer(Protocol):
    """Measures the graph as it came, placements, and what the operations cost."""

    @property
    def runner(self) -> Runner:
        """The runner that measures placements."""
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


class Measurers(Protocol):
    """Makes what measures: by processes of this computer, or by workers.

    Attributes:
        fresh: what people are told that a confirmation opens.
        can_move: whether the search can go on in another directory.
    """

    fresh: str
    can_move: bool

    def for_search(self, context: SearchContext) -> contextlib.AbstractContextManager[Measurer]:
        """Makes what measures in the search.

        Raises:
            SearchError: there is nothing to measure with.
        """
        ...

    def for_confirmation(self, context: SearchContext) -> SessionEnvironment | RemoteSessions:
        """Makes what a confirmation runs in, under the user's own configuration."""
        ...

    def close(self) -> None:
        """Ends all that was made."""
        ...


@dataclasses.dataclass
class SearchContext:
    """A live search that runs.

    Attributes:
        config: how to search, on a machine that was looked up.
        workload: the graph and its step.
        grouped: the graph and its groups.
        legal: bool [num_groups, num_devices], where they may go.
        header: what the search is of, as `live_header` says it.
        directory: where everything goes.
        log: the trials so far.
        plan: how long everything may take.
        interrupts: requests to end early.
        stages: says what is being done.
        callback: hears of trials.
        others: other searches on this computer.
        measurers: makes what measures.
        costs: what is known of the costs.
        notes: what the result should say beside how it ended.
        begun: the names of the placers that had their turn.
        found: the placement that was found, when one was.
    """

    config: SearchConfig
    workload: Workload
    grouped: GroupedGraph
    legal: np.ndarray
    header: Mapping[str, Any]
    directory: RunDirectory
    log: TrialLog
    plan: TimePlan
    interrupts: Interrupts
    stages: Stages
    callback: Callback
    others: RunLock
    measurers: Measurers
    costs: LiveCosts | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    begun: set[str] = dataclasses.field(default_factory=set)
    found: Placement | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the machine's devices."""
        return tuple(device.name for device in self.config.found_machine.devices)

    def assign(self, row: np.ndarray) -> dict[str, str]:
        """Finds the devices by operation of a placement, int32 [num_groups]."""
        return self.grouped.assignment(row, self.devices)

    def assignment(self, trial: Trial) -> dict[str, str]:
        """Finds the devices of a trial by operation."""
        if trial.assignment is None:
            return {}
        return self.assign(np.array(trial.assignment, np.int32))

    def compute_search_secs_left(self) -> float:
        """Computes how long the search may go on until the confirmation has to begin."""
        return self.plan.compute_search_secs_left(self.log.trials)

    def compute_measuring_secs_left(self) -> float:
        """Computes how long it is until what is measured for the search is broken off."""
        return self.plan.compute_measuring_secs_left(self.log.trials)

    def is_over(self) -> bool:
        """Says whether the search is to end."""
        return self.interrupts.count > 0 or self.compute_measuring_secs_left() <= 0

    def interruptible(self) -> contextlib.AbstractContextManager[None]:
        """Lets its body be broken off by requests to end, and when the time to search is over."""
        return self.interrupts.interruptible(max_secs=self.compute_measuring_secs_left())

    def write_found(self) -> None:
        """Writes the placement that was found, if there is one.

        Raises:
            OSError: it cannot be written.
        """
        if self.found is not None:
            write_placement(self.found, self.directory.placement)

    def keep(self, write: Callable[[], None]) -> None:
        """Writes what the search has come to, in another place if the directory takes no files.

        Raises:
            OSError: there is none.
        """
        try:
            write()
        except OSError as error:
            self.move(error)
            write()

    def move(self, error: OSError) -> None:
        """Goes on in another place; see `relocate_run`."""
        say = self.stages.say
        self.log.move(relocate_run(self.directory, self.workload, self.config, say, error))


def relocate_run(
    directory: RunDirectory,
    workload: Workload,
    config: SearchConfig,
    say: Callable[[str], None],
    error: OSError,
) -> pathlib.Path:
    """Moves the directory of a search among the temporary files, because it takes none any more.

    Args:
        directory: of the search.
        workload: the graph and its step.
        config: how to search.
        say: called with a line for people.
        error: why.

    Returns:
        Where the log goes on.

    Raises:
        OSError: the error that it is given, where no file can be written there either.
    """
    try:
        directory.move(workload, config)
    except OSError:
        raise error from None
    path = os.fspath(directory.path)
    say(f"{describe_error(error)}: from now on the search is in {path!r}, with all of its trials")
    return directory.trials
