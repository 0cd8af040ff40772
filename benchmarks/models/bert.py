"""BERT's pre-training: masked words and next sentences, as plain TF1 graph code.

References:
    Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for
    Language Understanding, 2019 (sections 3 and 3.1, appendix A).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.models.made_up_text import made_up_text
from benchmarks.models.training import train
from benchmarks.models.transformer import (
    INITIALIZER_STDDEV,
    attention,
    dense,
    dropped_out,
    feed_forward,
    gelu,
    layer_norm,
)

tf1 = tf.compat.v1

__all__ = ["Bert", "build"]

_GRAPH_SEED = 1
_CLIP_NORM = 1.0
_INNER_FACTOR = 4
_SEGMENTS = 2
_HIDDEN_SCORE = -10000.0
_NEGLIGIBLE = 1e-5
_START, _SEPARATOR, _MASK, _FIRST_WORD = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Bert:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        tokens: the placeholder of pairs of sentences, int32 [batch, length].
        used: the placeholder, int32 [batch, length], 0 for tokens that only fill up the length.
        segments: the placeholder, int32 [batch, length], 0 in first sentences and 1 in second ones.
        positions: the placeholder of the tokens to predict, int32 [batch, predictions].
        words: the placeholder of what these tokens are, int32 [batch, predictions].
        weights: the placeholder, float32 [batch, predictions], 0 for those that only fill up.
        follows: the placeholder, int32 [batch], 0 where the second sentence follows the first.
        loss: cross entropy per predicted word plus that of the second sentence, in nats, float32
            [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: pairs of sentences per step.
        length: tokens of a pair.
        predictions: predicted words of a pair.
        vocabulary: number of tokens.
    """

    graph: tf.Graph
    tokens: str
    used: str
    segments: str
    positions: str
    words: str
    weights: str
    follows: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    length: int
    predictions: int
    vocabulary: int

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Endless pairs of sentences of a made-up language, as what to feed to a step.

        A pair is as long as the model allows, so that nothing only fills up. Of every second pair
        the second sentence is of another text.

        Args:
            seed: of the text and of what is masked; the language itself is always the same.
        """
        random = np.random.default_rng(seed)
        rows = np.arange(self.batch)[:, np.newaxis]
        # The start, two separators, and the words of both sentences.
        first = (self.length - 3) // 2
        separators = [first + 1, self.length - 1]
        is_word = np.ones(self.length, bool)
        is_word[[0, *separators]] = False
        segments = np.broadcast_to(np.arange(self.length) > first + 1, (self.batch, self.length))
        while True:
            text = made_up_text(
                self.vocabulary - _FIRST_WORD, (2 * self.batch, self.length - 3), random
            )
            text += _FIRST_WORD
            other = random.integers(2, size=self.batch, dtype=np.int32)
            seconds = text[np.arange(self.batch) + self.batch * other, first:]
            tokens = np.full((self.batch, self.length), _SEPARATOR, np.int32)
            tokens[:, 0] = _START
            tokens[:, is_word] = np.concatenate([text[: self.batch, :first], seconds], axis=1)
            order = random.permuted(np.tile(np.flatnonzero(is_word), (self.batch, 1)), axis=1)
            positions = np.sort(order[:, : self.predictions], axis=1).astype(np.int32)
            words = tokens[rows, positions]
            tokens[rows, positions] = self._masked(words, random)
            yield {
                self.tokens: tokens,
                self.used: np.ones_like(tokens),
                self.segments: segments.astype(np.int32),
                self.positions: positions,
                self.words: words,
                self.weights: np.ones(words.shape, np.float32),
                self.follows: other,
            }

    def _masked(self, words: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Masks eight of ten words, replaces one by any, and leaves one as it is."""
        fate = random.random(words.shape)
        any_words = random.integers(_FIRST_WORD, self.vocabulary, words.shape, dtype=np.int32)
        return np.where(fate < 0.8, _MASK, np.where(fate < 0.9, any_words, words)).astype(np.int32)


