"""Small training graphs of every kind that users have, for the tests of everything.

Every graph is deterministic: in a fresh session, after its initializers, the same number of runs
fetches the same values. Fetched tensors are float32 scalars.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.models import language_model
from tests import graph_parts as parts
from tests.graph_parts import TestGraph

tf1 = tf.compat.v1

__all__ = [
    "FACTORIES",
    "TestGraph",
    "cond_v1",
    "cond_v2",
    "function_call",
    "lookup_table_and_strings",
    "lstm",
    "matmul_chain",
    "residual_convnet",
    "resource_variables",
    "saver_and_summaries",
    "share_graph",
    "small_convnet",
    "tf_data_iterators",
    "two_branches",
    "v1_ref_variables",
    "while_loop_v1",
    "while_loop_v2",
]


def v1_ref_variables(optimizer: str = "adam") -> TestGraph:
    """A multilayer perceptron with the ref variables of old training scripts."""
    return _mlp(optimizer, use_resource=False)


def resource_variables(optimizer: str = "adam") -> TestGraph:
    """A multilayer perceptron with resource variables."""
    return _mlp(optimizer, use_resource=True)


def while_loop_v1() -> TestGraph:
    """A dynamic RNN of Enter, Merge, Switch, NextIteration and Exit, and its gradients."""
    return _while_loop(v2=False)


def while_loop_v2() -> TestGraph:
    """A dynamic RNN of functional While operations, and its gradients."""
    return _while_loop(v2=True)


def cond_v1() -> TestGraph:
    """Two branches between Switch and Merge, taken in turns, and their gradients."""
    return _cond(v2=False)


def cond_v2() -> TestGraph:
    """Two branches of a functional If, taken in turns, and their gradients."""
    return _cond(v2=True)


def tf_data_iterators() -> TestGraph:
    """Features from an initializable iterator and labels from a one-shot one."""
    random = np.random.default_rng(parts.SEED)
    features = random.standard_normal([24, 8]).astype(np.float32)
    labels = random.integers(0, 4, 24, dtype=np.int32)
    with parts.new_graph() as graph:
        datasets = [
            tf1.data.Dataset.from_tensor_slices(values)
            .shuffle(24, seed=parts.SEED)
            .repeat()
            .batch(6, drop_remainder=True)
            .prefetch(1)
            for values in (features, labels)
        ]
        initializable = tf1.data.make_initializable_iterator(datasets[0])
        x = initializable.get_next()
        y = tf1.data.make_one_shot_iterator(datasets[1]).get_next()
        loss = parts.cross_entropy(parts.dense(x, 4, "logits"), y)
        return parts.training_graph(
            graph, loss, "adam", initializers=(initializable.initializer.name,)
        )


def lookup_table_and_strings() -> TestGraph:
    """Words of fed sentences, by a hash table and by hashing, into embeddings."""
    sentences = [b"the cat sat", b"a dog ran off", b"the dog", b"owl"]
    words = ["the", "a", "cat", "dog", "sat", "ran"]
    with parts.new_graph() as graph:
        x = tf1.placeholder(tf.string, [4], name="x")
        split = tf1.string_split(tf.strings.lower(tf.strings.join([x, "!"])), " !")
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(words, tf.range(6, dtype=tf.int64)),
            default_value=6,
        )
        known = table.lookup(split.values)
        hashed = tf.strings.to_hash_bucket_fast(split.values, 5)
        embedded = tf.nn.embedding_lookup(parts.weight_variable("known", [7, 8]), known)
        embedded += tf.nn.embedding_lookup(parts.weight_variable("hashed", [5, 8]), hashed)
        sums = tf.math.segment_sum(embedded, split.indices[:, 0])
        loss = parts.cross_entropy(parts.dense(sums, 3, "logits"), tf.constant([0, 1, 2, 0]))
        return parts.training_graph(
            graph,
            loss,
            "adam",
            feeds={x.name: np.array(sentences, dtype=object)},
            initializers=(tf1.tables_initializer(name="init_tables").name,),
        )


def saver_and_summaries() -> TestGraph:
    """A perceptron with global step, decaying rate, summaries, and a saver's operations."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([8, 6], 3)
        global_step = tf1.train.get_or_create_global_step()
        rate = tf1.train.exponential_decay(0.1, global_step, 2, 0.5)
        hidden = parts.dense(x, 8, "hidden")
        loss = parts.cross_entropy(parts.dense(hidden, 3, "logits"), y)
        train = tf1.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step, name="train")
        tf1.summary.scalar("loss", loss)
        # Not of variables: chance would say whether it reads them before or after the update.
        tf1.summary.histogram("hidden", hidden)
        summary_bytes = tf.strings.length(tf1.summary.merge_all())
        summary_size = tf.cast(summary_bytes, tf.float32, name="summary_size")
        tf1.train.Saver(sharded=True, max_to_keep=2)
        initializer = tf1.global_variables_initializer()
        fetches = (train.name, loss.name, summary_size.name)
        return TestGraph(graph, fetches, feeds, (initializer.name,))


