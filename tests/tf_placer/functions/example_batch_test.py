"""Tests of taking an example from a data set."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from tf_placer.functions import example_batch
from tf_placer.functions.example_batch import take_batch

_NUMBERS = tf.data.Dataset.range(20)


def list_epochs(data: tf.data.Dataset) -> list[list[Any]]:
    """Reads two epochs."""
    return [[tf.nest.map_structure(to_list, batch) for batch in data] for _ in range(2)]


def to_list(tensor: Any) -> Any:
    return tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()


def add_noise(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) + tf.random.uniform([], seed=3)


def double(x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda x: 2 * x, [x], tf.int64)


def repeat(x: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(x).repeat(2).shuffle(2, seed=5)


class TakeBatchTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("shuffled", lambda: _NUMBERS.shuffle(20, seed=1).batch(5)),
        ("shuffled_and_repeated", lambda: _NUMBERS.shuffle(20, seed=1).repeat(2).batch(5)),
        ("cached", lambda: _NUMBERS.cache().shuffle(20, seed=1).batch(5).cache()),
        ("mapped", lambda: _NUMBERS.map(add_noise).shuffle(9, seed=2).batch(5).prefetch(2)),
        ("nested", lambda: _NUMBERS.flat_map(repeat).shuffle(9, seed=2).batch(5)),
        ("of_python", lambda: _NUMBERS.map(double).shuffle(20, seed=1).batch(5)),
        (
            "structured",
            lambda: tf.data.Dataset.zip({"a": _NUMBERS, "b": _NUMBERS.shuffle(20, seed=1)}).batch(
                4
            ),
        ),
        (
            "ragged",
            lambda: _NUMBERS.shuffle(9, seed=1).map(tf.range).ragged_batch(4),
        ),
        ("of_random_numbers", lambda: tf.data.Dataset.random(4).take(20).batch(5)),
    )
    def test_the_data_set_gives_the_same_as_without_it(self, make: Callable[[], tf.data.Dataset]):
        data = make()
        batch = take_batch(data)
        first = list_epochs(make())
        tf.nest.assert_same_structure(batch, data.element_spec, expand_composites=True)
        self.assertEqual(
            [part.shape for part in tf.nest.flatten(batch)],
            [part.shape for part in tf.nest.flatten(next(iter(make())))],
        )
        self.assertEqual(list_epochs(data), first)

    def test_a_cache_in_a_file_is_not_begun(self):
        path = os.path.join(self.create_tempdir().full_path, "cache")
        data = _NUMBERS.cache(path).batch(5)
        self.assertAllEqual(take_batch(data), np.arange(5))
        self.assertEmpty(os.listdir(os.path.dirname(path)))

    def test_a_generator_is_asked_for_its_first_batch(self):
        data = tf.data.Dataset.from_generator(
            lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64)
        ).batch(3)
        self.assertAllEqual(take_batch(data), [0, 1, 2])
        self.assertLen(list_epochs(data)[0], 3)

    def test_says_where_the_data_set_itself_is_asked(self):
        errors = io.StringIO()
        no_copy = mock.patch.object(example_batch, "_copy", side_effect=ValueError("no copy"))
        with no_copy, contextlib.redirect_stderr(errors):
            self.assertAllEqual(take_batch(_NUMBERS.batch(3)), [0, 1, 2])
        self.assertIn("the data set cannot be copied", errors.getvalue())

    def test_an_empty_data_set_has_no_example(self):
        with self.assertRaisesRegex(GraphError, "the data set is empty"):
            take_batch(_NUMBERS.take(0))


if __name__ == "__main__":
    tf.test.main()
