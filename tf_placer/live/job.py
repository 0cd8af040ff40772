"""What all parts of one live search have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.pipeline import GroupedGraph
from graph_passes.placement import Placement, write_placement
from tf_placer.confirmation.choice import choose_finalists
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import COLOCRL, SessionEnvironment
from tf_placer.interrupts import Interrupts
from tf_placer.live.costs import LiveCosts
from tf_placer.live.crew import Crew
from tf_placer.live.time_plan import TimePlan
from tf_placer.placers import BASELINES
from tf_placer.runs.other_searches import OtherSearches
from tf_placer.runs.run_directory import Request, RunDirectory
from tf_placer.search.trial_log import Trial, best_trial
from tf_placer.text.stages import Stages

__all__ = ["SHORTEST_TIMEOUT_SECS", "LiveJob"]

# How long the graph as it came may take to be measured, and how many times that, but not less than
# a minute, a placement: one that is far slower is of no use.
_TIMEOUT_SECS = 120.0
_TIMEOUT_RATIO = 5.0
_LEAST_TIMEOUT_SECS = 60.0
# Where little time is left, a placement may still take this many times as long as the original.
_LAST_TIMEOUT_RATIO = 2.0
#: Less time than this says nothing about a step.
SHORTEST_TIMEOUT_SECS = 10.0


def _stay(error: OSError) -> None:
    raise error


@dataclasses.dataclass
class LiveJob:
    """One live search.

    Attributes:
        request: what is asked.
        directory: where everything goes.
        grouped: the graph and its groups.
        legal: bool [num_groups, num_devices], where they may go.
        header: what the search is of, as `live_header` says it.
        session_config: the configuration of the user's sessions.
        environment_type: makes the environments that measure.
        plan: how long everything may take.
        interrupts: requests to end early.
        stages: says what is being done.
        costs: what is known of the costs.
        hosted: what runs the sessions of all environments in the process that called; None where
            each has processes of its own.
        others: other searches on this computer.
        crew: the workers that measure; None where this computer does.
        notes: what the result should say beside how it ended.
        begun: the names of the placers that had their turn.
        move: takes the directory to another place, because this one takes no files; takes the
            error, and raises it if there is none.
        found: the placement that was found, when one was.
    """

    request: Request
    directory: RunDirectory
    grouped: GroupedGraph
    legal: np.ndarray
    header: Mapping[str, Any]
    session_config: tf.compat.v1.ConfigProto
    environment_type: Callable[..., SessionEnvironment]
    plan: TimePlan
    interrupts: Interrupts
    stages: Stages
    costs: LiveCosts | None
    others: OtherSearches
    hosted: LiveProcesses | None = None
    crew: Crew | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    begun: set[str] = dataclasses.field(default_factory=set)
    move: Callable[[OSError], None] = _stay
    found: Placement | None = None

    def environment(self, *, meta_optimizer: bool) -> SessionEnvironment:
        """Makes what measures on this computer, with or without the user's Grappler."""
        shared = {} if self.hosted is None else {"processes": self.hosted}
        return self.environment_type(
            self.directory.graph,
            self.request.step,
            self.request.machine,
            self.assign,
            protocol=COLOCRL,
            session_config=self.session_config,
            meta_optimizer=meta_optimizer,
            work_dir=self.directory.path,
            timeout_secs=self.first_timeout_secs(),
            report=self.stages.say,
            **shared,
        )

    def assign(self, row: np.ndarray) -> dict[str, str]:
        """Finds the devices by operation of a placement, int32 [num_groups]."""
        devices = tuple(device.name for device in self.request.machine.devices)
        return self.grouped.assignment(row, devices)

    def assignment(self, trial: Trial) -> dict[str, str]:
        """Finds the devices of a trial by operation."""
        if trial.assignment is None:
            return {}
        return self.assign(np.array(trial.assignment, np.int32))

    # Time.

    def first_timeout_secs(self) -> float:
        """Computes how long something may take as long as nothing is known of the graph."""
        max_secs = self.request.max_secs
        return min(max(_TIMEOUT_SECS, max_secs / 4), max(max_secs, SHORTEST_TIMEOUT_SECS))

    def timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Computes how long the next trial may take."""
        secs = self.first_timeout_secs()
        # Where the original does not fit, the fastest trial tells how long a step should take.
        original = trials[0] if trials else None
        ran = original if original and original.measurement.step_secs else best_trial(trials)
        if ran is None:
            return secs
        ran_secs = ran.measurement.total_secs
        left_secs = max(
            self.left_to_search_secs(trials),
            _LAST_TIMEOUT_RATIO * ran_secs,
            SHORTEST_TIMEOUT_SECS,
        )
        return min(secs, max(_LEAST_TIMEOUT_SECS, _TIMEOUT_RATIO * ran_secs), left_secs)

    def finalists(self, trials: Sequence[Trial]) -> dict[str, Trial]:
        """Chooses what a confirmation would measure again; see `choose_finalists`."""
        return choose_finalists(trials, BASELINES)

    def left_to_search_secs(self, trials: Sequence[Trial]) -> float:
        """Computes how long the search may go on until the confirmation has to begin."""
        return self.plan.left_to_search_secs(trials, self.finalists(trials))

    def left_to_measure_secs(self, trials: Sequence[Trial]) -> float:
        """Computes how long it is until what is measured for the search is broken off.

        As long as nothing is measured, there is nothing to keep time for.
        """
        return self.left_to_search_secs(trials) if trials else self.plan.left_secs()

    def confirming_timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Computes how long a placement may take in the confirmation."""
        secs = max(_LEAST_TIMEOUT_SECS, self.timeout_secs(trials))
        return min(self.first_timeout_secs(), secs)

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
