"""One live search: its stages, its confirmation and its explanation, within its time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.placement import Placement, read_placement, write_placement
from graph_passes.whole_file import remove_what_is_left
from tf_placer.costs.given_placement import asked_devices, given_assignment, nearest_assignment
from tf_placer.costs.known_links import known_links
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import COLOCRL, SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError, error_text
from tf_placer.inputs.sources import Source
from tf_placer.interrupts import Interrupts
from tf_placer.live.choice import choose_finalists, choose_winner, hopeful_finalists
from tf_placer.live.comparable_tensors import comparable_tensors
from tf_placer.live.confirmation import Confirmation, confirm
from tf_placer.live.costs import LiveCosts, profile_costs, read_costs
from tf_placer.live.crew import Crew, FleetMaker, ray_fleet
from tf_placer.live.explanation import explain_trials
from tf_placer.live.header import live_header, request_digest, with_costs
from tf_placer.live.measurer import Measurer, OwnProcesses
from tf_placer.live.no_finalists import outcome_without_finalists
from tf_placer.live.other_searches import OtherSearches
from tf_placer.live.run_directory import Request, RunDirectory
from tf_placer.live.run_result import Outcome, RunResult
from tf_placer.live.search_place import SearchPlace
from tf_placer.live.search_result import (
    confirmed_measurement,
    found_placement,
)
from tf_placer.live.time_plan import ConfirmationPlan, TimePlan
from tf_placer.placers import (
    ORIGINAL_START,
    granularity_of,
    needs_problem,
    start_source,
)
from tf_placer.placers.lifted import LiftedPlacer
from tf_placer.placers.placer import Placer
from tf_placer.report.controllers_table import staleness_line
from tf_placer.report.progress import progress_line
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.distributed.remote_sessions import RemoteSessions
from tf_placer.search.distributed.tallies import num_workers
from tf_placer.search.loop import Budget, LaterStage, Progress, best_trial, search
from tf_placer.search.proposals import proposed
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import ORIGINAL, Trial, TrialLog
from tf_placer.text.stages import Stages
from tf_placer.text.units import format_duration

__all__ = ["BASELINES", "LiveJob", "run"]

#: The placers whose proposals are measured before those of any other.
BASELINES = ("single_device", "expert")
# How long the graph as it came may take to be measured, and how many times that, but not less than
# a minute, a placement: one that is far slower is of no use.
_TIMEOUT_SECS = 120.0
_TIMEOUT_RATIO = 5.0
_LEAST_TIMEOUT_SECS = 60.0
# Where little time is left, a placement may still take this many times as long as the original.
_LAST_TIMEOUT_RATIO = 2.0
_SHORTEST_TIMEOUT_SECS = 10.0


#: Starts controllers: takes workers, what they train, and options of `Controllers`.
ControllersMaker = Callable[..., contextlib.AbstractContextManager[ConcurrentPlacer]]


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
        begun: the names of the placers that were made.
        move: takes the directory to another place, because this one takes no files; takes the
            error, and raises it if there is none.
        found: the placement that was found, when one was.
        controllers_by: starts controllers, if the request is for several.
        stack: ends what was started for the search.
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
    controllers_by: ControllersMaker = ray_controllers
    stack: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    @property
    def _has_controllers(self) -> bool:
        return self.request.workers is not None and self.request.workers.controllers > 1

    def search(self, log: TrialLog) -> list[Trial]:
        """Measures the graph as it came, the baselines, and what the placer proposes.

        Args:
            log: of this search, new or to go on with.

        Returns:
            All trials.
        """
        with (
            TrainingLog(self.directory.path, self.header) as training,
            self._measurer(log) as measurer,
            contextlib.ExitStack() as self.stack,
        ):
            if not log.trials:
                training.restart()
            names = dict.fromkeys([*BASELINES, self.request.placer])
            stages = [
                LaterStage(name, functools.partial(self._made, name, log, measurer, training))
                for name in names
            ]
            recorder = TrainingRecorder(training, self.directory.path, self.stages.say)
            best = best_trial(log.trials)
            if best is not None and best.assignment is not None:
                # A kill, or a disk that was full, may have left an older one.
                self._write_best(best)
            if not log.trials:
                self.stages.enter("starting processes and measuring the graph as it came")

            def on_trial(trial: Trial, progress: Progress) -> None:
                if progress.best is trial and trial.assignment is not None:
                    self._write_best(trial)
                now = self._with_all_that_counts(progress, log)
                self.stages.say(progress_line(trial, now))
                measurer.on_trial(trial, now)
                self.others.look()
                self.stages.enter("measuring placements")
                if len(log.trials) == 1:
                    self._say_what_is_needed(log.trials)
                if len(log.trials) == 2:
                    self._warn_of_too_little_time(log.trials)

            trials = search(
                measurer.measure_original,
                measurer.measuring,
                stages,
                log,
                Budget(self.request.max_trials, self.request.max_secs),
                ask=self._ask,
                report=on_trial,
                observed=recorder.observed,
                should_stop=lambda: self._is_over(log.trials),
            )
            recorder.finish()
            if line := staleness_line(training.updates):
                self.stages.say(line)
        return trials

    def _with_all_that_counts(self, progress: Progress, log: TrialLog) -> Progress:
        """Adds to the time of a search what the budget counts: its start and the confirmation."""
        left_secs = max(0.0, self.plan.left_secs())
        to_search_secs = min(max(0.0, self._left_to_search_secs(log.trials)), left_secs)
        rest_secs = left_secs - to_search_secs
        return dataclasses.replace(
            progress,
            elapsed_secs=self.plan.used_secs(),
            eta_secs=min(progress.eta_secs, to_search_secs) + rest_secs,
        )

    def _measurer(self, log: TrialLog) -> contextlib.AbstractContextManager[Measurer]:
        """Makes what measures in the search: by the processes of this computer, or by workers."""
        original = log.trials[0].measurement.median_secs if log.trials else None

        def timeout_secs() -> float:
            return self._timeout_secs(log.trials)

        def best_secs() -> float | None:
            return _median_secs(best_trial(log.trials))

        if self.crew is not None:
            return self.crew.measurer(
                self._assign,
                timeout_secs=timeout_secs,
                best_secs=best_secs,
                reference_secs=original,
                num_before=num_workers(log.trials),
                should_break=lambda: self.interrupts.count > 0,
            )
        return OwnProcesses(
            self._environment(meta_optimizer=False),
            self._assign,
            Source(self.grouped.op_graph, self.request.step),
            self.request.machine,
            self.session_config,
            self.directory.work,
            interrupts=self.interrupts,
            timeout_secs=timeout_secs,
            best_secs=best_secs,
            reference_secs=original,
            report=self.stages.say,
        )

    def _made(
        self, name: str, log: TrialLog, measurer: Measurer, training: TrainingLog
    ) -> Placer | ConcurrentPlacer | None:
        """Makes the placer of a stage; None if that fails, or somebody did not want to wait."""
        try:
            with self.interrupts.breakable():
                if name == self.request.placer and needs_problem(name) and self.costs is None:
                    self._profile(name, log, measurer)
                placer: Placer | ConcurrentPlacer
                if name == self.request.placer and self._has_controllers:
                    placer = self._controllers(name, training)
                else:
                    placer = self._placer(name, log)
            self.begun.add(name)
            return placer
        except (SearchError, WorkerStartError) as error:
            # What was measured so far stands.
            self.notes.append(str(error))
            self.stages.say(str(error))
        except KeyboardInterrupt:
            pass  # The search asks why, and ends.
        return None

    def _ask(self, placer: Placer, count: int) -> np.ndarray:
        """Asks a placer for placements; there are none if somebody did not want to wait for it."""
        try:
            self.stages.enter("choosing what to measure next")
            with self.interrupts.breakable():
                placements = proposed(placer, count)
            self.stages.enter("measuring placements")
            return placements
        except KeyboardInterrupt:
            return np.zeros([0, self.grouped.group_graph.num_groups], np.int32)

    def _profile(self, name: str, log: TrialLog, measurer: Measurer) -> None:
        """Finds out what the operations cost.

        Raises:
            SearchError, WorkerStartError: that is not possible.
        """
        left_secs = self._left_to_search_secs(log.trials)
        needed_secs = self._profile_secs(log.trials)
        if left_secs <= needed_secs:
            raise SearchError(
                f"placer {name!r} needs to know what the operations cost: to profile the graph "
                f"takes about {format_duration(needed_secs)}, and of {self.request.max_secs:g} s "
                f"{format_duration(max(0.0, left_secs))} are left for that: allow more"
            )
        self.costs = profile_costs(
            self.directory,
            self.request,
            self.header,
            self.stages.begin,
            make_problem=functools.partial(
                measurer.make_problem, timeout_secs=max(_SHORTEST_TIMEOUT_SECS, left_secs)
            ),
            trials=log.trials,
        )

    def _profile_secs(self, trials: Sequence[Trial]) -> float:
        known = known_links(self.request.machine, self.session_config) is not None
        return self.plan.profile_secs(trials, links_known=known)

    def _placer(self, name: str, log: TrialLog) -> Placer:
        setup, clusters = self._setup(name)
        placer = setup.make_placer()
        if clusters is not None:
            return LiftedPlacer(placer, self.grouped.group_graph, self.legal, clusters)
        # It begins with what the baselines have taught.
        before = () if name in BASELINES else BASELINES
        known = [trial for trial in log.trials if trial.placer in before]
        rows = [trial.assignment for trial in known]
        placer.prepare(
            np.array(rows, np.int32).reshape(len(rows), self.grouped.group_graph.num_groups),
            [trial.measurement for trial in known],
            lambda: self._left_to_search_secs(log.trials),
        )
        return placer

    def _setup(self, name: str) -> tuple[PlacerSetup, np.ndarray | None]:
        """Says what a placer is made of.

        Returns:
            That, and of one that places coarse groups, which of them each group is in.
        """
        coarse = self.grouped.coarse
        options = self.request.placer_options if name == self.request.placer else {}
        source = start_source(name, options)
        if coarse is not None and granularity_of(name, options) == "coarse":
            # One kind of groups for all stages, so that each can take over what another measured.
            devices = tuple(device.name for device in self.request.machine.devices)
            coarse_legal = coarse.grouping.legal_devices(coarse.colocation, devices)
            setup = PlacerSetup(
                name,
                coarse.group_graph,
                coarse_legal,
                self.request.seed,
                options,
                start=None if source is None else self._start(source, coarse),
            )
            assert self.grouped.clusters is not None
            return setup, self.grouped.clusters
        setup = PlacerSetup(
            name,
            self.grouped.group_graph,
            self.legal,
            self.request.seed,
            options,
            problem=None if self.costs is None else self.costs.problem,
            start=None if source is None else self._start(source, self.grouped),
        )
        return setup, None

    def _controllers(self, name: str, training: TrainingLog) -> ConcurrentPlacer:
        """Starts the controllers of a placer that learns, beside this process."""
        assert self.request.workers is not None
        setup, clusters = self._setup(name)

        def lift(placements: np.ndarray) -> np.ndarray:
            return placements if clusters is None else placements[:, clusters]

        self.stages.say(f"starting {self.request.workers.controllers} controllers")
        controllers = self.controllers_by(
            self.request.workers,
            setup,
            directory=self.directory.path,
            updates=training.updates,
            lift=lift,
            say=self.stages.say,
        )
        return self.stack.enter_context(controllers)

    def _start(self, source: str, grouped: GroupedGraph) -> np.ndarray:
        """Finds the placement of groups that a policy starts from, int32 [num_groups].

        Raises:
            GraphError, OSError: there is no such placement, or it is not for this machine.
        """
        devices, asked = self.request.machine.devices, None
        if source != ORIGINAL_START:
            asked = asked_devices(
                grouped.op_graph, grouped.colocation, read_placement(source), devices
            )
        return nearest_assignment(grouped.grouping, grouped.colocation, devices, asked)

    def _environment(self, *, meta_optimizer: bool) -> SessionEnvironment:
        shared = {} if self.hosted is None else {"processes": self.hosted}
        return self.environment_type(
            self.directory.graph,
            self.request.step,
            self.request.machine,
            self._assign,
            protocol=COLOCRL,
            session_config=self.session_config,
            meta_optimizer=meta_optimizer,
            work_dir=self.directory.work,
            timeout_secs=self._first_timeout_secs(),
            report=self.stages.say,
            **shared,
        )

    def _confirming(self) -> SessionEnvironment | RemoteSessions:
        """Makes what a confirmation runs in."""
        if self.crew is None:
            return self._environment(meta_optimizer=True)
        return self.crew.sessions(self._first_timeout_secs())

    def _assign(self, row: np.ndarray) -> dict[str, str]:
        devices = tuple(device.name for device in self.request.machine.devices)
        return self.grouped.assignment(row, devices)

    def _assignment(self, trial: Trial) -> dict[str, str]:
        """Finds the devices of a trial by operation."""
        if trial.assignment is None:
            return {}
        return self._assign(np.array(trial.assignment, np.int32))

    # Time.

    def _first_timeout_secs(self) -> float:
        max_secs = self.request.max_secs
        return min(max(_TIMEOUT_SECS, max_secs / 4), max(max_secs, _SHORTEST_TIMEOUT_SECS))

    def _timeout_secs(self, trials: Sequence[Trial]) -> float:
        """Computes how long the next trial may take."""
        secs = self._first_timeout_secs()
        if not trials or trials[0].measurement.step_secs is None:
            return secs
        original_secs = trials[0].measurement.total_secs
        left_secs = max(
            self._left_to_search_secs(trials),
            _LAST_TIMEOUT_RATIO * original_secs,
            _SHORTEST_TIMEOUT_SECS,
        )
        return min(secs, max(_LEAST_TIMEOUT_SECS, _TIMEOUT_RATIO * original_secs), left_secs)

    def _left_to_search_secs(self, trials: Sequence[Trial]) -> float:
        return self.plan.left_to_search_secs(trials, choose_finalists(trials, BASELINES))

    def _is_over(self, trials: Sequence[Trial]) -> bool:
        if self.interrupts.count:
            return True
        return bool(trials) and self._left_to_search_secs(trials) <= 0

    # What came out.

    def _write_best(self, trial: Trial) -> None:
        secs = trial.measurement.median_secs
        placement = found_placement(
            self.request, self.header, self._assignment(trial), trial, {"step_secs": secs}
        )
        try:
            write_placement(placement, self.directory.best)
        except OSError as error:
            # The log has the trial.
            self.stages.say(f"the best placement so far is not written: {error_text(error)}")

    def confirm(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial]
    ) -> tuple[Outcome, Confirmation | None, str | None, str | None]:
        """Measures the finalists again, side by side, and writes the one that wins.

        Args:
            trials: of the search.
            finalists: by label, the graph as it came first.

        Returns:
            How it ended, what was measured, the label of what was found, and what else to say.
        """
        while True:
            try:
                return self._confirm_hopeful(trials, finalists)
            except WorkerLostError as error:
                self.stages.say(
                    f"{error}: what it has confirmed does not count, and another begins"
                )

    def _confirm_hopeful(
        self, trials: Sequence[Trial], finalists: Mapping[str, Trial]
    ) -> tuple[Outcome, Confirmation | None, str | None, str | None]:
        """Does what `confirm` says, by one worker if there are workers.

        Raises:
            WorkerLostError: that worker was lost.
        """
        asked_before = self.interrupts.count
        if asked_before:
            self.stages.say("interrupted: confirming the best so far; once more ends this, too")
        hopeful = hopeful_finalists(finalists)
        if len(hopeful) < 2:
            return Outcome.NOT_FASTER, None, None, "no trial was, so none was measured again"
        plan = self.plan.confirmation(trials, hopeful, impatient=asked_before > 0)
        if plan is None:
            return Outcome.NOT_CONFIRMED, None, None, self._too_little_time(trials, hopeful)
        labels = {label: self._assignment(finalists[label]) for label in plan.labels}
        where = "processes" if self.hosted is None else "sessions of the calling process"
        self.others.look()
        stage = f"confirming: {', '.join(plan.labels)} side by side in new {where}"
        if math.isfinite(plan.max_secs):
            stage += f", {format_duration(plan.max_secs)} at most"
        self.stages.begin(stage)
        with self._confirming() as fresh:
            fresh.timeout_secs = min(
                fresh.timeout_secs, max(_LEAST_TIMEOUT_SECS, self._timeout_secs(trials))
            )
            try:
                outcome, confirmation, winner, note = self._confirm(
                    fresh, plan, labels, hopeful, asked_before
                )
            except KeyboardInterrupt:
                return Outcome.INTERRUPTED, None, None, None
        if winner is not None:
            placement = found_placement(
                self.request,
                self.header,
                labels[winner],
                finalists[winner],
                confirmed_measurement(confirmation, winner),
            )
            self.found = placement
            self.keep(self.write_found)
        return outcome, confirmation, winner, note

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

    def cut_short(self, trials: Sequence[Trial]) -> str | None:
        """Says that the time was over before the placer began; None where it was not."""
        request = self.request
        had_its_turn = request.placer in self.begun or any(
            trial.placer == request.placer for trial in trials
        )
        if had_its_turn or self.notes or len(trials) >= request.max_trials:
            return None
        return (
            f"{request.max_secs:g} s were over after {len(trials)} trials, before placer "
            f"{request.placer!r} began: allow more"
        )

    def _confirm(
        self,
        fresh: SessionEnvironment | RemoteSessions,
        plan: ConfirmationPlan,
        labels: Mapping[str, Mapping[str, str]],
        finalists: Mapping[str, Trial],
        asked_before: int,
    ) -> tuple[Outcome, Confirmation, str | None, str | None]:
        """Confirms finalists until one wins, or none can."""
        original = finalists[ORIGINAL].measurement
        original_secs = original.median_secs
        hints = {
            label: math.log(original_secs / secs)
            for label, secs in ((each, finalists[each].measurement.median_secs) for each in labels)
            if original_secs and secs and label != ORIGINAL
        }
        start_secs, request_secs = time.monotonic(), fresh.timeout_secs
        candidates, notes = dict(labels), []
        while True:
            fresh.timeout_secs = request_secs
            with self.interrupts.breakable(asked_before + 1 if asked_before else 2):
                confirmation = confirm(
                    fresh,
                    candidates,
                    ORIGINAL,
                    hints=hints,
                    reference_failure=original.failure,
                    max_secs=plan.max_secs - (time.monotonic() - start_secs),
                    most_rounds=plan.most_rounds,
                    report=self._confirming_line,
                    should_stop=lambda: self.interrupts.count > asked_before,
                    seed=self.request.seed,
                )
            fresh.timeout_secs = self._first_timeout_secs()
            with self.interrupts.breakable(self.interrupts.count + 1):
                outcome, winner, note = choose_winner(
                    fresh,
                    confirmation,
                    candidates,
                    tensors=comparable_tensors(self.grouped.op_graph, self.grouped.colocation),
                    mixed_devices=len({d.type for d in self.request.machine.devices}) > 1,
                )
            notes += [note] if note else []
            if outcome is not Outcome.DIFFERENT_VALUES or self.interrupts.count > asked_before:
                break
            # Another one may compute the same.
            others = {
                label: each for label, each in candidates.items() if label != confirmation.best
            }
            left_secs = plan.max_secs - (time.monotonic() - start_secs)
            if len(others) < 2 or left_secs <= 0:
                break
            candidates = others
        return outcome, confirmation, winner, "; ".join(notes) or None

    def _confirming_line(self, line: str) -> None:
        self.stages.say(f"confirming: {line}")
        self.others.look()

    def _say_what_is_needed(self, trials: Sequence[Trial]) -> None:
        """Says how long all takes, as soon as that is known, if it is longer than it may take."""
        [original] = trials
        if original.measurement.median_secs is None:
            return
        parts = {"until now": self.plan.used_secs()}
        if needs_problem(self.request.placer) and self.costs is None:
            parts["profiling"] = self._profile_secs(trials)
        # As if a placement were as fast as this.
        parts["confirming"] = self.plan.needed_secs(trials, {ORIGINAL: original, "": original})
        needed_secs = sum(parts.values())
        if needed_secs > self.request.max_secs:
            each = ", ".join(f"{name} {format_duration(secs)}" for name, secs in parts.items())
            self.stages.say(
                f"{self.request.max_secs:g} s are little: about {format_duration(needed_secs)} are "
                f"needed for this graph, and time to search ({each}). What there is no time for is "
                "left out"
            )

    def _warn_of_too_little_time(self, trials: Sequence[Trial]) -> None:
        """Says early that nothing can be confirmed, which is what somebody waits for."""
        finalists = choose_finalists(trials, BASELINES)
        if len(finalists) > 1 and not self.plan.can_confirm(trials, finalists):
            needed_secs = self.plan.needed_secs(trials, finalists)
            self.stages.say(
                f"{self.request.max_secs:g} s are too short to confirm anything: to measure the "
                f"graph as it came and the fastest placement again takes about "
                f"{format_duration(needed_secs)} here. The search takes all the time; with more, "
                "it goes on from where it ends"
            )

    def _too_little_time(self, trials: Sequence[Trial], finalists: Mapping[str, Trial]) -> str:
        """Says why nothing was confirmed, and how much time would do."""
        needed_secs = self.plan.needed_secs(trials, finalists)
        enough_secs = math.ceil(self.request.max_secs + needed_secs)
        return (
            f"there was no time left of {self.request.max_secs:g} s to measure the graph as it "
            f"came and the fastest placement again, which takes about "
            f"{format_duration(needed_secs)} here: allow {enough_secs} s"
        )


def _median_secs(trial: Trial | None) -> float | None:
    return None if trial is None else trial.measurement.median_secs


def run(
    request_directory: RunDirectory,
    directory: RunDirectory,
    report: Callable[[str], None],
    environment_type: Callable[..., SessionEnvironment] = SessionEnvironment,
    *,
    start_secs: float | None = None,
    interrupts: Interrupts | None = None,
    host: int | None = None,
    fleet: FleetMaker = ray_fleet,
    controllers: ControllersMaker = ray_controllers,
) -> Outcome:
    """Searches, confirms and writes what came out.

    Args:
        request_directory: where the request is.
        directory: where everything goes, the request included. Nothing is written to it before it
            is certain that no other search has it.
        report: called with a line of text for people whenever there is something to say.
        environment_type: makes the environments that measure.
        start_secs: when the time of the request began, by `time.monotonic`; now when None.
        interrupts: requests to end early. One ends the search and lets a short confirmation follow,
            the next breaks that off.
        host: file descriptor of a `WorkerHost` that runs all sessions; None for processes of their
            own.
        fleet: connects to the machines of workers, if the request is for some.
        controllers: starts controllers, if the request is for several.

    Returns:
        How it ended.

    Raises:
        GraphError, GraphDoesNotRunError, ImportError, LogError, SearchError, WorkerStartError,
            ValueError: the request cannot be met; the message says why.
    """
    start_secs = time.monotonic() if start_secs is None else start_secs
    with Stages(report) as stages:
        return _run(
            request_directory,
            directory,
            stages,
            environment_type,
            start_secs,
            interrupts or Interrupts(),
            host,
            fleet,
            controllers,
        )


def _run(
    request_directory: RunDirectory,
    directory: RunDirectory,
    stages: Stages,
    environment_type: Callable[..., SessionEnvironment],
    start_secs: float,
    interrupts: Interrupts,
    host: int | None,
    fleet: FleetMaker,
    controllers: ControllersMaker,
) -> Outcome:
    stages.enter("reading the graph")
    request, config_bytes = request_directory.read_request()
    session_config = tf.compat.v1.ConfigProto.FromString(config_bytes)
    graph_def = tf.compat.v1.GraphDef.FromString(request_directory.graph.read_bytes())
    granularity = granularity_of(request.placer, request.placer_options)
    op_graph = OpGraph.from_graph_def(graph_def, request.step.fetches, request.step.feeds)
    grouped = group_operations(op_graph, granularity)
    if grouped.num_decisions == 0:
        return Outcome.NOTHING_TO_PLACE
    devices = tuple(device.name for device in request.machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    header = live_header(request, grouped, granularity, legal, session_config)
    costs, note_on_costs = read_costs(directory, header)
    if needs_problem(request.placer) or costs is not None:
        header = with_costs(header)
    place = SearchPlace(directory, request, graph_def.SerializeToString(), config_bytes, stages.say)
    with TrialLog(directory.trials, header, place.of_log) as log:
        # A search that was killed has left its files there.
        shutil.rmtree(directory.work, ignore_errors=True)
        remove_what_is_left(directory.path)
        try:
            old = directory.read_result()
        except ValueError as error:
            raise ValueError(f"{error}; without the file the search goes on from its log") from None
        directory.take_request(request_directory)
        if old is not None and old.answers(request.max_trials, request.max_secs, len(log.trials)):
            stages.say("the log is complete and its result is known: nothing to measure again")
            return old.outcome
        plan = TimePlan(request.max_secs, start_secs, log.trials, BASELINES)
        stages.how_far = plan.how_far
        hosted = None
        if host is not None:
            hosted = LiveProcesses(request.machine, directory.path, host, report=stages.say)
        crew = None
        if request.workers is not None:
            crew = Crew(
                request.workers, request, request_directory, directory, header, stages.say, fleet
            )
        is_here = request.workers is None or request.workers.are_here
        others = OtherSearches(directory.path, stages.say, is_here=is_here)
        job = LiveJob(
            request=request,
            directory=directory,
            grouped=grouped,
            legal=legal,
            header=header,
            session_config=session_config,
            environment_type=environment_type,
            plan=plan,
            interrupts=interrupts,
            stages=stages,
            costs=costs,
            others=others,
            hosted=hosted,
            crew=crew,
            controllers_by=controllers,
            move=lambda error: log.move(place.of_log(error)),
        )
        stages.say(f"searching; the log is in {directory.path}")
        for line in _size_lines(request, grouped):
            stages.say(line)
        if note_on_costs is not None:
            stages.say(note_on_costs)
        try:
            with others:
                return _finish(job, log, request_digest(request, graph_def, session_config))
        finally:
            if hosted is not None:
                hosted.close()
            if crew is not None:
                crew.close()
            shutil.rmtree(directory.work, ignore_errors=True)


def _finish(job: LiveJob, log: TrialLog, digest: str) -> Outcome:
    """Searches and concludes; goes on in another place where somebody deletes the directory.

    Raises:
        OSError: there is no other place, or it is not the directory that lacks files.
    """
    while True:
        place = job.directory.path
        try:
            return _conclude(job, job.search(log), digest)
        except OSError as error:
            # Its sessions have files there. The log may have missed it first, and be elsewhere.
            if job.directory.path == place:
                if not log.trials or job.directory.trials.exists():
                    raise
                job.move(error)
            if job.crew is not None:
                raise  # Its workers have the request of the old place: the same call goes on.
            job.stages.say("its processes are started there anew")


def _conclude(job: LiveJob, trials: Sequence[Trial], digest: str) -> Outcome:
    """Confirms what a search found, explains it, and writes how the search ended."""
    request, interrupts = job.request, job.interrupts
    was_interrupted = interrupts.count > 0
    finalists = choose_finalists(trials, BASELINES)
    confirmation, winner, note = None, None, None
    if finalists:
        outcome, confirmation, winner, note = job.confirm(trials, finalists)
        if outcome in (Outcome.FASTER, Outcome.NOT_FASTER) and not was_interrupted:
            note = "; ".join(text for text in (note, job.cut_short(trials)) if text) or None
        note = "; ".join(text for text in (note, job.others.note) if text) or None
    elif was_interrupted:
        outcome = Outcome.INTERRUPTED
    else:
        outcome, note = outcome_without_finalists(trials, request.max_trials, request.max_secs)
        if outcome is Outcome.NOTHING_RUNS:
            note = "; ".join(text for text in (note, job.cut_short(trials)) if text)
    explanation = None
    job.stages.enter("explaining the result")
    if job.costs is not None and finalists and interrupts.count < 2:
        with contextlib.suppress(KeyboardInterrupt), interrupts.breakable(interrupts.count + 1):
            explanation = explain_trials(
                job.costs.problem,
                job.grouped.group_graph,
                trials,
                finalists,
                winner,
                search_secs=job.plan.explain_secs,
                seed=request.seed,
            )

    def write() -> None:
        job.write_found()
        original = given_assignment(job.grouped, request.machine.devices)
        job.directory.write_result(
            RunResult(
                outcome=outcome,
                num_trials=len(trials),
                max_trials=request.max_trials,
                max_secs=request.max_secs if math.isfinite(request.max_secs) else None,
                winner=winner,
                note="; ".join(text for text in (*job.notes, note) if text) or None,
                confirmation=confirmation,
                finalists={label: trial.index for label, trial in finalists.items()},
                explanation=None if explanation is None else explanation.to_json(),
                original_assignment=None if original is None else tuple(original),
                # Else the same call goes on.
                is_complete=not interrupts.count and not job.notes,
                request_digest=digest,
            )
        )

    job.keep(write)
    return outcome


def _size_lines(request: Request, grouped: GroupedGraph) -> list[str]:
    """Says how large a search is, as lines for people."""
    needed = grouped.op_graph.needed
    num_devices = len(request.machine.devices)
    coarse = grouped.coarse or grouped
    lines = [
        f"{grouped.op_graph.num_operations} operations, {needed.sum()} in a step, "
        f"{len(np.unique(grouped.colocation.group[needed]))} colocation groups in "
        f"{coarse.grouping.num_groups} groups, to place on {num_devices} devices of "
        f"{request.machine.spec}"
    ]
    if coarse.num_decisions < 4 * num_devices:
        lines.append(f"only {coarse.num_decisions} groups can be placed: there is little to choose")
    races = grouped.colocation.races
    if races:
        names, race = grouped.op_graph.names, races[0]
        more = f", and there are {len(races) - 1} more such reads" if len(races) > 1 else ""
        lines.append(
            f"{names[race.reader]!r} reads the variable {names[race.variable]!r} in no order with "
            f"{names[race.writer]!r}, which writes it: its value is a matter of chance{more}"
        )
    return lines
