"""The process that searches: it has the policy and the loop, and sees no GPU.

Run as `python -m tf_placer.search_process` by `optimize`, which it tells about every trial.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.choice import choose_finalists
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.interrupts import Interrupts
from tf_placer.live_costs import read_costs
from tf_placer.live_explanation import explain_trials
from tf_placer.live_job import BASELINES, LiveJob
from tf_placer.log_header import LogError
from tf_placer.placers import needs_problem, units_of
from tf_placer.processes import Parent
from tf_placer.run_directory import Outcome, RunDirectory
from tf_placer.search import GraphDoesNotRunError
from tf_placer.search_header import request_digest, search_header, size_lines
from tf_placer.search_result import is_finished, write_result
from tf_placer.time_plan import TimePlan
from tf_placer.trial_log import TrialLog

__all__ = ["run"]


def run(
    request_directory: RunDirectory,
    directory: RunDirectory,
    report: Callable[[str], None],
    environment_type: Callable[..., SessionEnvironment] = SessionEnvironment,
    *,
    start_secs: float | None = None,
    interrupts: Interrupts | None = None,
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

    Returns:
        How it ended.

    Raises:
        GraphError, GraphDoesNotRunError, ImportError, LogError, SearchError, WorkerStartError,
            ValueError: the request cannot be met; the message says why.
    """
    start_secs = time.monotonic() if start_secs is None else start_secs
    interrupts = interrupts or Interrupts()
    request, config_bytes = request_directory.read_request()
    session_config = tf.compat.v1.ConfigProto.FromString(config_bytes)
    graph_bytes = request_directory.graph.read_bytes()
    graph_def = tf.compat.v1.GraphDef.FromString(graph_bytes)
    units = units_of(request.placer, request.placer_options)
    grouped = group_operations(
        OpGraph.from_graph_def(graph_def, request.step.fetches, list(request.step.feeds)), units
    )
    if grouped.num_decisions == 0:
        return Outcome.NOTHING_TO_PLACE
    devices = tuple(device.name for device in request.machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    header = search_header(request, grouped, units, legal, session_config)
    costs, note_on_costs = read_costs(directory, header)
    if needs_problem(request.placer) or costs is not None:
        # A placer that knows costs proposes something else.
        header["costs"] = "profiled"
    with TrialLog.open(directory.trials, header) as log:
        # A search that was killed has left its files there.
        shutil.rmtree(directory.work, ignore_errors=True)
        old = directory.read_result()
        directory.write_request(request, graph_bytes, config_bytes)
        if old is not None and is_finished(old, request, len(log.trials)):
            report("the log is complete and its result is known: nothing to measure again")
            return Outcome(old["outcome"])
        job = LiveJob(
            request=request,
            directory=directory,
            grouped=grouped,
            legal=legal,
            header=header,
            session_config=session_config,
            environment_type=environment_type,
            plan=TimePlan(request.max_secs, start_secs, log.trials, BASELINES),
            interrupts=interrupts,
            report=report,
            costs=costs,
        )
        report(f"searching; the log is in {directory.path}")
        for line in size_lines(request, grouped):
            report(line)
        if note_on_costs is not None:
            report(note_on_costs)
        trials = job.search(log)
        was_interrupted = interrupts.count > 0
        finalists = choose_finalists(trials, BASELINES)
        confirmation, winner, note = None, None, None
        if finalists:
            outcome, confirmation, winner, note = job.confirm(trials, finalists)
        elif was_interrupted:
            outcome = Outcome.INTERRUPTED
        elif failures := [t.measurement.failure for t in trials if t.measurement.failure]:
            outcome, note = Outcome.NOTHING_RUNS, failures[-1].message
        else:
            outcome = Outcome.NOT_CONFIRMED
            note = (
                "only the graph as it came was measured within "
                f"max_trials={request.max_trials} and max_secs={request.max_secs:g}: allow more"
            )
        explanation = None
        if job.costs is not None and finalists and interrupts.count < 2:
            with (
                contextlib.suppress(KeyboardInterrupt),
                interrupts.breakable(interrupts.count + 1),
            ):
                explanation = explain_trials(
                    job.costs.problem,
                    grouped.group_graph,
                    trials,
                    finalists,
                    winner,
                    search_secs=job.plan.explain_secs,
                    seed=request.seed,
                )
        write_result(
            directory,
            request,
            outcome,
            trials,
            finalists=finalists,
            confirmation=confirmation,
            winner=winner,
            notes=[text for text in (*job.notes, note) if text],
            explanation=explanation,
            # Else the same call goes on.
            is_complete=not interrupts.count and not job.notes,
            digest=request_digest(request, graph_def, session_config),
        )
        return outcome


def _main() -> None:
    interrupts = Interrupts()
    interrupts.listen()
    parent = Parent()
    settings = parent.settings

    def obey() -> None:
        while True:
            parent.receive()  # There is one command only: to end.
            interrupts.ask()

    threading.Thread(target=obey, daemon=True).start()
    try:
        outcome = run(
            RunDirectory(settings["request"]),
            RunDirectory(settings["directory"]),
            lambda line: parent.send({"line": line}),
            start_secs=settings["start_secs"],
            interrupts=interrupts,
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
        parent.send({"error": str(error), "kind": kind})
        return
    parent.send({"outcome": outcome.value})


if __name__ == "__main__":
    _main()
