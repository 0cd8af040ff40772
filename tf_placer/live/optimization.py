"""The optimization of one step: checks it, runs the search, and reads its result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from graph_passes.annotate import Annotate
from graph_passes.placement import Placement, read_placement, write_placement
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.in_process_worker import WorkerHost
from tf_placer.errors import NoAnswerError, SearchError
from tf_placer.files import check_output, make_persistent_directory
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.inputs.given_devices import describe_given_devices, describe_immovable_step
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.inputs.workload import Workload
from tf_placer.live.optimization_target import OptimizationTarget
from tf_placer.live.preparation import (
    describe_pins,
    describe_start,
    explain_little_memory,
    explain_no_choice,
    note_on_gpus,
    prepare,
)
from tf_placer.live.process import run_search
from tf_placer.live.result import OptimizeResult, make_result
from tf_placer.live.step_events import write_step_events
from tf_placer.private_network import describe_open_servers, find_open_reason
from tf_placer.report.explanation import Explanation
from tf_placer.report.page.page import require_page_libraries, write_page
from tf_placer.runs.answer_store import Answer, AnswerStore, Similarity
from tf_placer.runs.explanation import read_explanation
from tf_placer.runs.header import request_digest
from tf_placer.runs.logged_names import NamedWorkload, name_as_logged
from tf_placer.runs.own_files import check_own_run, own_paths
from tf_placer.runs.run_directory import RunDirectory, check_writable
from tf_placer.runs.run_page import read_run_view
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.verdict import explain_unkept, verdict
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed.workers import SHORT_PREFIX
from tf_placer.search.trial_log import ORIGINAL, Trial, Trials, read_log
from tf_placer.temporary_directory import remove_stale_directories, temporary_directory
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_duration

__all__ = ["check_outputs", "place"]

_MAX_UNREPORTED_EXCESS_SECS = 2.0
# A kept answer for so much of a step is probably for the same one, fetched or fed otherwise.
_LEAST_SIMILAR_SHARE = 0.9


def place(
    given: OptimizationTarget, config: SearchConfig, callback: Callback, start_secs: float
) -> OptimizeResult:
    """Finds a faster placement of a step, and puts it on the graph; see `optimize`.

    Args:
        given: the step to place.
        config: the settings of the search.
        callback: receives the events of the search.
        start_secs: start of the time of the search, by `time.monotonic`.
    """
    workload, say = given.workload, callback.on_note
    for line in workload.notes:
        say(line)
    config = prepare(given, config)
    machine = config.found_machine
    for line in [*describe_pins(given, config), *describe_start(given, config)]:
        say(line)
    step, caller = given.on(machine), check_python_functions_are_here(workload, machine)
    if note := note_on_gpus(given, machine, calls_python=caller is not None):
        say(note)
    if missing := explain_no_choice(machine, calls_python=caller is not None):
        return make_result(step, graph_def=workload.graph_def, changed=False, reason=missing)
    if missing := explain_little_memory(workload.op_graph, machine):
        return make_result(
            step,
            graph_def=workload.graph_def,
            changed=False,
            reason=missing,
            outcome=Outcome.NOTHING_RUNS,
        )
    if note := describe_immovable_step(workload.op_graph):
        say(note)
    named = NamedWorkload(workload, workload)
    if config.log_dir is not None and caller is None:
        named = name_as_logged(workload, config, RunDirectory(config.log_dir))
        if named.names is not None:
            say(f"{_describe_names(named.names)}: the files in its log_dir keep those names")
    workload = named.workload
    # The graph does not tell what functions of Python do.
    store = None
    if config.answers is not None and caller is None:
        store = AnswerStore(config.answers, workload, config)
    if config.log_dir is not None and _is_answered(RunDirectory(config.log_dir), workload, config):
        say(
            f"the same search has ended: its result is in {os.fspath(config.log_dir)}; with more "
            "time or trials it goes on"
        )
        if store is not None:
            _keep_answer(store, RunDirectory(config.log_dir), say)
        return _read_and_show(RunDirectory(config.log_dir), named, step, config, say)
    if store is not None and (answer := _look_up(store, workload, config, say)) is not None:
        return _build_answer(answer, named, step)
    if config.require_answer and (store is None or store.has_choice):
        raise NoAnswerError(_explain_no_answer(store, caller))
    if store is not None and (closest := _describe_most_similar(store)) is not None:
        say(f"{_describe_miss(store)}. {closest}")
    if (batch_size := _find_batch_size(step)) is not None:
        say(
            f"a step trains on a batch of {batch_size}: the placement is for fit with that size; "
            "if these are all examples, pass one batch of them"
        )
    if machine.backend.starts_servers and (why := find_open_reason()) is not None:
        say(describe_open_servers(f"the servers of {machine.spec}", why))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(_run_directory(config.log_dir))
        asked = stack.enter_context(temporary_directory(directory.path))
        host = None
        if caller is not None:
            say(
                f"{caller!r} calls a Python function: all steps run in this process, which is "
                "slower, and other work of the process affects the measurements"
            )
            host = stack.enter_context(WorkerHost())
        # Write the request elsewhere: the search copies it after locking its own directory.
        RunDirectory(asked).write_request(workload, config)
        if store is not None and (similar := store.find_similar()) is not None:
            RunDirectory(asked).write_earlier_answer(similar)
            common = similar.provenance["common"]
            say(f"{common:.0%} of the step are as in a kept answer, whose placement is tried first")
        search_secs = time.monotonic()
        forks = machine.backend.starts_servers and config.workers is None
        outcome = run_search(
            directory, asked, callback, start_secs, host, forks=forks, max_secs=config.max_secs
        )
    searched_secs = time.monotonic()
    if outcome is Outcome.NOTHING_TO_PLACE:
        reason = verdict(None, describe_given_devices(workload.op_graph))
        return make_result(step, graph_def=workload.graph_def, changed=False, reason=reason)
    if store is not None:
        _keep_answer(store, directory, say)
    result = _read_and_show(directory, named, step, config, say)
    read_secs, written_secs = search_secs - start_secs, time.monotonic() - searched_secs
    used_secs = time.monotonic() - start_secs
    if used_secs > config.max_secs + _MAX_UNREPORTED_EXCESS_SECS:
        say(
            f"{format_duration(used_secs)} were used where {config.max_secs:g} s are allowed: no "
            "limit covers starting TensorFlow, reading the graph "
            f"({format_duration(read_secs)} here) and writing what was found "
            f"({format_duration(written_secs)})"
        )
    return result


def check_outputs(config: SearchConfig, graph: Any) -> None:
    """Checks that all outputs of a search can be written and replace no other files.

    Args:
        config: the settings of the search.
        graph: the optimization target; if it is a file, no output may replace it.

    Raises:
        ImportError: a package for the requested page is not installed.
        LogError, OSError, ValueError: an output cannot be written, or would replace a file.
    """
    if config.log_dir is not None:
        check_writable(config.log_dir)
        check_own_run(RunDirectory(config.log_dir))
        # Clean up here, because a cached answer returns before any temporary directory is made.
        remove_stale_directories(config.log_dir)
    remove_stale_directories()
    remove_stale_directories(prefix=SHORT_PREFIX)
    if config.report is not None:
        require_page_libraries()
        given = graph if isinstance(graph, str | os.PathLike) else None
        check_output(config.report, given, *own_paths(config.log_dir))
    if config.tensorboard is not None:
        check_writable(config.tensorboard)


def _is_answered(directory: RunDirectory, workload: Workload, config: SearchConfig) -> bool:
    """Returns whether the directory already has the result of the same search."""
    try:
        result = directory.read_result()
        if result is None or not result.is_complete:
            return False
        _, trials = read_log(directory.trials)
    except (OSError, ValueError):
        return False  # The search reads the files again, and reports errors.
    is_enough = result.answers(config.max_trials, config.max_secs, len(trials))
    return is_enough and result.request_digest == request_digest(config, workload)


@contextlib.contextmanager
def _run_directory(path: str | os.PathLike[str] | None) -> Iterator[RunDirectory]:
    """Yields the given directory, or a temporary one that is removed if it stays empty."""
    if path is not None:
        given = RunDirectory(path)
        is_new = not given.path.exists()
        made = given.path
        made.mkdir(parents=True, exist_ok=True)
        try:
            yield given
        finally:
            if is_new:
                with contextlib.suppress(OSError):  # The directory is not empty.
                    made.rmdir()
        return
    temporary = make_persistent_directory()
    try:
        yield RunDirectory(temporary)
    finally:
        with contextlib.suppress(OSError):  # The directory is not empty, or was deleted.
            temporary.rmdir()


def _describe_names(names: Mapping[str, str]) -> str:
    """Describes the other names of a logged graph by the first pair that differs."""
    old, new = next((old, new) for old, new in names.items() if old != new)
    return f"this is the graph of the log with other names, such as {new!r} for {old!r} there"


def _read_and_show(
    directory: RunDirectory,
    named: NamedWorkload,
    step: PlacedStep | PlacedSignature | None,
    config: SearchConfig,
    say: Callable[[str], None],
) -> OptimizeResult:
    """Reads the result, puts the placement on the graph, and writes the requested reports."""
    # A temporary directory keeps the log of the search, but the same call would not find it.
    is_given = config.log_dir is not None
    resumed_by = "the same call" if is_given else f"a call with log_dir={str(directory.path)!r}"
    result = _read_result(directory, named, step, resumed_by)
    _show(result, named.workload.graph_def, config, say)
    return result


def _read_result(
    directory: RunDirectory,
    named: NamedWorkload,
    step: PlacedStep | PlacedSignature | None,
    resumed_by: str,
) -> OptimizeResult:
    """Reads the result and puts the placement on the graph."""
    result = directory.read_result()
    if result is None:
        raise SearchError(f"the search ended without a result in {directory.path}")
    _, trials = read_log(directory.trials)
    return _build_result(
        result,
        {label: trials[index] for label, index in result.finalists.items()},
        None if result.winner is None else read_placement(directory.placement),
        named,
        step,
        resumed_by=resumed_by,
        trials=Trials(trials),
        explanation=read_explanation(directory, result),
        log_dir=directory.path,
    )


def _build_result(
    result: RunResult,
    finalists: Mapping[str, Trial],
    placement: Placement | None,
    named: NamedWorkload,
    step: PlacedStep | PlacedSignature | None,
    *,
    resumed_by: str = "the same call",
    **others: Any,
) -> OptimizeResult:
    """Builds the result for users, and puts the placement on the graph."""
    workload = named.given
    unchanged = make_result(
        step,
        outcome=result.outcome,
        answer_kept=result.answer_kept,
        one_process_secs=result.one_process_secs,
        graph_def=workload.graph_def,
        changed=False,
        reason=join_sentences(
            verdict(result, resumed_by=resumed_by), _suspect_batch(result.outcome, step)
        ),
        confirmation=result.confirmation,
        finalists=dict(finalists),
        unfitting=dict(result.unfitting),
        **others,
    )
    winner, confirmation = result.winner, result.confirmation
    if winner is None or confirmation is None or placement is None:
        return unchanged
    placement = named.restore_names(placement)
    comparison = confirmation.comparisons[winner]
    with_step: dict[str, Any] = {}
    if step is not None:
        with_step["step"] = dataclasses.replace(step, placement=placement)
    return dataclasses.replace(
        unchanged,
        **with_step,
        graph_def=_annotate(workload, placement),
        reason=join_sentences(unchanged.reason, _describe_batch(step)),
        changed=True,
        placement=placement,
        winner=winner,
        speedup=comparison.speedup,
        speedup_interval=comparison.interval,
    )


def _find_batch_size(step: PlacedStep | PlacedSignature | None) -> int | None:
    return step.traced.batch_size if isinstance(step, PlacedStep) else None


def _suspect_batch(outcome: Outcome, step: PlacedStep | PlacedSignature | None) -> str | None:
    """Says after a search that lacked time or memory that its batch may be too large."""
    batch_size = _find_batch_size(step)
    if batch_size is None or outcome.is_verdict or outcome is Outcome.INTERRUPTED:
        return None
    return f"a step trained on a batch of {batch_size}: if these are all examples, pass one batch"


def _describe_batch(step: PlacedStep | PlacedSignature | None) -> str | None:
    """Describes the batch for which a placement was measured, if that is known."""
    batch_size = _find_batch_size(step)
    return None if batch_size is None else f"this holds for fit with batch_size={batch_size}"


def _look_up(
    store: AnswerStore, workload: Workload, config: SearchConfig, say: Callable[[str], None]
) -> Answer | None:
    """Looks up a kept answer, and writes it into the directory of a search that has not begun.

    A search that has begun resumes instead, unless an answer is required.

    Raises:
        OSError: the directory cannot be written.
    """
    directory = None if config.log_dir is None else RunDirectory(config.log_dir)
    has_begun = directory is not None and directory.trials.exists()
    if has_begun and not config.require_answer:
        return None
    answer = store.look_up()
    if answer is None:
        return None
    say(f"this step was searched on {answer.day} on such a machine: {store.path} has the answer")
    if config.report is not None or config.tensorboard is not None:
        say("a kept answer has no trials to draw: search without answers for a report")
    if directory is not None and not has_begun:
        # Leave out the restored values: they are large, and no search needs them.
        plain = dataclasses.replace(workload.step, restored={})
        directory.write_request(dataclasses.replace(workload, step=plain), config)
        if answer.placement is not None:
            write_placement(answer.placement, directory.placement)
        # A search in this directory must not take the result for its own.
        directory.write_result(
            dataclasses.replace(answer.result, is_complete=False, request_digest="")
        )
    return answer


def _explain_no_answer(store: AnswerStore | None, caller: str | None) -> str:
    """Explains why there is no answer where one is required."""
    if store is None:
        return (
            f"no answer can be kept for this step, because {caller!r} calls a Python function, and "
            "require_answer forbids a search"
        )
    text = (
        f"{_describe_miss(store)}, and require_answer forbids a search: search with the same "
        "answers and without require_answer, until answer_kept of the result is true; a verdict "
        "that more time may change is not kept"
    )
    similar = _describe_most_similar(store)
    return text if similar is None else f"{text}. {similar}"


def _describe_miss(store: AnswerStore) -> str:
    if store.path.is_dir():
        return f"{store.path} has no answer for this step on this machine"
    return f"there is no directory {store.path}, which would have the answers"


def _describe_most_similar(store: AnswerStore) -> str | None:
    """Describes what differs from the most similar answer; None if none is similar."""
    similarity = store.compare_most_similar()
    if similarity is None or similarity.common_share < _LEAST_SIMILAR_SHARE:
        return None
    return _describe_similarity(similarity)


def _describe_similarity(similarity: Similarity) -> str:
    """Describes what differs between the step and that of the most similar answer."""
    here, kept = similarity.num_operations, similarity.num_kept_operations
    if here == kept and similarity.batch_sizes is not None:
        size, kept_size = similarity.batch_sizes
        return (
            f"It has one for a step of as many operations, {here}, with a batch of {kept_size} "
            f"where this one has {size}: an answer is for one batch size"
        )
    if similarity.is_one_in_the_other:
        return (
            f"It has one for a step with {similarity.common_share:.0%} of these operations: an "
            "answer is for what is fetched, where 'loss' is an operation and 'loss:0' its value, "
            "for the shapes of what is fed, and for the same pins"
        )
    if here != kept:
        return f"It has one for a step of {kept} operations where this one has {here}"
    return (
        f"It has one for a step of as many operations, {here}, of which some have other shapes, "
        "attributes or inputs"
    )


def _keep_answer(store: AnswerStore, directory: RunDirectory, say: Callable[[str], None]) -> None:
    """Keeps the answer of a search that has ended, and writes into its result whether it was."""
    result = directory.read_result()
    if result is None:
        return
    _, trials = read_log(directory.trials)
    finalists = {label: trials[index] for label, index in result.finalists.items()}
    placement = None if result.winner is None else read_placement(directory.placement)
    is_kept = store.keep(result, finalists, placement)
    if not is_kept and (why := explain_unkept(result)) is not None:
        say(f"no answer is kept: {why}")
    with contextlib.suppress(OSError):  # The disk may be full; the answer counts.
        path = str(store.path) if is_kept else None
        directory.write_result(dataclasses.replace(result, answer_kept=is_kept, answer_store=path))


def _build_answer(
    answer: Answer, named: NamedWorkload, step: PlacedStep | PlacedSignature | None
) -> OptimizeResult:
    """Builds the result for users from a kept answer."""
    explanation = answer.result.explanation
    return _build_result(
        answer.result,
        answer.finalists,
        answer.placement,
        named,
        step,
        explanation=None if explanation is None else Explanation.from_json(explanation),
        kept=answer.day,
    )


def _show(
    result: OptimizeResult,
    graph_def: tf.compat.v1.GraphDef,
    config: SearchConfig,
    say: Callable[[str], None],
) -> None:
    """Writes the page and the TensorBoard runs of a search, if requested."""
    report, tensorboard = config.report, config.tensorboard
    if result.log_dir is None or (report is None and tensorboard is None):
        return
    # Never lose a finished search because its report cannot be written.
    try:
        view = read_run_view(result.log_dir)
    except (OSError, ValueError) as error:
        say(f"what was found could not be drawn: {error}")
        return
    if report is not None:
        try:
            name = os.fspath(config.log_dir or "")
            write_page(dataclasses.replace(view, name=name), report)
        except (OSError, ValueError) as error:
            say(f"the report could not be written: {error}")
    if tensorboard is not None:
        steps = {ORIGINAL if step.label == ORIGINAL else "found": step.trace for step in view.steps}
        if not steps:
            say("TensorBoard gets no runs: the costs of operations are unknown")
        try:
            write_step_events(tensorboard, graph_def, steps)
        except OSError as error:
            say(str(error))


def _annotate(workload: Workload, placement: Placement) -> tf.compat.v1.GraphDef:
    annotated = Annotate(placement.assignment).run(workload.graph_def)
    if workload.live is not None:
        # Devices of other operations differ, too, if they were cleared.
        for node in annotated.node:
            operation = workload.live.get_operation_by_name(node.name)
            if operation.device != node.device:
                operation._set_device(node.device)
    return annotated
