"""Sums and means over decisions, from which the losses of algorithms are built."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_placer.placers.learned.decisions import DecisionSet, entropies, select_log_probs

__all__ = [
    "joint_log_probs",
    "mean_entropy",
    "mean_over_decisions",
    "mean_over_placements",
    "probability_ratios",
]

# Keeps ratios finite in float32. No ratio near e**20 occurs in useful training.
_LARGEST_LOG_RATIO = 20.0


def joint_log_probs(decisions: Sequence[DecisionSet]) -> tf.Tensor:
    """Sums the log-probabilities of all decisions for a placement, float32 [count]."""
    return tf.add_n([tf.reduce_sum(select_log_probs(each), axis=1) for each in decisions])


def mean_over_decisions(values: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """Averages the values of counted decisions.

    Args:
        values: float32 [count or 1, num_decisions].
        counted: float32 [count or 1, num_decisions], 1 for a counted decision and 0 for others.

    Returns:
        float32 [count or 1]; 0 where no decision counts.
    """
    return tf.math.divide_no_nan(
        tf.reduce_sum(values * counted, axis=1), tf.reduce_sum(counted, axis=1)
    )


def mean_over_placements(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes the weighted mean over placements.

    Args:
        values: float32 [count or 1].
        weights: float32 [count]; their sum is 1.

    Returns:
        float32 [].
    """
    return tf.reduce_sum(values * weights)


def mean_entropy(decisions: Sequence[DecisionSet], weights: tf.Tensor) -> tf.Tensor:
    """Sums over the sets the mean entropy of a counted decision, float32 []."""
    means = [mean_over_decisions(entropies(each), each.counted) for each in decisions]
    return tf.add_n([mean_over_placements(mean, weights) for mean in means])


def probability_ratios(log_ratios: tf.Tensor) -> tf.Tensor:
    """Computes ratios of probabilities from the differences of their logarithms; always finite."""
    return tf.exp(tf.minimum(log_ratios, _LARGEST_LOG_RATIO))
