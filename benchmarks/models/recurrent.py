"""The layers of recurrent models, unrolled."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.lstm import lstm_step, lstm_variables

tf1 = tf.compat.v1

__all__ = [
    "cross_entropies_by_step",
    "cross_entropy_of_all_steps",
    "embed",
    "lstm_layer",
    "softmax_variables",
]


def embed(tokens: tf.Tensor, vocabulary: int, units: int, name: str) -> list[tf.Tensor]:
    """Embeds all steps with one lookup.

    Args:
        tokens: int32 [batch, steps].
        vocabulary: number of tokens.
        units: width of the embedding.
        name: scope of the variable and operations.

    Returns:
        float32 [batch, units] for each step.
    """
    with tf1.variable_scope(name):
        embedding = tf1.get_variable("weights", [vocabulary, units])
        return tf.unstack(tf.nn.embedding_lookup(embedding, tokens), axis=1)


def lstm_layer(
    values: list[tf.Tensor], units: int, name: str, *, backward: bool = False
) -> tuple[list[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Unrolls an LSTM cell over its inputs.

    Args:
        values: float32 [batch, input_units] for each step.
        units: width of the cell.
        name: scope of the variables and operations; the operations of a step are in a scope of
            their own in it.
        backward: run from the last step to the first.

    Returns:
        The output of each step, float32 [batch, units], and the memory and the output after all.
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


def softmax_variables(units: int, vocabulary: int) -> tuple[tf.Variable, tf.Variable]:
    """Weights, float32 [units, vocabulary], and bias, float32 [vocabulary], in this scope."""
    weights = tf1.get_variable("weights", [units, vocabulary])
    bias = tf1.get_variable("bias", [vocabulary], initializer=tf1.zeros_initializer())
    return weights, bias


def cross_entropies_by_step(
    outputs: list[tf.Tensor], targets: tf.Tensor, weights: tf.Variable, bias: tf.Variable
) -> list[tf.Tensor]:
    """Predicts each step with a softmax of its own, in a scope of its own.

    Args:
        outputs: float32 [batch, units] for each step.
        targets: int32 [batch, steps].
        weights: float32 [units, vocabulary].
        bias: float32 [vocabulary].

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
    """Predicts all steps with one softmax.

    Args:
        outputs: float32 [batch, units] for each step.
        targets: int32 [batch, steps].
        weights: float32 [units, vocabulary].
        bias: float32 [vocabulary].

    Returns:
        Cross entropy in nats, float32 [batch * steps].
    """
    units = int(outputs[0].shape[1])
    flat = tf.reshape(tf.stack(outputs, axis=1), [-1, units])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(targets, [-1]), logits=tf.nn.bias_add(tf.matmul(flat, weights), bias)
    )
