"""The whole job: a graph in, a faster graph out."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from graph_passes.annotate import Annotate
from graph_passes.placement import Placement, read_placement
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.hosted_worker import WorkerHost
from tf_placer.errors import SearchError
from tf_placer.files import check_output, lasting_directory
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.inputs.given_devices import given_devices_note
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.inputs.sources import Source
from tf_placer.live.given_step import GivenStep, read_step
from tf_placer.live.preparation import note_on_gpus, prepare, why_no_choice
from tf_placer.live.process import run_search
from tf_placer.live.result import OptimizeResult
from tf_placer.live.step_events import write_step_events
from tf_placer.machines.machine import Machine
from tf_placer.placers import AUTO
from tf_placer.private_network import open_servers_note, why_open
from tf_placer.report.page.page import require_page_libraries, write_page
from tf_placer.runs.explanation import kept_explanation
from tf_placer.runs.header import request_digest
from tf_placer.runs.own_files import check_own_run, own_paths
from tf_placer.runs.run_directory import RunDirectory, check_writable
from tf_placer.runs.run_page import read_run_view
from tf_placer.runs.verdict import best_comparison, verdict
from tf_placer.scratch import remove_scratch, scratch_directory
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed.workers import SHORT_PREFIX
from tf_placer.search.trial_log import ORIGINAL, read_log
from tf_placer.text.notes import say
from tf_placer.text.units import format_duration

__all__ = ["counted_from", "optimize"]

# When the command was called that a search is for; None for a call of `optimize` by a program.
_call_secs: contextvars.ContextVar[float | None] = contextvars.ContextVar("call", default=None)
# Longer than this beyond its time a search is not, without saying why.
_TOLERATED_SECS = 2.0


def optimize(
    graph: Any,
    fetches: Any = None,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Any = None,
    *,
    example: Any = None,
    signature: str | None = None,
    restore_from: Any = None,
    machine: str | Machine | None = None,
    placer: str = AUTO,
    placer_options: Mapping[str, Any] | None = None,
    max_trials: int = 150,
    max_secs: float = 600.0,
    log_dir: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    session_config: tf.compat.v1.ConfigProto | None = None,
    workers: str | None = None,
    num_workers: int | None = None,
    controllers: int | None = None,
) -> OptimizeResult:
    """Finds a faster placement of a graph by timing real steps, and puts it on the graph.

    Measures the graph as it came, everything on each device, and splits by layer; then lets the
    placer search: by default it profiles the graph, searches in simulation, measures the best
    candidates, corrects the costs by that and goes on. In a trial a placement takes turns with the
    original, so that it is compared with that of the same seconds. The fastest are measured again
    beside the original, in turns, in several sets of fresh processes and under the user's session
    configuration. Only one that is faster beyond the noise, and computes the same, is put on the
    graph: where nothing is faster, at most 2.5 % of searches find something. The search
    runs in processes of its own and prints a line per trial to the standard error; this process
    needs no eager execution and touches no GPU.

    A step that calls Python functions (`tf.py_function`, `tf.numpy_function`, `tf.py_func`,
    `Dataset.from_generator`) runs only where these functions are. Then the graph must be a tf.Graph
    and the machine "attached", and the sessions of the search are sessions of this process, in a
    thread of their own. The functions are called in every step of the search. "Fresh processes" are
    new sessions then: what else this process does is in the measurements, and a function that
    never returns is not ended.

    A tf.function or a ConcreteFunction is placed as one call of it, a Keras model as one training
    step, gradients and optimiser included; neither is run or changed. `result.function` is the
    function with devices, `result.apply(model)` puts them into the model. Variables move with what
    uses them: values, checkpoints and whoever holds them stay as they are.

    Of a SavedModel directory one signature is placed, with the operations of all functions that it
    calls; the directory is not changed. `result.save(directory)` writes another one with devices,
    `result.function` is the signature with them as a function.

    An interrupt from the keyboard ends the search with the best so far, after a short confirmation;
    a second one breaks that off, and the graph stays as it came. What was measured is in the log.

    Args:
        graph: a tf.Graph, which is annotated in place through its operations (a session that has
            already run it does not see that); or a GraphDef, a MetaGraphDef or the path of either
            (`.pb`, `.pbtxt`, `.meta`), which are not changed; or a tf.function, a ConcreteFunction
            or a Keras model that is built and compiled; or the path of a SavedModel directory; or a
            `Source`, a graph that was read with its step, to which nothing is added.
        fetches: what a step fetches: whatever `Session.run` takes, or names of operations and
            tensors. By default the `train_op` collection.
        feeds: values by placeholder, tensor or name, as `Session.run` takes them; also those that
            only initialisers need; of a SavedModel by the names of the signature's arguments. By
            default synthetic values of the placeholders' shapes and types.
        example: of a function the arguments of one call, a tuple, or its only argument; of a Keras
            model a batch as `fit` takes it, such as (x, y). Functions and models need it, and take
            no fetches, feeds, initializers or restore_from. Of a SavedModel what `feeds` is, or
            the value of the only argument.
        signature: the signature of a SavedModel; by default "serving_default" if there is one, or
            the only one.
        initializers: operations (or names) that initialise everything before the first step, or a
            tf.compat.v1.train.Scaffold. By default those of the graph's variables, tables and
            iterators.
        restore_from: what the variables begin with: a checkpoint, a directory whose latest
            checkpoint is taken, or a session that has run. By default what initialisers give them.
        machine: where to place: None or "attached" for the CPU and GPUs of this computer,
            "local:N" for N worker processes on its cores, "grpc://HOST:PORT" for a running
            TensorFlow cluster.
        placer: who searches after the baselines; see `tf_placer.placers.PLACERS`. For one that
            needs to know what the operations cost, such as "auto", the graph is profiled before.
        placer_options: settings of the placer that differ from its defaults.
        max_trials: trials at most, the graph as it came included.
        max_secs: seconds at most, from the call on: starting, profiling and the confirmation
            included.
        log_dir: directory for the log. One that holds the log of the same search is gone on with.
            By default a new temporary directory.
        report: a file (.html) for the page about the search; none if nothing was measured. It needs
            `pip install 'tf_placer[report]'`.
        tensorboard: a directory for runs of TensorBoard, `original` and `found`: the graph by
            device and computing time, scalars, and pictures; none where it is not known what
            operations cost.
        seed: of everything random.
        session_config: the configuration of the user's sessions.
        workers: who measures trials in parallel, each on a machine of its own with devices like
            those of `machine`: "ray" for workers that are started on this computer, "auto" for the
            Ray cluster that runs here, "ray://HOST:PORT" for one elsewhere. By default this
            computer measures, one trial at a time. Needs `tf_placer[ray]`.
        num_workers: how many workers at most; by default one on this computer, and as many as a
            cluster has.
        controllers: how many processes of the placer, which must learn, sample placements and
            share one set of weights; each waits for its own placements only. By default one, which
            is the search itself. Needs workers.

    Returns:
        The graph, whether it has changed and why, and all measurements.

    Raises:
        GraphError: the graph cannot be read or used, or is on devices that the machine lacks.
        MachineError: there is no such machine, or it is only described.
        LogError: the log is damaged, in use, or of another search, or `log_dir` has files of
            somebody else's that a search would replace.
        SearchError: the graph does not run, or the search died.
        ImportError: a report or workers are wanted, and what they need is not installed.
        ValueError: there is no such placer or setting, or a budget or the seed is out of range.
        OSError: the log cannot be written.

    Example:
        >>> result = tf_placer.optimize(tf.compat.v1.get_default_graph(), machine="local:2")
        >>> print(result.reason, result.table())
    """
    start_secs = _call_secs.get() or time.monotonic()
    config = SearchConfig(
        machine=machine,
        placer=placer,
        placer_options={} if placer_options is None else placer_options,
        max_trials=max_trials,
        max_secs=max_secs,
        seed=seed,
        log_dir=log_dir,
        report=report,
        tensorboard=tensorboard,
        session_config=session_config,
        workers=workers,
        num_workers=num_workers,
        controllers=controllers,
    )
    _check_places(config, graph)
    given = read_step(
        graph,
        fetches,
        feeds,
        initializers,
        example=example,
        signature=signature,
        restore_from=restore_from,
        seed=seed,
    )
    return place(given, config, start_secs)


def place(given: GivenStep, config: SearchConfig, start_secs: float) -> OptimizeResult:
    """Finds a faster placement of a step, and puts it on the graph; see `optimize`.

    Args:
        given: what is to be placed.
        config: how to search.
        start_secs: when the time of the search began, by `time.monotonic`.
    """
    source = given.source
    for line in source.notes:
        say(line)
    config = prepare(given, config)
    machine = config.found_machine
    step, caller = given.on(machine), check_python_functions_are_here(source, machine)
    if note := note_on_gpus(given, machine, calls_python=caller is not None):
        say(note)
    if missing := why_no_choice(machine, calls_python=caller is not None):
        return OptimizeResult(source.graph_def, False, missing, step=step)
    if config.log_dir is not None and _is_answered(RunDirectory(config.log_dir), source, config):
        say(f"the same search has ended: its result is in {os.fspath(config.log_dir)}")
        return _finished(RunDirectory(config.log_dir), source, step, config)
    if machine.backend.starts_servers and (why := why_open()) is not None:
        say(open_servers_note(f"the servers of {machine.spec}", why))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(_run_directory(config.log_dir))
        asked = stack.enter_context(scratch_directory(directory.path))
        host = None
        if caller is not None:
            say(
                f"{caller!r} calls a Python function: all steps run in this process, which is "
                "slower, and whatever else the process does is in the measurements"
            )
            host = stack.enter_context(WorkerHost())
        # The search takes over what is asked once it has made sure that the directory is its own.
        RunDirectory(asked).write_request(source, config)
        search_secs = time.monotonic()
        outcome = run_search(directory, asked, say, start_secs, host)
    searched_secs = time.monotonic()
    if outcome is Outcome.NOTHING_TO_PLACE:
        reason = verdict(None, given_devices_note(source.op_graph))
        return OptimizeResult(source.graph_def, False, reason, step=step)
    result = _finished(directory, source, step, config)
    read_secs, written_secs = search_secs - start_secs, time.monotonic() - searched_secs
    used_secs = time.monotonic() - start_secs
    if used_secs > config.max_secs + _TOLERATED_SECS:
        say(
            f"{format_duration(used_secs)} were used where {config.max_secs:g} s are allowed: no "
            "limit covers starting TensorFlow, reading the graph "
            f"({format_duration(read_secs)} here) and writing what was found "
            f"({format_duration(written_secs)})"
        )
    return result


@contextlib.contextmanager
def counted_from(call_secs: float) -> Iterator[None]:
    """Has the time of a search begin earlier than `optimize`, with the command that calls it.

    Args:
        call_secs: when that was called, by `time.monotonic`.
    """
    token = _call_secs.set(call_secs)
    try:
        yield
    finally:
        _call_secs.reset(token)


def _check_places(config: SearchConfig, graph: Any) -> None:
    """Makes sure that all that a search writes can be written, and replaces nothing of others."""
    if config.log_dir is not None:
        check_writable(config.log_dir)
        check_own_run(RunDirectory(config.log_dir))
        # A start that is answered at once makes none, and so removes none.
        remove_scratch(config.log_dir)
    remove_scratch()
    remove_scratch(prefix=SHORT_PREFIX)
    if config.report is not None:
        require_page_libraries()
        given = graph if isinstance(graph, str | os.PathLike) else None
        check_output(config.report, given, *own_paths(config.log_dir))
    if config.tensorboard is not None:
        check_writable(config.tensorboard)


def _is_answered(directory: RunDirectory, source: Source, config: SearchConfig) -> bool:
    """Says whether a search of just this has ended there: then no process is needed."""
    try:
        result = directory.read_result()
        if result is None or not result.is_complete:
            return False
        _, trials = read_log(directory.trials)
    except (OSError, ValueError):
        return False  # The search looks into it, and says what is wrong.
    is_enough = result.answers(config.max_trials, config.max_secs, len(trials))
    return is_enough and result.request_digest == request_digest(config, source)


@contextlib.contextmanager
def _run_directory(path: str | os.PathLike[str] | None) -> Iterator[RunDirectory]:
    """Yields the directory of the search: the given one, or a temporary one that stays if used."""
    if path is not None:
        given = RunDirectory(path)
        is_new = not given.path.exists()
        made = given.path
        made.mkdir(parents=True, exist_ok=True)
        try:
            yield given
        finally:
            if is_new:
                with contextlib.suppress(OSError):  # It is not empty.
                    made.rmdir()
        return
    temporary = lasting_directory()
    try:
        yield RunDirectory(temporary)
    finally:
        with contextlib.suppress(OSError):  # It is not empty, or somebody has deleted it.
            temporary.rmdir()


def _finished(
    directory: RunDirectory,
    source: Source,
    step: PlacedStep | PlacedSignature | None,
    config: SearchConfig,
) -> OptimizeResult:
    """Reads what the search wrote, puts the placement on the graph, and draws what is wanted."""
    result = _placed(directory, source, step)
    _show(result, source.graph_def, config)
    return result


def _placed(
    directory: RunDirectory, source: Source, step: PlacedStep | PlacedSignature | None
) -> OptimizeResult:
    """Reads what the search wrote and puts the placement on the graph."""
    result = directory.read_result()
    if result is None:
        raise SearchError(f"the search ended without a result in {directory.path}")
    _, trials = read_log(directory.trials)
    unchanged = OptimizeResult(
        source.graph_def,
        False,
        "",
        confirmation=result.confirmation,
        finalists={label: trials[index] for label, index in result.finalists.items()},
        trials=trials,
        explanation=kept_explanation(directory, result),
        log_dir=directory.path,
        step=step,
    )
    reason = verdict(result)
    winner, confirmation = result.winner, result.confirmation
    if winner is None or confirmation is None:
        best = best_comparison(confirmation)
        return dataclasses.replace(
            unchanged,
            reason=reason,
            speedup=best.speedup if best else None,
            speedup_interval=best.interval if best else None,
        )
    placement = read_placement(directory.placement)
    comparison = confirmation.comparisons[winner]
    return dataclasses.replace(
        unchanged,
        graph_def=_annotated(source, placement),
        changed=True,
        reason=reason,
        placement=placement,
        step=None if step is None else dataclasses.replace(step, placement=placement),
        winner=winner,
        speedup=comparison.speedup,
        speedup_interval=comparison.interval,
    )


def _show(result: OptimizeResult, graph_def: tf.compat.v1.GraphDef, config: SearchConfig) -> None:
    """Writes the page about a search that has ended, and runs of TensorBoard, where wanted."""
    report, tensorboard = config.report, config.tensorboard
    if result.log_dir is None or (report is None and tensorboard is None):
        return
    # The search took minutes: what it found is worth more than what could not be written of it.
    try:
        view = read_run_view(result.log_dir)
    except (OSError, ValueError) as error:
        say(f"what was found could not be drawn: {error}")
        return
    if report is not None:
        try:
            write_page(view, report)
        except (OSError, ValueError) as error:
            say(f"the report could not be written: {error}")
    if tensorboard is not None:
        steps = {ORIGINAL if step.label == ORIGINAL else "found": step.trace for step in view.steps}
        if not steps:
            say("TensorBoard gets no runs: what operations cost is not known")
        try:
            write_step_events(tensorboard, graph_def, steps)
        except OSError as error:
            say(str(error))


def _annotated(source: Source, placement: Placement) -> tf.compat.v1.GraphDef:
    if source.live is not None:
        for name, device in placement.assignment.items():
            source.live.get_operation_by_name(name)._set_device(device)
    return Annotate(placement.assignment).run(source.graph_def)
