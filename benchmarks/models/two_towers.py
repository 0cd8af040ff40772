"""A recommender of two towers with large embedding tables, as plain TF1 graph code.

One tower makes a vector of a user and what is known of the moment, the other one of an item; their
product says how well they match.

References:
    Yi, Yang, Hong, Cheng, Heldt, Kumthekar, Zhao, Wei, Chi: Sampling-Bias-Corrected Neural Modeling
    for Large Corpus Item Recommendations, 2019 (section 3: towers, normalised vectors with a
    temperature, softmax over the items of the batch).
    Covington, Adams, Sargin: Deep Neural Networks for YouTube Recommendations, 2016 (averaged
    embeddings of what was watched and searched for).
    Duchi, Hazan, Singer: Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization, 2011 (Adagrad).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.models.training import train
from benchmarks.models.transformer import dense

tf1 = tf.compat.v1

__all__ = ["TwoTowers", "build"]

_GRAPH_SEED = 1
_TEMPERATURE = 0.1
_TASTES = 8


@dataclasses.dataclass(frozen=True)
class _Feature:
    """A feature with an embedding table.

    Attributes:
        rows: of the table, as a share of the largest one.
        values: how many of them an example has; their embeddings are averaged.
    """

    rows: float
    values: int = 1


_USER_FEATURES = {
    "user_id": _Feature(1.0),
    "watched": _Feature(1.0, 50),
    "searched": _Feature(0.5, 10),
}
_ITEM_FEATURES = {
    "item_id": _Feature(1.0),
    "channel": _Feature(0.25),
    "words": _Feature(0.25, 10),
}
_FEATURES = _USER_FEATURES | _ITEM_FEATURES


@dataclasses.dataclass(frozen=True)
class TwoTowers:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        features: the placeholders of the rows of the tables by feature, int32 [batch, values].
        table_rows: the rows of the tables by feature.
        loss: cross entropy of each user's item among those of the batch in nats, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: pairs of a user and an item per step.
    """

    graph: tf.Graph
    features: Mapping[str, str]
    table_rows: Mapping[str, int]
    loss: str
    train_op: str
    initializer: str
    batch: int

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Endless made-up pairs that match by taste, as what to feed to a step.

        All rows of a pair are of the same taste: they have the same remainder.

        Args:
            seed: of the pairs.
        """
        random = np.random.default_rng(seed)
        while True:
            tastes = random.integers(_TASTES, size=(self.batch, 1))
            fed = {}
            for name, placeholder in self.features.items():
                rows, values = self.table_rows[name], _FEATURES[name].values
                drawn = random.integers(rows // _TASTES, size=(self.batch, values))
                fed[placeholder] = (drawn * _TASTES + tastes).astype(np.int32)
            yield fed


def build(
    rows: int = 20_000_000,
    embedding_units: int = 64,
    hidden_units: Sequence[int] = (1024, 512, 128),
    batch: int = 4096,
    use_resource: bool = True,
    learning_rate: float = 0.05,
) -> TwoTowers:
    """Builds the model with its gradients and updates in a graph of its own.

    At full size the six tables hold 20.5 GB, and 41 GB with what Adagrad adds up: more than a GPU
    of 12, 16 or 40 GB has, but less than the 50 GB of the computer with K80 in the papers, or than
    four of its GPUs have. The largest three tables take 10.2 GB each.

    Gradients of the tables are sparse, and only the rows of a batch are updated. The softmax is
    over the items of the batch, which are not corrected for being drawn more or less often.

    Args:
        rows: of the largest tables, those of users, items and watched items; others have half or a
            quarter of them.
        embedding_units: width of the tables.
        hidden_units: widths of each tower's layers; the last is that of the vectors.
        batch: pairs of a user and an item per step.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of Adagrad.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive, there are no hidden units, or too few rows for the made-
            up pairs.
    """
    for name, size in {"embedding_units": embedding_units, "batch": batch}.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, not {size}")
    if not hidden_units or min(hidden_units) < 1:
        raise ValueError(f"hidden_units must be one or more positive widths, not {hidden_units}")
    table_rows = {name: int(rows * feature.rows) for name, feature in _FEATURES.items()}
    if min(table_rows.values()) < _TASTES:
        raise ValueError(f"rows must be at least {4 * _TASTES}, not {rows}")
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.glorot_uniform_initializer(),
            use_resource=use_resource,
        ):
            features = {
                name: tf1.placeholder(tf.int32, [batch, feature.values], name=name)
                for name, feature in _FEATURES.items()
            }
            embedded = {
                name: _embed(features[name], name, table_rows[name], embedding_units)
                for name in _FEATURES
            }
            users = _tower([embedded[name] for name in _USER_FEATURES], hidden_units, "user_tower")
            items = _tower([embedded[name] for name in _ITEM_FEATURES], hidden_units, "item_tower")
            with tf1.name_scope("softmax"):
                matches = tf.matmul(users, items, transpose_b=True) / _TEMPERATURE
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=tf.range(batch), logits=matches
                )
                loss = tf.reduce_mean(cross_entropy, name="loss")
            train_op = train(loss, tf1.train.AdagradOptimizer(learning_rate))
        initializer = tf1.global_variables_initializer()
    return TwoTowers(
        graph,
        {name: placeholder.name for name, placeholder in features.items()},
        table_rows,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
    )


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
