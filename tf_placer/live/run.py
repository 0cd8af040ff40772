"""The process that searches: one live search from its request to its result.

It runs the placer and the loop of the search, and sees no GPU. `run_search` starts it by
`tf_placer.live.search_process`, and receives every trial.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graph_passes.clearing_advice import clear_by
from graph_passes.errors import GraphError
from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.unordered_takes import find_unordered_takes
from graph_passes.util.atomic_write import remove_unfinished_files
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError, describe_error
from tf_placer.inputs.given_devices import describe_given_devices, describe_immovable_step
from tf_placer.inputs.workload import Workload
from tf_placer.interrupts import Interrupts
from tf_placer.live.conclusion import conclude
from tf_placer.live.context import Measurers, SearchContext, relocate_run
from tf_placer.live.costs import LiveCosts, read_costs
from tf_placer.live.job_search import FIRST_STAGES, ControllersMaker, search_job
from tf_placer.live.messages import MessageSender
from tf_placer.live.own_processes import OwnProcesses
from tf_placer.live.time_plan import TimePlan
from tf_placer.live.worker_group import BackendMaker, WorkerGroup, connect_ray_backend
from tf_placer.placers import find_granularity, needs_problem
from tf_placer.placers.own_placers import find_own_frames
from tf_placer.processes import Parent
from tf_placer.runs.header import live_header, mark_costs_known, request_digest
from tf_placer.runs.own_files import check_own_graph
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_lock import RunLock
from tf_placer.runs.run_result import RunResult
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.driver import GraphDoesNotRunError
from tf_placer.search.log_header import continue_options
from tf_placer.search.own_files import read_log_header
from tf_placer.search.trial_log import LogError, TrialLog
from tf_placer.temporary_directory import remove_stale_directories
from tf_placer.text.stages import Stages

__all__ = ["run"]


def run(
    given: RunDirectory,
    directory: RunDirectory,
    callback: Callback,
    environment_type: Callable[..., SessionEnvironment] = SessionEnvironment,
    *,
    start_secs: float | None = None,
    interrupts: Interrupts | None = None,
    host: int | None = None,
    make_backend: BackendMaker = connect_ray_backend,
    controllers: ControllersMaker = ray_controllers,
) -> Outcome:
    """Searches, confirms and writes the result; relocates the run if its directory is deleted.

    Args:
        given: the directory with the request.
        directory: the directory of the search. Nothing is written to it before its lock shows that
            no other search uses it.
        callback: receives the events of the search, and may end it.
        environment_type: makes the environments that measure.
        start_secs: start of the time of the request, by `time.monotonic`; now when None.
        interrupts: requests to end early. The first ends the search, followed by a short
            confirmation, which the next cancels.
        host: file descriptor of a `WorkerHost` that runs all sessions; None for processes of their
            own.
        make_backend: connects to the machines of workers, if there are workers.
        controllers: starts controllers, if there are several.

    Returns:
        The outcome.

    Raises:
        GraphError, GraphDoesNotRunError, ImportError, LogError, SearchError, WorkerStartError,
            ValueError: the request cannot be met; the message says why.
    """
    start_secs = time.monotonic() if start_secs is None else start_secs
    with Stages(callback.on_note, callback.on_stage) as stages, contextlib.ExitStack() as stack:
        stages.enter("reading the graph")
        workload, config = given.read_request()
        config = _continue_search(config, directory)
        granularity = find_granularity(config.placer, config.placer_options)
        grouped = group_operations(workload.op_graph, granularity, config.restrictions)
        if grouped.num_decisions == 0:
            return Outcome.NOTHING_TO_PLACE
        legal, header, costs, note_on_costs = _describe_search(config, workload, grouped, directory)
        elsewhere = functools.partial(relocate_run, directory, workload, config, stages.say)
        log = stack.enter_context(TrialLog(directory.trials, header, elsewhere))
        old = _take_over(directory, given, workload)
        if old is not None and old.answers(config.max_trials, config.max_secs, len(log.trials)):
            stages.say("the log is complete and its result is known: nothing to measure again")
            return old.outcome
        measurers: Measurers = OwnProcesses(environment_type, host)
        if config.wanted_workers is not None:
            measurers = WorkerGroup(
                given.graph.read_bytes(), directory.path, stages.say, make_backend
            )
        context = SearchContext(
            config=config,
            workload=workload,
            grouped=grouped,
            legal=legal,
            header=header,
            directory=directory,
            log=log,
            plan=TimePlan(config.max_secs, start_secs, log.trials, FIRST_STAGES),
            interrupts=interrupts or Interrupts(),
            stages=stages,
            callback=callback,
            others=_make_run_lock(config, directory, stages.say),
            measurers=stack.enter_context(contextlib.closing(measurers)),
            costs=costs,
            earlier_answer=given.read_earlier_answer(),
            earlier_result=old,
        )
        stages.how_far = context.plan.describe_progress
        begins = f"resuming after {len(log.trials)} trials" if log.trials else "searching"
        for line in [f"{begins}; the log is in {directory.path}", *_describe_size(context)]:
            stages.say(line)
        if note_on_costs is not None:
            stages.say(note_on_costs)
        stack.enter_context(context.others)
        digest = request_digest(config, workload)
        while True:
            place = directory.path
            try:
                return conclude(context, search_job(context, controllers), digest)
            except OSError as error:
                _relocate(context, place, error)


def _continue_search(config: SearchConfig, directory: RunDirectory) -> SearchConfig:
    """Keeps the settings of the search in the directory if an earlier version began it."""
    header = None
    # Opening the log says later why it cannot be read.
    with contextlib.suppress(OSError, ValueError):
        header = read_log_header(pathlib.Path(directory.trials))
    options = continue_options(config.placer, config.placer_options, header)
    return dataclasses.replace(config, placer_options=options)


def _describe_search(
    config: SearchConfig, workload: Workload, grouped: GroupedGraph, directory: RunDirectory
) -> tuple[np.ndarray, Mapping[str, Any], LiveCosts | None, str | None]:
    """Returns the legal devices of groups, the header, the known costs, and a line on the costs."""
    devices = tuple(device.name for device in config.found_machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    header = live_header(config, workload.step, grouped, legal)
    costs, note = read_costs(directory, header)
    if needs_problem(config.placer) or costs is not None:
        header = mark_costs_known(header)
    return legal, header, costs, note


def _make_run_lock(
    config: SearchConfig, directory: RunDirectory, say: Callable[[str], None]
) -> RunLock:
    workers = config.wanted_workers
    is_here = workers is None or workers.are_here
    return RunLock(directory.path, say, is_here=is_here)


def _take_over(
    directory: RunDirectory, given: RunDirectory, workload: Workload
) -> RunResult | None:
    """Copies the request into a directory whose log is open; returns an earlier result, if any."""
    check_own_graph(directory, workload.graph_def)
    # Remove temporary files of a killed search.
    remove_stale_directories(directory.path)
    remove_unfinished_files(directory.path)
    try:
        old = directory.read_result()
    except ValueError as error:
        raise ValueError(f"{error}; without the file the search resumes from its log") from None
    directory.take_request(given)
    return old


def _relocate(context: SearchContext, place: pathlib.Path, error: OSError) -> None:
    """Relocates a search whose directory was deleted.

    Raises:
        OSError: the given error, if no other directory is writable, or no files are missing.
    """
    # If the log failed first, it has relocated the search already.
    if context.directory.path == place:
        if not context.log.trials or context.directory.trials.exists():
            raise error
        context.move(error)
    if not context.measurers.can_move:
        raise error  # The same call resumes the search.
    context.stages.say("its processes are started there anew")


def _describe_size(context: SearchContext) -> list[str]:
    """Describes the size of a search in lines for users."""
    grouped, machine = context.grouped, context.config.found_machine
    needed = grouped.op_graph.needed
    num_devices = len(machine.devices)
    coarse = grouped.coarse or grouped
    lines = [
        f"{grouped.op_graph.num_operations} operations, {needed.sum()} in a step, "
        f"{len(np.unique(grouped.colocation.group[needed]))} colocation groups in "
        f"{coarse.grouping.num_groups} groups, to place on {num_devices} devices of "
        f"{machine.spec}"
    ]
    if coarse.num_decisions < 4 * num_devices:
        lines.append(f"only {coarse.num_decisions} groups can be placed: there is little to choose")
        note = describe_given_devices(grouped.op_graph)
        # The caller has told of a step that nearly all is given in.
        if note is not None and describe_immovable_step(grouped.op_graph) is None:
            lines.append(note)
    races = [race for race in grouped.colocation.races if not race.is_ordered]
    if races:
        names, race = grouped.op_graph.names, races[0]
        more = f", and there are {len(races) - 1} more such reads" if len(races) > 1 else ""
        lines.append(
            f"{names[race.reader]!r} reads the variable {names[race.variable]!r} in no order with "
            f"{names[race.writer]!r}, which writes it: its value is a matter of chance{more}"
        )
    for takes in find_unordered_takes(grouped.op_graph):
        names = grouped.op_graph.names
        one, other = (names[taker] for taker in takes.takers[:2])
        more = f" (and {len(takes.takers) - 2} more)" if len(takes.takers) > 2 else ""
        lines.append(
            f"{one!r} and {other!r}{more} take from {names[takes.stream]!r} in no order: which of "
            "them gets which element is a matter of chance"
        )
    return lines


def answer_request(parent: Parent, interrupts: Interrupts) -> None:
    """Runs the search that a parent process requests, and sends it the outcome or the error.

    Args:
        parent: the parent process, with the settings of the request.
        interrupts: requests to end early.
    """
    settings = parent.settings
    directory = RunDirectory(settings["directory"])

    def obey() -> None:
        while True:
            parent.receive()  # The only command is to end.
            interrupts.request_stop()

    threading.Thread(target=obey, daemon=True).start()
    try:
        with clear_by(settings["clear_by"]):
            outcome = run(
                RunDirectory(settings["request"]),
                directory,
                MessageSender(parent.send),
                start_secs=settings["start_secs"],
                interrupts=interrupts,
                host=settings["host"],
            )
    except (
        GraphDoesNotRunError,
        ImportError,
        OSError,
        SearchError,
        ValueError,
        WorkerStartError,
    ) as error:
        kinds = (GraphError, LogError, OSError, ValueError)
        kind = next((kind.__name__ for kind in kinds if isinstance(error, kind)), "")
        notes = getattr(error, "__notes__", [])
        parent.send({"error": describe_error(error), "kind": kind, "notes": notes})
        return
    except Exception as error:  # A placer of the user may raise anything.
        traceback.print_exc()
        parent.send({"error": _locate_error(error), "kind": ""})
        return
    parent.send({"outcome": outcome.value, "directory": str(directory.path)})


def _locate_error(error: Exception) -> str:
    """Describes an unexpected error with its place: in the code of the user if that took part."""
    place = (find_own_frames(error) or traceback.extract_tb(error.__traceback__))[-1]
    return (
        f"{type(error).__name__}: {describe_error(error)} ({place.filename}, line {place.lineno}, "
        f"in {place.name})"
    )
