"""An LSTM encoder-decoder with attention, as the plain graph code of a TF1 training script.

References:
    Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate,
    2015 (the additive scores of the attention).
    Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation, 2015
    (the top layer asks, and its answer is an input of the next step: "input feeding").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.models.made_up_text import made_up_translations
from benchmarks.models.recurrent import (
    AdditiveAttention,
    State,
    cross_entropies_by_step,
    embed,
    lstm_layer,
    lstm_step,
    lstm_variables,
    softmax_variables,
)
from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["build", "build_translation"]

_INIT_SCALE = 0.05


def build(
    layers: int = 2,
    units: int = 1024,
    source_steps: int = 40,
    target_steps: int = 40,
    batch: int = 64,
    source_vocabulary: int = 32000,
    target_vocabulary: int = 32000,
    use_resource: bool = True,
    learning_rate: float = 1e-3,
    clip_norm: float | None = None,
) -> TrainingModel:
    """Builds the model with its gradients and updates by Adam in a graph of its own.

    Each step of the decoder attends to the encoder with additive scores, and has a softmax layer of
    its own. The layers are those of the encoder, and of the decoder; see `build_translation`.
    """
    with model_graph(
        tf1.random_uniform_initializer(-_INIT_SCALE, _INIT_SCALE), use_resource=use_resource
    ):
        return build_translation(
            lambda values: _encode(values, layers, units),
            _decode,
            _loss,
            tf1.train.AdamOptimizer(learning_rate),
            units=units,
            steps=(source_steps, target_steps),
            batch=batch,
            vocabularies=(source_vocabulary, target_vocabulary),
            clip_norm=clip_norm,
        )


def build_translation(
    encode: Callable[[list[tf.Tensor]], tuple[tf.Tensor, list[State]]],
    decode: Callable[[list[tf.Tensor], tf.Tensor, list[State]], list[tf.Tensor]],
    loss_of: Callable[[list[tf.Tensor], tf.Tensor, int], tf.Tensor],
    optimizer: tf.compat.v1.train.Optimizer,
    *,
    units: int,
    steps: tuple[int, int],
    batch: int,
    vocabularies: tuple[int, int],
    clip_norm: float | None,
) -> TrainingModel:
    """Builds an encoder-decoder in the current graph.

    All sentences are as long as the graph is unrolled. It is fed "source", int32 [batch,
    source_steps], and "target", int32 [batch, target_steps + 1]: the inputs of the decoder (teacher
    forcing), and shifted by one, the targets.

    Args:
        encode: makes of the embedded sentences the outputs of the encoder, float32 [batch,
            source_steps, units], and the states that the layers of the decoder start with.
        decode: makes of embedded translations and of both the output of each step, float32 [batch,
            units], before the softmax.
        loss_of: makes the loss of these outputs, the fed targets and the target vocabulary.
        optimizer: updates the variables.
        units: width of the embeddings, of every layer and of the attention.
        steps: unrolled lengths of encoder and decoder, in tokens.
        batch: pairs of sentences per step.
        vocabularies: number of source tokens and of target tokens, with the one that starts a
            sentence.
        clip_norm: the largest norm of all gradients together; no limit if None.
    """
    source = tf1.placeholder(tf.int32, [batch, steps[0]], name="source")
    target = tf1.placeholder(tf.int32, [batch, steps[1] + 1], name="target")
    encoded, states = encode(embed(source, vocabularies[0], units, "source_embedding"))
    embedded = embed(target[:, :-1], vocabularies[1], units, "target_embedding")
    loss = loss_of(decode(embedded, encoded, states), target, vocabularies[1])

    def draw(random: np.random.Generator) -> Mapping[str, np.ndarray]:
        pairs = made_up_translations(vocabularies, steps, batch, random)
        return dict(zip(("source", "target"), pairs, strict=True))

    return training_model(loss, train(loss, optimizer, clip_norm), draw)


def _encode(values: list[tf.Tensor], layers: int, units: int) -> tuple[tf.Tensor, list[State]]:
    states = []
    with tf1.variable_scope("encoder"):
        for layer in range(layers):
            values, state = lstm_layer(values, units, f"layer_{layer}")
            states.append(state)
        return tf.stack(values, axis=1, name="outputs"), states


def _decode(values: list[tf.Tensor], encoded: tf.Tensor, states: list[State]) -> list[tf.Tensor]:
    units = int(values[0].shape[1])
    said = []
    with tf1.variable_scope("decoder"):
        cells = []
        for layer in range(len(states)):
            # The lowest layer also reads what the step before said.
            with tf1.variable_scope(f"layer_{layer}"):
                cells.append(lstm_variables(units if layer else 2 * units, units))
        with tf1.variable_scope("attention"):
            attention = AdditiveAttention(encoded)
            mix_weights = tf1.get_variable("mix", [2 * units, units])
            mixed = tf.zeros_like(states[0][1], name="nothing_said")
        for step, value in enumerate(values):
            value = tf.concat([value, mixed], 1)
            for layer, cell in enumerate(cells):
                with tf1.name_scope(f"decoder/layer_{layer}/step_{step}/"):
                    states[layer] = lstm_step(value, *states[layer], *cell)
                    value = states[layer][1]
            with tf1.name_scope(f"decoder/attention/step_{step}/"):
                context = attention.context(value)
                mixed = tf.matmul(tf.concat([context, value], 1), mix_weights, name="mix")
                mixed = tf.tanh(mixed)
                said.append(mixed)
    return said


def _loss(decoded: list[tf.Tensor], target: tf.Tensor, vocabulary: int) -> tf.Tensor:
    """Computes the mean cross entropy of the tokens, each predicted by a step of its own."""
    following = target[:, 1:]
    with tf1.variable_scope("softmax"):
        variables = softmax_variables(int(decoded[0].shape[1]), vocabulary)
        cross_entropies = cross_entropies_by_step(decoded, following, *variables)
    return tf.reduce_mean(tf.stack(cross_entropies), name="loss")
