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
from tf_placer.costs.link_cache import find_links
from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.errors import describe_error
from tf_placer.inputs.workload import Workload
from tf_placer.interrupts import Interrupts
from tf_placer.live.costs import LiveCosts
from tf_placer.live.time_plan import TimePlan
from tf_placer.placers import needs_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_lock import RunLock
from tf_placer.runs.run_result import RunResult
from tf_placer.search.budget import Progress
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.runner import Runner
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.text.stages import Stages

__all__ = ["Measurer", "Measurers", "SearchContext", "relocate_run"]


class Measurer(Protocol):
    """Measures the original, placements, and the costs of operations."""

    @property
    def runner(self) -> Runner:
        """The runner that measures placements."""
        ...

    def measure_original(self) -> Measurement:
        """Measures the original.

        Raises:
            WorkerStartError: no process can run.
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
        """Profiles the graph on the machine of the search.

        Args:
            steps: number of steps to trace on each kind of device.
            granularity: granularity of the groups.
            known_secs: step times in seconds that were measured already, by placement.
            timeout_secs: time limit of each trace in seconds; links are measured if there is time
                left.
            report: called with a line for each stage.

        Raises:
            SearchError, WorkerStartError: the graph cannot be profiled.
        """
        ...

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Reacts to a new trial."""
        ...


class Measurers(Protocol):
    """A factory of measurers: by processes of this computer, or by workers.

    Attributes:
        fresh: the word for the processes of a confirmation in messages.
        can_move: whether the search can be relocated to another directory.
    """

    fresh: str
    can_move: bool

    def for_search(self, context: SearchContext) -> contextlib.AbstractContextManager[Measurer]:
        """Makes the measurer of the search.

        Raises:
            SearchError: there are no workers.
        """
        ...

    def for_confirmation(self, context: SearchContext) -> SessionEnvironment | RemoteSessions:
        """Makes the environment of a confirmation, under the user's own configuration."""
        ...

    def for_one_process(self, context: SearchContext) -> SessionEnvironment | None:
        """Makes the environment of one process on all cores that the machine divides, or None."""
        ...

    def close(self) -> None:
        """Ends all processes and workers."""
        ...


