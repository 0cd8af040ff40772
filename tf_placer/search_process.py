"""The process that searches: it has the policy and the loop, and sees no GPU.

Run as `python -m tf_placer.search_process` by `optimize`, which it tells about every trial.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement, write_placement
from tf_placer.choice import choose_finalists, choose_winner
from tf_placer.confirmation import Confirmation, confirm
from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import COLOCRL, SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.live_costs import LiveCosts, profile_costs, read_costs, secs_to_search
from tf_placer.log_header import LogError
from tf_placer.placers import make_placer, needs_problem, units_of
from tf_placer.placers.placer import Placer
from tf_placer.processes import Parent
from tf_placer.report.progress import format_measurement, progress_line
from tf_placer.run_directory import Outcome, Request, RunDirectory
from tf_placer.search import Budget, GraphDoesNotRunError, Progress, search
from tf_placer.search_header import search_header, size_lines
from tf_placer.training_log import TrainingLog
from tf_placer.training_recorder import TrainingRecorder
from tf_placer.trial_log import ORIGINAL, Trial, TrialLog

__all__ = ["run"]

_BASELINES = ("single_device", "expert")
# The rest of the time is for the confirmation.
_SEARCH_SHARE = 0.7
_MIN_ROUNDS, _MAX_ROUNDS = 5, 9
# What starting fresh processes for a round takes at most, about.
_RESTART_SECS = 10.0
# How long the graph as it came may take to be measured, and how many times that, but not less than
# a minute, a placement: one that is far slower is of no use.
_TIMEOUT_SECS = 120.0
_TIMEOUT_RATIO = 5.0


def run(
    request_directory: RunDirectory,
    directory: RunDirectory,
    report: Callable[[str], None],
    environment_type: Callable[..., SessionEnvironment] = SessionEnvironment,
) -> Outcome:
    """Searches, confirms and writes what came out.

    Args:
        request_directory: where the request is.
        directory: where everything goes, the request included. Nothing is written to it before it
            is certain that no other search has it.
        report: called with a line of text for people whenever there is something to say.
        environment_type: makes the environments that measure.

    Returns:
        How it ended.

    Raises:
        GraphError, GraphDoesNotRunError, ImportError, LogError, SearchError, WorkerStartError,
            ValueError: the request cannot be met; the message says why.
    """
    request, config_bytes = request_directory.read_request()
    session_config = tf.compat.v1.ConfigProto.FromString(config_bytes)
    graph_bytes = request_directory.graph.read_bytes()
    graph_def = tf.compat.v1.GraphDef.FromString(graph_bytes)
    # One grouping for all stages, so that each can take over what another has measured.
    units = units_of(request.placer, request.placer_options)
    grouped = group_operations(
        OpGraph.from_graph_def(graph_def, request.step.fetches, list(request.step.feeds)), units
    )
    if grouped.num_decisions == 0:
        return Outcome.NOTHING_TO_PLACE
    devices = tuple(device.name for device in request.machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)

    def stage(name: str, costs: LiveCosts | None) -> Placer:
        options = request.placer_options if name == request.placer else None
        problem = None if costs is None else costs.problem
        return make_placer(
            name, grouped.group_graph, legal, seed=request.seed, options=options, problem=problem
        )

    def assign(row: np.ndarray) -> dict[str, str]:
        return grouped.assignment(row, devices)

    def environment(meta_optimizer: bool) -> SessionEnvironment:
        return environment_type(
            directory.graph,
            request.step,
            request.machine,
            assign,
            protocol=COLOCRL,
            session_config=session_config,
            meta_optimizer=meta_optimizer,
            work_dir=directory.work,
            timeout_secs=max(_TIMEOUT_SECS, request.max_secs / 4),
        )

    def tighten_timeout(live: SessionEnvironment, original: Trial) -> None:
        secs = _trial_secs(original.measurement)
        if secs is not None:
            live.timeout_secs = min(live.timeout_secs, max(60.0, _TIMEOUT_RATIO * secs))

    header = search_header(request, grouped, units, legal, session_config)
    costs, note_on_costs = read_costs(directory, header)
    must_profile = costs is None and needs_problem(request.placer)
    if must_profile or costs is not None:
        # A placer that knows costs proposes something else.
        header["costs"] = "profiled"
    later = {request.placer} if must_profile else set()
    names = dict.fromkeys([*_BASELINES, request.placer])
    stages = [stage(name, costs) for name in names if name not in later]
    with TrialLog.open(directory.trials, header) as log:
        # A search that was killed has left its files there.
        shutil.rmtree(directory.work, ignore_errors=True)
        directory.write_request(request, graph_bytes, config_bytes)
        report(f"searching; the log is in {directory.path}")
        for line in size_lines(request, grouped):
            report(line)
        if note_on_costs is not None:
            report(note_on_costs)
        if must_profile:
            costs = profile_costs(
                directory, request, grouped.op_graph, session_config, header, report
            )
            stages.append(stage(request.placer, costs))
        max_secs = secs_to_search(request.max_secs, costs)
        start_secs = time.monotonic()
        old = directory.read_result()
        known = len(log.trials)
        with (
            TrainingLog(directory.path, header) as training,
            environment(meta_optimizer=False) as live,
        ):
            if not log.trials:
                training.restart()
            recorder = TrainingRecorder(training, stages[-1], directory.path)

            def on_trial(trial: Trial, progress: Progress) -> None:
                if trial.placer == ORIGINAL:
                    tighten_timeout(live, trial)
                report(progress_line(trial, progress))

            if log.trials:
                tighten_timeout(live, log.trials[0])
            trials = search(
                lambda: live.measure_assignment({}),
                live,
                stages,
                log,
                Budget(request.max_trials, max_secs * _SEARCH_SHARE),
                report=on_trial,
                observed=recorder.observed,
            )
            recorder.finish()
        if old is not None and len(trials) == known and old["num_trials"] == known:
            report("the log is complete and its result is known: nothing to measure again")
            return Outcome(old["outcome"])
        finalists = choose_finalists(trials, _BASELINES)
        if not finalists:
            failures = [t.measurement.failure for t in trials if t.measurement.failure is not None]
            note = failures[-1].message if failures else None
            return _finish(directory, Outcome.NOTHING_RUNS, trials, note=note)
        labels = {
            label: {} if trial.assignment is None else assign(np.array(trial.assignment, np.int32))
            for label, trial in finalists.items()
        }
        # What the search has used of its time, earlier runs included.
        spent_secs = max(trials[-1].elapsed_secs, time.monotonic() - start_secs)
        left_secs = max(0.0, max_secs - spent_secs)
        with environment(meta_optimizer=True) as fresh:
            confirmation = confirm(
                fresh,
                labels,
                ORIGINAL,
                rounds=_num_rounds(left_secs, [t.measurement for t in finalists.values()]),
                deadline_secs=left_secs,
                progress=lambda number, rounds, label, measurement: report(
                    f"confirming {number}/{rounds}: {label} {format_measurement(measurement)}"
                ),
            )
            outcome, winner, note = choose_winner(
                fresh,
                confirmation,
                labels,
                mixed_devices=len({device.type for device in request.machine.devices}) > 1,
            )
        if winner is not None:
            placement = _placement(
                request, header, devices, labels[winner], confirmation, winner, finalists[winner]
            )
            write_placement(placement, directory.placement)
        return _finish(directory, outcome, trials, confirmation, finalists, winner, note)


def _trial_secs(measurement: Measurement) -> float | None:
    """Seconds that a measurement took, or None after a failure."""
    if measurement.step_secs is None:
        return None
    return measurement.setup_secs + sum(measurement.step_secs)


def _num_rounds(left_secs: float, measurements: Sequence[Measurement]) -> int:
    """As many rounds as there is time for: decided before the first, so that it proves nothing."""
    round_secs = _RESTART_SECS + sum(_trial_secs(m) or 0.0 for m in measurements)
    return min(_MAX_ROUNDS, max(_MIN_ROUNDS, int(left_secs / round_secs)))


def _placement(
    request: Request,
    header: Mapping[str, Any],
    devices: tuple[str, ...],
    assignment: Mapping[str, str],
    confirmation: Confirmation,
    label: str,
    trial: Trial,
) -> Placement:
    """A placement with what was measured of it and where it comes from."""
    comparison = confirmation.comparisons[label]
    return Placement(
        header["graph_fingerprint"],
        devices,
        assignment,
        measurement={
            "original_step_secs": confirmation.step_secs(ORIGINAL),
            "step_secs": confirmation.step_secs(label),
            "speedup": comparison.speedup,
            "interval": comparison.interval,
        },
        provenance={
            "placer": trial.placer,
            "trial": trial.index,
            "seed": request.seed,
            "machine": request.machine.spec,
            "versions": header["versions"],
        },
    )


def _finish(
    directory: RunDirectory,
    outcome: Outcome,
    trials: Sequence[Trial],
    confirmation: Confirmation | None = None,
    finalists: Mapping[str, Trial] | None = None,
    winner: str | None = None,
    note: str | None = None,
) -> Outcome:
    if outcome is not Outcome.FASTER:
        directory.placement.unlink(missing_ok=True)
    directory.write_result(
        {
            "format": 1,
            "outcome": outcome.value,
            "winner": winner,
            "note": note,
            "num_trials": len(trials),
            "confirmation": None if confirmation is None else confirmation.to_json(),
            "finalists": {label: trial.index for label, trial in (finalists or {}).items()},
        }
    )
    return outcome


def _main() -> None:
    parent = Parent()
    settings = parent.settings
    try:
        outcome = run(
            RunDirectory(settings["request"]),
            RunDirectory(settings["directory"]),
            lambda line: parent.send({"line": line}),
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
