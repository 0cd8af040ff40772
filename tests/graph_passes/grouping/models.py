"""Models with known structure, gradients and updates, for the tests of grouping."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from graph_passes.grouping.grouping import Grouping
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from tests import graph_parts as parts
from tests.graph_parts import TestGraph

tf1 = tf.compat.v1

__all__ = [
    "Groups",
    "attention_decoder",
    "build_stacked_rnn",
    "gru",
    "inception_blocks",
    "mlp_of_residuals",
    "op_graph_of",
    "plain_convnet",
    "towers",
]

BATCH, UNITS, STEPS, CLASSES = 4, 8, 3, 5


class Groups:
    """The groups of a graph, with access by operation name."""

    def __init__(self, made: TestGraph) -> None:
        self.grouped: GroupedGraph = group_operations(op_graph_of(made))
        graph: OpGraph = self.grouped.op_graph
        grouping: Grouping = self.grouped.grouping
        of_operation = grouping.expand_to_operations(self.grouped.colocation)
        self.graph = graph
        self.group = {
            name: int(group)
            for name, group, needed in zip(graph.names, of_operation, graph.needed, strict=True)
            if needed
        }
        self.kinds = grouping.kinds

    def group_of(self, *names: str) -> int:
        """Returns the common group of operations."""
        found = {self.group[name] for name in names}
        assert len(found) == 1, {name: self.group[name] for name in names}
        return found.pop()

    def kind_of(self, *names: str) -> str:
        return self.kinds[self.group_of(*names)]

    def layer_of(self, *names: str) -> int:
        return int(self.grouped.group_graph.layers[self.group_of(*names)])

    def under(self, *scopes: str) -> set[int]:
        """Finds the groups of needed operations in some scopes, and of their gradients."""
        starts = tuple(f"{prefix}{s}/" for s in scopes for prefix in ("", "gradients/"))
        return {group for name, group in self.group.items() if name.startswith(starts)}


def op_graph_of(made: TestGraph) -> OpGraph:
    """Reads the graph of a model in columns."""
    return OpGraph.from_graph_def(made.graph.as_graph_def(), made.fetches, tuple(made.feeds))


@dataclasses.dataclass(frozen=True)
class _Cell:
    """An LSTM cell with shared weights."""

    weights: tf.Variable

    def __call__(self, value: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]):
        memory, hidden = state
        gates = tf.matmul(tf.concat([value, hidden], 1), self.weights)
        input_gate, update, forget, output = tf.split(gates, 4, axis=1)
        memory = memory * tf.sigmoid(forget + 1.0) + tf.sigmoid(input_gate) * tf.tanh(update)
        return memory, tf.tanh(memory) * tf.sigmoid(output)


def attention_decoder(kind: str) -> TestGraph:
    """Builds an LSTM encoder, and an LSTM decoder that attends to it.

    Every step of the decoder is under "decoder/step_N", with the scopes "cell", "attention" and
    "softmax".

    Args:
        kind: "bahdanau" (additive) or "luong" (multiplicative).
    """
    with parts.new_graph() as graph:
        source = tf1.placeholder(tf.int32, [BATCH, STEPS], name="x")
        target = tf1.placeholder(tf.int32, [BATCH, STEPS + 1], name="y")

        def weights(name, *shape):
            return parts.weight_variable(name, list(shape), use_resource=True)

        zeros = tf.zeros([BATCH, UNITS])
        embedding = weights("embedding", CLASSES, UNITS)
        with tf1.variable_scope("encoder"):
            cell, state, memory = _Cell(weights("kernel", 2 * UNITS, 4 * UNITS)), (zeros, zeros), []
            for step in range(STEPS):
                with tf1.name_scope(f"step_{step}/"):
                    state = cell(tf.nn.embedding_lookup(embedding, source[:, step]), state)
                    memory.append(state[1])
            memory = tf.stack(memory, axis=1)  # [batch, time, units]
        losses = []
        with tf1.variable_scope("decoder"):
            cell = _Cell(weights("kernel", 2 * UNITS, 4 * UNITS))
            query_weights = weights("query", UNITS, UNITS)
            score_weights = weights("score", UNITS)
            mix_weights = weights("mix", 2 * UNITS, UNITS)
            softmax_weights = weights("softmax", UNITS, CLASSES)
            if kind == "bahdanau":
                flat = tf.reshape(memory, [BATCH * STEPS, UNITS])
                keys = tf.matmul(flat, weights("keys", UNITS, UNITS), name="keys_of_memory")
                keys = tf.reshape(keys, [BATCH, STEPS, UNITS])
            for step in range(STEPS):
                with tf1.name_scope(f"step_{step}/"):
                    with tf1.name_scope("cell"):
                        value = tf.nn.embedding_lookup(embedding, target[:, step])
                        state = cell(value, state)
                    with tf1.name_scope("attention"):
                        query = tf.matmul(state[1], query_weights, name="query")
                        if kind == "bahdanau":
                            added = tf.tanh(keys + tf.expand_dims(query, 1))
                            scores = tf.reduce_sum(added * score_weights, axis=2)
                            context = tf.reduce_sum(
                                tf.expand_dims(tf.nn.softmax(scores, name="align"), 2) * memory,
                                axis=1,
                                name="context",
                            )
                        else:
                            scores = tf.matmul(memory, tf.expand_dims(query, 2), name="scores")
                            align = tf.nn.softmax(tf.squeeze(scores, 2), name="align")
                            context = tf.squeeze(
                                tf.matmul(tf.expand_dims(align, 1), memory, name="weighted_sum"),
                                1,
                                name="context",
                            )
                        mixed = tf.tanh(
                            tf.matmul(tf.concat([context, state[1]], 1), mix_weights, name="mix")
                        )
                    with tf1.name_scope("softmax"):
                        logits = tf.matmul(mixed, softmax_weights, name="logits")
                        losses.append(parts.cross_entropy(logits, target[:, step + 1]))
        loss = tf.add_n(losses, name="loss")
        made = parts.training_graph(graph, loss, "adam")
        return dataclasses.replace(made, feeds={source.name: 0, target.name: 0})


def gru(*, use_resource: bool = True, flat: bool = False) -> TestGraph:
    """Builds a GRU, with one product each for gates and candidate, under "gru/step_N".

    Args:
        use_resource: resource variables, or references.
        flat: all steps directly under "gru", as old libraries have it.
    """
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, STEPS, UNITS], CLASSES)
        with tf1.variable_scope("gru"):
            gate_weights = parts.weight_variable("gates", [2 * UNITS, 2 * UNITS], use_resource)
            weights = parts.weight_variable("candidate", [2 * UNITS, UNITS], use_resource)
            hidden = tf.zeros([BATCH, UNITS])
            for step in range(STEPS):
                with tf1.name_scope("gru/" if flat else f"step_{step}"):
                    value = x[:, step]
                    gates = tf.matmul(tf.concat([value, hidden], 1), gate_weights, name="gates")
                    reset, update = tf.split(tf.sigmoid(gates), 2, axis=1)
                    both = tf.concat([value, reset * hidden], 1)
                    candidate = tf.tanh(tf.matmul(both, weights, name="candidate"))
                    hidden = update * hidden + (1 - update) * candidate
        loss = parts.cross_entropy(parts.dense(hidden, CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)


def inception_blocks(blocks: int = 2) -> TestGraph:
    """Builds inception blocks under "block_N/branch_M", with one, two, three and one layers."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, 8, 8, 3], CLASSES)
        value = parts.convolution(x, 8, 3, "stem")
        for block in range(blocks):
            with tf1.variable_scope(f"block_{block}"):
                ends = []
                for branch, sizes in enumerate(([1], [1, 3], [1, 3, 3])):
                    end = value
                    for layer, size in enumerate(sizes):
                        end = parts.convolution(end, 4, size, f"branch_{branch}/layer_{layer}")
                    ends.append(end)
                with tf1.name_scope("branch_3/pool/"):
                    pooled = tf1.nn.max_pool2d(value, 3, 1, "SAME")
                ends.append(parts.convolution(pooled, 4, 1, "branch_3/layer_0"))
                value = tf.concat(ends, axis=3)
        value = tf.reduce_mean(value, axis=[1, 2])
        loss = parts.cross_entropy(parts.dense(value, CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "momentum", feeds)


def plain_convnet(layers: int = 4) -> TestGraph:
    """Builds a chain of convolutions under "layer_N", with pooling, and a classifier."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, 16, 16, 3], CLASSES)
        value = x
        for layer in range(layers):
            with tf1.variable_scope(f"layer_{layer}"):
                kernel = parts.weight_variable("weights", [3, 3, int(value.shape[-1]), 8], True)
                value = tf.nn.relu(tf1.nn.conv2d(value, kernel, strides=1, padding="SAME"))
                if layer % 2:
                    value = tf1.nn.max_pool2d(value, 2, 2, "SAME")
        flat = tf.reshape(value, [BATCH, -1])
        loss = parts.cross_entropy(parts.dense(flat, CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "momentum", feeds)


def build_stacked_rnn(layers: int = 2) -> TestGraph:
    """Builds an RNN with all layers of a step in the scope "step_N"."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, STEPS, UNITS], CLASSES)
        weights = [parts.weight_variable(f"w{i}", [2 * UNITS, UNITS], True) for i in range(layers)]
        states = [tf.zeros([BATCH, UNITS])] * layers
        for step in range(STEPS):
            value = x[:, step]
            with tf1.name_scope(f"step_{step}"):
                for layer in range(layers):
                    both = tf.concat([value, states[layer]], 1)
                    product = tf.matmul(both, weights[layer], name=f"product_{layer}")
                    value = states[layer] = tf.tanh(product, name=f"output_{layer}")
        loss = parts.cross_entropy(parts.dense(value, CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)


def towers() -> TestGraph:
    """Builds two towers with shared weights and different data, under "left" and "right"."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, 2 * UNITS], CLASSES)
        weights = [parts.weight_variable(f"w{i}", [UNITS, UNITS], True) for i in range(2)]
        ends = []
        for side, value in zip(("left", "right"), tf.split(x, 2, axis=1), strict=True):
            with tf1.name_scope(side):
                for layer in range(2):
                    value = tf.tanh(tf.matmul(value, weights[layer], name=f"product_{layer}"))
                ends.append(value)
        loss = parts.cross_entropy(parts.dense(tf.concat(ends, 1), CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)


def mlp_of_residuals(layers: int = 4) -> TestGraph:
    """Builds residual layers, as in transformers, under "layer_N"."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([BATCH, UNITS], CLASSES)
        value = x
        for layer in range(layers):
            with tf1.variable_scope(f"layer_{layer}"):
                inner = parts.weight_variable("inner", [UNITS, 2 * UNITS], True)
                outer = parts.weight_variable("outer", [2 * UNITS, UNITS], True)
                hidden = tf.nn.relu(tf.matmul(value, inner, name="expand"))
                value = tf.add(value, tf.matmul(hidden, outer, name="shrink"), name="stream")
        loss = parts.cross_entropy(parts.dense(value, CLASSES, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)
