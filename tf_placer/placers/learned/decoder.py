"""The recurrent decoder with attention, one step or all steps at once.

References:
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    figure 4, for attention before and after the cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import tensorflow as tf

from tf_placer.placers.learned.attention import AttentionMemory, attend, attend_gradient
from tf_placer.placers.learned.lstm import lstm_step, lstm_step_gradient, weight_gradient

__all__ = ["AttentionPosition", "DecoderStep", "DecoderWeights", "decode", "decoder_step"]

AttentionPosition = Literal["before", "after"]


class DecoderWeights(NamedTuple):
    """The weights of a decoder.

    Attributes:
        recurrent: float32 [units, 4 * units], from the previous output to the gates.
        query: float32 [units, attention_units], from an output to the query.
        context: float32 [value_units, 4 * units], from the context to the gates; None where the
            context already is its contribution to the gates, or is computed after the cell.
    """

    recurrent: tf.Tensor
    query: tf.Tensor
    context: tf.Tensor | None


class DecoderStep(NamedTuple):
    """The output and state of the cells after a step, the context, and intermediate values."""

    hidden: tf.Tensor
    cell: tf.Tensor
    context: tf.Tensor
    activated: tf.Tensor
    query: tf.Tensor
    shares: tf.Tensor


def decoder_step(
    attention: AttentionPosition,
    weights: DecoderWeights,
    memory: AttentionMemory,
    inputs: tf.Tensor,
    hidden: tf.Tensor,
    cell: tf.Tensor,
) -> DecoderStep:
    """Runs one step of the decoder.

    With attention "before", the previous output is the query, and the cell reads the context:
    s_t = LSTM([x_t ; c_t], s_t-1). With "after", the new output is the query:
    s_t = LSTM(x_t, s_t-1).

    Args:
        attention: its position, before or after the cell.
        weights: the weights of the decoder.
        memory: the items of the attention.
        inputs: float32 [count, 4 * units], the contribution of input and bias to the gates.
        hidden: float32 [count, units], the previous output.
        cell: float32 [count, units], the previous state of the cells.
    """
    gates = inputs + tf.matmul(hidden, weights.recurrent)
    if attention == "after":
        activated, cell, hidden = lstm_step(gates, cell)
        query = tf.matmul(hidden, weights.query)
        shares, context = attend(query, memory)
    else:
        query = tf.matmul(hidden, weights.query)
        shares, context = attend(query, memory)
        gates += context if weights.context is None else tf.matmul(context, weights.context)
        activated, cell, hidden = lstm_step(gates, cell)
    return DecoderStep(hidden, cell, context, activated, query, shares)


def decode(
    attention: AttentionPosition,
    weights: DecoderWeights,
    memory: AttentionMemory,
    inputs: tf.Tensor,
    hidden: tf.Tensor,
    cell: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs all steps of the decoder for known inputs; differentiable.

    With TensorFlow's own gradient, which XLA cannot compile either (see `lstm`), an update of a
    policy takes 3.2 times as long for 256 groups, 512 units and 10 placements, in processor time,
    and 3 GiB more memory for the hidden layer of the attention at every step. Where nothing is
    compiled, it takes 1.5 times as long.

    Args:
        attention: its position, before or after the cell.
        weights: the weights of the decoder.
        memory: the items of the attention.
        inputs: float32 [steps, count, 4 * units], the contribution of input and bias to the gates.
        hidden: float32 [count, units], the output before the first step.
        cell: float32 [count, units], the state of the cells before it.

    Returns:
        The outputs, float32 [steps, count, units], and the contexts, float32 [steps, count,
        value_units].
    """

    @tf.custom_gradient
    def run(
        recurrent: tf.Tensor,
        query: tf.Tensor,
        values: tf.Tensor,
        keys: tf.Tensor,
        scorer: tf.Tensor,
        inputs: tf.Tensor,
        hidden: tf.Tensor,
        cell: tf.Tensor,
        *context: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, ...]]]:
        weights = DecoderWeights(recurrent, query, *(context or [None]))
        memory = AttentionMemory(values, keys, scorer)
        steps = _run(attention, weights, memory, inputs, hidden, cell)

        def gradient(to_hidden: tf.Tensor, to_context: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return _run_back(attention, weights, memory, steps, hidden, cell, to_hidden, to_context)

        return (steps.hidden, steps.context), gradient

    # A custom gradient accepts only tensors as arguments, so leave out a missing context.
    context = [] if weights.context is None else [weights.context]
    return run(weights.recurrent, weights.query, *memory, inputs, hidden, cell, *context)


def _run(
    attention: AttentionPosition,
    weights: DecoderWeights,
    memory: AttentionMemory,
    inputs: tf.Tensor,
    hidden: tf.Tensor,
    cell: tf.Tensor,
) -> DecoderStep:
    """Runs all steps and stacks each field along a first dimension."""
    num_steps = inputs.shape[0]
    count, units = hidden.shape
    num_items, value_units = memory.values.shape[1:]

    def step(index, hidden, cell, saved):  # type: ignore[no-untyped-def]
        result = decoder_step(attention, weights, memory, inputs[index], hidden, cell)
        saved = tuple(array.write(index, value) for array, value in zip(saved, result, strict=True))
        return index + 1, result.hidden, result.cell, saved

    sizes = DecoderStep(units, units, value_units, 4 * units, memory.keys.shape[2], num_items)
    arrays = tuple(
        tf.TensorArray(tf.float32, size=num_steps, element_shape=[count, size]) for size in sizes
    )
    *_, saved = tf.while_loop(
        lambda index, *_: index < num_steps,
        step,
        (tf.constant(0), hidden, cell, arrays),
        maximum_iterations=num_steps,
    )
    return DecoderStep(*(array.stack() for array in saved))


def _run_back(
    attention: AttentionPosition,
    weights: DecoderWeights,
    memory: AttentionMemory,
    steps: DecoderStep,
    hidden: tf.Tensor,
    cell: tf.Tensor,
    to_hiddens: tf.Tensor,
    to_contexts: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Computes the gradient of `decode` with respect to each argument, in their order."""
    num_steps, count, units = steps.hidden.shape
    hidden_before = tf.concat([hidden[tf.newaxis], steps.hidden[:-1]], axis=0)
    cell_before = tf.concat([cell[tf.newaxis], steps.cell[:-1]], axis=0)

    # Transpose once, not at every step.
    back = DecoderWeights(*(None if weight is None else tf.transpose(weight) for weight in weights))

    def step(index, to_hidden, to_cell, to_keys, to_scorer, saved):  # type: ignore[no-untyped-def]
        to_hidden += to_hiddens[index]
        to_context = to_contexts[index]

        def attention_gradient(to_context):  # type: ignore[no-untyped-def]
            return attend_gradient(steps.query[index], memory, steps.shares[index], to_context)

        def cell_gradient(to_hidden):  # type: ignore[no-untyped-def]
            return lstm_step_gradient(
                steps.activated[index], cell_before[index], steps.cell[index], to_hidden, to_cell
            )

        if attention == "after":
            from_attention = attention_gradient(to_context)
            to_hidden += tf.matmul(from_attention.query, back.query)
            to_gates, to_cell_before = cell_gradient(to_hidden)
            to_hidden = tf.matmul(to_gates, back.recurrent)
        else:
            to_gates, to_cell_before = cell_gradient(to_hidden)
            to_context += to_gates if back.context is None else tf.matmul(to_gates, back.context)
            from_attention = attention_gradient(to_context)
            to_hidden = tf.matmul(to_gates, back.recurrent) + tf.matmul(
                from_attention.query, back.query
            )
        values = (to_gates, to_context, from_attention.query)
        saved = tuple(array.write(index, value) for array, value in zip(saved, values, strict=True))
        return (
            index - 1,
            to_hidden,
            to_cell_before,
            to_keys + from_attention.keys,
            to_scorer + from_attention.scorer,
            saved,
        )

    sizes = (4 * units, steps.context.shape[2], steps.query.shape[2])
    arrays = tuple(
        tf.TensorArray(tf.float32, size=num_steps, element_shape=[count, size]) for size in sizes
    )
    _, to_hidden, to_cell, to_keys, to_scorer, saved = tf.while_loop(
        lambda index, *_: index >= 0,
        step,
        (
            tf.constant(num_steps - 1),
            tf.zeros([count, units]),
            tf.zeros([count, units]),
            tf.zeros(memory.keys.shape),
            tf.zeros([count, *memory.scorer.shape]),
            arrays,
        ),
        maximum_iterations=num_steps,
    )
    to_gates, to_contexts, to_queries = (array.stack() for array in saved)

    # The query comes from the new output, or from the previous one.
    query_outputs = steps.hidden if attention == "after" else hidden_before
    one_memory = memory.values.shape[0] == 1
    equation = "sbi,sbv->iv" if one_memory else "sbi,sbv->biv"
    to_values = tf.reshape(tf.einsum(equation, steps.shares, to_contexts), memory.values.shape)
    gradients = (
        weight_gradient(hidden_before, to_gates),
        weight_gradient(query_outputs, to_queries),
        to_values,
        memory.scorer * to_keys,
        tf.reduce_sum(to_scorer, axis=0),
        to_gates,
        to_hidden,
        to_cell,
    )
    if weights.context is None:
        return gradients
    return (*gradients, weight_gradient(steps.context, to_gates))
