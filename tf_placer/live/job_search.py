"""The trials of a live search: the original, the baselines, and the placer's proposals."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable

import numpy as np

from graph_passes.pipeline import GroupedGraph
from graph_passes.placement import Placement, read_placement, write_placement
from tf_placer.costs.costed_graph import estimate_costs
from tf_placer.costs.link_cache import find_links
from tf_placer.costs.original_devices import (
    find_nearest_assignment,
    find_original_assignment,
    find_requested_devices,
)
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.session import WorkerStartError
from tf_placer.errors import SearchError, describe_error
from tf_placer.inputs.given_devices import describe_immovable_step
from tf_placer.interrupts import TimeLimitReached
from tf_placer.live.context import Measurer, SearchContext
from tf_placer.live.costs import estimate_bound, profile_costs
from tf_placer.live.equal_devices import find_distinct, find_equal_devices
from tf_placer.live.time_plan import SHORTEST_TIMEOUT_SECS
from tf_placer.placers import (
    BASELINES,
    GIVEN,
    ORIGINAL_START,
    find_granularity,
    find_placer,
    find_start_source,
    needs_problem,
)
from tf_placer.placers.coarse_to_fine_placer import CoarseToFinePlacer
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.controllers_table import staleness_line
from tf_placer.report.memory_use import find_unfitting
from tf_placer.runs.search_result import build_placement
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.callbacks import report_trial
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.workers import Workers
from tf_placer.search.driver import SearchStage, drive
from tf_placer.search.proposals import propose_checked
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import Trial, best_trial
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_duration

__all__ = ["FIRST_STAGES", "ControllersMaker", "search_job"]

_EARLIER_ANSWER = "earlier_answer"
# The share of operations on devices of the graph that matters where the original needs memory.
_PINNED_SHARE_TO_REPORT = 0.5
#: The stages before the placer. The first tries the placement of a similar step, if one was kept,
#: and the second that of the user, if `auto` has one.
FIRST_STAGES = (_EARLIER_ANSWER, GIVEN, *BASELINES)

#: Starts controllers from workers, a `PlacerSetup`, and options of `Controllers`.
ControllersMaker = Callable[..., contextlib.AbstractContextManager[ConcurrentPlacer]]


def search_job(context: SearchContext, controllers: ControllersMaker) -> list[Trial]:
    """Measures the original, the baselines, and the proposals of the placer.

    Args:
        context: the search; gets the names of placers that have begun, and notes for the result.
        controllers: starts controllers, if there are several.

    Returns:
        All trials.

    Raises:
        GraphDoesNotRunError: the original graph does not run.
        LogError: the training log belongs to another search.
        OSError: a file cannot be written.
        WorkerStartError: nothing can be measured.
    """
    config, log = context.config, context.log
    with (
        TrainingLog(context.directory.path, context.header) as training,
        context.measurers.for_search(context) as measurer,
        contextlib.ExitStack() as stack,
    ):
        if not log.trials:
            training.restart()
        stages = _Stages(context, training, measurer, controllers, stack)
        reporter = _Reporter(context, measurer)
        recorder = TrainingRecorder(training, context.directory.path, context.stages.say)
        reporter.begin()
        begin_secs = context.plan.compute_used_secs()
        drive(
            stages.all(),
            measurer.runner,
            log,
            Budget(config.max_trials, config.max_secs),
            original=measurer.measure_original,
            propose=stages.ask,
            report=reporter.on_trial,
            observed=recorder.record,
            should_stop=lambda: (
                context.is_over() or reporter.is_near_bound() or context.has_found_fit()
            ),
        )
        recorder.finish()
        if context.has_found_fit() and len(log.trials) > 1:
            context.stages.say("a placement runs, and objective 'fit' asks for no more")
        if reporter.is_near_bound():
            context.stages.say(
                "the best step is as near to the lower bound as stop_at_gap asks for"
            )
        trials = list(log.trials)
        if not trials and not context.interrupts.count:
            context.notes.append(_explain_no_trial(config.max_secs, begin_secs))
        if line := staleness_line(training.updates):
            context.stages.say(line)
        return trials


# An upper bound: a baseline has a few per device.
_MAX_BASELINE_PROPOSALS = 1000


class _OutOfTimeError(SearchError):
    """The error for a graph that cannot be profiled in the time of its search."""


class _Stages:
    """The stages of a search: makes each placer when its stage begins, and gets its proposals."""

    def __init__(
        self,
        context: SearchContext,
        training: TrainingLog,
        measurer: Measurer,
        controllers: ControllersMaker,
        stack: contextlib.ExitStack,
    ) -> None:
        self._context, self._training, self._measurer = context, training, measurer
        self._config, self._grouped = context.config, context.grouped
        self._workers = context.config.wanted_workers
        # The stack ends the controllers.
        self._controllers_by, self._stack = controllers, stack
        self._start_secs = 0.0
        self._source = find_start_source(self._config.placer, self._config.placer_options)

    def all(self) -> list[SearchStage]:
        """Lists the baselines and the placer.

        For a placement that fits, a placer that knows the memory of a step comes before the
        baselines: running out of memory takes long.
        """
        has_start = find_placer(self._config.placer).takes_start and self._source is not None
        first = [name for name in FIRST_STAGES if name != GIVEN or has_start]
        names = dict.fromkeys([*first, self._config.placer])
        if find_placer(self._config.placer).needs_start:
            names = dict.fromkeys(
                [self._config.placer]
            )  # The user asks about this placement alone.
        if self._config.is_fit and needs_problem(self._config.placer):
            known = [name for name in first if name not in BASELINES]
            names = dict.fromkeys([*known, self._config.placer, *BASELINES])
        return [
            SearchStage(name, functools.partial(self._make_stage_placer, name)) for name in names
        ]

    def _make_stage_placer(self, name: str) -> Placer | ConcurrentPlacer | None:
        """Makes the placer of a stage; None if that fails or is canceled."""
        try:
            self._start_secs = self._context.plan.compute_used_secs()
            is_asked = name == self._config.placer
            if is_asked and needs_problem(name) and self._context.costs is None:
                self._profile(name)
            with self._context.interruptible():
                placer: Placer | ConcurrentPlacer | None
                if name == _EARLIER_ANSWER:
                    placer = self._repeat_earlier_answer()
                elif is_asked and self._workers is not None and self._workers.controllers > 1:
                    placer = self._controllers(name, self._workers)
                else:
                    placer = self._placer(name)
            self._context.begun.add(name)
            return placer
        except (SearchError, WorkerStartError) as error:
            # Keep the trials so far, and conclude the search with them.
            self._context.notes.append(str(error))
            if isinstance(error, _OutOfTimeError):
                self._context.lack_of_time = str(error)
            self._context.stages.say(str(error))
        except KeyboardInterrupt:
            pass  # The driver checks whether the search is over, and ends it.
        return None

    def ask(self, placer: Placer, count: int) -> np.ndarray:
        """Gets placements from a placer.

        There are none if the request is canceled, or for a baseline that has used its share of the
        time.
        """
        if placer.name in FIRST_STAGES and placer.name != self._config.placer:
            left_secs = self._context.compute_search_secs_left()
            if self._context.plan.had_baseline_share(self._start_secs, left_secs):
                return np.zeros([0, self._grouped.group_graph.num_groups], np.int32)
        try:
            self._context.stages.enter("choosing what to measure next")
            with self._context.interruptible():
                placements = propose_checked(placer, count)
            self._context.stages.enter("measuring placements")
            if placer.name == self._config.placer and not len(placements):
                self._context.has_placer_ended = not placer.lacks_time
                self._context.placer_end = f"{placer.name} ended: {placer.explain_end()}"
                self._context.stages.say(self._context.placer_end)
            return placements
        except KeyboardInterrupt:
            return np.zeros([0, self._grouped.group_graph.num_groups], np.int32)

    def _profile(self, name: str) -> None:
        """Profiles the graph.

        Raises:
            KeyboardInterrupt: the search ends.
            SearchError, WorkerStartError: the graph cannot be profiled, or not in the time.
        """
        context, trials = self._context, self._context.log.trials
        needs = f"placer {name!r} needs to know what the operations cost"
        left_secs = context.compute_measuring_secs_left()
        # Assume default links if there is no time to measure them.
        needed_secs = context.plan.profile_secs(trials, links_known=True)
        describes_costs = self._config.found_machine.describes_costs
        if left_secs <= needed_secs and not describes_costs:
            before = " before the confirmation" if context.plan.has_hope(trials) else ""
            raise _OutOfTimeError(
                join_sentences(
                    needs,
                    f"profiling the graph takes about {format_duration(needed_secs)}, and of "
                    f"{self._config.max_secs:g} s {format_duration(max(0.0, left_secs))} are left "
                    f"for it{before}",
                    context.advise_time(),
                )
            )
        if describes_costs:
            # Reading a description takes no steps, so that there is always time for it.
            limit_secs = max(SHORTEST_TIMEOUT_SECS, left_secs)
        else:
            links = find_links(self._config.found_machine, self._config.found_session_config)
            limit_secs = context.plan.limit_profile_secs(trials, links_known=links is not None)
        try:
            with context.interrupts.interruptible(max_secs=limit_secs):
                context.costs = profile_costs(
                    context.directory,
                    self._config,
                    context.header,
                    context.stages.begin,
                    make_problem=functools.partial(
                        self._measurer.make_problem,
                        timeout_secs=max(SHORTEST_TIMEOUT_SECS, limit_secs),
                    ),
                    steps=context.plan.choose_profile_steps(trials),
                    trials=trials,
                    original_assignment=self._find_original(),
                )
        except TimeLimitReached:
            context.given_up_secs = limit_secs
            raise _OutOfTimeError(
                join_sentences(
                    needs,
                    f"profiling the graph was given up after {format_duration(limit_secs)}; about "
                    f"{format_duration(needed_secs)} were expected",
                    context.advise_time(),
                )
            ) from None

    def _placer(self, name: str) -> Placer:
        setup, clusters = self._setup(name)
        placer = setup.make_placer()
        if name in BASELINES and name != self._config.placer:
            placer = self._choose_proposals(placer, clusters)
        if clusters is not None:
            return CoarseToFinePlacer(
                placer, self._grouped.group_graph, self._context.legal, clusters
            )
        # Let the placer begin with the trials of the baselines.
        before = () if name in BASELINES else FIRST_STAGES
        known = [trial for trial in self._context.log.trials if trial.placer in before]
        rows = [trial.assignment for trial in known]
        measurements = [trial.measurement for trial in known]
        if before and (original := self._find_original()) is not None:
            rows.insert(0, tuple(original))
            measurements.insert(0, self._context.log.trials[0].measurement)
        placer.prepare(
            np.array(rows, np.int32).reshape(len(rows), self._grouped.group_graph.num_groups),
            measurements,
            self._context.compute_measuring_secs_left,
        )
        return placer

    def _choose_proposals(self, baseline: Placer, clusters: np.ndarray | None) -> Placer:
        """Leaves out proposals that do not fit by simulation, or are measured already.

        Proposals that differ by an exchange of equal devices are measured once.

        Args:
            baseline: a placer of a fixed list of placements.
            clusters: the coarse group of each group; None for a placer of all groups.
        """
        original = self._find_original()
        known = [] if original is None else [tuple(original)]
        # Earlier stages have ended, so that a resumed search leaves out the same.
        known += [
            trial.assignment
            for trial in self._context.log.trials
            if trial.assignment is not None and trial.placer != baseline.name
        ]
        rows = propose_checked(baseline, _MAX_BASELINE_PROPOSALS)
        expanded = rows if clusters is None else rows[:, clusters]
        machine = self._config.found_machine
        equal = find_equal_devices(machine.devices, self._context.legal, machine.links)
        chosen = find_distinct(expanded, known, equal)
        rows, expanded = rows[chosen], expanded[chosen]
        listed = CandidateList(
            baseline.groups,
            baseline.legal,
            seed=baseline.seed,
            candidates=rows[~self._find_unfitting(baseline.name, expanded)],
        )
        listed.name, listed.batch_size = baseline.name, baseline.batch_size
        return listed

    def _find_unfitting(self, name: str, placements: np.ndarray) -> np.ndarray:
        """Finds the placements of a baseline that need no measurement, because they do not fit.

        There are none where a placement has run that does not fit by the same simulation, none
        without GPUs, and none that the log has.

        Args:
            name: the name of the baseline.
            placements: int32 [num_placements, num_groups].

        Returns:
            bool [num_placements].
        """
        unfitting = np.zeros(len(placements), np.bool_)
        if not any(device.type == "GPU" for device in self._config.found_machine.devices):
            return unfitting
        trials, original = self._context.log.trials, self._find_original()
        # A resumed search has the same earlier stages, and so leaves out the same.
        ran = [
            original if trial.assignment is None else trial.assignment
            for trial in trials
            if trial.measurement.median_secs is not None and trial.placer != name
        ]
        ran = [row for row in ran if row is not None]
        if len(placements) and not (ran and find_unfitting(self._memory, np.array(ran)).any()):
            unfitting = find_unfitting(self._memory, placements)
        logged = {trial.assignment for trial in trials if trial.placer == name}
        unfitting &= np.array([tuple(row) not in logged for row in placements.tolist()], np.bool_)
        if unfitting.any():
            self._context.unfitting[name] = count = int(unfitting.sum())
            self._context.stages.say(
                f"not measured, because by simulation they do not fit: {count} of the "
                f"{len(placements)} placements of {name}"
            )
        return unfitting

    @functools.cached_property
    def _memory(self) -> PlacementProblem:
        """The graph with computed costs, which are there before those of a profile."""
        return estimate_costs(self._grouped, self._config.found_machine).problem()

    def _find_original(self) -> list[int] | None:
        """Finds the device of each group in the original graph; None if it has several."""
        return find_original_assignment(self._grouped, self._config.found_machine.devices)

    def _repeat_earlier_answer(self) -> Placer | None:
        """Makes the placer of a similar step's placement; None if there is none.

        A resumed search repeats the placement in its log, because the store may have changed since.
        """
        grouped, legal = self._grouped, self._context.legal
        logged = [t.assignment for t in self._context.log.trials if t.placer == _EARLIER_ANSWER]
        if logged:
            row = np.array(logged[0], np.int32)
        elif self._context.earlier_answer is not None:
            row = self._find_assignment(grouped, self._context.earlier_answer)
        else:
            return None
        placer = CandidateList(grouped.group_graph, legal, seed=self._config.seed, candidates=[row])
        placer.name = _EARLIER_ANSWER
        return placer

    def _setup(self, name: str) -> tuple[PlacerSetup, np.ndarray | None]:
        """Makes the setup of a placer.

        Returns:
            The setup; and, for a placer of coarse groups, the coarse group of each group.
        """
        coarse = self._grouped.coarse
        options = self._config.placer_options if name == self._config.placer else {}
        if name == GIVEN:
            options = {"start": self._source}
        source = find_start_source(name, options)
        if coarse is not None and find_granularity(name, options) == "coarse":
            # All stages use the same groups, so that they can reuse each other's trials.
            coarse_legal = coarse.grouping.legal_devices(coarse.colocation, self._context.devices)
            setup = PlacerSetup(
                name,
                coarse.group_graph,
                coarse_legal,
                self._config.seed,
                options,
                start=None if source is None else self._start(source, coarse),
            )
            assert self._grouped.clusters is not None
            return setup, self._grouped.clusters
        setup = PlacerSetup(
            name,
            self._grouped.group_graph,
            self._context.legal,
            self._config.seed,
            options,
            problem=None if self._context.costs is None else self._context.costs.problem,
            start=None if source is None else self._start(source, self._grouped),
        )
        return setup, None

    def _controllers(self, name: str, workers: Workers) -> ConcurrentPlacer:
        """Starts the controllers of a learned placer."""
        setup, clusters = self._setup(name)

        def expand(placements: np.ndarray) -> np.ndarray:
            return placements if clusters is None else placements[:, clusters]

        self._context.stages.say(f"starting {workers.controllers} controllers")
        controllers = self._controllers_by(
            workers,
            setup,
            directory=self._context.directory.path,
            updates=self._training.updates,
            expand=expand,
            say=self._context.stages.say,
        )
        return self._stack.enter_context(controllers)

    def _start(self, source: str, grouped: GroupedGraph) -> np.ndarray:
        """Finds the start placement of a policy, int32 [num_groups].

        Raises:
            GraphError, OSError: the placement does not exist, or is for another machine.
        """
        placement = None if source == ORIGINAL_START else read_placement(source)
        return self._find_assignment(grouped, placement)

    def _find_assignment(self, grouped: GroupedGraph, placement: Placement | None) -> np.ndarray:
        """Finds the assignment next to a placement of operations, or to the original.

        Raises:
            GraphError: the placement is for another machine.
        """
        devices, asked = self._config.found_machine.devices, None
        if placement is not None:
            asked = find_requested_devices(grouped.op_graph, grouped.colocation, placement, devices)
        return find_nearest_assignment(grouped.grouping, grouped.colocation, devices, asked)


class _Reporter:
    """Reports a search to users, and writes its fastest placement."""

    def __init__(self, context: SearchContext, measurer: Measurer) -> None:
        self._context, self._measurer = context, measurer
        self._config, self._plan, self._say = context.config, context.plan, context.stages.say
        self._bound_secs: float | None = None
        self._gap: float | None = None
        self._has_warned_of_time = False

    def begin(self) -> None:
        """Reports the first stage."""
        trials = self._context.log.trials
        best = best_trial(trials)
        if best is not None and best.assignment is not None:
            # The file may be outdated after a kill or a full disk.
            self._write_best(best)
        if not trials:
            self._context.stages.enter("starting processes and measuring the original")

    def is_near_bound(self) -> bool:
        """Returns whether the best step is as near to the bound as the user asked for."""
        return (
            self._gap is not None
            and self._config.stop_at_gap is not None
            and self._gap <= self._config.stop_at_gap
        )

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Reports a trial."""
        if self._bound_secs is None and self._context.costs is not None:
            original = find_original_assignment(
                self._context.grouped, self._config.found_machine.devices
            )
            self._bound_secs = estimate_bound(
                self._context.costs, self._context.log.trials, original
            )
        progress = dataclasses.replace(progress, bound_secs=self._bound_secs)
        self._gap = progress.gap
        if progress.best is trial and trial.assignment is not None:
            self._write_best(trial)
        now = self._include_whole_budget(progress)
        self._context.stages.tell(functools.partial(self._report, trial, now))
        self._measurer.on_trial(trial, now)
        self._context.others.look()
        self._context.stages.enter("measuring placements")
        if len(self._context.log.trials) == 1:
            self._say_if_pinned_out_of_memory(trial)
            self._say_what_is_needed()
        self._warn_of_too_little_time()

    def _report(self, trial: Trial, progress: Progress) -> None:
        if report_trial(self._context.callback, trial, progress):
            self._context.interrupts.count_stop_request()

    def _include_whole_budget(self, progress: Progress) -> Progress:
        """Adds the times of start and confirmation to the progress, as the budget does."""
        left_secs = max(0.0, self._plan.compute_secs_left())
        to_search_secs = max(0.0, self._context.compute_search_secs_left())
        to_search_secs = min(to_search_secs, left_secs)
        rest_secs = left_secs - to_search_secs
        return dataclasses.replace(
            progress,
            elapsed_secs=self._plan.compute_used_secs(),
            eta_secs=min(progress.eta_secs, to_search_secs) + rest_secs,
        )

    def _write_best(self, trial: Trial) -> None:
        secs = trial.measurement.median_secs
        placement = build_placement(
            self._config,
            self._context.header,
            self._context.assignment(trial),
            trial,
            {"step_secs": secs},
        )
        try:
            write_placement(placement, self._context.directory.best)
        except OSError as error:
            # The log has the trial.
            self._say(f"the best placement so far is not written: {describe_error(error)}")

    def _say_if_pinned_out_of_memory(self, original: Trial) -> None:
        """Says which operations cannot move although the original runs out of memory."""
        failure = original.measurement.failure
        if failure is None or failure.kind is not FailureKind.OUT_OF_MEMORY:
            return
        graph = self._context.grouped.op_graph
        if note := describe_immovable_step(graph, _PINNED_SHARE_TO_REPORT):
            self._say(f"the original runs out of memory, and {note}")

    def _say_what_is_needed(self) -> None:
        """Says how much time is enough, as soon as that is known, if it is more than allowed."""
        context, plan = self._context, self._plan
        [original] = trials = context.log.trials
        if original.measurement.median_secs is None:
            return
        profile_secs = context.estimate_profile_secs()
        enough_secs = plan.estimate_enough_secs(
            trials, profile_secs=profile_secs, was_too_short=False
        )
        if enough_secs <= self._config.max_secs:
            return
        parts = {
            "until now": plan.compute_first_trial_secs(trials),
            "profiling": profile_secs,
            "confirming": plan.estimate_usual_secs(trials),
        }
        each = ", ".join(f"{name} {format_duration(secs)}" for name, secs in parts.items() if secs)
        self._say(
            f"{self._config.max_secs:g} s are little for this graph: "
            f"{context.advise_time(was_too_short=False)} ({each}, the rest for trials)"
        )

    def _warn_of_too_little_time(self) -> None:
        """Warns once, as soon as the time is too short to confirm anything.

        That may be only after profiling, which may take longer than was estimated.
        """
        trials = self._context.log.trials
        finalists = self._plan.finalists(trials)
        if self._has_warned_of_time or len(finalists) < 2:
            return
        if not self._plan.can_confirm(trials, finalists):
            self._has_warned_of_time = True
            path = os.fspath(self._context.directory.path)
            advice = f"{self._context.advise_time()}, and log_dir={path!r} to resume"
            self._say(
                join_sentences(
                    f"{self._config.max_secs:g} s are too short to confirm anything", advice
                )
            )


def _explain_no_trial(max_secs: float, begin_secs: float) -> str:
    """Explains why there was no time to measure even the original.

    Args:
        max_secs: the time limit of the search.
        begin_secs: the time used before processes were started.
    """
    left = format_duration(max(0.0, max_secs - begin_secs))
    return (
        f"of {max_secs:g} s, reading the graph and starting the search took "
        f"{format_duration(begin_secs)}, and starting processes and the first steps of the "
        f"original take more than the {left} that were left"
    )
