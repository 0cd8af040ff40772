"""Google's translation model, as the plain graph code of a TF1 training script.

The lowest layer of the encoder reads in both directions. From the third layer on, what a layer
reads is added to what it says. The lowest layer of the decoder asks the attention, and all its
layers read the answer in the next step.

There is no dropout, and all sentences are as long as the graph is unrolled. The scores of the
attention have no weights for their norm.

References:
    Wu et al.: Google's Neural Machine Translation System: Bridging the Gap between Human and
    Machine Translation, 2016, section 3.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from benchmarks.models import translation_model
from benchmarks.models.recurrent import (
    AdditiveAttention,
    State,
    cross_entropy_of_all_steps,
    lstm_layer,
    lstm_step,
    lstm_variables,
    softmax_variables,
)
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["build"]

_INIT_SCALE = 0.1
_LEARNING_RATE = 1.0
_CLIP_NORM = 5.0
_FIRST_RESIDUAL_LAYER = 2


def build(**sizes: Any) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    There are two layers at least; the lowest one of the encoder has a cell for each direction.

    Args:
        **sizes: as `translation_model.build` takes them.
    """
    return translation_model.build(
        **sizes,
        learning_rate=_LEARNING_RATE,
        clip_norm=_CLIP_NORM,
        optimizer=tf1.train.GradientDescentOptimizer,
        architecture=translation_model.Architecture(_INIT_SCALE, _encode, _decode, _loss),
    )


def _encode(values: list[tf.Tensor], layers: int) -> tuple[tf.Tensor, list[State]]:
    """Runs the encoder.

    Each layer of the decoder starts with the state of the layer of the encoder, of the lowest with
    that of the cell that read backward.
    """
    units = int(values[0].shape[1])
    with tf1.variable_scope("encoder"):
        with tf1.variable_scope("layer_0"):
            forward, _ = lstm_layer(values, units, "forward")
            backward, state = lstm_layer(values, units, "backward", backward=True)
            values = [
                tf.concat(both, 1, name=f"both_{step}")
                for step, both in enumerate(zip(forward, backward, strict=True))
            ]
        states = [state]
        for layer in range(1, layers):
            outputs, state = lstm_layer(values, units, f"layer_{layer}")
            states.append(state)
            if layer >= _FIRST_RESIDUAL_LAYER:
                outputs = [
                    tf.add(*both, name=f"layer_{layer}/residual_{step}")
                    for step, both in enumerate(zip(outputs, values, strict=True))
                ]
            values = outputs
        return tf.stack(values, axis=1, name="outputs"), states


def _decode(values: list[tf.Tensor], encoded: tf.Tensor, states: list[State]) -> list[tf.Tensor]:
    units = int(values[0].shape[1])
    with tf1.variable_scope("decoder"):
        cells = []
        for layer in range(len(states)):
            with tf1.variable_scope(f"layer_{layer}"):
                cells.append(lstm_variables(2 * units, units))
        with tf1.variable_scope("attention"):
            attention = AdditiveAttention(encoded)
            context = tf.zeros_like(values[0], name="nothing_asked")
    said = []
    for step, value in enumerate(values):
        for layer, cell in enumerate(cells):
            with tf1.name_scope(f"decoder/layer_{layer}/step_{step}/"):
                read = tf.concat([value, context], 1)
                states[layer] = lstm_step(read, *states[layer], *cell)
                hidden = states[layer][1]
                value = hidden + value if layer >= _FIRST_RESIDUAL_LAYER else hidden
        said.append(value)
        # Nobody reads an answer after the last step.
        if step + 1 < len(values):
            with tf1.name_scope(f"decoder/attention/step_{step}/"):
                context = attention.context(states[0][1])
    return said


def _loss(decoded: list[tf.Tensor], target: tf.Tensor, vocabulary: int) -> tf.Tensor:
    """Computes the mean cross entropy of the tokens, all predicted at once."""
    with tf1.variable_scope("softmax"):
        following = target[:, 1:]
        variables = softmax_variables(int(decoded[0].shape[1]), vocabulary)
        cross_entropy = cross_entropy_of_all_steps(decoded, following, *variables)
    return tf.reduce_mean(cross_entropy, name="loss")
