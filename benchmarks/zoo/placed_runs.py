"""Runs graphs as a script would, and under placements on logical devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.zoo.graph_parts import StepGraph
from graph_passes.pipeline import group_operations
from tf_placer.environments.loaded_graph import LoadedGraph
from tf_placer.inputs.workload import read_workload

tf1 = tf.compat.v1

__all__ = [
    "STEPS",
    "PlacedGraph",
    "Values",
    "device_names",
    "script_session",
    "script_values",
    "variable_values",
]

#: Steps before the variables are read.
STEPS = 3
_TIMEOUT_SECS = 60.0
#: The fetched values of each step, and the variables after the last.
Values = Mapping[str, np.ndarray]


def device_names(count: int) -> tuple[str, ...]:
    """Lists devices of a local session: a CPU and the GPUs if there are any, else logical CPUs."""
    prefix = "/job:localhost/replica:0/task:0/device:"
    num_gpus = min(len(tf.config.list_physical_devices("GPU")), count - 1)
    if num_gpus:
        return (f"{prefix}CPU:0", *(f"{prefix}GPU:{i}" for i in range(num_gpus)))
    return tuple(f"{prefix}CPU:{i}" for i in range(count))


def _config(num_devices: int) -> tf.compat.v1.ConfigProto:
    """Makes the configuration of sessions that move and rewrite nothing."""
    config = tf1.ConfigProto(
        device_count={"CPU": num_devices},
        allow_soft_placement=False,
        inter_op_parallelism_threads=2,
        intra_op_parallelism_threads=1,
        operation_timeout_in_ms=int(1000 * _TIMEOUT_SECS),
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def variable_values(graph: tf.Graph) -> dict[str, str]:
    """Finds by name of each variable the tensor that has its value."""
    with graph.as_default():
        variables = [*tf1.global_variables(), *tf1.local_variables()]
    return {each.op.name: each._as_graph_element().name for each in variables}


@contextlib.contextmanager
def script_session(made: StepGraph) -> Iterator[tf.compat.v1.Session]:
    """Opens a session of the graph itself, initialized as its script does it."""
    with tf1.Session(graph=made.graph, config=_config(1)) as session:
        for name in made.initializers:
            session.run(name, made.feeds)
        coordinator = tf.train.Coordinator()
        threads = []
        if made.has_runners:
            with made.graph.as_default():
                threads = tf1.train.start_queue_runners(session, coordinator)
        yield session
        coordinator.request_stop()
        if threads:
            # Threads that wait for room in a queue would wait forever.
            session.close()
            coordinator.join(threads, ignore_live_threads=True)


def script_values(made: StepGraph) -> Values:
    """Runs steps of the graph as it is, as its script would."""
    tensors = [name for name in made.fetches if ":" in name]
    operations = [name for name in made.fetches if ":" not in name]
    values = {}
    with script_session(made) as session:
        for number in range(STEPS):
            fetched, _ = session.run((tensors, operations), made.feeds)
            for name, value in zip(tensors, fetched, strict=True):
                values[f"step {number}: {name}"] = np.asarray(value)
        return {**values, **session.run(variable_values(made.graph))}


class PlacedGraph:
    """A graph as tf_placer reads and groups it, to be run under many placements.

    Attributes:
        workload: the graph and its step; the initializers are those that tf_placer finds.
        grouped: its groups.
        devices: names of the devices.
        legal: bool [num_groups, num_devices], where each group may go.
    """

    def __init__(
        self,
        made: StepGraph,
        *,
        num_devices: int = 3,
        granularity: str = "coarse",
        has_collections: bool = True,
        saver: Any = None,
    ) -> None:
        """Reads the graph.

        Args:
            made: the graph.
            num_devices: how many logical devices there are.
            granularity: of the groups, as `group_operations` takes it.
            has_collections: whether tf_placer gets to see what the collections of the graph name;
                without them, the variables are not among the values.
            saver: the SaverDef of what saves and restores the variables of the graph, or None.

        Raises:
            GraphError: tf_placer refuses it.
        """
        graph = made.graph if has_collections else made.graph.as_graph_def()
        self.workload = read_workload(graph, made.fetches, made.feeds)
        self.grouped = group_operations(self.workload.op_graph, granularity)
        self.devices = device_names(num_devices)
        self.legal = self.grouped.grouping.legal_devices(self.grouped.colocation, self.devices)
        self._saver = saver
        self._variables = variable_values(made.graph) if has_collections else {}
        step = self.workload.step
        self._loaded = LoadedGraph(
            self.workload.graph_def,
            fetches=step.fetches,
            feeds=step.feeds,
            initializers=step.initializers,
            initializer_feeds=step.initializer_feeds,
            queue_runners=step.queue_runners,
            target="",
            config=_config(num_devices),
        )

    def random_placement(self, random: np.random.Generator) -> np.ndarray:
        """Draws a legal device for each group: int32 [num_groups]."""
        keys = np.where(self.legal, random.random(self.legal.shape), -1.0)
        return keys.argmax(axis=1).astype(np.int32)

    def values(self, placement: np.ndarray) -> Values:
        """Runs steps under a placement, in a new session after the initializers.

        Args:
            placement: int32 [num_groups], a device for each group.

        Raises:
            SessionFailed: TensorFlow refuses the placement, or a step fails.
        """
        with self._open(placement) as opened:
            return self._steps(opened)

    def save(self, placement: np.ndarray, path: str) -> Values:
        """Runs steps under a placement and saves the variables.

        Args:
            placement: see `values`.
            path: of the checkpoint.

        Returns:
            The variables.
        """
        assert self._saver is not None
        with self._open(placement) as opened:
            self._steps(opened)
            feeds = {self._saver.filename_tensor_name: path}
            opened.session.run(self._saver.save_tensor_name, feeds)
            return self._read(opened)

    def restore(self, placement: np.ndarray, path: str) -> Values:
        """Restores the variables under a placement, and reads them."""
        assert self._saver is not None
        with self._open(placement) as opened:
            feeds = {self._saver.filename_tensor_name: path}
            opened.session.run(self._saver.restore_op_name, feeds)
            return self._read(opened)

    def trace(self, placement: np.ndarray, steps: int) -> dict[str, Any]:
        """Times steps under a placement and traces as many; see `LoadedGraph.trace`."""
        assignment = self.grouped.assignment(placement, self.devices)
        return self._loaded.trace(assignment, steps, 1, None, _TIMEOUT_SECS, lambda stage: None)

    def _open(self, placement: np.ndarray) -> Any:
        assignment = self.grouped.assignment(placement, self.devices)
        return self._loaded.open(assignment, _TIMEOUT_SECS, lambda stage: None)

    def _steps(self, opened: Any) -> Values:
        values = {}
        for number in range(STEPS):
            _, fetched = opened.step()
            for name, value in zip(self.workload.step.fetches, fetched, strict=True):
                if ":" in name:
                    values[f"step {number}: {name}"] = np.asarray(value)
        return {**values, **self._read(opened)}

    def _read(self, opened: Any) -> Values:
        return opened.session.run(self._variables)