def function_call() -> TestGraph:
    """A layer in a `tf.function`, called twice, and its gradients."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([8, 6], 3)
        weights = parts.weight_variable("weights", [6, 6], use_resource=True)

        @tf.function
        def layer(value):
            return tf.nn.tanh(tf.matmul(value, weights))

        loss = parts.cross_entropy(parts.dense(layer(layer(x)), 3, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)


def lstm() -> TestGraph:
    """A small language model, as in the benchmarks."""
    model = language_model.build(units=16, steps=3, batch=4, vocabulary=30)
    return TestGraph(
        model.graph,
        (model.train_op, model.loss),
        next(model.feeds()),
        (model.initializer,),
    )


def two_branches(n: int = 32, depth: int = 3) -> TestGraph:
    """Two independent chains of matrix products, of different data.

    Args:
        n: rows and columns of every matrix.
        depth: products in a chain.
    """
    return _matmul_chains(2, n, depth)


def matmul_chain(n: int = 32, depth: int = 3) -> TestGraph:
    """One chain of matrix products: nothing can run side by side.

    Args:
        n: rows and columns of every matrix.
        depth: products in the chain.
    """
    return _matmul_chains(1, n, depth)


def small_convnet() -> TestGraph:
    """An Inception block of four branches with batch normalization, trained with momentum."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([4, 8, 8, 3], 5)
        stem = parts.convolution(x, 8, 3, "stem")
        with tf1.variable_scope("mixed"):
            branches = [
                parts.convolution(stem, 4, 1, "branch_0/1x1"),
                parts.convolution(
                    parts.convolution(stem, 4, 1, "branch_1/1x1"), 6, 3, "branch_1/3x3"
                ),
                parts.convolution(
                    parts.convolution(stem, 4, 1, "branch_2/1x1"), 6, 5, "branch_2/5x5"
                ),
                parts.convolution(tf1.nn.max_pool2d(stem, 3, 1, "SAME"), 4, 1, "branch_3/1x1"),
            ]
            joined = tf.concat(branches, axis=3)
        logits = parts.dense(tf.reduce_mean(joined, axis=[1, 2]), 5, "logits")
        return parts.training_graph(graph, parts.cross_entropy(logits, y), "momentum", feeds)


def residual_convnet() -> TestGraph:
    """Two residual blocks with batch normalization, trained with momentum."""
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([4, 8, 8, 3], 5)
        value = parts.convolution(x, 8, 3, "stem")
        for block in range(2):
            with tf1.variable_scope(f"block_{block}"):
                inner = parts.convolution(parts.convolution(value, 8, 3, "first"), 8, 3, "second")
                value = tf.nn.relu(value + inner)
        logits = parts.dense(tf.reduce_mean(value, axis=[1, 2]), 5, "logits")
        return parts.training_graph(graph, parts.cross_entropy(logits, y), "momentum", feeds)


