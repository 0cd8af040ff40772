"""Detects the first training step that a script runs, and caches it for a search."""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.annotate import ClearDevices
from graph_passes.clearing_advice import CLEARING_FLAG, clear_by
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.restrictions import Restrictions
from tf_placer.errors import NoAnswerError
from tf_placer.functions.keras_models import check_training
from tf_placer.functions.process_gpus import build_session_config
from tf_placer.inputs.given_devices import check_given_devices, describe_immovable_step
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.inputs.session_arguments import flatten_feeds, list_names
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.live.entry_points import optimize
from tf_placer.live.optimization_target import read_target
from tf_placer.machines.machine import Machine
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.scripts.first_batches import check_train_function
from tf_placer.scripts.process_restart import Stage
from tf_placer.scripts.script_search import SECS_WITHOUT_A_LINE
from tf_placer.scripts.sent_graphs import (
    SentGraphs,
    check_runs_elsewhere,
    check_sent_at_once,
    is_session_of,
)
from tf_placer.scripts.step_cache import write_cached_step
from tf_placer.scripts.training_steps import (
    find_needed_operations,
    is_training_function,
    is_training_step,
)
from tf_placer.search.config import SearchConfig
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = [
    "TrainingStepDetector",
    "extract_caller_fetches",
    "order_arguments",
]


