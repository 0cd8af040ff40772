"""Entry points of a live search, one for each kind of optimization target."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from graph_passes.clearing_advice import CLEARING_ARGUMENT, clear_by, find_clearing_setting
from graph_passes.errors import GraphError
from tf_placer.confirmation.outcome import Outcome
from tf_placer.former_keywords import accept_former_keywords
from tf_placer.functions.keras_models import is_keras_model
from tf_placer.functions.traced_call import is_traceable
from tf_placer.inputs.saved_model_files import is_saved_model
from tf_placer.inputs.workload import Workload
from tf_placer.interpreter import is_notebook
from tf_placer.interrupts import shorten_interrupts
from tf_placer.live.optimization import check_outputs, place
from tf_placer.live.optimization_target import read_target
from tf_placer.live.result import FunctionResult, ModelResult, OptimizeResult, SavedModelResult
from tf_placer.machines.machine import Machine
from tf_placer.placers import Placer, check_is_importable, check_no_import_is_running
from tf_placer.report.notebook_progress import NotebookProgress
from tf_placer.report.progress import ProgressPrinter
from tf_placer.search.callbacks import Callback, Callbacks
from tf_placer.search.config import (
    SearchConfig,
    explain_unexpected_keyword,
    override_config,
)
from tf_placer.text.stages import Stages

__all__ = [
    "count_time_from",
    "optimize",
    "optimize_function",
    "optimize_model",
    "optimize_saved_model",
]

# Time of the call of the command that searches; None for a call by a program.
_call_secs: contextvars.ContextVar[float | None] = contextvars.ContextVar("call", default=None)
# Keywords that `optimize` had before `SearchConfig` and the other entry points existed, with their
# names there.
_CONFIG_KEYWORDS = {
    "placer_options": "placer_options",
    "report": "report",
    "tensorboard": "tensorboard",
    "session_config": "session_config",
    "restore_from": "checkpoint",
    "workers": "workers",
    "num_workers": "num_workers",
    "controllers": "controllers",
}
_STEP_KEYWORDS = {"example": "example_inputs", "signature": "signature_key"}
_FORMER_FEEDS = "feeds"
_FIELDS = frozenset(field.name for field in dataclasses.fields(SearchConfig))

P = ParamSpec("P")
R = TypeVar("R")


def _refer_to_config(entry: Callable[P, R]) -> Callable[P, R]:
    """Makes an entry point say that a keyword which it lacks is a field of its configuration."""
    keywords = inspect.signature(entry).parameters

    @functools.wraps(entry)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in keywords and name in _FIELDS:
                raise TypeError(explain_unexpected_keyword(entry.__name__, name, keywords, _FIELDS))
        return entry(*args, **kwargs)

    return call


@shorten_interrupts
def optimize(
    graph: Any,
    fetches: Any = None,
    feed_dict: Mapping[Any, Any] | None = None,
    initializers: Any = None,
    *,
    machine: str | Machine | None = None,
    placer: str | Callable[..., Placer] | None = None,
    max_trials: int | None = None,
    max_secs: float | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    clear_devices: bool = False,
    config: SearchConfig | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
    **former: Any,
) -> OptimizeResult:
    """Finds a faster placement of a graph by timing real steps, and puts it on the graph.

    Measures the original, everything on each device, and splits by layer; then the placer searches:
    by default it repeatedly profiles the graph, searches in simulation, measures the best
    candidates and corrects the costs; `tf_placer.search.driver.drive` is the loop. In a trial a
    placement takes turns with the original, so that both are measured at the same time, unless
    `SearchConfig.protocol` is that of a paper. The fastest are measured again beside the original,
    in turns, in several sets of fresh processes and under the user's session configuration. A
    placement is put on the graph only if it is faster beyond the noise and computes the same
    values: if nothing is faster, at most 2.5 % of searches find something. The search runs in
    processes of its own; this process needs no eager execution and uses no GPU.

    A step that calls Python functions (`tf.py_function`, `tf.numpy_function`, `tf.py_func`,
    `Dataset.from_generator`) runs only in the process of these functions. Then the graph must be a
    tf.Graph and the machine "attached", and the search uses sessions of this process, in a thread
    of their own. Every step of the search calls the functions. "Fresh processes" are new sessions
    then: other work of this process affects the measurements, and a function that never returns is
    not stopped.

    An interrupt from the keyboard ends the search with the best so far, after a short confirmation;
    a second one cancels the confirmation, and the graph stays unchanged. All trials are in the log.
    Before the search has started, which takes a second or so, it raises KeyboardInterrupt.

    Args:
        graph: a tf.Graph, which is annotated in place through its operations (a session that has
            already run it does not see that); or a GraphDef, a MetaGraphDef or the path of either
            (`.pb`, `.pbtxt`, `.meta`), which are not changed; or a `Workload`, a graph that was
            read with its step and is used without changes. Functions, models and directories of
            SavedModels are passed on to `optimize_function`, `optimize_model` and
            `optimize_saved_model`.
        fetches: the fetches of a step, as `Session.run` takes them, or names of operations and
            tensors. By default the `train_op` collection.
        feed_dict: values by placeholder, tensor or name, as `Session.run` takes them; also for
            placeholders of initializers; for a SavedModel by the names of the arguments.
            By default synthetic values of the placeholders' shapes and types.
        initializers: operations (or names) that initialize everything before the first step, or a
            tf.compat.v1.train.Scaffold. By default those of the graph's variables, tables and
            iterators.
        machine: the machine: "attached", the default, for the CPU and GPUs of this computer,
            "local:N" for N worker processes on its cores, "numa" for one per NUMA node,
            "grpc://HOST:PORT" for a running TensorFlow cluster.
        placer: the placer that searches after the baselines, by default "auto": one that `python -m
            tf_placer placers` lists, a name that a package registers, "module:name", or a subclass
            of `tf_placer.placers.Placer`, which the process of the search must be able to import.
            For a placer that needs the costs of operations, such as "auto", the graph is profiled
            first.
        max_trials: maximum number of trials, the original included; by default 150.
        max_secs: time limit in seconds from the call on, by default 600; it includes starting,
            profiling and the confirmation.
        log_dir: directory for the log. If it has the log of the same search, this search is
            resumed. By default a new temporary directory.
        seed: seed of all random choices, by default 0.
        clear_devices: whether to search without the devices that the graph came with; by default
            operations that have a device keep it. A tf.Graph keeps its devices if nothing faster is
            found.
        config: all other settings, and defaults of the keywords above, which override it.
        callbacks: receive trials, stages and notes while the search runs, and may end it; see
            `Callback`.
        verbose: whether to print a line per trial and all notes to the standard error.
        former: keywords of former versions. They cause a DeprecationWarning in this version and are
            removed in the next.

    Returns:
        The graph, the verdict with its reason, and all measurements.

    Raises:
        GraphError: the graph cannot be used, is on devices that the machine lacks, or a pin cannot
            be honored.
        MachineError: there is no such machine, or it is only described.
        LogError: the log is damaged, in use, or of another search, or `log_dir` has files of
            another program that a search would replace.
        SearchError: the graph does not run, the search died, or a required answer is missing.
        ImportError: a package for the requested report or workers is not installed.
        TypeError: there is no such keyword, or a value is given by its former name and today's.
        ValueError: there is no such placer or setting, another process cannot import the placer, or
            a budget or the seed is out of range.
        OSError: a file is missing or cannot be read, or the log cannot be written.
        KeyboardInterrupt: there was an interrupt before the search had started, or a third one.

    Example:
        >>> result = tf_placer.optimize(tf.compat.v1.get_default_graph(), machine="local:2")
        >>> print(result.reason, result.table())
    """
    _check_former(former, graph, feed_dict)
    values = {
        "machine": machine,
        "placer": placer,
        "max_trials": max_trials,
        "max_secs": max_secs,
        "log_dir": log_dir,
        "seed": seed,
        **{today: former[name] for name, today in _CONFIG_KEYWORDS.items() if name in former},
    }
    step = {today: former[name] for name, today in _STEP_KEYWORDS.items() if name in former}
    feed_dict = former.get(_FORMER_FEEDS, feed_dict)
    step |= {"fetches": fetches, "feed_dict": feed_dict, "initializers": initializers}
    step["clear_devices"] = clear_devices
    return _optimize(graph, config, values, callbacks, verbose, **step)


@accept_former_keywords(example="example_inputs")
@shorten_interrupts
@_refer_to_config
def optimize_function(
    function: Any,
    example_inputs: Any,
    *,
    machine: str | Machine | None = None,
    placer: str | Callable[..., Placer] | None = None,
    max_trials: int | None = None,
    max_secs: float | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    config: SearchConfig | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
) -> FunctionResult:
    """Finds a faster placement of a function, as one call of it; see `optimize`.

    The function is neither run nor changed. Variables move to the devices of the operations that
    use them; their values, checkpoints and references stay valid.

    Args:
        function: a tf.function or a ConcreteFunction.
        example_inputs: the arguments of one call, a tuple, or its only argument.
        machine: see `optimize`, as of all that follow.
        placer: the placer: its name or its class.
        max_trials: trials at most.
        max_secs: seconds at most.
        log_dir: directory for the log.
        seed: of everything random.
        config: all else.
        callbacks: hear of the search.
        verbose: whether it prints lines to the standard error.

    Returns:
        The verdict, and the function with devices: `result.function`.

    Raises:
        GraphError: the function cannot be traced or used, or is on devices that the machine lacks.
        ValueError: it is no function; or as in `optimize`, which lists all other errors.

    Example:
        >>> train_step = tf_placer.optimize_function(train_step, (images, labels)).function
    """
    if not is_traceable(function) or is_keras_model(function):
        raise ValueError(f"a tf.function or a ConcreteFunction is wanted, {_not(function)}")
    result = _optimize(
        function,
        config,
        {
            "machine": machine,
            "placer": placer,
            "max_trials": max_trials,
            "max_secs": max_secs,
            "log_dir": log_dir,
            "seed": seed,
        },
        callbacks,
        verbose,
        example_inputs=example_inputs,
    )
    assert isinstance(result, FunctionResult)
    return result


@accept_former_keywords(example="example_inputs")
@shorten_interrupts
@_refer_to_config
def optimize_model(
    model: Any,
    example_inputs: Any,
    *,
    machine: str | Machine | None = None,
    placer: str | Callable[..., Placer] | None = None,
    max_trials: int | None = None,
    max_secs: float | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    config: SearchConfig | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
) -> ModelResult:
    """Finds a faster placement of a Keras model, as one training step of it; see `optimize`.

    The step has gradients and the optimizer. The model is neither run nor changed before
    `result.apply(model)` puts the devices into it.

    Args:
        model: a Keras model that is built and compiled.
        example_inputs: a batch as `fit` takes it, such as (x, y), or a data set, whose first batch
            is taken.
        machine: see `optimize`, as of all that follow.
        placer: the placer: its name or its class.
        max_trials: trials at most.
        max_secs: seconds at most.
        log_dir: directory for the log.
        seed: of everything random.
        config: all else.
        callbacks: hear of the search.
        verbose: whether it prints lines to the standard error.

    Returns:
        The verdict, and `result.apply`.

    Raises:
        GraphError: the model cannot be traced or used, or is on devices that the machine lacks.
        ValueError: it is no Keras model; or as in `optimize`, which lists all other errors.

    Example:
        >>> tf_placer.optimize_model(model, (x, y)).apply(model)
        >>> model.fit(x, y)
    """
    if not is_keras_model(model):
        raise ValueError(f"a Keras model is wanted, {_not(model)}")
    result = _optimize(
        model,
        config,
        {
            "machine": machine,
            "placer": placer,
            "max_trials": max_trials,
            "max_secs": max_secs,
            "log_dir": log_dir,
            "seed": seed,
        },
        callbacks,
        verbose,
        example_inputs=example_inputs,
    )
    assert isinstance(result, ModelResult)
    return result


@accept_former_keywords(example="example_inputs", signature="signature_key")
@shorten_interrupts
@_refer_to_config
def optimize_saved_model(
    directory: str | os.PathLike[str],
    signature_key: str | Sequence[str] | None = None,
    example_inputs: Any = None,
    *,
    machine: str | Machine | None = None,
    placer: str | Callable[..., Placer] | None = None,
    max_trials: int | None = None,
    max_secs: float | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    clear_devices: bool = False,
    config: SearchConfig | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
) -> SavedModelResult:
    """Finds a faster placement of signatures of a SavedModel; see `optimize`.

    The operations of all functions that it calls are placed, too. The directory is not changed.

    Args:
        directory: the directory of the SavedModel.
        signature_key: the name of a signature, or the names of several; by default
            "serving_default" if there is one, or the only one. A step calls each of them once, one
            after another.
        example_inputs: the arguments of one call by name, or the value of the only argument; by
            default synthetic values of their shapes and types. A value is for all of the signatures
            that have the argument.
        machine: see `optimize`, as of all that follow.
        placer: the placer: its name or its class.
        max_trials: trials at most.
        max_secs: seconds at most.
        log_dir: directory for the log.
        seed: of everything random.
        clear_devices: whether to search without the devices of the SavedModel; see `optimize`.
        config: all else.
        callbacks: hear of the search.
        verbose: whether it prints lines to the standard error.

    Returns:
        The verdict; `result.save(directory)` writes another SavedModel with devices,
        `result.function` is a single signature with them as a function.

    Raises:
        GraphError: it is no SavedModel or cannot be used, there is no such signature, or it is on
            devices that the machine lacks.
        ValueError: as in `optimize`, which lists all other errors.

    Example:
        >>> tf_placer.optimize_saved_model("saved", example_inputs={"x": request}).save("placed")
    """
    if not isinstance(directory, str | os.PathLike) or not is_saved_model(directory):
        raise GraphError(f"the directory of a SavedModel is wanted, {_not(directory)}")
    result = _optimize(
        directory,
        config,
        {
            "machine": machine,
            "placer": placer,
            "max_trials": max_trials,
            "max_secs": max_secs,
            "log_dir": log_dir,
            "seed": seed,
        },
        callbacks,
        verbose,
        signature_key=signature_key,
        example_inputs=example_inputs,
        clear_devices=clear_devices,
    )
    assert isinstance(result, SavedModelResult)
    return result


@contextlib.contextmanager
def count_time_from(call_secs: float) -> Iterator[None]:
    """Starts the time limit of a search at the call of a command, earlier than `optimize`.

    Args:
        call_secs: time of the call of the command, by `time.monotonic`.
    """
    token = _call_secs.set(call_secs)
    try:
        yield
    finally:
        _call_secs.reset(token)


def _optimize(
    target: Any,
    config: SearchConfig | None,
    given: Mapping[str, Any],
    callbacks: Sequence[Callback],
    verbose: bool,
    **step: Any,
) -> OptimizeResult:
    """Optimizes a target of any kind.

    Args:
        target: a graph, a function, a model or a SavedModel.
        config: the settings of the search.
        given: values that override fields of the configuration, unless they are None.
        callbacks: receive the events of the search.
        verbose: whether to print lines.
        step: the step of the target, as `read_target` takes it.
    """
    start_secs = _call_secs.get() or time.monotonic()
    if not isinstance(config, SearchConfig | None):
        raise ValueError(f"config is a tf_placer.SearchConfig, {_not(config)}")
    values = {name: value for name, value in given.items() if value is not None}
    asked = override_config(config or SearchConfig(), values)
    if not isinstance(callbacks, list | tuple):
        raise ValueError(f"callbacks is a list of tf_placer.Callback objects, {_not(callbacks)}")
    for each in callbacks:
        if not isinstance(each, Callback):
            raise ValueError(f"callbacks are objects of tf_placer.Callback, {_not(each)}")
    shown = NotebookProgress() if is_notebook() else ProgressPrinter()
    callback = Callbacks([*([shown] if verbose else []), *callbacks])
    check_no_import_is_running()
    check_is_importable(asked.placer)
    check_outputs(asked, target)
    clearing = find_clearing_setting()
    if clearing == CLEARING_ARGUMENT and (isinstance(target, Workload) or is_traceable(target)):
        clearing = None
    is_complete = is_failed = False
    try:
        with clear_by(clearing):
            with Stages(shown.on_note if verbose else _ignore, callback.on_stage) as stages:
                stages.enter("reading the graph")
                read = read_target(target, **step, checkpoint=asked.checkpoint, seed=asked.seed)
            result = place(read, asked, callback, start_secs)
        is_complete = result.outcome is not Outcome.INTERRUPTED
    except Exception:
        is_failed = True
        raise
    finally:
        if isinstance(shown, NotebookProgress):
            shown.finish(is_complete=is_complete, is_failed=is_failed)
    return result


def _ignore(line: str) -> None:
    del line


def _check_former(former: Mapping[str, Any], graph: Any, feed_dict: Any) -> None:
    """Warns of keywords of former versions, with their replacements.

    Raises:
        TypeError: a keyword is unknown in former versions, too, or feeds are given twice.
    """
    entry = "optimize_saved_model(directory, signature_key, example_inputs)"
    if is_keras_model(graph):
        entry = "optimize_model(model, example_inputs)"
    elif is_traceable(graph):
        entry = "optimize_function(function, example_inputs)"
    for name in former:
        if name in _STEP_KEYWORDS.values():
            raise TypeError(f"optimize() has no {name}=: write tf_placer.{entry}")
        if name not in (*_CONFIG_KEYWORDS, *_STEP_KEYWORDS, _FORMER_FEEDS):
            keywords = inspect.signature(optimize).parameters.keys() - {"former"}
            raise TypeError(explain_unexpected_keyword("optimize", name, keywords, _FIELDS))
    lines = []
    if _FORMER_FEEDS in former:
        if feed_dict is not None:
            raise TypeError("optimize() got feeds= and feed_dict=: write feed_dict= only")
        lines.append("feed_dict=...")
    if names := [today for name, today in _CONFIG_KEYWORDS.items() if name in former]:
        more = ["placer=..."] if "placer_options" in names else []
        values = ", ".join([*more, *(f"{name}=..." for name in names)])
        lines.append(f"config=tf_placer.SearchConfig({values})")
    if any(name in former for name in _STEP_KEYWORDS):
        lines.append(entry)
    if lines:
        given = ", ".join(f"{name}=" for name in former)
        text = f"the next version of optimize has no {given}: write {' and '.join(lines)}"
        # The caller of `optimize`, which has a decorator.
        warnings.warn(text, DeprecationWarning, stacklevel=4)


def _not(value: object) -> str:
    return f"not {value!r}" if isinstance(value, str) else f"not {type(value).__name__}"
