"""The decisions of an agent and their probabilities.

An agent makes one or more sets of decisions for a placement: the device of each group and, if the
grouping is learned, the group of each unit. Algorithms see these sets only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

__all__ = ["IMPOSSIBLE", "DecisionSet", "divergences", "entropies", "select_log_probs"]

#: Log-probability of an impossible choice: below every real one, yet finite, so that it adds 0 to
#: an entropy instead of 0 * inf.
IMPOSSIBLE = tf.float32.min / 2


class DecisionSet(NamedTuple):
    """Decisions of one kind, of a batch of placements.

    Attributes:
        log_dists: float32 [count or 1, num_decisions, num_choices], the logarithm of each
            decision's distribution, given the decisions before it; the first dimension is 1 if all
            placements share them. Impossible choices are at `IMPOSSIBLE`.
        chosen: int32 [count, num_decisions], the choices.
        counted: float32 [count or 1, num_decisions], 1, or 0 for a decision without effect (the
            device of an empty group), which learning and probabilities ignore.
    """

    log_dists: tf.Tensor
    chosen: tf.Tensor
    counted: tf.Tensor


def select_log_probs(decisions: DecisionSet) -> tf.Tensor:
    """Picks each choice's log-probability, float32 [count, num_decisions]; 0 if not counted."""
    return _select_entries(decisions.log_dists, decisions.chosen) * decisions.counted


def entropies(decisions: DecisionSet) -> tf.Tensor:
    """Computes the entropy of each decision in nats.

    The first dimensions of `log_dists` and `counted` broadcast.

    Returns:
        float32 [count or 1, num_decisions]; 0 if not counted.
    """
    return _row_entropies(decisions.log_dists) * decisions.counted


def divergences(old_log_dists: tf.Tensor, decisions: DecisionSet) -> tf.Tensor:
    """Computes the Kullback-Leibler divergence of each decision from its old distribution.

    Args:
        old_log_dists: float32, `log_dists` before the weights changed.
        decisions: the decisions with the current distributions.

    Returns:
        D(old || new) in nats, float32 [count or 1, num_decisions]; 0 if not counted.
    """
    difference = old_log_dists - decisions.log_dists
    return tf.reduce_sum(tf.exp(old_log_dists) * difference, axis=2) * decisions.counted


@tf.custom_gradient
def _select_entries(
    log_dists: tf.Tensor, chosen: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, None]]]:
    """Picks the chosen entry of each row.

    Shared distributions are not copied for each placement: for the groups of 20,000 units the
    copies would take hundreds of megabytes.

    Args:
        log_dists: float32 [count or 1, num_decisions, num_choices].
        chosen: int32 [count, num_decisions].

    Returns:
        float32 [count, num_decisions] and its gradient.
    """
    shape = tf.shape(log_dists)
    placements = tf.range(tf.shape(chosen)[0]) % shape[0]
    rows = placements[:, tf.newaxis] * shape[1] + tf.range(shape[1])
    indices = rows * shape[2] + chosen

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        # Add placement by placement, because the indices of one placement are distinct: TensorFlow
        # adds to repeated indices of one call in any order, which changes the last bit.
        def add(total: tf.Tensor, placement: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return tf.tensor_scatter_nd_add(total, placement[0][:, tf.newaxis], placement[1])

        zeros = tf.zeros([tf.size(log_dists)])
        return tf.reshape(tf.foldl(add, (indices, upstream), zeros), shape), None

    return tf.gather(tf.reshape(log_dists, [-1]), indices), gradient


@tf.custom_gradient
def _row_entropies(
    log_dists: tf.Tensor,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Computes the entropy of each row and its gradient.

    The gradient has one term: TensorFlow adds three or more terms, as it would for this entropy and
    the probability of a choice, in any order, and then sums differ in the last bit.

    Args:
        log_dists: float32 [count or 1, num_decisions, num_choices].

    Returns:
        float32 [count or 1, num_decisions] and its gradient.
    """
    probabilities = tf.exp(log_dists)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return -upstream[:, :, tf.newaxis] * probabilities * (log_dists + 1)

    return -tf.reduce_sum(probabilities * log_dists, axis=2), gradient
