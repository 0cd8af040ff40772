"""Tests of capturing the first batch of a training without side effects."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from tf_placer.scripts.first_batches import (
    capture_first_batch,
    check_train_function,
    intercept_first_batch,
)

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


class Watched(keras.Model):
    """Records each time that Python runs its training step, and the arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.dropout = keras.layers.Dense(1), keras.layers.Dropout(0.5)
        self.traced: list[str] = []

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.dense(self.dropout(x, training=training))

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        self.traced.append(str(tf.nest.map_structure(lambda part: getattr(part, "shape", 0), data)))
        return super().train_step(data)


class Notes(keras.callbacks.Callback):
    """Records all calls of callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def set_model(self, model: Any) -> None:
        self.told.append("set_model")
        super().set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        self.told.append("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.told.append(("epoch", epoch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.told.append((batch, float(logs["loss"])))


class Batches(keras.utils.Sequence):
    """Batches by index, which records the requested indices."""

    def __init__(self, taken: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self.taken = taken

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        self.taken.append(index)
        return X[5 * index : 5 * index + 5], Y[5 * index : 5 * index + 5]

    def on_epoch_end(self) -> None:
        self.taken.append("end")


def generate(taken: list[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for i in range(9):  # Keras takes all elements early.
        taken.append(i)
        noise = np.float32(np.random.normal() + random.random())
        yield X[:5] + noise, Y[:5]


DATA: dict[str, Callable[[list[Any]], dict[str, Any]]] = {
    "arrays that are shuffled": lambda _: {"x": X, "y": Y, "batch_size": 8},
    "weights of samples, split": lambda _: {
        "x": X,
        "y": Y,
        "sample_weight": X[:, 0] ** 2,
        "validation_split": 0.25,
        "initial_epoch": 1,
    },
    "a data set": lambda _: {
        "x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20, seed=3).batch(8)
    },
    "a data set that ends in the midst of an epoch": lambda _: {
        "x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),
        "steps_per_epoch": 2,
    },
    "a generator": lambda taken: {"x": generate(taken), "steps_per_epoch": 3},
    "a sequence": lambda taken: {"x": Batches(taken), "shuffle": False},
}


class FirstBatchTest(tf.test.TestCase):
    def make(self, **options: Any) -> Watched:
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        model = Watched()
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False, **options)
        return model

    def fit(self, kind: str, take: Any = None, **options: Any) -> list[Any]:
        """Returns all observable effects of a training."""
        model, notes, taken = self.make(**options), Notes(), []
        random.seed(1)
        data = DATA[kind](taken)

        def fit() -> Any:
            return model.fit(epochs=3, verbose=0, callbacks=[notes], **data).history

        if take is None:
            history = fit()
        else:
            with intercept_first_batch(model, take):
                history = fit()
        self.assertNotIn("make_train_function", vars(model))
        states = random.random(), np.random.normal()
        weights = [each.tolist() for each in model.get_weights()]
        return [history, notes.told, taken, model.traced, states, weights]

    def test_intercepting_the_first_batch_does_not_change_training(self):
        for kind in DATA:
            with self.subTest(kind):
                batches: list[Any] = []
                self.assertEqual(self.fit(kind, batches.append), self.fit(kind))
                self.assertLen(batches, 1)

    def test_intercepting_keeps_all_steps_of_an_execution(self):
        batches: list[Any] = []
        kind = "a data set that ends in the midst of an epoch"
        seen = self.fit(kind, batches.append, steps_per_execution=2)
        self.assertEqual(seen, self.fit(kind, steps_per_execution=2))
        self.assertLen(batches, 1)

    def test_intercepts_train_on_batch(self):
        results, batches = [], []
        for take in (batches.append, None):
            model = self.make()
            for _ in range(2):
                if take is None:
                    results.append(model.train_on_batch(X, Y))
                else:
                    with intercept_first_batch(model, take):
                        results.append(model.train_on_batch(X, Y))
        self.assertEqual(results[:2], results[2:])
        self.assertAllEqual(batches[1][0], X)

    def test_the_callback_can_replace_the_step(self):
        model, notes = self.make(), Notes()

        def exchange(batch: Any) -> None:
            del batch
            model.train_step = lambda data: {"loss": tf.reduce_max(data[0])}
            model.make_train_function(force=True)

        with intercept_first_batch(model, exchange):
            model.fit(X, Y, batch_size=20, epochs=2, verbose=0, callbacks=[notes])
        self.assertEqual([each[1] for each in notes.told if each[0] == 0], [float(X.max())] * 2)

    def test_an_error_of_the_script_leaves_the_model_as_it_was(self):
        model = self.make()
        with (
            self.assertRaisesRegex(ValueError, "cardinality"),
            intercept_first_batch(model, self.fail),
        ):
            model.fit(X, Y[:3])
        self.assertNotIn("make_train_function", vars(model))

    def test_capturing_calls_no_callback_and_trains_nothing(self):
        for kind in ("arrays that are shuffled", "a generator"):
            model, notes = self.make(), Notes()
            model.build((None, 3))
            weights = model.get_weights()
            data = {**DATA[kind]([]), "callbacks": [notes], "epochs": 3}
            x, y = capture_first_batch(model, keras.Model.fit, (), data, lambda batch: batch)
            self.assertEqual((x.shape[1:], y.shape[1:]), ((3,), (1,)))
            self.assertEqual((notes.told, model.traced), ([], []))
            self.assertAllEqual(model.get_weights(), weights)

    def test_capturing_releases_cache_files(self):
        path = os.path.join(self.create_tempdir().full_path, "cache")
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).cache(path)
        capture_first_batch(self.make(), keras.Model.fit, (data,), {}, lambda batch: None)
        self.make().fit(data, verbose=0)

    def test_reports_errors(self):
        def wrong() -> Iterator[Any]:
            raise KeyError("no such file")
            yield X, Y

        for data, message in (
            (wrong(), "no first batch could be taken: 'no such file'"),
            (tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])), "the data is empty"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                capture_first_batch(self.make(), keras.Model.fit, (data,), {}, self.fail)

        class Own(Watched):
            def make_train_function(self, force: bool = False) -> Any:
                return super().make_train_function(force)

        check_train_function(self.make())
        with self.assertRaisesRegex(GraphError, "has a make_train_function of its own"):
            check_train_function(Own())


if __name__ == "__main__":
    tf.test.main()
