"""A decoder-only transformer that predicts the next token, as plain TF1 graph code.

References:
    Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask
    Learners, 2019 (GPT-2; normalization before each layer, tied embeddings).
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.models.made_up_text import make_up_text
from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import (
    CLIP_NORM,
    attention,
    causal_bias,
    feed_forward,
    layer_norm,
    transformer_initializer,
)

tf1 = tf.compat.v1

__all__ = ["build"]


def _feed_forward(value: tf.Tensor, layer: int, length: int) -> tuple[tf.Tensor, None]:
    del layer, length
    return feed_forward(value), None


def build(
    layers: int = 12,
    units: int = 768,
    heads: int = 12,
    length: int = 512,
    batch: int = 8,
    vocabulary: int = 50257,
    use_resource: bool = True,
    learning_rate: float = 3e-4,
    second_layer: Callable[
        [tf.Tensor, int, int], tuple[tf.Tensor, tf.Tensor | None]
    ] = _feed_forward,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    There is no dropout, so that a step computes the same whenever and wherever it runs. Trained by
    Adam with weight decay, with gradients of norm 1 at most. It is fed "tokens", int32 [batch,
    length + 1]: the inputs, and shifted by one, the targets. Its predictions are the tensor
    "softmax/logits:0", float32 [batch * length, vocabulary].

    Args:
        layers: blocks of attention and a second layer.
        units: width of the embeddings and of every block.
        heads: attention heads, a divisor of the units.
        length: tokens of a sequence.
        batch: sequences per step.
        vocabulary: number of tokens.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        second_layer: makes of normalized float32 [batch * length, units], the number of the block
            and the length what is added to its value, of the same shape, and a loss of its own,
            float32 [] or None.
    """
    with model_graph(transformer_initializer(), use_resource=use_resource):
        tokens = tf1.placeholder(tf.int32, [batch, length + 1], name="tokens")
        value, embedding = _embed(tokens[:, :-1], vocabulary, units)
        bias = causal_bias(length)
        losses = []
        for layer in range(layers):
            with tf1.variable_scope(f"layer_{layer}"):
                value += attention(layer_norm(value, "attention_norm"), length, heads, bias)
                normalized = layer_norm(value, "feed_forward_norm")
                added, own_loss = second_layer(normalized, layer, length)
                value += added
                if own_loss is not None:
                    losses.append(own_loss)
        with tf1.variable_scope("softmax"):
            logits = tf.matmul(layer_norm(value), embedding, transpose_b=True, name="logits")
            cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(tokens[:, 1:], [-1]), logits=logits
            )
            loss = tf.reduce_mean(cross_entropy, name="loss")
        if losses:
            loss = tf.add_n([loss, *losses], name="total_loss")
        return training_model(
            loss,
            train(loss, AdamWeightDecay(learning_rate), CLIP_NORM),
            lambda random: {"tokens": make_up_text(vocabulary, (batch, length + 1), random)},
        )


def _embed(tokens: tf.Tensor, vocabulary: int, units: int) -> tuple[tf.Tensor, tf.Variable]:
    """Embeds tokens and positions as float32 [batch * length, units]; adds the tokens' table."""
    with tf1.variable_scope("embedding"):
        length = tokens.shape[1]
        table = tf1.get_variable("tokens", [vocabulary, units])
        positions = tf1.get_variable("positions", [length, units])
        embedded = tf.nn.embedding_lookup(table, tokens) + positions
        return tf.reshape(embedded, [-1, units]), table
