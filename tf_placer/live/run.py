"""One live search from its request to its result."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.util.whole_file import remove_what_is_left
from tf_placer.confirmation.no_finalists import outcome_without_finalists
from tf_placer.confirmation.outcome import Outcome
from tf_placer.costs.given_placement import given_assignment
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.given_devices import given_devices_note
from tf_placer.interrupts import Interrupts
from tf_placer.live.costs import read_costs
from tf_placer.live.crew import Crew, FleetMaker, ray_fleet
from tf_placer.live.job import LiveJob
from tf_placer.live.job_confirmation import confirm_job
from tf_placer.live.job_search import ControllersMaker, search_job
from tf_placer.live.time_plan import TimePlan
from tf_placer.placers import (
    BASELINES,
    granularity_of,
    needs_problem,
)
from tf_placer.runs.explanation import explain_trials
from tf_placer.runs.header import live_header, request_digest, with_costs
from tf_placer.runs.other_searches import OtherSearches
from tf_placer.runs.own_files import check_own_graph
from tf_placer.runs.run_directory import Request, RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.search_place import SearchPlace
from tf_placer.scratch import remove_scratch
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.text.stages import Stages

__all__ = ["run"]


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
        check_own_graph(directory, graph_def)
        # A search that was killed has left its files there.
        remove_scratch(directory.path)
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
            move=lambda error: log.move(place.of_log(error)),
        )
        stages.say(f"searching; the log is in {directory.path}")
        for line in _size_lines(request, grouped):
            stages.say(line)
        if note_on_costs is not None:
            stages.say(note_on_costs)
        try:
            with others:
                digest = request_digest(request, graph_def, session_config)
                return _finish(job, log, controllers, digest)
        finally:
            if hosted is not None:
                hosted.close()
            if crew is not None:
                crew.close()


def _finish(job: LiveJob, log: TrialLog, controllers: ControllersMaker, digest: str) -> Outcome:
    """Searches and concludes; goes on in another place where somebody deletes the directory.

    Raises:
        OSError: there is no other place, or it is not the directory that lacks files.
    """
    while True:
        place = job.directory.path
        try:
            return _conclude(job, search_job(job, log, controllers), digest)
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
    finalists = job.finalists(trials)
    confirmation, winner, note = None, None, None
    if finalists:
        confirmed = confirm_job(job, trials, finalists)
        outcome, confirmation = confirmed.outcome, confirmed.confirmation
        winner, note = confirmed.winner, confirmed.note
        if outcome in (Outcome.FASTER, Outcome.NOT_FASTER) and not was_interrupted:
            note = _joined(note, _cut_short(job, trials))
        note = _joined(note, job.others.note)
    elif was_interrupted:
        outcome = Outcome.INTERRUPTED
    else:
        outcome, note = outcome_without_finalists(trials, request.max_trials, request.max_secs)
        if outcome is Outcome.NOTHING_RUNS:
            note = _joined(note, _cut_short(job, trials))
        if any(_is_out_of_memory(trial) for trial in trials):
            # A process takes all memory of a GPU that it finds free.
            note = _joined(note, given_devices_note(job.grouped.op_graph), job.others.note)
    explanation = None
    job.stages.enter("explaining the result")
    if job.costs is not None and finalists and interrupts.count < 2:
        # Who interrupts does not wait for the rest of the time.
        max_secs = max(job.plan.left_secs(), 0.0 if not was_interrupted else job.plan.explain_secs)
        with (
            contextlib.suppress(KeyboardInterrupt),
            interrupts.breakable(interrupts.count + 1, max_secs),
        ):
            explanation = explain_trials(
                job.costs.problem,
                job.grouped.group_graph,
                trials,
                finalists,
                winner,
                search_secs=job.plan.explain_secs,
                seed=request.seed,
            )
    if explanation is None and job.costs is not None and finalists and not interrupts.count:
        job.stages.say("there was no time left to explain the result")

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
                note=_joined(*job.notes, note),
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


def _is_out_of_memory(trial: Trial) -> bool:
    failure = trial.measurement.failure
    return failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY


def _joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _cut_short(job: LiveJob, trials: Sequence[Trial]) -> str | None:
    """Says that the time was over before the placer began; None where it was not."""
    request = job.request
    had_its_turn = request.placer in job.begun or any(
        trial.placer == request.placer for trial in trials
    )
    if had_its_turn or job.notes or len(trials) >= request.max_trials:
        return None
    return (
        f"{request.max_secs:g} s were over after {len(trials)} trials, before placer "
        f"{request.placer!r} began: allow more"
    )


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
        if (note := given_devices_note(grouped.op_graph)) is not None:
            lines.append(note)
    races = [race for race in grouped.colocation.races if not race.is_ordered]
    if races:
        names, race = grouped.op_graph.names, races[0]
        more = f", and there are {len(races) - 1} more such reads" if len(races) > 1 else ""
        lines.append(
            f"{names[race.reader]!r} reads the variable {names[race.variable]!r} in no order with "
            f"{names[race.writer]!r}, which writes it: its value is a matter of chance{more}"
        )
    return lines
