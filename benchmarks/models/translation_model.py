"""An LSTM encoder-decoder with attention, as the plain graph code of a TF1 training script.

References:
    Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate,
    2015 (the additive scores of the attention).
    Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation, 2015
    (the top layer asks, and its answer is an input of the next step: "input feeding").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.attention import AdditiveAttention
from benchmarks.models.lstm import lstm_step, lstm_variables
from benchmarks.models.recurrent import (
    cross_entropies_by_step,
    embed,
    lstm_layer,
    softmax_variables,
)
from benchmarks.models.training import make_optimizer, train

tf1 = tf.compat.v1

__all__ = ["TranslationModel", "build", "check_sizes"]

_INIT_SCALE = 0.05
_GRAPH_SEED = 1
_START = 0


@dataclasses.dataclass(frozen=True)
class TranslationModel:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        source: the placeholder of sentences, int32 [batch, source_steps].
        target: the placeholder of their translations, int32 [batch, target_steps + 1]: the inputs
            of the decoder (teacher forcing), and shifted by one, what it should say.
        loss: cross entropy per target token in nats, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: pairs of sentences per step.
        source_steps: unrolled length of the encoder.
        target_steps: unrolled length of the decoder.
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens, with the one that starts a sentence.
    """

    graph: tf.Graph
    source: str
    target: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    source_steps: int
    target_steps: int
    source_vocabulary: int
    target_vocabulary: int

    def batches(self, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Endless pairs of made-up sentences whose translation can be learnt.

        Tokens are drawn from Zipf's law. A translation is the sentence from its end to its start
        (over again, if it is shorter than the decoder), each token replaced by its one fixed
        counterpart.

        Args:
            seed: of the sentences; the dictionary is always the same.

        Yields:
            int32 [batch, source_steps] and int32 [batch, target_steps + 1], values for `source` and
            `target`.
        """
        words = self.target_vocabulary - 1
        dictionary = np.random.default_rng(0).permutation(self.source_vocabulary) % words + 1
        order = (-1 - np.arange(self.target_steps)) % self.source_steps
        frequencies = 1.0 / np.arange(1, self.source_vocabulary + 1)
        frequencies /= frequencies.sum()
        random = np.random.default_rng(seed)
        shape = (self.batch, self.source_steps)
        while True:
            source = random.choice(self.source_vocabulary, shape, p=frequencies).astype(np.int32)
            target = np.full((self.batch, self.target_steps + 1), _START, np.int32)
            target[:, 1:] = dictionary[source[:, order]]
            yield source, target

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches, as what to feed to a step."""
        for source, target in self.batches(seed):
            yield {self.source: source, self.target: target}


def build(
    layers: int = 2,
    units: int = 1024,
    source_steps: int = 40,
    target_steps: int = 40,
    batch: int = 64,
    source_vocabulary: int = 32000,
    target_vocabulary: int = 32000,
    optimizer: str = "adam",
    use_resource: bool = True,
    learning_rate: float = 1e-3,
    clip_norm: float | None = None,
) -> TranslationModel:
    """Builds the model with its gradients and updates in a graph of its own.

    All sentences are as long as the graph is unrolled. Each step of the decoder attends to the
    encoder with additive scores, and has a softmax layer of its own.

    Args:
        layers: stacked LSTM layers of the encoder, and of the decoder.
        units: width of the embeddings, of every layer and of the attention.
        source_steps: unrolled length of the encoder, in tokens.
        target_steps: unrolled length of the decoder, in tokens.
        batch: pairs of sentences per step.
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens, with the one that starts a sentence.
        optimizer: "adam", "momentum", "rmsprop" or "sgd".
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        clip_norm: the largest norm of all gradients together; no limit if None.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive, the target vocabulary has no token but the start, the
            optimizer is not one of these, or the norm is not positive.
    """
    check_sizes(
        target_vocabulary,
        layers=layers,
        units=units,
        batch=batch,
        source_steps=source_steps,
        target_steps=target_steps,
        source_vocabulary=source_vocabulary,
    )
    update = make_optimizer(optimizer, learning_rate)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.random_uniform_initializer(-_INIT_SCALE, _INIT_SCALE),
            use_resource=use_resource,
        ):
            source = tf1.placeholder(tf.int32, [batch, source_steps], name="source")
            target = tf1.placeholder(tf.int32, [batch, target_steps + 1], name="target")
            embedded = embed(source, source_vocabulary, units, "source_embedding")
            encoded, states = _encode(embedded, layers, units)
            embedded = embed(target[:, :-1], target_vocabulary, units, "target_embedding")
            decoded = _decode(embedded, encoded, states, units)
            loss = _loss(decoded, target[:, 1:], target_vocabulary)
            train_op = train(loss, update, clip_norm)
        initializer = tf1.global_variables_initializer()
    return TranslationModel(
        graph,
        source.name,
        target.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        source_steps,
        target_steps,
        source_vocabulary,
        target_vocabulary,
    )


def check_sizes(target_vocabulary: int, **sizes: int) -> None:
    """Checks the sizes of a translation model.

    Raises:
        ValueError: a size is not positive, or the target vocabulary has no token but the start.
    """
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, not {size}")
    if target_vocabulary < 2:
        raise ValueError(f"target_vocabulary must be at least 2, not {target_vocabulary}")


def _encode(
    values: list[tf.Tensor], layers: int, units: int
) -> tuple[tf.Tensor, list[tuple[tf.Tensor, tf.Tensor]]]:
    """Runs the encoder.

    Returns:
        The top layer's outputs, float32 [batch, source_steps, units], and the last memory and
        output of each layer.
    """
    states = []
    with tf1.variable_scope("encoder"):
        for layer in range(layers):
            values, state = lstm_layer(values, units, f"layer_{layer}")
            states.append(state)
        return tf.stack(values, axis=1, name="outputs"), states


def _decode(
    values: list[tf.Tensor],
    encoded: tf.Tensor,
    states: list[tuple[tf.Tensor, tf.Tensor]],
    units: int,
) -> list[tf.Tensor]:
    """Computes what each step says before the softmax, float32 [batch, units] each."""
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
            for layer, (kernel, bias) in enumerate(cells):
                with tf1.name_scope(f"decoder/layer_{layer}/step_{step}/"):
                    states[layer] = lstm_step(value, *states[layer], kernel, bias)
                    value = states[layer][1]
            with tf1.name_scope(f"decoder/attention/step_{step}/"):
                context = attention.context(value)
                mixed = tf.matmul(tf.concat([context, value], 1), mix_weights, name="mix")
                mixed = tf.tanh(mixed)
                said.append(mixed)
    return said


def _loss(decoded: list[tf.Tensor], target: tf.Tensor, vocabulary: int) -> tf.Tensor:
    """Computes the mean cross entropy of the tokens, each predicted by a step of its own."""
    with tf1.variable_scope("softmax"):
        variables = softmax_variables(int(decoded[0].shape[1]), vocabulary)
        cross_entropies = cross_entropies_by_step(decoded, target, *variables)
    return tf.reduce_mean(tf.stack(cross_entropies), name="loss")