@dataclasses.dataclass
class SearchContext:
    """The state of a live search.

    Attributes:
        config: the settings, with the machine that was found.
        workload: the graph and its step.
        grouped: the graph and its groups.
        legal: bool [num_groups, num_devices], the allowed devices of each group.
        header: the header of the search; see `live_header`.
        directory: the directory of the search.
        log: the trials so far.
        plan: the division of the time.
        interrupts: requests to end early.
        stages: reports the stages of the search.
        callback: receives trials.
        others: the lock of this search, which notices other searches on this computer.
        measurers: makes the measurers.
        costs: the profiled costs, if known.
        earlier_answer: a placement of a similar step to try first, if there is one.
        earlier_result: the result of the search before it was resumed; None if there is none.
        notes: notes for the result.
        lack_of_time: the note that there was no time to profile the graph; None if there was.
        unfitting: by placer, the number of its placements that are not measured because by
            simulation they do not fit.
        given_up_secs: the seconds after which profiling the graph was given up; 0 if it was not.
        round_secs: the seconds of a round in a confirmation that lacked time; 0 if none did.
        begun: the names of the placers that have begun.
        has_placer_ended: see `RunResult`.
        placer_end: the reason why the placer proposed nothing more, as a sentence; None otherwise.
        ran_out_of_time: whether the time for trials was over at some moment.
        found: the confirmed placement, if there is one.
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
    earlier_answer: Placement | None = None
    earlier_result: RunResult | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    lack_of_time: str | None = None
    unfitting: dict[str, int] = dataclasses.field(default_factory=dict)
    given_up_secs: float = 0.0
    round_secs: float = 0.0
    begun: set[str] = dataclasses.field(default_factory=set)
    has_placer_ended: bool = False
    placer_end: str | None = None
    ran_out_of_time: bool = False
    found: Placement | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the machine's devices."""
        return tuple(device.name for device in self.config.found_machine.devices)

    def assign(self, row: np.ndarray) -> dict[str, str]:
        """Returns device names by operation of a placement, int32 [num_groups]."""
        return self.grouped.assignment(row, self.devices)

    def assignment(self, trial: Trial) -> dict[str, str]:
        """Returns device names by operation of a trial."""
        if trial.assignment is None:
            return {}
        return self.assign(np.array(trial.assignment, np.int32))

    def compute_search_secs_left(self) -> float:
        """Computes the seconds left before the confirmation should begin."""
        return self.plan.compute_search_secs_left(self.log.trials)

    def compute_measuring_secs_left(self) -> float:
        """Computes the seconds left until measurements of the search are canceled."""
        return self.plan.compute_measuring_secs_left(self.log.trials)

    def estimate_profile_secs(self) -> float:
        """Estimates the seconds of profiling, or returns its duration; 0 without profiling.

        There is at least one trial.
        """
        if not needs_problem(self.config.placer) or self.config.found_machine.describes_costs:
            return 0.0
        if self.costs is not None:
            return self.costs.secs
        links = find_links(self.config.found_machine, self.config.found_session_config)
        return self.plan.profile_secs(self.log.trials, links_known=links is not None)

    def advise_time(self, *, was_too_short: bool = True) -> str:
        """Advises how much time a search for this graph needs on this machine, as a sentence.

        Args:
            was_too_short: whether the time of this search has not been enough.
        """
        return f"allow {self.describe_enough_time(was_too_short=was_too_short)}"

    def describe_enough_time(self, *, was_too_short: bool = True) -> str:
        """Describes the time that a search for this graph needs: "about 120 s"."""
        trials = self.log.trials
        if not trials:
            return "more time"
        secs = self.plan.estimate_enough_secs(
            trials,
            profile_secs=self.estimate_profile_secs(),
            was_too_short=was_too_short,
            given_up_secs=self.given_up_secs,
            round_secs=self.round_secs,
        )
        # Nobody knows how much longer profiling would have taken.
        return f"{'at least' if self.given_up_secs else 'about'} {secs} s"

    def is_over(self) -> bool:
        """Returns whether the search should end."""
        if self.interrupts.count > 0:
            return True
        is_out_of_time = self.compute_measuring_secs_left() <= 0
        self.ran_out_of_time = self.ran_out_of_time or is_out_of_time
        return is_out_of_time

    def has_found_fit(self) -> bool:
        """Returns whether a step runs, where the objective is that one fits."""
        return self.config.is_fit and any(
            trial.measurement.median_secs is not None for trial in self.log.trials
        )

    def interruptible(self) -> contextlib.AbstractContextManager[None]:
        """Makes its body cancelable by requests to end and by the end of the time to search."""
        return self.interrupts.interruptible(max_secs=self.compute_measuring_secs_left())

    def write_found(self) -> None:
        """Writes the confirmed placement, if there is one.

        Raises:
            OSError: the placement cannot be written.
        """
        if self.found is not None:
            write_placement(self.found, self.directory.placement)

    def keep(self, write: Callable[[], None]) -> None:
        """Writes the result, and relocates the search if its directory is not writable.

        Raises:
            OSError: no directory is writable.
        """
        try:
            write()
        except OSError as error:
            self.move(error)
            write()

    def move(self, error: OSError) -> None:
        """Relocates the search; see `relocate_run`."""
        say = self.stages.say
        self.log.move(relocate_run(self.directory, self.workload, self.config, say, error))


def relocate_run(
    directory: RunDirectory,
    workload: Workload,
    config: SearchConfig,
    say: Callable[[str], None],
    error: OSError,
) -> pathlib.Path:
    """Relocates a search to a temporary directory, because its own is no longer writable.

    Args:
        directory: the directory of the search.
        workload: the graph and its step.
        config: the settings of the search.
        say: called with a line for users.
        error: the error that shows that the directory is not writable.

    Returns:
        The new path of the log.

    Raises:
        OSError: the given error, if the temporary directory is not writable either.
    """
    try:
        directory.move(workload, config)
    except OSError:
        raise error from None
    path = os.fspath(directory.path)
    say(f"{describe_error(error)}: from now on the search is in {path!r}, with all of its trials")
    return directory.trials