FACTORIES: Mapping[str, Callable[[], TestGraph]] = {
    factory.__name__: factory
    for factory in (
        v1_ref_variables,
        resource_variables,
        while_loop_v1,
        while_loop_v2,
        cond_v1,
        cond_v2,
        tf_data_iterators,
        lookup_table_and_strings,
        saver_and_summaries,
        function_call,
        lstm,
        two_branches,
        matmul_chain,
        small_convnet,
        residual_convnet,
    )
}


@functools.cache
def share_graph(name: str) -> TestGraph:
    """The graph of a factory, one for all tests of a process; nothing can be added to it.

    Making it takes longer than most of what tests do with it.
    """
    made = FACTORIES[name]()
    made.graph.finalize()
    return made


def _mlp(optimizer: str, *, use_resource: bool) -> TestGraph:
    with parts.new_graph() as graph:
        x, y, feeds = parts.inputs([8, 6], 3)
        with tf1.variable_scope(tf1.get_variable_scope(), use_resource=use_resource):
            hidden = x
            for layer in range(2):
                hidden = tf.nn.relu(parts.dense(hidden, 8, f"layer_{layer}"))
            loss = parts.cross_entropy(parts.dense(hidden, 3, "logits"), y)
            return parts.training_graph(graph, loss, optimizer, feeds)


def _while_loop(*, v2: bool) -> TestGraph:
    steps = 4
    with parts.new_graph() as graph, parts.control_flow(v2=v2):
        x, y, feeds = parts.inputs([steps, 5, 6], 3, examples=5)
        weights = parts.weight_variable("weights", [12, 6])
        inputs = tf.TensorArray(tf.float32, steps).unstack(x)
        outputs = tf.TensorArray(tf.float32, steps)

        def body(step, hidden, outputs):
            both = tf.concat([inputs.read(step), hidden], 1)
            hidden = tf.tanh(tf.matmul(both, weights))
            return step + 1, hidden, outputs.write(step, hidden)

        _, _, outputs = tf1.while_loop(
            lambda step, *_: step < steps, body, (tf.constant(0), tf.zeros([5, 6]), outputs)
        )
        mean = tf.reduce_mean(outputs.stack(), axis=0)
        loss = parts.cross_entropy(parts.dense(mean, 3, "logits"), y)
        return parts.training_graph(graph, loss, "adam", feeds)


def _cond(*, v2: bool) -> TestGraph:
    with parts.new_graph() as graph, parts.control_flow(v2=v2):
        x, y, feeds = parts.inputs([8, 6], 3)
        global_step = tf1.train.get_or_create_global_step()
        first, second = (
            parts.weight_variable("first", [6, 3]),
            parts.weight_variable("second", [6, 3]),
        )
        logits = tf1.cond(
            tf.equal(global_step % 2, 0),
            lambda: tf.matmul(x, first),
            lambda: tf.tanh(tf.matmul(x, second)),
        )
        return parts.training_graph(graph, parts.cross_entropy(logits, y), "adam", feeds)


def _matmul_chains(chains: int, n: int, depth: int) -> TestGraph:
    with parts.new_graph() as graph:
        results = []
        for chain in range(chains):
            with tf1.variable_scope(f"chain_{chain}"):
                # Variables, because constants would be folded. Of different data, because equal
                # chains would be merged.
                value = tf1.get_variable(
                    "input", initializer=tf1.random_normal([n, n], seed=2 * chain + 1)
                )
                weights = tf1.get_variable(
                    "weights", initializer=tf1.random_normal([n, n], seed=2 * chain + 2)
                )
                scaled = weights / math.sqrt(n)  # so that values keep their size
                for _ in range(depth):
                    value = tf.matmul(value, scaled)
                results.append(tf.reduce_mean(tf.square(value)))
        result = tf.add_n(results, name="result")
        initializer = tf1.global_variables_initializer()
        return TestGraph(graph, (result.name,), {}, (initializer.name,))