def build(
    layers: int = 12,
    units: int = 768,
    heads: int = 12,
    length: int = 384,
    batch: int = 24,
    vocabulary: int = 30522,
    predictions: int | None = None,
    dropout: float = 0.1,
    use_resource: bool = True,
    learning_rate: float = 1e-4,
) -> Bert:
    """Builds the model with its gradients and updates in a graph of its own.

    Trained by Adam with weight decay at one learning rate, with gradients of norm 1 at most.

    Args:
        layers: blocks of attention and feed-forward layer.
        units: width of the embeddings and of every block; feed-forward layers have 4 times as many
            inside.
        heads: attention heads, a divisor of the units.
        length: tokens of a pair of sentences; there are positions for 512, or for more if longer.
        batch: pairs of sentences per step.
        vocabulary: number of tokens, with those that start, separate and mask.
        predictions: predicted words of a pair; 15 % of the length, rounded up, if None.
        dropout: share of the outputs and attention weights that are dropped.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is too small, the units do not divide among the heads, there are more
            predictions than words, or the dropout is not in [0, 1).
    """
    if predictions is None:
        predictions = -(-length * 15 // 100)
    _check(layers, units, heads, length, batch, vocabulary, predictions, dropout)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.truncated_normal_initializer(stddev=INITIALIZER_STDDEV),
            use_resource=use_resource,
        ):
            tokens, used, segments = (
                tf1.placeholder(tf.int32, [batch, length], name=name)
                for name in ("tokens", "used", "segments")
            )
            positions = tf1.placeholder(tf.int32, [batch, predictions], name="positions")
            words = tf1.placeholder(tf.int32, [batch, predictions], name="words")
            weights = tf1.placeholder(tf.float32, [batch, predictions], name="weights")
            follows = tf1.placeholder(tf.int32, [batch], name="follows")
            value, table = _embed(tokens, segments, vocabulary, units, dropout)
            with tf1.name_scope("attention_bias"):
                hidden = 1.0 - tf.cast(tf.reshape(used, [batch, 1, 1, length]), tf.float32)
                bias = hidden * _HIDDEN_SCORE
            for layer in range(layers):
                with tf1.variable_scope(f"layer_{layer}"):
                    added = attention(value, length, heads, bias, dropout)
                    value = layer_norm(value + dropped_out(added, dropout), "attention_norm")
                    added = feed_forward(value, _INNER_FACTOR * units)
                    value = layer_norm(value + dropped_out(added, dropout), "feed_forward_norm")
            masked_loss = _masked_loss(value, table, length, positions, words, weights)
            loss = tf.add(masked_loss, _next_loss(value, length, follows), name="total_loss")
            train_op = train(loss, AdamWeightDecay(learning_rate), _CLIP_NORM)
        initializer = tf1.global_variables_initializer()
    return Bert(
        graph,
        tokens.name,
        used.name,
        segments.name,
        positions.name,
        words.name,
        weights.name,
        follows.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        length,
        predictions,
        vocabulary,
    )


def _check(
    layers: int,
    units: int,
    heads: int,
    length: int,
    batch: int,
    vocabulary: int,
    predictions: int,
    dropout: float,
) -> None:
    """Raises ValueError if something is wrong with the arguments of `build`."""
    sizes = {"layers": (layers, 1), "units": (units, 1), "heads": (heads, 1), "batch": (batch, 1)}
    sizes |= {"length": (length, 5), "vocabulary": (vocabulary, _FIRST_WORD + 1)}
    sizes |= {"predictions": (predictions, 1)}
    for name, (size, least) in sizes.items():
        if size < least:
            raise ValueError(f"{name} must be at least {least}, not {size}")
    if units % heads:
        raise ValueError(f"units must be a multiple of the {heads} heads, not {units}")
    if predictions > length - 3:
        raise ValueError(f"predictions must be at most the {length - 3} words, not {predictions}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and less than 1, not {dropout}")


def _embed(
    tokens: tf.Tensor, segments: tf.Tensor, vocabulary: int, units: int, dropout: float
) -> tuple[tf.Tensor, tf.Variable]:
    """Tokens, segments and positions: float32 [batch * length, units], and the table of tokens."""
    batch, length = tokens.shape
    with tf1.variable_scope("embedding"):
        table = tf1.get_variable("tokens", [vocabulary, units])
        value = tf.nn.embedding_lookup(table, tf.reshape(tokens, [-1]))
        # With so few rows, a product is faster than a lookup.
        segment_table = tf1.get_variable("segments", [_SEGMENTS, units])
        value += tf.matmul(tf.one_hot(tf.reshape(segments, [-1]), _SEGMENTS), segment_table)
        position_table = tf1.get_variable("positions", [max(512, int(length)), units])
        value = tf.reshape(value, [batch, length, units]) + position_table[:length]
        value = layer_norm(tf.reshape(value, [-1, units]))
        return dropped_out(value, dropout), table


def _masked_loss(
    value: tf.Tensor,
    table: tf.Variable,
    length: int,
    positions: tf.Tensor,
    words: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Computes the weighted mean cross entropy of the masked words."""
    units = int(value.shape[1])
    vocabulary = int(table.shape[0])
    with tf1.variable_scope("masked_words"):
        starts = tf.expand_dims(tf.range(positions.shape[0]) * length, 1)
        rows = tf.gather(value, tf.reshape(positions + starts, [-1]))
        rows = layer_norm(gelu(dense(rows, units, "transform")))
        bias = tf1.get_variable("bias", [vocabulary], initializer=tf1.zeros_initializer())
        logits = tf.nn.bias_add(tf.matmul(rows, table, transpose_b=True), bias)
        hits = tf.one_hot(tf.reshape(words, [-1]), vocabulary)
        losses = -tf.reduce_sum(tf.nn.log_softmax(logits) * hits, 1)
        weight = tf.reshape(weights, [-1])
        return tf.reduce_sum(losses * weight) / (tf.reduce_sum(weight) + _NEGLIGIBLE)


def _next_loss(value: tf.Tensor, length: int, follows: tf.Tensor) -> tf.Tensor:
    """Computes the mean cross entropy of whether second sentences follow, by the first token."""
    units = int(value.shape[1])
    with tf1.variable_scope("next_sentence"):
        starts = tf.reshape(value, [-1, length, units])[:, 0]
        logits = dense(tf.tanh(dense(starts, units, "pooler")), 2, "logits")
        log_shares = tf.nn.log_softmax(logits)
        return tf.reduce_mean(-tf.reduce_sum(tf.one_hot(follows, 2) * log_shares, 1))
