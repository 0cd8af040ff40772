"""Tests of `optimize` with functions and models, with scripted measurements."""

from __future__ import annotations

import pathlib
import sys
import types
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from tests.saved_models import REQUEST, save_functions
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, uses_two_devices
from tf_placer.confirmation.outcome import Outcome
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.live import entry_points, optimization
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import (
    optimize,
    optimize_function,
    optimize_model,
    optimize_saved_model,
)
from tf_placer.live.result import FunctionResult, SavedModelResult
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import LogMismatchError

X = np.ones([4, 3], np.float32)


def step_function() -> tuple[tf.types.experimental.PolymorphicFunction, list[tf.Variable]]:
    variables = [tf.Variable(tf.fill([3, 3], value)) for value in (0.5, 0.25)]

    @tf.function
    def step(x):
        left, right = tf.sin(x @ variables[0]), tf.cos(x @ variables[1])
        for _ in tf.range(3):
            right = tf.cos(right @ variables[1])
        result = tf.reduce_sum(left) + tf.reduce_sum(right)
        for variable in variables:
            variable.assign_add(tf.ones([3, 3]) * result)
        return result

    return step, variables


class PlacedFunctionsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.is_faster = True
        script = Script(secs=self.secs)

        def search_here(directory, given, callback, start_secs, host, forks, max_secs):
            del host, forks, max_secs
            return live_run.run(
                RunDirectory(given),
                directory,
                callback,
                script.environment,
                start_secs=start_secs,
            )

        self.enter_context(mock.patch.object(optimization, "run_search", search_here))

    def secs(self, assignment) -> float:
        faster = self.is_faster and uses_two_devices(assignment)
        return ORIGINAL_SECS / 2 if faster else ORIGINAL_SECS

    def place(self, entry, target, *step, **settings):
        config = SearchConfig(
            machine=MACHINE, placer="random", max_trials=10, log_dir=self.directory / "run"
        )
        return entry(target, *step, config=config, verbose=False, **settings)

    def test_returns_a_function_with_variables_on_their_devices(self):
        step, variables = step_function()
        original, same = step_function()
        result = self.place(optimize_function, step, (X,))
        self.assertTrue(result.changed)
        self.assertEqual(uses_two_devices(result.placement.assignment), True)
        placed = result.function
        self.assertIs(result.function, placed)
        for _ in range(3):
            self.assertEqual(placed(X).numpy(), original(X).numpy())
        for ours, theirs in zip(variables, same, strict=True):
            self.assertAllEqual(ours, theirs)
            self.assertIn(ours.device, DEVICES)

    def test_a_second_run_of_a_program_does_not_search(self):
        first = self.place(optimize_function, step_function()[0], (X,))
        with mock.patch.object(optimization, "run_search", side_effect=AssertionError):
            again = self.place(optimize_function, step_function()[0], (2 * X,))
        self.assertTrue(again.changed)
        self.assertEqual(again.placement.assignment, first.placement.assignment)

    def test_returns_the_function_itself_if_nothing_is_faster(self):
        self.is_faster = False
        step, _ = step_function()
        result = self.place(optimize_function, step, X)
        self.assertFalse(result.changed)
        self.assertIs(result.function, step)

    def test_a_placed_model_can_be_trained(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        before = model.get_weights()
        result = self.place(optimize_model, model, (X, np.ones([4, 1], np.float32)))
        self.assertTrue(result.changed)
        result.apply(model)
        for ours, theirs in zip(model.get_weights(), before, strict=True):
            self.assertAllEqual(ours, theirs)
        model.fit(X, np.ones([4, 1], np.float32), verbose=0)
        self.assertNotAllEqual(model.get_weights()[0], before[0])

    def test_a_search_that_runs_again_in_a_notebook_is_answered(self):
        def build():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            model.compile("adam", "mse", jit_compile=False)
            return model

        model, y = build(), np.ones([4, 2], np.float32)
        first = self.place(optimize_model, model, (X, y))
        self.assertTrue(first.changed)
        first.apply(model)
        model.fit(X, y, verbose=0)
        with mock.patch.object(optimization, "run_search", side_effect=AssertionError):
            again = self.place(optimize_model, model, (X, y))
            again.apply(model)
            # Keras counts on: the layer of this model is another "dense".
            built = build()
            rebuilt = self.place(optimize_model, built, (X, y))
            rebuilt.apply(built)
        for result, each in ((again, model), (rebuilt, built)):
            self.assertEqual(result.reason, first.reason)
            self.assertEqual(result.trials, first.trials)
            each.fit(X, y, verbose=0)
        self.assertEqual(again.placement.assignment, first.placement.assignment)
        self.assertNotEqual(rebuilt.placement.assignment, first.placement.assignment)
        self.assertEqual(
            list(rebuilt.placement.assignment.values()), list(first.placement.assignment.values())
        )

    def test_a_search_of_a_model_that_lacked_time_asks_whether_the_batch_is_one(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
        config = SearchConfig(MACHINE, "random", max_trials=1)
        batch = (np.ones([40, 3], np.float32), np.ones([40, 2], np.float32))
        result = optimize_model(model, batch, config=config, verbose=False)
        self.assertEqual(result.outcome, Outcome.NO_TIME)
        self.assertEndsWith(
            result.reason,
            ". A step trained on a batch of 40: if these are all examples, pass one batch",
        )

    def test_only_a_search_that_begins_tells_the_batch_size(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("adam", "mse", jit_compile=False)
        batch = (X, np.ones([4, 2], np.float32))
        for begins in (True, False):
            lines, callback = [], Callback()
            callback.on_note = lines.append
            self.place(optimize_model, model, batch, callbacks=[callback])
            told = any(line.startswith("a step trains on a batch of 4:") for line in lines)
            self.assertEqual(told, begins, lines)

    def test_a_model_with_another_batch_or_optimizer_needs_another_log_dir(self):
        def run(num_examples: int, optimizer: str) -> None:
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            model.compile(optimizer, "mse", jit_compile=False)
            batch = (np.ones([num_examples, 3], np.float32), np.ones([num_examples, 2], np.float32))
            self.place(optimize_model, model, batch)

        run(4, "sgd")
        remedy = "^a log of another .*: name another log_dir, or delete this one. The log .* has "
        with self.assertRaisesRegex(
            LogMismatchError, f"{remedy}batch size 4, this search has batch size 8$"
        ):
            run(8, "sgd")
        with self.assertRaisesRegex(
            LogMismatchError, remedy + r"\d+ operations, this search has \d+ operations$"
        ):
            run(4, "adam")

    def test_the_bar_of_a_notebook_tells_a_failure_from_an_end(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="small")
        model.compile("sgd", "mse", jit_compile=False)
        display = mock.Mock()
        module = types.SimpleNamespace(HTML=str, display=display)
        modules = {"IPython": types.SimpleNamespace(display=module), "IPython.display": module}
        self.enter_context(mock.patch.dict(sys.modules, modules))
        self.enter_context(mock.patch.object(entry_points, "is_notebook", return_value=True))
        config = SearchConfig(MACHINE, "random", max_trials=1)
        wrong = (np.ones([4, 7], np.float32), np.ones([4, 2], np.float32))
        with self.assertRaisesRegex(GraphError, "^the model 'small' cannot be traced"):
            optimize_model(model, wrong, config=config)
        [*_, last] = display.return_value.update.call_args_list
        self.assertIn("<small>failed after", last.args[0])

    def test_what_a_result_has_prints_on_one_line(self):
        result = self.place(optimize_function, step_function()[0], (X,))
        self.assertRegex(repr(result.placement), r"^<Placement of \d+ operations, per device \[")
        self.assertRegex(
            repr(result.trials), r"^<10 trials, the fastest <Trial \d of '.*': 50.00 ms>>"
        )
        self.assertEqual(repr(result.trials[0]), "<Trial 0 of 'original': 100.0 ms>")
        self.assertIsInstance(result.trials, tuple)

    def test_writes_a_saved_model_with_devices(self):
        path = save_functions(self.directory)
        result = self.place(optimize_saved_model, path, example_inputs=REQUEST)
        self.assertTrue(result.changed)
        result.save(self.directory / "placed")
        expected = tf.saved_model.load(path)(REQUEST)["sum"]
        placed = tf.saved_model.load(str(self.directory / "placed"))
        self.assertAllEqual(placed(REQUEST)["sum"], expected)
        self.assertAllEqual(result.function(x=tf.constant(REQUEST))["sum"], expected)
        self.assertEqual(
            {variable.device for variable in result.function.variables},
            {
                result.placement.assignment[node.name]
                for node in result.graph_def.node
                if node.op == "VarHandleOp" and node.name in result.placement.assignment
            },
        )
        with mock.patch.object(optimization, "run_search", side_effect=AssertionError):
            again = self.place(optimize, path, feed_dict={"x": 2 * REQUEST})
        self.assertIsInstance(again, SavedModelResult)
        self.assertEqual(again.placement.assignment, result.placement.assignment)
        # The same search replaces its SavedModel, unless somebody has changed it.
        again.save(self.directory / "placed")
        (self.directory / "placed" / "notes").touch()
        with self.assertRaisesRegex(GraphError, "placed' is there already"):
            again.save(self.directory / "placed")

    def test_copies_a_saved_model_unchanged_if_nothing_is_faster(self):
        self.is_faster = False
        path = save_functions(self.directory)
        result = self.place(optimize_saved_model, path, "serving_default", {"x": REQUEST})
        self.assertFalse(result.changed)
        result.save(self.directory / "placed")
        content = [
            read_saved_model(each).SerializeToString(deterministic=True)
            for each in (path, self.directory / "placed")
        ]
        self.assertEqual(*content)
        self.assertEqual(result.function(x=tf.constant(REQUEST))["requests"].numpy(), 1)

    def test_refuses_invalid_arguments(self):
        step, _ = step_function()
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        path = save_functions(self.directory)
        restored = {"config": SearchConfig(checkpoint="dir")}
        for entry, arguments, error, message in (
            (optimize_function, (model, X), ValueError, "a ConcreteFunction is wanted, not Seq"),
            (optimize_function, (np.sin, X), ValueError, "ConcreteFunction is wanted, not ufunc"),
            (optimize_function, (step, None), ValueError, "needs example_inputs="),
            (optimize_model, (step, X), ValueError, "a Keras model is wanted, not "),
            (optimize_saved_model, ("in.pb",), GraphError, "SavedModel is wanted, not 'in.pb'"),
            (optimize_saved_model, (path, "nope"), GraphError, "no signature 'nope'"),
            (optimize, (step,), ValueError, "needs example_inputs="),
        ):
            with self.assertRaisesRegex(error, message):
                entry(*arguments)
        with self.assertRaisesRegex(ValueError, "takes no fetches, feed_dict"):
            optimize_function(step, X, **restored)
        with self.assertRaisesRegex(GraphError, "takes no fetches, initializers or checkpoint"):
            optimize_saved_model(path, example_inputs=REQUEST, **restored)

    def test_accepts_keywords_of_former_versions_with_a_warning(self):
        step, _ = step_function()
        for arguments, error, message in (
            ({"example": X, "fetches": "loss"}, ValueError, "takes no fetches, feed_dict"),
            ({"example": X, "restore_from": "dir"}, ValueError, "takes no fetches, feed_dict"),
            ({"example": X, "signature": "default"}, ValueError, "has no signature to choose"),
            ({"graph": tf.Graph(), "example": X}, ValueError, "a graph takes no example_inputs"),
            ({"graph": tf.Graph(), "signature": "a"}, GraphError, "only a SavedModel directory"),
        ):
            with self.assertWarns(DeprecationWarning), self.assertRaisesRegex(error, message):
                optimize(**{"graph": step, **arguments})
        path = save_functions(self.directory)
        with (
            self.assertWarnsRegex(DeprecationWarning, "no example=: write optimize_saved_model"),
            self.assertRaisesRegex(ValueError, "example_inputs or feed_dict, not both"),
        ):
            optimize(path, example=REQUEST, feed_dict={"x": REQUEST})
        with self.assertWarnsRegex(
            DeprecationWarning, "write optimize_function.function, example_inputs"
        ):
            result = self.place(optimize, step, example=X)
        self.assertIsInstance(result, FunctionResult)
        self.assertTrue(result.changed)


if __name__ == "__main__":
    tf.test.main()
