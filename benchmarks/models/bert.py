"""BERT's pre-training: masked words and next sentences, as plain TF1 graph code.

References:
    Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for
    Language Understanding, 2019 (sections 3 and 3.1, appendix A).
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.models.made_up_text import make_up_text
from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import (
    CLIP_NORM,
    attention,
    dense,
    drop_out,
    feed_forward,
    gelu,
    layer_norm,
    transformer_initializer,
)

tf1 = tf.compat.v1

__all__ = ["build"]

_PREDICTED_PERCENT = 15
_SEGMENTS = 2
_HIDDEN_SCORE = -10000.0
_NEGLIGIBLE = 1e-5
_START, _SEPARATOR, _MASK, _FIRST_WORD = 0, 1, 2, 3


def build(
    layers: int = 12,
    units: int = 768,
    heads: int = 12,
    length: int = 384,
    batch: int = 24,
    vocabulary: int = 30522,
    dropout: float = 0.1,
    use_resource: bool = True,
    learning_rate: float = 1e-4,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    Trained by Adam with weight decay at one learning rate, with gradients of norm 1 at most, to
    predict 15 % of the tokens. It is fed, as int32 but for the weights:

    - "tokens" [batch, length], pairs of sentences;
    - "used" [batch, length], 0 for tokens that only fill up the length;
    - "segments" [batch, length], 0 in first sentences and 1 in second ones;
    - "positions" [batch, predictions], of the tokens to predict;
    - "words" [batch, predictions], the tokens there;
    - "weights", float32 [batch, predictions], 0 for predictions that only fill up;
    - "follows" [batch], 0 where the second sentence follows the first.

    Args:
        layers: blocks of attention and feed-forward layer.
        units: width of the embeddings and of every block.
        heads: attention heads, a divisor of the units.
        length: tokens of a pair of sentences; there are positions for 512, or for more if longer.
        batch: pairs of sentences per step.
        vocabulary: number of tokens, with those that start, separate and mask.
        dropout: share of the outputs and attention weights that are dropped.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
    """
    predictions = -(-length * _PREDICTED_PERCENT // 100)
    with model_graph(transformer_initializer(), use_resource=use_resource):
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
                value = layer_norm(value + drop_out(added, dropout), "attention_norm")
                added = feed_forward(value)
                value = layer_norm(value + drop_out(added, dropout), "feed_forward_norm")
        masked_loss = _compute_masked_loss(value, table, length, positions, words, weights)
        loss = tf.add(masked_loss, _next_loss(value, length, follows), name="total_loss")
        return training_model(
            loss,
            train(loss, AdamWeightDecay(learning_rate), CLIP_NORM),
            functools.partial(_pairs, batch, length, predictions, vocabulary),
        )


def _embed(
    tokens: tf.Tensor, segments: tf.Tensor, vocabulary: int, units: int, dropout: float
) -> tuple[tf.Tensor, tf.Variable]:
    """Embeds tokens, segments and positions as float32 [batch * length, units]; adds the table."""
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
        return drop_out(value, dropout), table


def _compute_masked_loss(
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


def _pairs(
    batch: int, length: int, predictions: int, vocabulary: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws pairs of sentences of a made-up language, every second one of two texts.

    A pair is as long as the model allows, so that nothing only fills up.
    """
    rows = np.arange(batch)[:, np.newaxis]
    # The start, two separators, and the words of both sentences.
    first = (length - 3) // 2
    is_word = np.ones(length, bool)
    is_word[[0, first + 1, length - 1]] = False
    text = make_up_text(vocabulary - _FIRST_WORD, (2 * batch, length - 3), random) + _FIRST_WORD
    other = random.integers(2, size=batch, dtype=np.int32)
    seconds = text[np.arange(batch) + batch * other, first:]
    tokens = np.full((batch, length), _SEPARATOR, np.int32)
    tokens[:, 0] = _START
    tokens[:, is_word] = np.concatenate([text[:batch, :first], seconds], axis=1)
    order = random.permuted(np.tile(np.flatnonzero(is_word), (batch, 1)), axis=1)
    positions = np.sort(order[:, :predictions], axis=1).astype(np.int32)
    words = tokens[rows, positions]
    tokens[rows, positions] = _mask_words(words, vocabulary, random)
    segments = np.broadcast_to(np.arange(length) > first + 1, (batch, length))
    return {
        "tokens": tokens,
        "used": np.ones_like(tokens),
        "segments": segments.astype(np.int32),
        "positions": positions,
        "words": words,
        "weights": np.ones(words.shape, np.float32),
        "follows": other,
    }


def _mask_words(words: np.ndarray, vocabulary: int, random: np.random.Generator) -> np.ndarray:
    """Masks eight of ten words, replaces one by any, and leaves one as it is."""
    fate = random.random(words.shape)
    any_words = random.integers(_FIRST_WORD, vocabulary, words.shape, dtype=np.int32)
    return np.where(fate < 0.8, _MASK, np.where(fate < 0.9, any_words, words)).astype(np.int32)
