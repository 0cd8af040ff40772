"""A recommender of a wide and a deep part that learn together, as plain TF1 graph code.

The wide part is a linear model of single features and of their crosses, which remembers; the deep
part is a network over embeddings, which generalizes. Their sum says how likely a click is.

References:
    Cheng, Koc, Harmsen, Shaked, Chandra, Aradhye, Anderson, Corrado, Chai, Ispir, Anil, Haque,
    Hong, Jain, Liu, Shah: Wide & Deep Learning for Recommender Systems, 2016 (section 3: joint
    training, FTRL with L1 for the wide part and AdaGrad for the deep part).
    McMahan, Holt, Sculley, Young, Ebner, Grady, Nie, Phillips, Davydov, Golovin, Chikkerur, Liu,
    Wattenberg, Hrafnkelsson, Boulos, Kubica: Ad Click Prediction: a View from the Trenches, 2013
    (FTRL).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.models.training import model_graph, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import dense

tf1 = tf.compat.v1

__all__ = ["build", "table_rows"]

_GROUPS = 8
_NUMBERS = 13
# By feature: the rows of its table as a share of the largest table.
_DEEP_FEATURES = {"user": 1.0, "item": 1.0, "query": 0.5, "shop": 0.25}
_CROSSES = {"user_x_item": 4.0, "query_x_shop": 4.0}
_WIDE_FEATURES = {**_DEEP_FEATURES, **_CROSSES}


def table_rows(rows: int) -> dict[str, int]:
    """Computes the rows of each feature and cross from those of the largest embedding table."""
    return {name: int(rows * share) for name, share in _WIDE_FEATURES.items()}


def build(
    rows: int = 8_000_000,
    embedding_units: int = 64,
    hidden_units: Sequence[int] = (1024, 512, 256),
    batch: int = 4096,
    use_resource: bool = True,
    learning_rate: float = 0.05,
    l1: float = 0.001,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    At full size the embedding tables hold 5.6 GB, and 11.3 GB with what Adagrad adds up; the
    weights of the wide part hold 0.3 GB, and 1.0 GB with the two slots of FTRL. That is the model
    of 12 GB of TensorFlow's issue 37563.

    Gradients of the tables and of the wide part are sparse, and only the rows of a batch are
    updated. It is fed the rows by the name of the feature or cross, int32 [batch], "numbers",
    float32 [batch, 13], and "clicks", float32 [batch].

    Args:
        rows: of the largest embedding tables; crosses have four times as many. At least 32.
        embedding_units: width of the embedding tables.
        hidden_units: widths of the deep part's layers.
        batch: examples per step.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of both optimizers.
        l1: strength of the regularization of the wide part.
    """
    sizes = table_rows(rows)
    with model_graph(tf1.glorot_uniform_initializer(), use_resource=use_resource):
        fed = {name: tf1.placeholder(tf.int32, [batch], name=name) for name in _WIDE_FEATURES}
        numbers = tf1.placeholder(tf.float32, [batch, _NUMBERS], name="numbers")
        clicks = tf1.placeholder(tf.float32, [batch], name="clicks")
        wide = _wide(fed, sizes)
        deep = _deep({name: fed[name] for name in _DEEP_FEATURES}, numbers, sizes, embedding_units)
        with tf1.variable_scope("deep"):
            for layer, units in enumerate(hidden_units):
                deep = tf.nn.relu(dense(deep, units, f"layer_{layer}"))
            logits = wide + tf.squeeze(dense(deep, 1, "logit"), axis=1)
        cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=clicks, logits=logits)
        loss = tf.reduce_mean(cross_entropy, name="loss")
        return training_model(
            loss,
            _train(loss, learning_rate, l1),
            lambda random: _examples(sizes, batch, random),
        )


def _wide(fed: dict[str, tf.Tensor], sizes: dict[str, int]) -> tf.Tensor:
    """Sums the weights of an example's features and crosses, float32 [batch]."""
    with tf1.variable_scope("wide", initializer=tf1.zeros_initializer()):
        weights = [
            tf.nn.embedding_lookup(tf1.get_variable(name, [sizes[name]]), rows)
            for name, rows in fed.items()
        ]
        return tf.add_n([*weights, tf1.get_variable("bias", [1])[0] + tf.zeros_like(weights[0])])


def _deep(
    fed: dict[str, tf.Tensor], numbers: tf.Tensor, sizes: dict[str, int], units: int
) -> tf.Tensor:
    """Joins embeddings and numbers, float32 [batch, units per feature + numbers]."""
    initializer = tf1.random_uniform_initializer(-0.05, 0.05)
    embedded = []
    for name, rows in fed.items():
        with tf1.variable_scope(f"embedding_{name}"):
            table = tf1.get_variable("weights", [sizes[name], units], initializer=initializer)
            embedded.append(tf.nn.embedding_lookup(table, rows))
    return tf.concat([*embedded, numbers], axis=1)


def _train(loss: tf.Tensor, learning_rate: float, l1: float) -> tf.Operation:
    """Updates the wide part by FTRL and all else by Adagrad, in one operation."""
    variables = tf1.trainable_variables()
    gradients = dict(zip(map(id, variables), tf.gradients(loss, variables), strict=True))
    step = tf1.train.get_or_create_global_step()
    updates = []
    for name, optimizer, is_wide in (
        ("train_wide", tf1.train.FtrlOptimizer(learning_rate, l1_regularization_strength=l1), True),
        ("train_deep", tf1.train.AdagradOptimizer(learning_rate), False),
    ):
        pairs = [
            (gradients[id(v)], v) for v in variables if v.op.name.startswith("wide/") == is_wide
        ]
        updates.append(optimizer.apply_gradients(pairs, None if is_wide else step, name=name))
    train_op = tf.group(*updates, name="train")
    tf1.get_collection_ref(tf1.GraphKeys.TRAIN_OP)[:] = [train_op]
    return train_op


def _examples(
    sizes: dict[str, int], batch: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws examples: users click the items of their own group, and a few others."""
    groups = {name: random.integers(_GROUPS, size=batch) for name in _DEEP_FEATURES}
    fed = {
        name: (random.integers(sizes[name] // _GROUPS, size=batch) * _GROUPS + groups[name])
        for name in _DEEP_FEATURES
    }
    for cross in _CROSSES:
        first, second = cross.split("_x_")
        # A cross is a row for each pair of values, as far as there are rows.
        fed[cross] = (fed[first] * np.int64(sizes[second]) + fed[second]) % sizes[cross]
    likely = np.where(groups["user"] == groups["item"], 0.9, 0.1)
    return {
        **{name: rows.astype(np.int32) for name, rows in fed.items()},
        "numbers": random.normal(size=(batch, _NUMBERS)).astype(np.float32),
        "clicks": (random.random(batch) < likely).astype(np.float32),
    }
