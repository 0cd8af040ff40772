"""Recurrent networks, scans, decoders and attention."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.zoo.graph_parts import (
    CLASSES,
    SEED,
    Kinds,
    StepGraph,
    dense,
    inputs,
    make_classifier,
    make_training,
    step_graph,
    weight_variable,
)

tf1 = tf.compat.v1

__all__ = ["KINDS"]

KINDS = Kinds()

_BATCH, _STEPS, _UNITS = 2, 3, 4


class _Cell:
    """A recurrent cell without Keras: tanh of what it sees and what it remembers."""

    output_size = state_size = _UNITS

    def zero_state(self, batch_size: tf.Tensor | int, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([batch_size, _UNITS], dtype)

    def __call__(
        self, value: tf.Tensor, state: tf.Tensor, scope: str | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        del scope
        weights = weight_variable("weights", [2 * _UNITS, _UNITS])
        state = tf.tanh(tf.matmul(tf.concat([value, state], 1), weights))
        return state, state


@KINDS.both
def dynamic_rnn() -> StepGraph:
    """Runs a cell over sequences of different lengths."""
    x, y, feeds = inputs([_BATCH, _STEPS, _UNITS])
    _, state = tf1.nn.dynamic_rnn(_Cell(), x, sequence_length=tf.constant([2, 3]), dtype=tf.float32)
    return make_classifier(state, y, feeds)


@KINDS.v1
def bidirectional_rnn() -> StepGraph:
    """Runs cells over sequences from both ends."""
    x, y, feeds = inputs([_BATCH, _STEPS, _UNITS])
    lengths = tf1.placeholder(tf.int32, [_BATCH], name="lengths")
    outputs, _ = tf1.nn.bidirectional_dynamic_rnn(
        _Cell(), _Cell(), x, sequence_length=lengths, dtype=tf.float32
    )
    mean = tf.reduce_mean(tf.concat(outputs, 2), axis=1)
    return make_classifier(mean, y, {**feeds, lengths: np.array([3, 1], np.int32)})


@KINDS.v1
def raw_rnn() -> StepGraph:
    """Generates from what was generated, until a condition that it computes."""
    x, y, feeds = inputs([_BATCH, _UNITS])
    embedding = weight_variable("embedding", [CLASSES, _UNITS])

    def turn(time: tf.Tensor, output: Any, state: Any, loop_state: Any) -> tuple[Any, ...]:
        if output is None:
            return tf.zeros([_BATCH], tf.bool), x, x * 0.5, None, None
        best = tf.argmax(dense(output, CLASSES, "choice"), axis=1)
        del loop_state
        return time >= _STEPS, tf.nn.embedding_lookup(embedding, best), state, output, None

    outputs, _, _ = tf1.nn.raw_rnn(_Cell(), turn)
    mean = tf.reduce_mean(outputs.stack(), axis=0)
    return make_classifier(mean, y, feeds)


@KINDS.both
def scans() -> StepGraph:
    """Trains through `scan`, `map_fn`, `foldl` and `foldr`."""
    x, y, feeds = inputs([_STEPS, _BATCH, _UNITS], examples=_BATCH)
    weights = weight_variable("weights", [_UNITS, _UNITS])
    mapped = tf1.map_fn(lambda each: tf.tanh(tf.matmul(each, weights)), x)
    scanned = tf1.scan(lambda before, each: 0.5 * before + each, mapped)
    first = tf1.foldl(lambda before, each: tf.maximum(before, each), scanned)
    last = tf1.foldr(lambda before, each: before - 0.1 * each, scanned)
    return make_classifier(tf.concat([first, last], 1), y, feeds)


@KINDS.both
def beam_search() -> StepGraph:
    """Extends the best sequences by the best words; their length grows in the loop."""
    width, words, steps = 3, 5, 3
    x = tf1.placeholder(tf.float32, [words], name="x")
    table = weight_variable("table", [words, words])

    def body(i: tf.Tensor, sequences: tf.Tensor, scores: tf.Tensor) -> tuple[tf.Tensor, ...]:
        last = tf.nn.log_softmax(tf.gather(table, sequences[:, -1]) + x)
        joint = tf.reshape(scores[:, None] + last, [-1])
        scores, chosen = tf.nn.top_k(joint, k=width)
        kept = tf.gather(sequences, chosen // words)
        return i + 1, tf.concat([kept, (chosen % words)[:, None]], 1), scores

    start = (tf.constant(0), tf.zeros([width, 1], tf.int32), tf.constant([0.0, -9.0, -9.0]))
    _, sequences, scores = tf1.while_loop(
        lambda i, *_: i < steps,
        body,
        start,
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([width, None]),
            tf.TensorShape([width]),
        ),
    )
    feeds = {x: np.linspace(-1.0, 1.0, words, dtype=np.float32)}
    return step_graph(sequences, scores, feeds=feeds)


@KINDS.default
def ctc() -> StepGraph:
    """Trains on sparse labels that have no positions, and decodes."""
    x = tf1.placeholder(tf.float32, [_STEPS * 2, _BATCH, _UNITS], name="x")
    lengths = tf.constant([6, 5])
    flat = dense(tf.reshape(x, [-1, _UNITS]), CLASSES + 1, "logits")
    logits = tf.reshape(flat, [_STEPS * 2, _BATCH, CLASSES + 1])
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([0, 2, 1]), [_BATCH, 2])
    loss = tf.reduce_mean(tf1.nn.ctc_loss(labels, logits, lengths), name="loss")
    (decoded,), _ = tf1.nn.ctc_greedy_decoder(logits, lengths)
    value = np.random.default_rng(SEED).standard_normal(x.shape.as_list()).astype(np.float32)
    step = make_training(loss, feeds={x: value})
    return dataclasses.replace(step, fetches=(*step.fetches, decoded.values.name))


@KINDS.default
def attention() -> StepGraph:
    """Attends with two heads, a mask, dropout and layer normalization."""
    heads, width = 2, 4
    x, y, feeds = inputs([_BATCH, _STEPS, heads * width])
    mask = tf.sequence_mask(tf.constant([2, 3]), _STEPS, tf.float32)

    def project(name: str) -> tf.Tensor:
        flat = dense(tf.reshape(x, [-1, heads * width]), heads * width, name)
        return tf.transpose(tf.reshape(flat, [_BATCH, _STEPS, heads, width]), [0, 2, 1, 3])

    scores = tf.matmul(project("query"), project("key"), transpose_b=True) / width**0.5
    weights = tf.nn.softmax(scores - 1e4 * (1.0 - mask)[:, None, None, :])
    weights = tf1.nn.dropout(weights, rate=0.2, seed=SEED)
    mixed = tf.transpose(tf.matmul(weights, project("value")), [0, 2, 1, 3])
    value = x + tf.reshape(mixed, [_BATCH, _STEPS, heads * width])
    mean, variance = tf.nn.moments(value, axes=[-1], keepdims=True)
    scale = tf1.get_variable("scale", [heads * width], initializer=tf1.ones_initializer())
    value = (value - mean) * tf.math.rsqrt(variance + 1e-6) * scale
    return make_classifier(tf.reduce_mean(value, axis=1), y, feeds)
