from __future__ import annotations

import contextlib
import io
import os
import re
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE, random_placements
from tf_placer.functions.keras_models import (
    advise_against_xla,
    describe_gpu_kernels,
    has_train_step,
    is_keras_model,
)
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 6)).astype(np.float32)
Y = RANDOM.integers(0, 3, 24)
BATCH = (X[:8], Y[:8])


def two_towers(*, recurrent: bool = False, **options: Any) -> Any:
    """A compiled model; a recurrent one has a loop, which takes long to trace."""
    keras.utils.set_random_seed(3)
    x = keras.Input((6,))
    left = keras.layers.Dense(5, activation="relu")(x)
    right = keras.layers.Dense(4)(x)
    if recurrent:
        right = keras.layers.LSTM(4)(keras.layers.Reshape((3, 2))(x))
    if keras.__version__ >= "3":  # Keras 2 draws a seed whenever a step is traced.
        left = keras.layers.Dropout(0.5, seed=7)(left)
    model = keras.Model(x, keras.layers.Dense(3)(keras.layers.concatenate([left, right])))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"optimizer": "adam", "jit_compile": False, **options}
    model.compile(loss=loss, metrics=["accuracy"], **options)
    return model


class Losses(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.values.append(float(logs["loss"]))


def losses(model: Any) -> list[float]:
    kept = Losses()
    model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[kept])
    return kept.values


def place(model: Any) -> Any:
    traced = trace_call(model, BATCH)
    [placement] = random_placements(traced.workload, 1)
    PlacedStep(traced, MACHINE, placement).apply(model)
    return traced


