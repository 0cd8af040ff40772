"""An LSTM encoder-decoder with attention, as the plain graph code of a TF1 training script.

References:
    Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate,
    2015 (the additive scores of the attention).
    Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation, 2015
    (the top layer asks, and its answer is an input of the next step: "input feeding").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.models.made_up_text import make_up_translations
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

__all__ = ["Architecture", "build"]

_INIT_SCALE = 0.05


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The parts in which encoder-decoders differ.

    Attributes:
        init_scale: variables start within this of 0.
        encode: makes of embedded sentences and the number of layers the outputs of the encoder,
            float32 [batch, source_steps, units], and the states that the layers of the decoder
            start with.
        decode: makes of embedded translations and of both the output of each step, float32 [batch,
            units], before the softmax.
        loss: makes the loss of these outputs, the fed targets and the target vocabulary.
    """

    init_scale: float
    encode: Callable[[list[tf.Tensor], int], tuple[tf.Tensor, list[State]]]
    decode: Callable[[list[tf.Tensor], tf.Tensor, list[State]], list[tf.Tensor]]
    loss: Callable[[list[tf.Tensor], tf.Tensor, int], tf.Tensor]


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
    optimizer: Callable[[float], tf.compat.v1.train.Optimizer] = tf1.train.AdamOptimizer,
    architecture: Architecture | None = None,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    Each step of the decoder attends to the encoder with additive scores, and has a softmax layer of
    its own, unless the architecture is another. All sentences are as long as the graph is unrolled.
    It is fed "source", int32 [batch, source_steps], and "target", int32 [batch, target_steps + 1]:
    the inputs of the decoder (teacher forcing), and shifted by one, the targets.

    Args:
        layers: stacked LSTM layers of the encoder, and of the decoder.
        units: width of the embeddings, of every layer and of the attention.
        source_steps: unrolled length of the encoder, in tokens.
        target_steps: unrolled length of the decoder, in tokens.
        batch: pairs of sentences per step.
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens, with the one that starts a sentence.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        clip_norm: the largest norm of all gradients together; no limit if None.
        optimizer: makes it of the learning rate.
        architecture: another than the one of this module.
    """
    parts = architecture or Architecture(_INIT_SCALE, _encode, _decode, _loss)
    initializer = tf1.random_uniform_initializer(-parts.init_scale, parts.init_scale)
    with model_graph(initializer, use_resource=use_resource):
        source = tf1.placeholder(tf.int32, [batch, source_steps], name="source")
        target = tf1.placeholder(tf.int32, [batch, target_steps + 1], name="target")
        embedded = embed(source, source_vocabulary, units, "source_embedding")
        encoded, states = parts.encode(embedded, layers)
        embedded = embed(target[:, :-1], target_vocabulary, units, "target_embedding")
        loss = parts.loss(parts.decode(embedded, encoded, states), target, target_vocabulary)

        def draw(random: np.random.Generator) -> Mapping[str, np.ndarray]:
            vocabularies, steps = (
                (source_vocabulary, target_vocabulary),
                (source_steps, target_steps),
            )
            pairs = make_up_translations(vocabularies, steps, batch, random)
            return dict(zip(("source", "target"), pairs, strict=True))

        return training_model(loss, train(loss, optimizer(learning_rate), clip_norm), draw)


def _encode(values: list[tf.Tensor], layers: int) -> tuple[tf.Tensor, list[State]]:
    units = int(values[0].shape[1])
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
