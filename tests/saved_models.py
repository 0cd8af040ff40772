"""Small SavedModels, of TensorFlow 2 and of TensorFlow 1."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import tensorflow as tf

__all__ = ["REQUEST", "WORDS", "save_functions", "save_graph"]

tf1 = tf.compat.v1

#: A request that all of them serve, but for `words`.
REQUEST = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
#: A request of words, and their numbers in the vocabulary.
WORDS = (np.array(["b", "a", "c"]), [1, 0, -1])


class _Model(tf.Module):
    """Two calls of one function on different variables, a loop, and a count of the requests."""

    def __init__(self, vocabulary: str) -> None:
        super().__init__()
        # Variables may share a name, as those of Keras layers do.
        self.left = tf.Variable(tf.fill([3, 3], 0.5), name="weights")
        self.right = tf.Variable(tf.fill([3, 3], -0.25), name="weights")
        self.requests = tf.Variable(0, name="requests")
        initializer = tf.lookup.TextFileInitializer(
            vocabulary,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function
    def branch(self, x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ weights)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        left, right = self.branch(x, self.left), self.branch(x, self.right)
        for _ in tf.range(2):
            right = tf.sin(right)
        return {"sum": left + right, "requests": self.requests.assign_add(1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def numbers(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"numbers": self.table.lookup(words)}


def save_functions(directory: pathlib.Path) -> str:
    """Saves functions, with two signatures.

    "serving_default" takes x and gives sum and requests; "words" takes words and gives numbers.

    Args:
        directory: gets a folder "functions".

    Returns:
        The path of the folder.
    """
    vocabulary = directory / "vocabulary.txt"
    vocabulary.write_text("a\nb\n")
    model = _Model(str(vocabulary))
    path = os.path.join(directory, "functions")
    tf.saved_model.save(
        model, path, signatures={"serving_default": model.__call__, "words": model.numbers}
    )
    vocabulary.unlink()
    return path


def save_graph(directory: pathlib.Path, *, use_resource: bool) -> str:
    """Saves a graph of TensorFlow 1; signatures are "sum", of x, and "words", as above.

    Args:
        directory: gets a folder "graph".
        use_resource: whether variables are resources, or of TensorFlow's first kind.

    Returns:
        The path of the folder.
    """
    vocabulary = directory / "vocabulary.txt"
    vocabulary.write_text("a\nb\n")
    path = os.path.join(directory, "graph")
    info, signature = tf1.saved_model.build_tensor_info, tf1.saved_model.build_signature_def
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 3], name="x")
        words = tf1.placeholder(tf.string, [None], name="words")
        branches = []
        for name, value in (("left", 0.5), ("right", -0.25)):
            initializer = tf1.constant_initializer(0.0)
            weights = tf1.get_variable(
                name, [3, 3], initializer=initializer, use_resource=use_resource
            )
            session.run(tf1.assign(weights, np.full([3, 3], value)))
            branches.append(tf.tanh(x @ weights))
        asset = tf1.constant(str(vocabulary))
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, asset)
        initializer = tf.lookup.TextFileInitializer(
            asset,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        numbers = tf.lookup.StaticHashTable(initializer, -1).lookup(words)
        builder = tf1.saved_model.Builder(path)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            {
                "sum": signature({"x": info(x)}, {"sum": info(tf.add_n(branches))}),
                "words": signature({"words": info(words)}, {"numbers": info(numbers)}),
            },
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf1.tables_initializer(),
        )
        builder.save()
    vocabulary.unlink()
    return path
