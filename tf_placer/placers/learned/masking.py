"""Distributions over the devices where a group may go, and samples of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import IMPOSSIBLE

__all__ = ["add_prior", "choose", "compute_masked_log_softmax"]


def compute_masked_log_softmax(logits: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
    """Computes the logarithm of the softmax over the legal devices.

    Args:
        logits: float32 [..., num_devices], any real numbers.
        legal: bool, of a shape that broadcasts with `logits`; every row has a true.

    Returns:
        float32 of the shape of both, `IMPOSSIBLE` where not legal, with a gradient of 0 there.
    """
    log_dists = tf.nn.log_softmax(tf.where(legal, logits, IMPOSSIBLE))
    return tf.where(legal, log_dists, IMPOSSIBLE)


def add_prior(scores: tf.Tensor, prior: tf.Tensor | None) -> tf.Tensor:
    """Adds initial scores of devices, if there are any.

    Args:
        scores: float32 [..., num_devices].
        prior: float32, of a shape that broadcasts with `scores`; None without.
    """
    return scores if prior is None else scores + prior


def choose(scores: tf.Tensor, legal: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Chooses the legal device with the largest sum of score and noise.

    With Gumbel noise that is a sample of the softmax of the scores.

    Args:
        scores: float32 [..., num_devices], logits or log-probabilities.
        legal: bool, of a shape that broadcasts with `scores`; every row has a true.
        noise: float32, of a shape that broadcasts with `scores`.

    Returns:
        int32 [...].
    """
    # The mask comes last: no scores, however large, make an illegal device win.
    return tf.argmax(tf.where(legal, scores + noise, -np.inf), axis=-1, output_type=tf.int32)
