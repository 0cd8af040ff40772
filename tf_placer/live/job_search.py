"""The search of a live job: the graph as it came, the baselines, and what the placer proposes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from graph_passes.pipeline import GroupedGraph
from graph_passes.placement import read_placement, write_placement
from tf_placer.costs.given_placement import asked_devices, nearest_assignment
from tf_placer.costs.known_links import known_links
from tf_placer.environments.session import WorkerStartError
from tf_placer.errors import SearchError, error_text
from tf_placer.inputs.sources import Source
from tf_placer.live.costs import profile_costs
from tf_placer.live.job import SHORTEST_TIMEOUT_SECS, LiveJob
from tf_placer.live.measurer import Measurer, OwnProcesses
from tf_placer.placers import (
    BASELINES,
    ORIGINAL_START,
    granularity_of,
    needs_problem,
    start_source,
)
from tf_placer.placers.lifted import LiftedPlacer
from tf_placer.placers.placer import Placer
from tf_placer.report.controllers_table import staleness_line
from tf_placer.report.progress import progress_line
from tf_placer.runs.search_result import (
    found_placement,
)
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.tallies import num_workers
from tf_placer.search.driver import Stage, drive
from tf_placer.search.proposals import proposed
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import ORIGINAL, Trial, TrialLog, best_trial
from tf_placer.text.units import format_duration

__all__ = ["ControllersMaker", "search_job"]

#: Starts controllers: takes workers, what they train, and options of `Controllers`.
ControllersMaker = Callable[..., contextlib.AbstractContextManager[ConcurrentPlacer]]


def search_job(job: LiveJob, log: TrialLog, controllers: ControllersMaker) -> list[Trial]:
    """Measures the graph as it came, the baselines, and what the placer proposes.

    Args:
        job: what is searched, and with what. It is told which placers had their turn, and what its
            result should say.
        log: of this search, new or to go on with.
        controllers: starts controllers, if the request is for several.

    Returns:
        All trials.

    Raises:
        GraphDoesNotRunError: the graph does not run as it came.
        LogError: the training log is not of this search.
        OSError: a file cannot be written.
        WorkerStartError: nothing can be measured.
    """
    with (
        TrainingLog(job.directory.path, job.header) as training,
        _measurer(job, log) as measurer,
        contextlib.ExitStack() as stack,
    ):
        return _JobSearch(job, log, training, measurer, controllers, stack).run()


class _JobSearch:
    def __init__(
        self,
        job: LiveJob,
        log: TrialLog,
        training: TrainingLog,
        measurer: Measurer,
        controllers: ControllersMaker,
        stack: contextlib.ExitStack,
    ) -> None:
        self._job, self._log, self._training, self._measurer = job, log, training, measurer
        self._request, self._grouped = job.request, job.grouped
        self._plan, self._stages = job.plan, job.stages
        # What starts controllers, and what ends them.
        self._controllers_by, self._stack = controllers, stack
        self._stage_start_secs = 0.0

    def run(self) -> list[Trial]:
        if not self._log.trials:
            self._training.restart()
        names = dict.fromkeys([*BASELINES, self._request.placer])
        stages = [Stage(name, functools.partial(self._made, name)) for name in names]
        recorder = TrainingRecorder(self._training, self._job.directory.path, self._stages.say)
        best = best_trial(self._log.trials)
        if best is not None and best.assignment is not None:
            # A kill, or a disk that was full, may have left an older one.
            self._write_best(best)
        begin_secs = self._plan.used_secs()
        if not self._log.trials:
            self._stages.enter("starting processes and measuring the graph as it came")

        def on_trial(trial: Trial, progress: Progress) -> None:
            if progress.best is trial and trial.assignment is not None:
                self._write_best(trial)
            now = self._with_all_that_counts(progress)
            self._stages.say(progress_line(trial, now))
            self._measurer.on_trial(trial, now)
            self._job.others.look()
            self._stages.enter("measuring placements")
            if len(self._log.trials) == 1:
                self._say_what_is_needed()
            if len(self._log.trials) == 2:
                self._warn_of_too_little_time()

        drive(
            stages,
            self._measurer.runner,
            self._log,
            Budget(self._request.max_trials, self._request.max_secs),
            original=self._measurer.measure_original,
            ask=self._ask,
            report=on_trial,
            observed=recorder.observed,
            should_stop=self._is_over,
        )
        recorder.finish()
        trials = list(self._log.trials)
        if not trials and not self._job.interrupts.count:
            self._job.notes.append(self._why_nothing(begin_secs))
        if line := staleness_line(self._training.updates):
            self._stages.say(line)
        return trials

    def _with_all_that_counts(self, progress: Progress) -> Progress:
        """Adds to the time of a search what the budget counts: its start and the confirmation."""
        left_secs = max(0.0, self._plan.left_secs())
        to_search_secs = min(max(0.0, self._job.left_to_search_secs(self._log.trials)), left_secs)
        rest_secs = left_secs - to_search_secs
        return dataclasses.replace(
            progress,
            elapsed_secs=self._plan.used_secs(),
            eta_secs=min(progress.eta_secs, to_search_secs) + rest_secs,
        )

    def _made(self, name: str) -> Placer | ConcurrentPlacer | None:
        """Makes the placer of a stage; None if that fails, or somebody did not want to wait."""
        try:
            self._stage_start_secs = self._plan.used_secs()
            with self._breakable():
                if name == self._request.placer and needs_problem(name) and self._job.costs is None:
                    self._profile(name)
                placer: Placer | ConcurrentPlacer
                if name == self._request.placer and self._has_controllers():
                    placer = self._controllers(name)
                else:
                    placer = self._placer(name)
            self._job.begun.add(name)
            return placer
        except (SearchError, WorkerStartError) as error:
            # What was measured so far stands.
            self._job.notes.append(str(error))
            self._stages.say(str(error))
        except KeyboardInterrupt:
            pass  # The search asks why, and ends.
        return None

    def _ask(self, placer: Placer, count: int) -> np.ndarray:
        """Asks a placer for placements.

        There are none if somebody did not want to wait for it, or for a baseline that has had its
        share of the time.
        """
        if placer.name in BASELINES and placer.name != self._request.placer:
            left_secs = self._job.left_to_search_secs(self._log.trials)
            if self._plan.had_baseline_share(self._stage_start_secs, left_secs):
                return np.zeros([0, self._grouped.group_graph.num_groups], np.int32)
        try:
            self._stages.enter("choosing what to measure next")
            with self._breakable():
                placements = proposed(placer, count)
            self._stages.enter("measuring placements")
            return placements
        except KeyboardInterrupt:
            return np.zeros([0, self._grouped.group_graph.num_groups], np.int32)

    def _profile(self, name: str) -> None:
        """Finds out what the operations cost.

        Raises:
            SearchError, WorkerStartError: that is not possible.
        """
        left_secs = self._job.left_to_search_secs(self._log.trials)
        # Usual links do where there is no time to measure them.
        needed_secs = self._plan.profile_secs(self._log.trials, links_known=True)
        if left_secs <= needed_secs:
            raise SearchError(
                f"placer {name!r} needs to know what the operations cost: to profile the graph "
                f"takes about {format_duration(needed_secs)}, and of {self._request.max_secs:g} s "
                f"{format_duration(max(0.0, left_secs))} are left for that: allow more"
            )
        self._job.costs = profile_costs(
            self._job.directory,
            self._request,
            self._job.header,
            self._stages.begin,
            make_problem=functools.partial(
                self._measurer.make_problem, timeout_secs=max(SHORTEST_TIMEOUT_SECS, left_secs)
            ),
            trials=self._log.trials,
        )

    def _profile_secs(self) -> float:
        known = known_links(self._request.machine, self._job.session_config) is not None
        return self._plan.profile_secs(self._log.trials, links_known=known)

    def _placer(self, name: str) -> Placer:
        setup, clusters = self._setup(name)
        placer = setup.make_placer()
        if clusters is not None:
            return LiftedPlacer(placer, self._grouped.group_graph, self._job.legal, clusters)
        # It begins with what the baselines have taught.
        before = () if name in BASELINES else BASELINES
        known = [trial for trial in self._log.trials if trial.placer in before]
        rows = [trial.assignment for trial in known]
        placer.prepare(
            np.array(rows, np.int32).reshape(len(rows), self._grouped.group_graph.num_groups),
            [trial.measurement for trial in known],
            lambda: self._job.left_to_search_secs(self._log.trials),
        )
        return placer

    def _setup(self, name: str) -> tuple[PlacerSetup, np.ndarray | None]:
        """Says what a placer is made of.

        Returns:
            That, and of one that places coarse groups, which of them each group is in.
        """
        coarse = self._grouped.coarse
        options = self._request.placer_options if name == self._request.placer else {}
        source = start_source(name, options)
        if coarse is not None and granularity_of(name, options) == "coarse":
            # One kind of groups for all stages, so that each can take over what another measured.
            devices = tuple(device.name for device in self._request.machine.devices)
            coarse_legal = coarse.grouping.legal_devices(coarse.colocation, devices)
            setup = PlacerSetup(
                name,
                coarse.group_graph,
                coarse_legal,
                self._request.seed,
                options,
                start=None if source is None else self._start(source, coarse),
            )
            assert self._grouped.clusters is not None
            return setup, self._grouped.clusters
        setup = PlacerSetup(
            name,
            self._grouped.group_graph,
            self._job.legal,
            self._request.seed,
            options,
            problem=None if self._job.costs is None else self._job.costs.problem,
            start=None if source is None else self._start(source, self._grouped),
        )
        return setup, None

    def _controllers(self, name: str) -> ConcurrentPlacer:
        """Starts the controllers of a placer that learns, beside this process."""
        assert self._request.workers is not None
        setup, clusters = self._setup(name)

        def lift(placements: np.ndarray) -> np.ndarray:
            return placements if clusters is None else placements[:, clusters]

        self._stages.say(f"starting {self._request.workers.controllers} controllers")
        controllers = self._controllers_by(
            self._request.workers,
            setup,
            directory=self._job.directory.path,
            updates=self._training.updates,
            lift=lift,
            say=self._stages.say,
        )
        return self._stack.enter_context(controllers)

    def _start(self, source: str, grouped: GroupedGraph) -> np.ndarray:
        """Finds the placement of groups that a policy starts from, int32 [num_groups].

        Raises:
            GraphError, OSError: there is no such placement, or it is not for this machine.
        """
        devices, asked = self._request.machine.devices, None
        if source != ORIGINAL_START:
            asked = asked_devices(
                grouped.op_graph, grouped.colocation, read_placement(source), devices
            )
        return nearest_assignment(grouped.grouping, grouped.colocation, devices, asked)

    def _has_controllers(self) -> bool:
        return self._request.workers is not None and self._request.workers.controllers > 1

    def _is_over(self) -> bool:
        if self._job.interrupts.count:
            return True
        return self._left_secs() <= 0

    def _left_secs(self) -> float:
        return self._job.left_to_measure_secs(self._log.trials)

    def _breakable(self) -> contextlib.AbstractContextManager[None]:
        """Lets its body be broken off by requests to end, and when the time to search is over."""
        return self._job.interrupts.breakable(max_secs=self._left_secs())

    # What people are told.

    def _write_best(self, trial: Trial) -> None:
        secs = trial.measurement.median_secs
        placement = found_placement(
            self._request, self._job.header, self._job.assignment(trial), trial, {"step_secs": secs}
        )
        try:
            write_placement(placement, self._job.directory.best)
        except OSError as error:
            # The log has the trial.
            self._stages.say(f"the best placement so far is not written: {error_text(error)}")

    def _say_what_is_needed(self) -> None:
        """Says how long all takes, as soon as that is known, if it is longer than it may take."""
        [original] = trials = self._log.trials
        if original.measurement.median_secs is None:
            return
        parts = {"until now": self._plan.used_secs()}
        if needs_problem(self._request.placer) and self._job.costs is None:
            parts["profiling"] = self._profile_secs()
        # As if a placement were as fast as this.
        parts["confirming"] = self._plan.needed_secs(trials, {ORIGINAL: original, "": original})
        needed_secs = sum(parts.values())
        if needed_secs > self._request.max_secs:
            each = ", ".join(f"{name} {format_duration(secs)}" for name, secs in parts.items())
            self._stages.say(
                f"{self._request.max_secs:g} s are little: about {format_duration(needed_secs)} "
                f"are needed for this graph, and time to search ({each}). What there is no time "
                "for is left out"
            )

    def _why_nothing(self, begin_secs: float) -> str:
        """Says what took the time in which not even the graph as it came was measured.

        Args:
            begin_secs: what was used before its processes were started.
        """
        max_secs = self._request.max_secs
        left = format_duration(max(0.0, max_secs - begin_secs))
        return (
            f"of {max_secs:g} s, reading the graph and starting the search took "
            f"{format_duration(begin_secs)}, and starting processes and the first steps of the "
            f"graph as it came take more than the {left} that were left: allow more"
        )

    def _warn_of_too_little_time(self) -> None:
        """Says early that nothing can be confirmed, which is what somebody waits for."""
        trials = self._log.trials
        finalists = self._job.finalists(trials)
        if len(finalists) > 1 and not self._plan.can_confirm(trials, finalists):
            needed_secs = self._plan.needed_secs(trials, finalists)
            self._stages.say(
                f"{self._request.max_secs:g} s are too short to confirm anything: to measure the "
                f"graph as it came and the fastest placement again takes about "
                f"{format_duration(needed_secs)} here. The search takes all the time; with more, "
                "it goes on from where it ends"
            )


def _measurer(job: LiveJob, log: TrialLog) -> contextlib.AbstractContextManager[Measurer]:
    """Makes what measures in the search: by the processes of this computer, or by workers."""
    original = log.trials[0].measurement.median_secs if log.trials else None

    def timeout_secs() -> float:
        return job.timeout_secs(log.trials)

    def best_secs() -> float | None:
        return _median_secs(best_trial(log.trials))

    if job.crew is not None:
        return job.crew.measurer(
            job.assign,
            timeout_secs=timeout_secs,
            best_secs=best_secs,
            reference_secs=original,
            num_before=num_workers(log.trials),
            should_break=lambda: (
                job.interrupts.count > 0 or job.left_to_measure_secs(log.trials) <= 0
            ),
        )
    return OwnProcesses(
        job.environment(meta_optimizer=False),
        job.assign,
        Source(job.grouped.op_graph, job.request.step),
        job.request.machine,
        job.session_config,
        job.directory.path,
        interrupts=job.interrupts,
        timeout_secs=timeout_secs,
        left_secs=lambda: job.left_to_measure_secs(log.trials),
        best_secs=best_secs,
        reference_secs=original,
        report=job.stages.say,
    )


def _median_secs(trial: Trial | None) -> float | None:
    return None if trial is None else trial.measurement.median_secs
