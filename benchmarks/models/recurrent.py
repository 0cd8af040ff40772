"""The layers of recurrent models, unrolled.

References:
    Hochreiter, Schmidhuber: Long Short-Term Memory, 1997.
    Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate,
    2015 (additive attention).
"""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = [
    "AdditiveAttention",
    "State",
    "cross_entropies_by_step",
    "cross_entropy_of_all_steps",
    "embed",
    "lstm_layer",
    "lstm_step",
    "lstm_variables",
    "softmax_variables",
]

_FORGET_BIAS = 1.0
State = tuple[tf.Tensor, tf.Tensor]
"""Memory and output of a cell after a step, float32 [batch, units] each."""


def embed(tokens: tf.Tensor, vocabulary: int, units: int, name: str) -> list[tf.Tensor]:
    """Embeds int32 [batch, steps] with one lookup: float32 [batch, units] for each step."""
    with tf1.variable_scope(name):
        embedding = tf1.get_variable("weights", [vocabulary, units])
        return tf.unstack(tf.nn.embedding_lookup(embedding, tokens), axis=1)


def lstm_variables(input_units: int, units: int) -> tuple[tf.Variable, tf.Variable]:
    """Makes the kernel, float32 [input_units + units, 4 * units], and the bias of a cell."""
    kernel = tf1.get_variable("kernel", [input_units + units, 4 * units])
    bias = tf1.get_variable("bias", [4 * units], initializer=tf1.zeros_initializer())
    return kernel, bias


def lstm_step(
    value: tf.Tensor, memory: tf.Tensor, hidden: tf.Tensor, kernel: tf.Variable, bias: tf.Variable
) -> State:
    """Computes one step of a cell from its input and the state after the step before."""
    gates = tf.matmul(tf.concat([value, hidden], 1), kernel)
    entry, update, forget, output = tf.split(tf.nn.bias_add(gates, bias), 4, axis=1)
    memory = memory * tf.sigmoid(forget + _FORGET_BIAS)
    memory += tf.sigmoid(entry) * tf.tanh(update)
    return memory, tf.tanh(memory) * tf.sigmoid(output)


def lstm_layer(
    values: list[tf.Tensor], units: int, name: str, *, backward: bool = False
) -> tuple[list[tf.Tensor], State]:
    """Unrolls a cell over its inputs.

    Args:
        values: float32 [batch, input_units] for each step.
        units: width of the cell.
        name: scope of the variables; the operations of a step are in a scope of their own in it.
        backward: run from the last step to the first.

    Returns:
        The output of each step, float32 [batch, units], and the state after all.
    """
    steps = range(len(values))
    outputs = list(values)
    with tf1.variable_scope(name):
        kernel, bias = lstm_variables(int(values[0].shape[1]), units)
        rows = values[0].shape[0]
        rows = tf.shape(values[0])[0] if rows is None else rows
        memory = hidden = tf.zeros([rows, units], name="zero_state")
        for step in reversed(steps) if backward else steps:
            with tf1.name_scope(f"step_{step}"):
                memory, hidden = lstm_step(values[step], memory, hidden, kernel, bias)
                outputs[step] = hidden
    return outputs, (memory, hidden)


class AdditiveAttention:
    """Additive attention to the outputs of an encoder."""

    def __init__(self, encoded: tf.Tensor) -> None:
        """Makes the variables, in the current scope, and the keys of all steps at once.

        Args:
            encoded: float32 [batch, source_steps, units].
        """
        units = int(encoded.shape[2])
        self._encoded = encoded
        self._query_weights = tf1.get_variable("query", [units, units])
        self._score_weights = tf1.get_variable("score", [units])
        flat = tf.matmul(
            tf.reshape(encoded, [-1, units]), tf1.get_variable("memory", [units, units])
        )
        self._keys = tf.reshape(flat, encoded.shape, name="keys")

    def context(self, hidden: tf.Tensor) -> tf.Tensor:
        """Averages the outputs, weighted by what is asked: float32 [batch, units]."""
        query = tf.matmul(hidden, self._query_weights, name="query")
        added = tf.tanh(self._keys + tf.expand_dims(query, 1))
        alignments = tf.nn.softmax(tf.reduce_sum(added * self._score_weights, axis=2))
        return tf.reduce_sum(tf.expand_dims(alignments, 2) * self._encoded, axis=1)


def softmax_variables(units: int, vocabulary: int) -> tuple[tf.Variable, tf.Variable]:
    """Makes weights, float32 [units, vocabulary], and a bias, in the current scope."""
    weights = tf1.get_variable("weights", [units, vocabulary])
    bias = tf1.get_variable("bias", [vocabulary], initializer=tf1.zeros_initializer())
    return weights, bias


def cross_entropies_by_step(
    outputs: list[tf.Tensor], targets: tf.Tensor, weights: tf.Variable, bias: tf.Variable
) -> list[tf.Tensor]:
    """Predicts int32 [batch, steps] with a softmax for each step, in a scope of its own.

    Returns:
        Cross entropy in nats, float32 [batch] for each step.
    """
    cross_entropies = []
    for step, output in enumerate(outputs):
        with tf1.name_scope(f"step_{step}"):
            logits = tf.nn.bias_add(tf.matmul(output, weights), bias)
            cross_entropies.append(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=targets[:, step], logits=logits
                )
            )
    return cross_entropies


def cross_entropy_of_all_steps(
    outputs: list[tf.Tensor], targets: tf.Tensor, weights: tf.Variable, bias: tf.Variable
) -> tf.Tensor:
    """Predicts int32 [batch, steps] with one softmax: nats, float32 [batch * steps]."""
    flat = tf.reshape(tf.stack(outputs, axis=1), [-1, int(outputs[0].shape[1])])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(targets, [-1]), logits=tf.nn.bias_add(tf.matmul(flat, weights), bias)
    )
