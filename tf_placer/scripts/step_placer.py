"""Applies a placement to the training step of a script before it first runs."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from graph_passes.renaming import map_names, rename_placement
from tf_placer.errors import NoAnswerError
from tf_placer.functions.connection import connect
from tf_placer.functions.keras_models import check_training, has_train_step
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import TracedCall, trace_call
from tf_placer.inputs.session_arguments import flatten_feeds, list_names
from tf_placer.inputs.session_hook import apply_placement
from tf_placer.machines.cluster_machine import check_reachable
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.scripts.first_batches import check_train_function
from tf_placer.scripts.sent_graphs import (
    SentGraphs,
    check_runs_elsewhere,
    check_sent_at_once,
    is_session_of,
    move_session,
)
from tf_placer.scripts.step_cache import CachedStep
from tf_placer.scripts.training_step_detector import (
    extract_caller_fetches,
    order_arguments,
)
from tf_placer.scripts.training_steps import is_training_function, is_training_step

__all__ = ["StepPlacer"]


class StepPlacer:
    """A watcher that places a cached step before it runs for the first time.

    Without a placement it only checks that the script trains with this step.
    """

    def __init__(
        self,
        step: CachedStep,
        placement: Placement | None,
        machine: Machine,
        *,
        say: Callable[[str], None],
        must_fit: bool = False,
        unplaced_note: str | None = None,
        look_up_again: Callable[[], None] | None = None,
        is_given: bool = False,
    ) -> None:
        """Prepares to place.

        Args:
            step: the step.
            placement: the placement of the step; None to leave it as it is.
            machine: the machine that is to run the step.
            say: prints a line for the user.
            must_fit: whether the script ends when its step is another one.
            unplaced_note: a line for the user when the script is about to train with the step and
                there is no placement; None for none.
            look_up_again: restarts the script to look for an answer for another step, instead of
                ending it; None to end it.
            is_given: whether the user names the placement, which is not that of a search for this
                script then.
        """
        self._must_fit, self._look_up_again = must_fit, look_up_again
        self._is_given = is_given
        self._unplaced_note = unplaced_note
        self._step, self._placement, self._machine, self._say = step, placement, machine, say
        self._cluster: LocalCluster | None = None
        self.has_met_step = False
        self._can_connect, self.has_placed, self._has_trained = True, False, False
        # Threads in which a session runs the step.
        self._training: set[int] = set()
        self._has_said_changed = self._has_said_stays = False
        self._is_busy = False
        self._sent = SentGraphs()
        # The graphs that contain the step, and whether they are placed.
        self._graphs: weakref.WeakKeyDictionary[tf.Graph, bool] = weakref.WeakKeyDictionary()
        self._judged: set[tuple[int, tuple[str, ...]]] = set()
        self._functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # The Keras models that were trained, and whether they were placed.
        self._models: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    @property
    def is_explained(self) -> bool:
        """True if the user was told the outcome for the training step."""
        return self.has_met_step or self._has_said_changed or self._has_said_stays

    @property
    def has_changed_step(self) -> bool | None:
        """True if the step has changed since the search; None if it was not compared."""
        if self._step.fingerprint is None:
            return None
        # Batches of another size are another step only where the script ends for them.
        if self._has_said_changed and (self._must_fit or not self.has_met_step):
            return True
        return False if self.has_met_step else None

    @property
    def may_have_broken(self) -> bool:
        """True if something was placed, and has not trained yet."""
        return (
            self.has_placed and not self._has_trained and not any(map(_has_trained, self._models))
        )

    def after_eager_start(self) -> None:
        """Connects to the machine before there is state that connecting would lose."""
        if self._placement is None:
            return
        try:
            connect(self._machine)
        except (LocalClusterError, MachineError) as error:
            self._can_connect = False
            self._say(f"functions and models run without a placement: {error}")

    def before_graph_extension(self, session: Any) -> None:
        """Places a graph once it contains the step, and then all its extensions."""
        graph = session.graph
        before = self._sent.note(session)
        if before is None:
            return
        if graph not in self._graphs:
            # Otherwise a later extension may add the step, or this is another graph.
            is_whole = all(_has(graph, name) for name in self._step.trained_by)
            if is_whole and self._step.is_in(graph.as_graph_def()):
                self._graphs[graph] = self._place_graph(session, before)
        elif self._graphs[graph]:
            try:
                self._apply(graph, max(before, default=0))
            except GraphError as error:
                self._say(f"the new operations of the graph are not placed: {error}")
            self._move(session)

    def _place_graph(self, session: Any, before: Sequence[int]) -> bool:
        """Places the graph of a session, which contains the step; returns whether it was placed."""
        self.has_met_step = True
        if self._placement is None:
            return False
        graph, trained_by = session.graph, self._step.trained_by
        fetches = trained_by or [name for name in self._placement.assignment if _has(graph, name)]
        try:
            if not is_session_of(self._machine, session):
                target = tf.compat.as_str(session._target)
                raise GraphError(f"its session goes to {target!r}, as the script says")
            check_sent_at_once(graph, fetches, before, self._machine)
            check_runs_elsewhere(graph.as_graph_def(), self._machine)
            self._find_target()
            # A session that moves receives the whole graph again.
            is_kept = self._machine.backend.in_one_process
            placed = self._apply(graph, max(before, default=0) if is_kept else 0)
        except (GraphError, LocalClusterError, MachineError) as error:
            self._say(f"the graph is not placed: {error}")
            return False
        self.has_placed = True
        for each in self._sent.sessions(graph):
            self._move(each)
        self._say(f"placed {placed} operations of the graph as {self._step.title!r} says")
        return True

    def _find_target(self) -> str:
        """Returns the session target of the machine; starts its servers if it has its own.

        Raises:
            LocalClusterError, MachineError: a server does not answer.
        """
        if self._machine.backend.starts_servers:
            if self._cluster is None:
                cluster = LocalCluster(self._machine)
                try:
                    cluster.wait_until_ready()
                except BaseException:
                    cluster.close()
                    raise
                cluster.keep_until_exit()
                self._cluster = cluster
            return self._cluster.target
        for address in self._machine.addresses:
            check_reachable(f"grpc://{address}")
        return self._machine.target

    def _move(self, session: Any) -> None:
        """Moves a session without a target to the machine."""
        if is_session_of(self._machine, session) and not session._target:
            target = self._find_target()
            if target:
                move_session(session, target)

    def _apply(self, graph: tf.Graph, sent: int) -> int:
        assert self._placement is not None
        if self._step.is_cleared:
            for operation in graph.get_operations()[sent:]:
                operation._set_device("")
        return apply_placement(
            graph,
            self._placement,
            fetches=self._step.trained_by,
            may_grow=self._step.fingerprint is not None,
            sent=sent,
        )

    def before_session_run(
        self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None
    ) -> None:
        """Records a run of the step, or reports that a session is about to train something else."""
        if self._has_trained or self._has_said_changed:
            return
        graph = session.graph
        try:
            names, fed = tuple(list_names(extract_caller_fetches(fetches))), flatten_feeds(feeds)
        except GraphError:
            return
        if self.has_met_step:
            trained_by = self._step.trained_by
            if any(name in names for name in trained_by) or not trained_by:
                if self._must_fit and self._has_other_shapes(fed):
                    self._report_change()
                self._report_unplaced()
                self._training.add(threading.get_ident())
            return
        key = (id(graph), names)
        if key in self._judged:
            return
        self._judged.add(key)
        if is_training_step(graph, names, fed):
            # The graph may have grown since it was last checked.
            self.before_graph_extension(session)
            if graph in self._graphs:
                if self._must_fit and self._has_other_shapes(fed):
                    self._report_change()
                self._report_unplaced()
                self._training.add(threading.get_ident())
            else:
                self._report_change()

    def _has_other_shapes(self, fed: Mapping[str, Any]) -> bool:
        """Returns whether values have other shapes than in the search, as of other batches."""
        known = self._step.feed_shapes
        return any(name in known and np.shape(fed[name]) != known[name] for name in fed)

    def after_session_run(self) -> None:
        """Records that the step has run."""
        if threading.get_ident() in self._training:
            self._has_trained = True

    def before_function_call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Returns the placed function if the function is the step."""
        if self._is_busy or not self._can_connect:
            return None
        if function in self._functions:
            return self._functions[function]
        self._functions[function] = None
        self._is_busy = True
        try:
            if not is_training_function(function.get_concrete_function(*args, **kwargs).graph):
                return None
            traced = trace_call(function, order_arguments(function, args, kwargs))
            placed = self._build_placed_step(traced)
            if placed is not None:
                self._functions[function] = self._record_runs(placed.function)
                # Calls of the placed function arrive here, too, and must not be placed again.
                self._functions[placed.function] = None
                self._report_placed(placed)
        except (GraphError, LocalClusterError, MachineError) as error:
            self._report_refusal("the training step", error)
        except Exception:
            return None  # The script's own call will raise the error.
        finally:
            self._is_busy = False
        return self._functions[function]

    def _record_runs(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function so that it records that the step has run."""

        def run(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._has_trained = True
            return result

        return run

    def before_training(
        self, model: Any, look: Callable[[Callable[[Any], Any]], Any]
    ) -> Callable[[Any], None] | None:
        """Returns a function that places the step of a Keras model, given the first batch."""
        del look  # Not needed: the training itself provides the batch.
        if self._is_busy or not self._can_connect or not tf.executing_eagerly():
            return None
        is_compiled_again = self._models.get(model, False) and not has_train_step(model)
        if model in self._models and not is_compiled_again:
            return None
        self._models[model] = False
        try:
            check_training(model)
            check_train_function(model)
        except GraphError as error:
            self._report_refusal(f"the model {model.name!r}", error)
            return None
        return functools.partial(self._place_model, model)

    def _place_model(self, model: Any, batch: Any) -> None:
        self._is_busy = True
        try:
            placed = self._build_placed_step(trace_call(model, batch))
            if placed is not None:
                placed.apply(model)
                self._models[model] = True
                self._report_placed(placed)
        except (GraphError, LocalClusterError, MachineError) as error:
            self._report_refusal(f"the model {model.name!r}", error)
        finally:
            self._is_busy = False

    def _build_placed_step(self, traced: TracedCall) -> PlacedStep | None:
        """Combines a traced step with the placement; None if it is another step or has none."""
        graph_def, placement = traced.workload.graph_def, self._placement
        names = None
        if not self._step.is_in(graph_def):
            # Keras numbers its names, so a second model of the same architecture has others.
            if self._step.graph_def is not None:
                names = map_names(self._step.graph_def, graph_def)
            if names is None:
                if not self.has_met_step:
                    self._report_change()
                return None
        self.has_met_step = True
        if placement is None:
            self._report_unplaced()
            return None
        check_runs_elsewhere(graph_def, self._machine)
        if names is not None:
            placement = rename_placement(placement, names)
        return PlacedStep(traced, self._step.machine or self._machine, placement)

    def _report_placed(self, placed: PlacedStep) -> None:
        assert placed.placement is not None
        self.has_placed = True
        self._say(
            f"placed {len(placed.placement.assignment)} operations of the training step as "
            f"{self._step.title!r} says"
        )

    def _report_refusal(self, name: str, error: Exception) -> None:
        if not self.has_placed:  # Afterwards, another function or model is no training step.
            self._has_said_stays = True
            self._say(f"{name} is not placed: {error}")

    def _report_unplaced(self) -> None:
        if self._unplaced_note is not None:
            self._say(self._unplaced_note)
            self._unplaced_note = None

    def _report_change(self) -> None:
        if not self._has_said_changed:
            self._has_said_changed = True
            if self._look_up_again is not None:
                self._look_up_again()
            text = self._describe_change()
            self._say(text)
            if self._must_fit:
                # A script may catch errors of its training, and would train without an answer.
                raise SystemExit(1) from NoAnswerError(text)

    def _describe_change(self) -> str:
        """Says that the step is another one, and what helps."""
        title = self._step.title
        ends = "the script ends, because an answer is required"
        if self._is_given:
            end = ends if self._must_fit else "the script runs unchanged"
            then = "ask the store of answers" if self._must_fit else "search for one"
            return (
                f"the placement in {title!r} is for another training step: {end}; leave out "
                f"--placement and give another --log_dir to {then}"
            )
        if self._must_fit:
            return (
                f"the training step has changed since the search in {title!r}, which has no answer "
                f"for it: {ends}; give another --log_dir to ask the store of answers"
            )
        return (
            f"the training step is not the one of {title!r}: it has changed since, and the script "
            "runs unchanged; use another --log_dir to search for a placement"
        )


def _has_trained(model: Any) -> bool:
    try:
        return int(model.optimizer.iterations) > 0
    except (AttributeError, TypeError, ValueError):
        return True  # Unknown: assume that it has, so that a restart does not lose training.


def _has(graph: tf.Graph, name: str) -> bool:
    try:
        graph.get_operation_by_name(name.partition(":")[0])
    except KeyError:
        return False
    return True