class KerasModelTest(tf.test.TestCase):
    def test_a_placed_model_trains_as_it_would_have(self):
        model = two_towers(recurrent=True)
        traced = place(model)
        self.assertEqual({v.device for v in traced.variables.values()}, set(DEVICES))
        original = two_towers(recurrent=True)
        self.assertAllClose(losses(model), losses(original), rtol=1e-6)
        self.assertAllClose(
            model.evaluate(X, Y, verbose=0), original.evaluate(X, Y, verbose=0), rtol=1e-6
        )
        self.assertAllClose(model.predict(X, verbose=0), original.predict(X, verbose=0), rtol=1e-5)
        # The optimizer keeps its state.
        self.assertAllClose(losses(model), losses(original), rtol=1e-5)

    def test_a_model_that_is_compiled_again_trains_as_it_says_now(self):
        model, original = two_towers(), two_towers()
        place(model)
        for each in (model, original):
            losses(each)
            each.compile("sgd", each.loss, jit_compile=False)
        self.assertFalse(has_train_step(model))
        self.assertAllClose(losses(model), losses(original), rtol=1e-5)
        place(model)
        self.assertTrue(has_train_step(model))
        self.assertAllClose(losses(model), losses(original), rtol=1e-5)

    def test_a_placed_model_has_the_step_of_the_original(self):
        model = two_towers(recurrent=True)
        before = place(model)
        model.fit(X, Y, batch_size=8, verbose=0)
        after = trace_call(model, BATCH)
        self.assertEqual(
            graph_fingerprint(before.workload.graph_def),
            graph_fingerprint(after.workload.graph_def),
        )
        self.assertEqual({node.device for node in after.workload.graph_def.node}, {""})
        self.assertEqual(before.workload.step.fetches, after.workload.step.fetches)

    def test_a_model_may_be_placed_again(self):
        model, original = two_towers(), two_towers()
        for _ in range(2):
            place(model)
            self.assertAllClose(losses(model), losses(original), rtol=1e-5)
        for each in (model, original):
            each.compile("sgd", each.loss, jit_compile=False)
        self.assertFalse(has_train_step(model))
        self.assertAllClose(losses(model), losses(original), rtol=1e-5)

    def test_says_once_that_fit_takes_other_batches_than_the_placement_was_found_for(self):
        model = two_towers()
        place(model)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            model.fit(X, Y, batch_size=8, verbose=0)
            self.assertNotIn("tf_placer", said.getvalue())
            model.fit(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8), verbose=0)
            self.assertNotIn("tf_placer", said.getvalue())
            # 24 examples are fewer than Keras's default of 32.
            for _ in range(2):
                model.fit(X, Y, verbose=0)
        self.assertEqual(
            re.findall("tf_placer: .*", said.getvalue()),
            [
                "tf_placer: fit takes batches of 24, and the placement was found for 8: it may be "
                "slower than none. Give batch_size=8, or search again with a batch of 24"
            ],
        )
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(12, drop_remainder=True)
        with contextlib.redirect_stderr(said):
            model.fit(data, verbose=0)
        self.assertIn("fit takes batches of 12", said.getvalue())

    def test_says_that_nothing_was_placed(self):
        model = two_towers()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            PlacedStep(trace_call(model, BATCH), MACHINE).apply(model)
        self.assertEqual(
            said.getvalue(), "tf_placer: nothing was placed: the model stays as it is\n"
        )
        self.assertFalse(has_train_step(model))

    def test_the_size_of_a_batch_is_the_first_dimension_of_all_arrays(self):
        model = two_towers()
        self.assertEqual(trace_call(model, BATCH).batch_size, 8)
        self.assertEqual(trace_call(model, (tf.constant(X[:5]), tf.constant(Y[:5]))).batch_size, 5)

    def test_no_operation_passes_all_gradients_through(self):
        types = {
            node.op
            for node in trace_call(two_towers(recurrent=True), BATCH).workload.graph_def.node
        }
        self.assertNotIn("IdentityN", types)
        reduced = tf.distribute.get_replica_context().all_reduce("sum", tf.constant(2.0))
        self.assertEqual(reduced.numpy(), 2.0)

    def test_a_step_without_metrics_is_traced_once(self):
        calls = []

        class Counted(keras.losses.MeanSquaredError):
            def call(self, y_true, y_pred):
                calls.append(1)
                return super().call(y_true, y_pred)

        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("adam", Counted(), jit_compile=False)
        trace_call(model, (X[:8], Y[:8, None].astype(np.float32)))
        # Keras 2 creates the optimizer's variables in the trace, which makes TensorFlow repeat it.
        self.assertLen(calls, 1 if keras.__version__ >= "3" else 3)

    def test_checkpoints_are_interchangeable(self):
        model, original = two_towers(), two_towers()
        place(model)
        losses(model)
        path = os.path.join(self.create_tempdir().full_path, "checkpoint")
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
        losses(original)
        tf.train.Checkpoint(model=original, optimizer=original.optimizer).read(path)
        for ours, theirs in zip(model.get_weights(), original.get_weights(), strict=True):
            self.assertAllEqual(ours, theirs)
        self.assertAllClose(losses(model), losses(original), rtol=1e-5)
        original.save_weights(f"{path}.weights.h5")
        model.load_weights(f"{path}.weights.h5")
        self.assertAllClose(model.predict(X, verbose=0), original.predict(X, verbose=0), rtol=1e-5)

    def test_a_placed_model_is_saved_without_its_step(self):
        models = {"placed": two_towers(), "original": two_towers()}
        place(models["placed"])
        saved = {}
        for name, model in models.items():
            losses(model)
            path = os.path.join(self.create_tempdir().full_path, name)
            tf.saved_model.save(model, path)
            names = vars(tf.saved_model.load(path)).keys()
            saved[name] = {each for each in names if "train" in each}
        self.assertEqual(saved["placed"], saved["original"])

    def test_places_another_model_of_the_same_architecture(self):
        traced = trace_call(two_towers(), BATCH)
        [placement] = random_placements(traced.workload, 1)
        step = PlacedStep(traced, MACHINE, placement)
        for _ in range(9):  # The name with 10 sorts before the one with 9.
            two_towers()
        model = two_towers()
        step.apply(model)
        self.assertAllClose(losses(model), losses(two_towers()), rtol=1e-6)
        variables = trace_call(model, BATCH).variables.values()
        self.assertLen({each.device for each in variables}, 2)
        with self.assertRaisesRegex(GraphError, "is not the one that was placed"):
            step.apply(two_towers(optimizer="sgd"))

    def test_autograph_converts_the_same_as_in_keras_2(self):
        """Keras 2 converts layers unless AutoGraph is disabled."""
        autograph = tf.__internal__.autograph

        class Model:
            name, built, optimizer, run_eagerly, jit_compile = "m", True, "sgd", False, False
            distribute_strategy = tf.distribute.get_strategy()

            def train_step(self, x):
                def call(x):
                    if tf.reduce_sum(x) > 0.0:
                        return x
                    return -x

                return autograph.tf_convert(call, autograph.control_status_ctx())(x)

        for module, is_converted in (
            ("keras.src.engine.training", True),
            ("tf_keras.src.engine.training", True),
            ("keras.src.models.model", False),
        ):
            Model.__module__ = module
            if is_converted:
                graph_def = trace_call(Model(), tf.ones([2])).workload.graph_def
                self.assertIn("If", {node.op.removeprefix("Stateless") for node in graph_def.node})
            else:
                with self.assertRaisesRegex(GraphError, "symbolic"):
                    trace_call(Model(), tf.ones([2]))

    def test_builds_a_model_by_its_own_step_as_training_does(self):
        class Rows(keras.Model):
            """Trains on rows of its table: it cannot be called with a batch, their numbers."""

            def __init__(self):
                super().__init__()
                self.table = tf.random.stateless_normal([4, 3], [1, 2])
                self.dense = keras.layers.Dense(2, kernel_initializer="ones")

            def call(self, inputs):
                table, rows = inputs
                return tf.gather(self.dense(table), rows)

            def train_step(self, batch):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(self([self.table, batch]) ** 2)
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(
                    zip(gradients, self.trainable_variables, strict=True)
                )
                return {"loss": loss}

        rows = np.array([0, 2])
        placed, plain = Rows(), Rows()
        for model in (placed, plain):
            model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        traced = trace_call(placed, rows)
        self.assertIn("GatherV2", {node.op for node in traced.workload.graph_def.node})
        np.testing.assert_array_equal(placed.dense.kernel.numpy(), np.ones([3, 2]))
        for model in (placed, plain):
            model.fit(rows, batch_size=2, verbose=0)
        np.testing.assert_array_equal(placed.dense.kernel.numpy(), plain.dense.kernel.numpy())

    def test_takes_the_first_batch_of_a_data_set(self):
        data = tf.data.Dataset.from_tensors(BATCH).repeat(3)
        traced = trace_call(two_towers(), data)
        tf.nest.map_structure(np.testing.assert_array_equal, traced.example_inputs, BATCH)
        with self.assertRaisesRegex(GraphError, "the data set is empty"):
            trace_call(two_towers(), data.take(0))

    def test_asks_for_a_batch_where_something_gives_batches(self):
        class Batches:
            def __len__(self):
                return 1

            def __getitem__(self, index):
                return BATCH

        for data, remedy in (((each for each in [BATCH]), "next(data)"), (Batches(), "data[0]")):
            sentence = re.escape(f"gives batches, pass {remedy}")
            with self.assertRaisesRegex(GraphError, sentence):
                trace_call(two_towers(), data)
        with self.assertRaisesRegex(GraphError, r"The example is x alone: pass \(x, y\)"):
            trace_call(two_towers(), BATCH[0])

    def test_says_how_the_step_differs_on_a_computer_with_gpus(self):
        recurrent, plain = two_towers(recurrent=True), two_towers()
        kernels, advice = describe_gpu_kernels(recurrent), advise_against_xla(plain)
        self.assertRegex(kernels, "the layer 'lstm[^']*' would use cuDNN .* use_cudnn=False")
        self.assertIsNone(describe_gpu_kernels(plain))
        if keras.__version__ >= "3":
            self.assertIn("compile it with jit_compile=False", advice)
        else:
            self.assertIsNone(advice)
        with mock.patch.object(tf.config, "list_physical_devices", return_value=["GPU:0"]):
            self.assertIsNone(describe_gpu_kernels(recurrent))
            self.assertIsNone(advise_against_xla(plain))

    def test_models_that_have_no_step_say_what_to_do(self):
        unbuilt = keras.Sequential([keras.layers.Conv2D(2, 3)])
        unbuilt.compile("sgd", "mse")
        built = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        with tf.distribute.MirroredStrategy(DEVICES[:1]).scope():
            distributed = two_towers()
        for model, message in (
            (unbuilt, "has no variables yet, and this batch does not build them: .*ndim=4"),
            (built, "is not compiled"),
            (two_towers(run_eagerly=True), "run_eagerly=False"),
            (two_towers(jit_compile=True), "jit_compile=False"),
            (distributed, "under a distribution strategy"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                trace_call(model, BATCH)
        self.assertTrue(is_keras_model(built))
        self.assertFalse(is_keras_model(keras.layers.Dense(2)))


if __name__ == "__main__":
    tf.test.main()
