"""Long short-term memory with a custom gradient.

XLA cannot compile a loop without TensorFlow's gradient of it ("TensorList crossing the XLA/TF
boundary"). So with that gradient an update of a sequence-to-sequence policy takes 2.3 times as long
for 256 groups, 512 units and 10 placements, in processor time. Missing XLA is a factor of 2.1. The
rest is that TensorFlow adds to the gradient of every weight at every step: here the backward loop
only computes the gradient of the gates, and one product over all steps gives that of the weights.

References:
    Hochreiter, Schmidhuber, Long Short-Term Memory, Neural Computation 1997; with the forget gate
    of Gers, Schmidhuber, Cummins, 2000.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

__all__ = ["lstm", "lstm_step", "lstm_step_gradient", "weight_gradient"]


def lstm_step(gates: tf.Tensor, cell: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes the state and the output of the cells from their gates.

    Args:
        gates: float32 [..., 4 * units], the gates before their activation, each the sum of the
            contributions of input, previous output and bias: input, forget, candidate, output.
        cell: float32 [..., units], the previous state of the cells.

    Returns:
        The activated gates, the state of the cells and the output.
    """
    input_, forget, candidate, output = tf.split(gates, 4, axis=-1)
    input_, forget, output = tf.sigmoid(input_), tf.sigmoid(forget), tf.sigmoid(output)
    candidate = tf.tanh(candidate)
    cell = forget * cell + input_ * candidate
    return tf.concat([input_, forget, candidate, output], axis=-1), cell, output * tf.tanh(cell)


def lstm_step_gradient(
    activated: tf.Tensor,
    cell_before: tf.Tensor,
    cell: tf.Tensor,
    to_hidden: tf.Tensor,
    to_cell: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the gradient of `lstm_step`.

    Args:
        activated: the activated gates.
        cell_before: the previous state of the cells.
        cell: the state of the cells.
        to_hidden: the gradient with respect to the output.
        to_cell: the gradient with respect to `cell` that does not pass through the output.

    Returns:
        The gradients with respect to the gates before their activation and to `cell_before`.
    """
    input_, forget, candidate, output = tf.split(activated, 4, axis=-1)
    squashed = tf.tanh(cell)
    to_cell += to_hidden * output * (1 - squashed * squashed)
    to_gates = [
        to_cell * candidate * input_ * (1 - input_),
        to_cell * cell_before * forget * (1 - forget),
        to_cell * input_ * (1 - candidate * candidate),
        to_hidden * squashed * output * (1 - output),
    ]
    return tf.concat(to_gates, axis=-1), to_cell * forget


def weight_gradient(inputs: tf.Tensor, to_outputs: tf.Tensor) -> tf.Tensor:
    """Sums the gradient with respect to `weights` of inputs @ weights over steps and rows.

    Args:
        inputs: float32 [steps, ..., rows, a], the same in all steps and rows.
        to_outputs: float32 [steps, ..., rows, b].

    Returns:
        float32 [..., a, b].
    """

    def rows(x: tf.Tensor) -> tf.Tensor:
        rank = len(x.shape)
        x = tf.transpose(x, [*range(1, rank - 2), 0, rank - 2, rank - 1])
        return tf.reshape(x, [*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1]])

    return tf.matmul(rows(inputs), rows(to_outputs), transpose_a=True)


@tf.custom_gradient
def lstm(
    inputs: tf.Tensor, recurrent: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """Runs cells over sequences, from a state of zeros.

    Args:
        inputs: float32 [steps, ..., rows, 4 * units], the contribution of input and bias
            to the gates.
        recurrent: float32 [..., units, 4 * units], the weights of the previous output.

    Returns:
        The outputs, float32 [steps, ..., rows, units], the final state of the cells, float32
        [..., rows, units], and the gradient.
    """
    steps, units = inputs.shape[0], recurrent.shape[-2]
    shape = [*inputs.shape[1:-1], units]
    start = tf.zeros(shape)

    def forward(index, hidden, cell, saved):  # type: ignore[no-untyped-def]
        gates = inputs[index] + tf.matmul(hidden, recurrent)
        activated, cell, hidden = lstm_step(gates, cell)
        values = (activated, cell, hidden)
        saved = tuple(array.write(index, value) for array, value in zip(saved, values, strict=True))
        return index + 1, hidden, cell, saved

    arrays = tuple(
        tf.TensorArray(tf.float32, size=steps, element_shape=[*shape[:-1], size])
        for size in (4 * units, units, units)
    )
    _, _, final, saved = tf.while_loop(
        lambda index, *_: index < steps,
        forward,
        (tf.constant(0), start, start, arrays),
        maximum_iterations=steps,
    )
    activated, cells, outputs = (array.stack() for array in saved)

    def gradient(to_outputs: tf.Tensor, to_final: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        cells_before = tf.concat([start[tf.newaxis], cells[:-1]], axis=0)

        def backward(index, to_hidden, to_cell, to_gates):  # type: ignore[no-untyped-def]
            step_to_gates, to_cell = lstm_step_gradient(
                activated[index],
                cells_before[index],
                cells[index],
                to_outputs[index] + to_hidden,
                to_cell,
            )
            to_hidden = tf.matmul(step_to_gates, recurrent, transpose_b=True)
            return index - 1, to_hidden, to_cell, to_gates.write(index, step_to_gates)

        array = tf.TensorArray(tf.float32, size=steps, element_shape=[*shape[:-1], 4 * units])
        *_, array = tf.while_loop(
            lambda index, *_: index >= 0,
            backward,
            (tf.constant(steps - 1), start, to_final, array),
            maximum_iterations=steps,
        )
        to_gates = array.stack()
        outputs_before = tf.concat([start[tf.newaxis], outputs[:-1]], axis=0)
        return to_gates, weight_gradient(outputs_before, to_gates)

    return (outputs, final), gradient