class TrainingStepDetector:
    """A watcher that caches the first training step, and then restarts the script."""

    def __init__(
        self,
        directory: RunDirectory,
        machine: Machine,
        search_secs: float,
        *,
        say: Callable[[str], None],
        restart: Callable[[Stage], None],
        may_search: bool = True,
        restrictions: Restrictions | None = None,
        clear_devices: bool = False,
    ) -> None:
        """Prepares to detect the step.

        Args:
            directory: the directory of the search.
            machine: the machine to place the step on.
            search_secs: the time limit of the search.
            say: prints a line for the user.
            restart: restarts the script for a stage; does not return.
            may_search: whether a step that calls Python may be searched for in this process;
                otherwise the script ends.
            restrictions: the restrictions of placements; None for none.
            clear_devices: whether the step is placed without the devices of the script.
        """
        self._clears_devices = clear_devices
        self._may_search, self._restrictions = may_search, restrictions
        self._directory, self._machine, self._search_secs = directory, machine, search_secs
        self._say, self._begin_again = say, restart
        self.is_over = False
        self._is_busy = False
        self._judged: set[tuple[int, tuple[str, ...]]] = set()
        self._functions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._sent = SentGraphs()
        self._earlier_feeds: weakref.WeakKeyDictionary[tf.Graph, dict[str, Any]]
        self._earlier_feeds = weakref.WeakKeyDictionary()

    @property
    def is_explained(self) -> bool:
        """True if the user was told the outcome for the training step."""
        return self.is_over

    @property
    def has_placed(self) -> bool:
        """False, because the step is only detected."""
        return False

    @property
    def has_changed_step(self) -> bool | None:
        """None, because there is no other step to compare with."""
        return None

    @property
    def may_have_broken(self) -> bool:
        """False, because nothing is placed."""
        return False

    def after_eager_start(self) -> None:
        """Does nothing: until the step is placed, the script runs as without tf_placer."""

    def before_graph_extension(self, session: Any) -> None:
        """Records the part of the graph that the session receives."""
        if not self.is_over:
            self._sent.note(session)

    def before_session_run(
        self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None
    ) -> None:
        """Caches the step if a session is about to run a training step."""
        if self.is_over or self._is_busy:
            return
        fetches = extract_caller_fetches(fetches)
        graph = session.graph
        try:
            names, fed = tuple(list_names(fetches)), flatten_feeds(feeds)
        except GraphError:
            return  # TensorFlow will raise an error for the arguments.
        earlier = self._earlier_feeds.setdefault(graph, {})
        key = (id(graph), names)
        if key in self._judged or not is_training_step(graph, names, fed):
            self._judged.add(key)
            earlier.update(fed)
            return
        config = session._config
        trained_by = [name for name in names if is_training_step(graph, [name], fed)]

        def read() -> Workload:
            self._check_may_move(session, trained_by)
            # Feeds of earlier runs may be needed by initializers, but must not be fed to this step.
            needed = find_needed_operations(graph, names)
            given = {n: v for n, v in earlier.items() if n.partition(":")[0] not in needed}
            workload = read_workload(graph, names, {**given, **fed}, checkpoint=session)
            feeds = {n: v for n, v in workload.step.feeds.items() if n in fed or n not in given}
            return dataclasses.replace(
                workload, step=dataclasses.replace(workload.step, feeds=feeds)
            )

        self._cache_step(
            f"the session that runs {_summarize_names(names)}", read, config, trained_by
        )

    def after_session_run(self) -> None:
        """Does nothing: the step is detected before it runs."""

    def _check_may_move(self, session: Any, trained_by: Sequence[str]) -> None:
        """Checks that a session can later move to the machine.

        Raises:
            GraphError: the session has another target, or has received a part of the step.
        """
        if not is_session_of(self._machine, session):
            target = tf.compat.as_str(session._target)
            raise GraphError(
                f"its session goes to {target!r}, as the script says, and not to "
                f"{self._machine.spec!r}: if that cluster runs before the script, --machine "
                f"{target} can place it there"
            )
        graph = session.graph
        check_sent_at_once(graph, trained_by, self._sent.counts(graph), self._machine)

    def before_function_call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Caches the step if a tf.function is a training step."""
        if self.is_over or self._is_busy or function in self._functions:
            return
        self._functions.add(function)
        self._is_busy = True
        try:
            graph = function.get_concrete_function(*args, **kwargs).graph
        except Exception:
            return  # The script's own call will raise the error.
        finally:
            self._is_busy = False
        if is_training_function(graph):

            def read() -> Workload:
                return read_target(
                    function, example_inputs=order_arguments(function, args, kwargs)
                ).workload

            name = getattr(function.python_function, "__name__", "without a name")
            self._cache_step(f"the function {name!r}", read)

    def before_training(self, model: Any, look: Callable[[Callable[[Any], Any]], Any]) -> None:
        """Caches the training step of a Keras model."""
        if self.is_over or self._is_busy or not tf.executing_eagerly():
            return
        try:
            check_training(model)
            check_train_function(model)
        except GraphError as error:
            self.is_over = True
            self._report_refusal(error)
            return

        def read(batch: Any) -> Workload:
            return read_target(model, example_inputs=batch).workload

        title = f"that of the model {model.name!r}"
        self._cache_step(title, lambda: look(read), go_on=lambda: self._begin_again(Stage.ORIGINAL))

    def _cache_step(
        self,
        title: str,
        read: Callable[[], Workload],
        config: tf.compat.v1.ConfigProto | None = None,
        trained_by: Sequence[str] | None = None,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        if config is None and self._machine.backend.in_one_process:
            config = build_session_config()
        config = config or tf.compat.v1.ConfigProto()
        self._is_busy = self.is_over = True
        try:
            # Large constants and variables take long to read.
            with Stages(say, first_secs=SECS_WITHOUT_A_LINE) as stages:
                stages.enter("reading the graph and the variables of the training step")
                workload = read()
                if self._clears_devices:
                    workload = _clear_devices(workload)
                live = workload.live
                whole = workload.graph_def if live is None else live.as_graph_def()
                check_runs_elsewhere(whole, self._machine)
                self._check_devices(workload, soft=config.allow_soft_placement)
                caller = check_python_functions_are_here(workload, self._machine)
        except GraphError as error:
            self._is_busy = False
            self._report_refusal(error)
            go_on()
            return
        asked = SearchConfig(
            self._machine,
            max_secs=self._search_secs,
            session_config=config,
            pin={} if self._restrictions is None else self._restrictions.pin,
            keep_together=() if self._restrictions is None else self._restrictions.keep_together,
        )
        if trained_by is None:
            trained_by = workload.step.fetches
        if caller is not None and not self._may_search:
            text = (
                f"the script ends, because an answer is required, and none can be kept for its "
                f"step: {caller!r} calls a Python function"
            )
            self._say(text)
            raise SystemExit(1) from NoAnswerError(text)
        write_cached_step(self._directory, workload, asked, trained_by)
        if caller is not None:
            # The step calls Python functions of this process, so the search has to run here.
            with clear_by(CLEARING_FLAG):
                optimize(workload, log_dir=self._directory.path, config=asked)
        then = "after the search for a placement" if self._may_search else "if it has an answer"
        self._say(
            f"found the training step: {title}; the script ends here, and is restarted {then}"
        )
        # Even an interrupted search in this process must not be resumed right after the restart.
        self._begin_again(Stage.FIRST if caller is None else Stage.SEARCHED)

    def _check_devices(self, workload: Workload, *, soft: bool) -> None:
        """Checks that the machine has the devices of a step, and that most of the step can move.

        Raises:
            GraphError: it has not, or nearly nothing can move, which is not worth a search.
        """
        with clear_by(CLEARING_FLAG):
            check_given_devices(
                workload.op_graph,
                self._machine,
                workload.step.initializers,
                soft=soft,
                advice="functions keep the devices that the script chose for what is in them"
                if workload.is_cleared
                else f"{CLEARING_FLAG} has devices chosen for what the script has put there",
            )
            if (note := describe_immovable_step(workload.op_graph)) is not None:
                raise GraphError(note)

    def _report_refusal(self, error: GraphError) -> None:
        self._say(f"the training step cannot be placed, and runs unchanged: {error}")


def _clear_devices(workload: Workload) -> Workload:
    """Clears the devices of a step, but not those in functions, which the script's graph keeps."""
    graph_def = ClearDevices(in_functions=False).run(workload.graph_def)
    step = workload.step
    op_graph = OpGraph.from_graph_def(graph_def, step.fetches, list(step.feeds))
    return dataclasses.replace(workload, op_graph=op_graph, is_cleared=True)


def extract_caller_fetches(fetches: Any) -> Any:
    """Returns the caller's fetches without those that hooks of a MonitoredSession add."""
    hook = tf.compat.v1.train.SessionRunHook
    if isinstance(fetches, dict) and "caller" in fetches:
        others = [key for key in fetches if key != "caller"]
        if all(isinstance(key, hook) for key in others):
            return fetches["caller"]
    return fetches


def order_arguments(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Converts the arguments of a call to positional ones.

    Raises:
        GraphError: an argument is keyword-only.
    """
    if not kwargs:
        return tuple(args)
    try:
        bound = inspect.signature(function.python_function).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"the arguments of the function cannot be put in order: {error}"
        ) from error
    if bound.kwargs:
        raise GraphError(f"{next(iter(bound.kwargs))!r} can be given to the function by name only")
    return bound.args


def _summarize_names(names: Sequence[str]) -> str:
    return repr(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
