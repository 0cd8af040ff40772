"""Inserts tensors that wait on the CPU into a graph that is being traced."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from graph_passes.host_copies import HostCopy

__all__ = ["insert_host_copies"]


def insert_host_copies(graph: tf.Graph, copies: Iterable[HostCopy]) -> None:
    """Inserts copies on the CPU, in place; see `graph_passes.host_copies.AddHostCopies`.

    Copies of tensors that the graph does not have are left out. Gradients pass through copies.
    """
    for copy in copies:
        name, _, port = copy.tensor.partition(":")
        try:
            tensor = graph.get_operation_by_name(name).outputs[int(port)]
            trigger, *gates = map(graph.get_operation_by_name, (copy.trigger, *copy.gates))
            readers = [graph.get_operation_by_name(reader) for reader in copy.readers]
        except (KeyError, IndexError):
            continue
        with graph.as_default(), tf.name_scope(""), tf.control_dependencies(None):
            left = _copy(tensor, f"{name}/to_host", copy.host)
            with tf.control_dependencies([trigger]):
                back = _copy(left, f"{name}/from_host", copy.host)
        for gate in gates:
            gate._add_control_input(left.op)
        for reader in readers:
            for index, read in enumerate(reader.inputs):
                if read is tensor:
                    reader._update_input(index, back)


def _copy(tensor: tf.Tensor, name: str, host: str) -> tf.Tensor:
    # Grappler would remove an Identity between devices.
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"StopGradient": "Identity"}), tf.device(host):
        return tf.stop_gradient(tensor, name=name)
