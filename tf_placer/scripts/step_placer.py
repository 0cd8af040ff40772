"""Puts the placement of a training step on what a script runs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.renaming import names_in, renamed_placement
from tf_placer.functions.keras_models import check_training, has_train_step
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_step import TracedStep, trace_step
from tf_placer.inputs.session_arguments import feeds_by_name, names_of
from tf_placer.inputs.session_hook import apply_placement
from tf_placer.machines.machine import Machine
from tf_placer.scripts.first_batches import check_train_function
from tf_placer.scripts.kept_step import KeptStep
from tf_placer.scripts.step_seeker import (
    arguments,
    build,
    check_sent_whole,
    fetched_by_caller,
)
from tf_placer.scripts.training_steps import function_trains, step_trains

__all__ = ["StepPlacer"]


class StepPlacer:
    """Waits for a kept step; places it before it runs for the first time."""

    def __init__(self, step: KeptStep, machine: Machine, *, say: Callable[[str], None]) -> None:
        """Prepares to place.

        Args:
            step: the step and its placement.
            machine: where the script runs.
            say: tells people something.
        """
        self._step, self._machine, self._say = step, machine, say
        self.has_met_step = False
        self._has_said_changed = self._has_said_stays = False
        self._is_busy = False
        self._looked_at: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
        # How many operations a graph had when sessions were sent what it had.
        self._sent: weakref.WeakKeyDictionary[tf.Graph, list[int]] = weakref.WeakKeyDictionary()
        # Of graphs with the step: whether they are placed.
        self._graphs: weakref.WeakKeyDictionary[tf.Graph, bool] = weakref.WeakKeyDictionary()
        self._judged: set[tuple[int, tuple[str, ...]]] = set()
        self._functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # Of Keras models: whether they were placed.
        self._models: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    @property
    def is_explained(self) -> bool:
        """Whether people know what became of the training step."""
        return self.has_met_step or self._has_said_changed or self._has_said_stays

    def graph_extended(self, session: Any) -> None:
        """Places what a session is sent of its graph, from when the step is in it."""
        graph = session.graph
        # Sessions ask before every run; to list the operations takes time.
        if self._looked_at.get(graph) == graph.version:
            return
        self._looked_at[graph] = graph.version
        sent = self._sent.setdefault(graph, [0])
        sent.append(len(graph.get_operations()))
        if graph not in self._graphs:
            # If the step is not in it, it is to come, or this is another graph.
            is_whole = all(_has(graph, name) for name in self._step.trained_by)
            if is_whole and self._step.is_in(graph.as_graph_def()):
                self._graphs[graph] = self._place_graph(graph, sent[:-1])
        elif self._graphs[graph]:
            try:
                self._apply(graph, sent[-2])
            except GraphError as error:
                self._graphs[graph] = False
                self._say(f"what is new in the graph stays as it came: {error}")

    def _place_graph(self, graph: tf.Graph, sent: Sequence[int]) -> bool:
        """Places the graph that has the step; says whether it could."""
        self._met()
        placement = self._step.placement
        if placement is None:
            return False
        fetches = self._step.trained_by or [n for n in placement.assignment if _has(graph, n)]
        try:
            check_sent_whole(graph, fetches, sent)
            placed = self._apply(graph, sent[-1])
        except GraphError as error:
            self._say(f"the graph stays as it came: {error}")
            return False
        self._say(f"placed {placed} operations of the graph as {self._step.title!r} says")
        return True

    def _apply(self, graph: tf.Graph, sent: int) -> int:
        assert self._step.placement is not None
        return apply_placement(
            graph,
            self._step.placement,
            fetches=self._step.trained_by,
            may_grow=self._step.fingerprint is not None,
            sent=sent,
        )

    def session_runs(self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None) -> None:
        """Says so if a session is about to train something else."""
        if self.has_met_step or self._has_said_changed:
            return
        graph = session.graph
        try:
            names, fed = tuple(names_of(fetched_by_caller(fetches))), feeds_by_name(feeds)
        except GraphError:
            return
        key = (id(graph), names)
        if key in self._judged:
            return
        self._judged.add(key)
        if step_trains(graph, names, fed):
            # The graph may have grown since it was looked at.
            self.graph_extended(session)
            if not self.has_met_step:
                self._changed()

    def function_called(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Returns the function on its devices if it is the step."""
        if self._is_busy:
            return None
        if function in self._functions:
            return self._functions[function]
        self._functions[function] = None
        self._is_busy = True
        try:
            if not function_trains(function.get_concrete_function(*args, **kwargs).graph):
                return None
            traced = trace_step(function, arguments(function, args, kwargs))
            placed = self._placed(traced)
            if placed is not None:
                self._functions[function] = placed.function
                # It is called, too, and has the same step.
                self._functions[placed.function] = None
        except GraphError as error:
            self._stays("the training step", error)
        except Exception:
            return None  # The call itself will say so.
        finally:
            self._is_busy = False
        return self._functions[function]

    def model_trains(
        self, model: Any, look: Callable[[Callable[[Any], Any]], Any]
    ) -> Callable[[Any], None] | None:
        """Returns what places the training step of a Keras model if it is the one."""
        del look  # The training itself is to begin.
        if self._is_busy or not tf.executing_eagerly():
            return None
        is_compiled_again = self._models.get(model, False) and not has_train_step(model)
        if model in self._models and not is_compiled_again:
            return None
        self._models[model] = False
        try:
            check_training(model)
            check_train_function(model)
        except GraphError as error:
            self._stays(f"the model {model.name!r}", error)
            return None
        return functools.partial(self._place_model, model)

    def _place_model(self, model: Any, batch: Any) -> None:
        self._is_busy = True
        try:
            build(model, batch)
            placed = self._placed(trace_step(model, batch))
            if placed is not None:
                placed.apply(model)
                self._models[model] = True
        except GraphError as error:
            self._stays(f"the model {model.name!r}", error)
        finally:
            self._is_busy = False

    def _placed(self, traced: TracedStep) -> PlacedStep | None:
        """Makes what places a traced step; None if it is another one, or stays as it came."""
        graph_def, placement = traced.source.graph_def, self._step.placement
        names = None
        if not self._step.is_in(graph_def):
            # Names of Keras count upwards: the next model that is built alike has others.
            if self._step.graph_def is not None:
                names = names_in(self._step.graph_def, graph_def)
            if names is None:
                if not self.has_met_step:
                    self._changed()
                return None
        self._met()
        if placement is None:
            return None
        if names is not None:
            placement = renamed_placement(placement, names)
        self._say(
            f"placed {len(placement.assignment)} operations of the training step as "
            f"{self._step.title!r} says"
        )
        return PlacedStep(traced, self._step.machine or self._machine, placement)

    def _stays(self, name: str, error: GraphError) -> None:
        if not self.has_met_step:  # What comes after it is something else.
            self._has_said_stays = True
            self._say(f"{name} stays as it came: {error}")

    def _met(self) -> None:
        if self._step.placement is None and not self.has_met_step:
            self._say(
                f"the training step runs as it came: the search in {self._step.title!r} found "
                "nothing faster"
            )
        self.has_met_step = True

    def _changed(self) -> None:
        if not self._has_said_changed:
            self._has_said_changed = True
            self._say(
                f"the training step is not the one of {self._step.title!r}: it has changed since, "
                "and runs as it came; another --log_dir has it searched for"
            )


def _has(graph: tf.Graph, name: str) -> bool:
    try:
        graph.get_operation_by_name(name.partition(":")[0])
    except KeyError:
        return False
    return True
