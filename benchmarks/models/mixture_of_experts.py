"""A transformer whose feed-forward layers are experts among which tokens choose.

References:
    Fedus, Zoph, Shazeer: Switch Transformers: Scaling to Trillion Parameter Models with Simple and
    Efficient Sparsity, 2021 (one expert per token, capacity, the loss that balances).
    Lepikhin et al.: GShard: Scaling Giant Models with Conditional Computation and Automatic
    Sharding, 2020 (two experts per token; dispatch and combination as products).
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from benchmarks.models import decoder_only
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import feed_forward

tf1 = tf.compat.v1

__all__ = ["build", "route"]

_BALANCE_WEIGHT = 0.01


def build(
    experts: int = 8, experts_per_token: int = 1, capacity_factor: float = 1.25, **sizes: Any
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    A decoder-only transformer in which every second block has experts instead of a feed-forward
    layer. Tokens compete for the places of an expert within their sequence, first choices first and
    earlier tokens first (so a later token may take the place of an earlier one's second choice);
    those that find no place are passed by. There is no noise for the router, and the second expert
    of a token is always asked, so that a step computes the same whenever and wherever it runs. The
    loss contains those that balance the experts.

    Args:
        experts: of each block that has them.
        experts_per_token: 1 or 2.
        capacity_factor: places of all experts together, per choice of a token.
        **sizes: as `decoder_only.build` takes them.
    """

    def second_layer(
        value: tf.Tensor, layer: int, length: int
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        if layer % 2 == 0:
            return feed_forward(value), None
        return _experts(value, length, experts, experts_per_token, capacity_factor)

    return decoder_only.build(**sizes, second_layer=second_layer)


def _experts(
    value: tf.Tensor, length: int, experts: int, experts_per_token: int, capacity_factor: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs the experts on float32 [batch * length, units]; adds the loss that balances them."""
    rows, units = value.shape
    batch = rows // length
    capacity = math.ceil(length * experts_per_token * capacity_factor / experts)
    with tf1.variable_scope("router"):
        kernel = tf1.get_variable("kernel", [units, experts])
        shares = tf.reshape(tf.nn.softmax(tf.matmul(value, kernel)), [batch, length, experts])
        combine, balance = route(shares, experts_per_token, capacity)
        combine = tf.reshape(combine, [batch, length, experts * capacity])
        dispatch = tf.cast(combine > 0, tf.float32)
        sequences = tf.reshape(value, [batch, length, units])
        dispatched = tf.matmul(dispatch, sequences, transpose_a=True, name="dispatch")
        by_expert = tf.split(dispatched, experts, axis=1)
    answers = []
    for expert, asked in enumerate(by_expert):
        with tf1.variable_scope(f"expert_{expert}"):
            answer = feed_forward(tf.reshape(asked, [batch * capacity, units]))
            answers.append(tf.reshape(answer, [batch, capacity, units]))
    with tf1.name_scope("combine"):
        combined = tf.matmul(combine, tf.concat(answers, 1), name="combine")
        return tf.reshape(combined, [rows, units]), balance


def route(shares: tf.Tensor, experts_per_token: int, capacity: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives tokens places with experts.

    Args:
        shares: how much each token wants each expert, float32 [batch, length, experts], adding up
            to 1 for each token.
        experts_per_token: 1 or 2.
        capacity: places of an expert for each sequence.

    Returns:
        The weight of a token's place in what it gets, float32 [batch, length, experts, capacity], 0
        where it has no place: the share of the expert, of two experts in proportion. And the loss
        that balances the experts, float32 [].

    References:
        Switch Transformers, section 2.2 (equations 4 to 6); GShard, algorithm 1.
    """
    length, experts = int(shares.shape[1]), int(shares.shape[2])
    left = shares
    taken = tf.zeros([shares.shape[0], 1, experts])
    chosen, places = [], []
    for _ in range(experts_per_token):
        choice = tf.one_hot(tf.argmax(left, 2, output_type=tf.int32), experts)
        # The number of earlier tokens of the sequence at the chosen expert.
        place = tf.reduce_sum((tf.cumsum(choice, axis=1, exclusive=True) + taken) * choice, 2)
        taken += tf.reduce_sum(choice, 1, keepdims=True)
        left *= 1.0 - choice
        chosen.append(choice)
        places.append(tf.one_hot(tf.cast(place, tf.int32), capacity))
    weights = [tf.reduce_sum(shares * choice, 2) for choice in chosen]
    if experts_per_token > 1:
        total = tf.add_n(weights)
        weights = [weight / total for weight in weights]
    combine = tf.add_n(
        [
            tf.expand_dims(tf.expand_dims(weight, 2) * choice, 3) * tf.expand_dims(place, 2)
            for weight, choice, place in zip(weights, chosen, places, strict=True)
        ]
    )
    # Equal shares make this smallest, and its gradient moves shares away from busy experts.
    load = tf.reduce_sum(chosen[0], 1) / length
    wanted = tf.reduce_mean(shares, 1)
    balance = _BALANCE_WEIGHT * experts * tf.reduce_mean(tf.reduce_sum(load * wanted, 1))
    return combine, balance
