"""A recommender of two towers with large embedding tables, as plain TF1 graph code.

One tower makes a vector of a user and what is known of the moment, the other one of an item; their
product says how well they match.

References:
    Yi, Yang, Hong, Cheng, Heldt, Kumthekar, Zhao, Wei, Chi: Sampling-Bias-Corrected Neural Modeling
    for Large Corpus Item Recommendations, 2019 (section 3: towers, normalized vectors with a
    temperature, softmax over the items of the batch).
    Covington, Adams, Sargin: Deep Neural Networks for YouTube Recommendations, 2016 (averaged
    embeddings of what was watched and searched for).
    Duchi, Hazan, Singer: Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization, 2011 (Adagrad).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import dense

tf1 = tf.compat.v1

__all__ = ["build", "table_rows"]

_TEMPERATURE = 0.1
_TASTES = 8
# By feature: the rows of its table as a share of the largest table, and the number of values per
# example, whose embeddings are averaged.
_USER_FEATURES = {"user_id": (1.0, 1), "watched": (1.0, 50), "searched": (0.5, 10)}
_ITEM_FEATURES = {"item_id": (1.0, 1), "channel": (0.25, 1), "words": (0.25, 10)}
_FEATURES = _USER_FEATURES | _ITEM_FEATURES


def table_rows(rows: int) -> dict[str, int]:
    """Computes the rows of the table of each feature from those of the largest."""
    return {name: int(rows * share) for name, (share, _) in _FEATURES.items()}


def build(
    rows: int = 20_000_000,
    embedding_units: int = 64,
    hidden_units: Sequence[int] = (1024, 512, 128),
    batch: int = 4096,
    use_resource: bool = True,
    learning_rate: float = 0.05,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    At full size the six tables hold 20.5 GB, and 41 GB with what Adagrad adds up: more than a GPU
    of 12, 16 or 40 GB has, but less than the 50 GB of the computer with K80 in the papers, or than
    four of its GPUs have. The largest three tables take 10.2 GB each.

    Gradients of the tables are sparse, and only the rows of a batch are updated. The softmax is
    over the items of the batch, which are not corrected for being drawn more or less often. It is
    fed the rows of the tables by the name of the feature, int32 [batch, values].

    Args:
        rows: of the largest tables, those of users, items and watched items; others have half or a
            quarter of them. At least 32.
        embedding_units: width of the tables.
        hidden_units: widths of each tower's layers; the last is that of the vectors.
        batch: pairs of a user and an item per step.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of Adagrad.
    """
    sizes = table_rows(rows)
    with model_graph(tf1.glorot_uniform_initializer(), use_resource=use_resource):
        placeholders = {
            name: tf1.placeholder(tf.int32, [batch, values], name=name)
            for name, (_, values) in _FEATURES.items()
        }
        embedded = {
            name: _embed(each, name, sizes[name], embedding_units)
            for name, each in placeholders.items()
        }
        users = _tower([embedded[name] for name in _USER_FEATURES], hidden_units, "user_tower")
        items = _tower([embedded[name] for name in _ITEM_FEATURES], hidden_units, "item_tower")
        with tf1.name_scope("softmax"):
            matches = tf.matmul(users, items, transpose_b=True) / _TEMPERATURE
            cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.range(batch), logits=matches
            )
            loss = tf.reduce_mean(cross_entropy, name="loss")
        return training_model(
            loss,
            train(loss, tf1.train.AdagradOptimizer(learning_rate)),
            lambda random: _pairs(sizes, batch, random),
        )


def _pairs(sizes: dict[str, int], batch: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws pairs that match by taste: all rows of a pair have the same remainder."""
    tastes = random.integers(_TASTES, size=(batch, 1))
    fed = {}
    for name, (_, values) in _FEATURES.items():
        drawn = random.integers(sizes[name] // _TASTES, size=(batch, values))
        fed[name] = (drawn * _TASTES + tastes).astype(np.int32)
    return fed


def _embed(values: tf.Tensor, name: str, rows: int, units: int) -> tf.Tensor:
    """Averages the embeddings of an example's values, float32 [batch, units]."""
    with tf1.variable_scope(f"embedding_{name}"):
        initializer = tf1.random_uniform_initializer(-0.05, 0.05)
        table = tf1.get_variable("weights", [rows, units], initializer=initializer)
        return tf.reduce_mean(tf.nn.embedding_lookup(table, values), axis=1)


def _tower(embedded: list[tf.Tensor], hidden_units: Sequence[int], name: str) -> tf.Tensor:
    """Vectors of length 1, float32 [batch, hidden_units[-1]]."""
    with tf1.variable_scope(name):
        value = tf.concat(embedded, 1)
        for layer, units in enumerate(hidden_units):
            if layer:
                value = tf.nn.relu(value)
            value = dense(value, units, f"layer_{layer}")
        return tf.math.l2_normalize(value, axis=1)
