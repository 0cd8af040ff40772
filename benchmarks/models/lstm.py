"""The cell of the recurrent models."""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["lstm_step", "lstm_variables"]

_FORGET_BIAS = 1.0


def lstm_variables(input_units: int, units: int) -> tuple[tf.Variable, tf.Variable]:
    """Makes the kernel and the bias of a cell, in the current variable scope.

    Args:
        input_units: width of the input.
        units: width of the cell.

    Returns:
        Kernel, float32 [input_units + units, 4 * units], and bias, float32 [4 * units].
    """
    kernel = tf1.get_variable("kernel", [input_units + units, 4 * units])
    bias = tf1.get_variable("bias", [4 * units], initializer=tf1.zeros_initializer())
    return kernel, bias


def lstm_step(
    value: tf.Tensor,
    memory: tf.Tensor,
    hidden: tf.Tensor,
    kernel: tf.Variable,
    bias: tf.Variable,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes one step of an LSTM cell.

    Args:
        value: input, float32 [batch, input_units].
        memory: of the step before, float32 [batch, units].
        hidden: output of the step before, float32 [batch, units].
        kernel: of the cell.
        bias: of the cell.

    Returns:
        Memory and output of this step.

    References:
        Hochreiter, Schmidhuber: Long Short-Term Memory, 1997.
    """
    gates = tf.matmul(tf.concat([value, hidden], 1), kernel)
    entry, update, forget, output = tf.split(tf.nn.bias_add(gates, bias), 4, axis=1)
    memory = memory * tf.sigmoid(forget + _FORGET_BIAS)
    memory += tf.sigmoid(entry) * tf.tanh(update)
    return memory, tf.tanh(memory) * tf.sigmoid(output)
