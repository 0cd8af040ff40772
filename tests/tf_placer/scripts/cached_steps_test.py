"""Tests of detecting, caching and placing steps, in this process, on two CPU devices."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement, write_placement
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE, random_placements
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.scripts import training_step_detector
from tf_placer.scripts.process_restart import Stage
from tf_placer.scripts.step_cache import read_cached_step, read_cached_workload, step_fingerprint
from tf_placer.scripts.step_placer import StepPlacer
from tf_placer.scripts.training_step_detector import TrainingStepDetector

tf1 = tf.compat.v1


class BeginAgainError(Exception):
    """The error that stands for a restart of the script."""


class BeginPlainlyError(Exception):
    """The error that stands for a restart of the script without tf_placer."""


def restart(stage: Stage) -> None:
    raise BeginPlainlyError if stage is Stage.ORIGINAL else BeginAgainError


def look_at(batch: Any) -> Any:
    """Returns a function that calls another one with the first batch."""
    return lambda look: look(batch)


def no_look(look: Any) -> None:
    raise AssertionError("the data is the script's")


def make_model(model_class: type[tf.keras.Model]) -> tf.keras.Model:
    """Makes a model with a training step of its own, the same each time."""
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    model = model_class()
    model.compile("sgd", jit_compile=False)
    return model


class KeptStepsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)
        self.directory = RunDirectory(self.path)
        self.said: list[str] = []
        self.seeker = TrainingStepDetector(
            self.directory,
            MACHINE,
            60.0,
            say=self.said.append,
            restart=restart,
        )

    def place(self) -> Placement:
        """Saves a placement of the cached step, without a search."""
        workload, request = read_cached_workload(self.directory)
        self.assertEqual(request.max_secs, 60.0)
        placement = next(random_placements(workload, 1))
        write_placement(placement, self.directory.placement)
        return placement

    def placer(self, path: pathlib.Path | None = None) -> StepPlacer:
        step = read_cached_step(path or self.path)
        return StepPlacer(step, step.placement, MACHINE, say=self.said.append)

    def test_a_function_is_searched_for_on_the_gpus_that_the_script_sees(self):
        config = tf1.ConfigProto(device_count={"GPU": 1})
        weights = tf.Variable(tf.ones([2, 2]))

        @tf.function(autograph=False)
        def train(x: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((x @ weights) ** 2)
            weights.assign_sub(tape.gradient(loss, weights))

        with (
            mock.patch.object(training_step_detector, "build_session_config", return_value=config),
            self.assertRaises(BeginAgainError),
        ):
            self.seeker.before_function_call(train, (tf.ones([2, 2]),), {})
        self.assertEqual(read_cached_workload(self.directory)[1].session_config, config)

    def test_a_step_that_calls_python_ends_a_script_that_may_not_search(self):
        seeker = TrainingStepDetector(
            self.directory, MACHINE, 60.0, say=self.said.append, restart=restart, may_search=False
        )
        with tf.Graph().as_default(), tf1.Session() as session:
            value = tf.numpy_function(lambda: np.float32(2.0), [], tf.float32)
            weight = tf1.get_variable("weight", initializer=1.0)
            train = tf1.train.GradientDescentOptimizer(0.1).minimize((weight - value) ** 2)
            session.run(weight.initializer)
            with self.assertRaisesRegex(SystemExit, "1"):
                seeker.before_session_run(session, train, None)
        self.assertRegex(self.said[-1], "an answer is required, .* calls a Python function")

    def test_a_step_of_a_session_is_found_with_what_it_is_fed_and_placed_in_another_one(self):
        def build(width: int = 2) -> dict[str, Any]:
            x = tf1.placeholder(tf.float32, [None, 3], name="x")
            keep = tf1.placeholder_with_default(1.0, [], name="keep")
            first = tf1.placeholder(tf.float32, [3, width], name="first")
            weights = tf1.get_variable("weights", initializer=first)
            loss = tf.reduce_sum(tf.matmul(x, weights) * keep) ** 2
            train = tf1.train.AdamOptimizer(0.1).minimize(loss)
            return {"x": x, "keep": keep, "first": first, "loss": loss, "train": train}

        graph = tf.Graph()
        values = np.ones([4, 3], np.float32)
        with graph.as_default(), tf1.Session() as session:
            model = build()
            initialize = tf1.global_variables_initializer()
            feeds = {model["first"]: np.ones([3, 2])}
            self.seeker.before_session_run(session, initialize, feeds)
            session.run(initialize, feeds)
            # Looks at the model, but is no step of the training.
            self.seeker.before_session_run(
                session, model["loss"], {model["x"]: values, model["keep"]: 0}
            )
            self.assertFalse(self.directory.has_request)
            with self.assertRaises(BeginAgainError):
                self.seeker.before_session_run(
                    session, [model["train"], model["loss"]], {model["x"]: 2 * values}
                )
        self.assertRegex(
            self.said[0], "found the training step: the session that runs 'Adam' and 1 more"
        )
        workload, _ = read_cached_workload(self.directory)
        self.assertEqual(list(workload.step.feeds), ["x:0"])
        self.assertAllEqual(workload.step.feeds["x:0"], 2 * values)
        self.assertAllEqual(workload.step.restored["weights"], np.ones([3, 2]))

        placement = self.place()
        placer = self.placer()
        config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
        losses = []
        for is_placed in (False, True):
            with tf.Graph().as_default() as graph, tf1.Session(config=config) as session:
                model = build()
                initialize = tf1.global_variables_initializer()
                if is_placed:
                    # The graph grows afterwards, as scripts do it.
                    placer.before_graph_extension(session)
                session.run(initialize, {model["first"]: np.ones([3, 2])})
                tf1.train.Saver()
                for _ in range(3):
                    if is_placed:
                        placer.before_graph_extension(session)
                        placer.before_session_run(session, model["train"], {model["x"]: values})
                    losses.append(
                        session.run([model["train"], model["loss"]], {model["x"]: values})[1]
                    )
                devices = {op.name: op.device for op in graph.get_operations()}
            for name, device in placement.assignment.items():
                self.assertEqual(devices.get(name, device), device if is_placed else "")
        self.assertAllClose(losses[:3], losses[3:])
        self.assertLen(self.said, 2)
        self.assertRegex(self.said[1], r"^placed \d+ operations of the graph")

        # Batches of another size are another step for a script that has to have an answer.
        step = read_cached_step(self.path)
        strict = StepPlacer(step, None, MACHINE, say=[].append, must_fit=True)
        with tf.Graph().as_default(), tf1.Session() as session:
            model = build()
            strict.before_graph_extension(session)
            with self.assertRaisesRegex(SystemExit, "1"):
                strict.before_session_run(session, model["train"], {model["x"]: values[:2]})
        strict = StepPlacer(step, None, MACHINE, say=[].append, must_fit=True)
        with tf.Graph().as_default(), tf1.Session() as session:
            model = build()
            strict.before_graph_extension(session)
            strict.before_session_run(session, model["train"], {model["x"]: values})

        placer = self.placer()
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            model = build(width=5)
            placer.before_graph_extension(session)
            placer.before_session_run(session, model["train"], {model["x"]: values})
            self.assertEqual({op.device for op in graph.get_operations()}, {""})
        self.assertIn("it has changed since", self.said[2])
        self.assertFalse(placer.has_met_step)
        self.assertTrue(placer.is_explained)

    def test_operations_beside_the_step_may_have_each_others_names(self):
        """As in Keras' graph mode, which looks at variables in an order of chance."""

        def build(order: list[int]) -> tuple[list[tf.Variable], tf.Operation]:
            variables = [
                tf1.get_variable(f"v{i}", initializer=tf.ones([2]), use_resource=True)
                for i in range(4)
            ]
            loss = tf.add_n([tf.reduce_sum(tf.tanh(each)) for each in variables])
            train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
            for i in order:
                tf1.is_variable_initialized(variables[i])
            return variables, train

        with tf.Graph().as_default(), tf1.Session() as session:
            _, train = build([0, 1, 2, 3])
            session.run(tf1.global_variables_initializer())
            with self.assertRaises(BeginAgainError):
                self.seeker.before_session_run(session, train, None)
        placement = self.place()
        placer = self.placer()
        with tf.Graph().as_default(), tf1.Session() as session:
            variables, _ = build([3, 2, 1, 0])
            placer.before_graph_extension(session)
            tf.no_op("later")
            placer.before_graph_extension(session)
        self.assertEqual(
            {each.op.name: each.op.device for each in variables},
            {f"v{i}": placement.assignment[f"v{i}"] for i in range(4)},
        )
        self.assertLen({each.op.device for each in variables}, 2)
        self.assertLen(self.said, 2)

    def test_a_placement_that_no_longer_fits_is_not_applied_to_new_operations(self):
        path = self.path / "elsewhere.json"
        first, second = DEVICES
        assignment = {"x": first, "y": second, "weights": second, "weights/Assign": first}
        write_placement(Placement("", DEVICES, assignment), path)
        placer = self.placer(path)
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            x = tf.constant(1.0, name="x")
            tf.exp(x, name="y")
            placer.before_graph_extension(session)
            tf1.get_variable("weights", initializer=1.0)
            for _ in range(2):
                placer.before_graph_extension(session)
            devices = {each.name: each.device for each in graph.get_operations()}
        self.assertEqual((devices["x"], devices["y"], devices["weights"]), (first, second, ""))
        self.assertRegex(self.said[0], "^placed 2 operations of the graph")
        self.assertRegex(self.said[1], "^the new operations .* are not placed: .*'weights/")
        self.assertLen(self.said, 2)

    def test_only_non_training_fetches_may_be_added_after_the_initializers(self):
        config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
        values = {"x:0": np.ones([4, 3], np.float32)}

        def train(steps: Any, late: str) -> tuple[list[float], dict[str, str]]:
            """Runs the initializers before some of the graph is there; returns losses."""
            with tf.Graph().as_default() as graph, tf1.Session(config=config) as session:
                x = tf1.placeholder(tf.float32, [None, 3], name="x")
                initial = tf1.ones_initializer()
                weights = tf1.get_variable("weights", [3, 2], initializer=initial)
                loss = tf.reduce_sum(tf.matmul(x, weights)) ** 2

                def initialize() -> None:
                    steps.before_graph_extension(session)
                    session.run(tf1.global_variables_initializer())

                if late == "step":
                    initialize()
                step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
                if late == "norm":
                    initialize()
                norm = tf.norm(weights, name="norm")
                losses = []
                for _ in range(3):
                    steps.before_graph_extension(session)
                    steps.before_session_run(session, [step, loss, norm], values)
                    losses.append(session.run([step, loss, norm], values)[1])
                return losses, {each.name: each.device for each in graph.get_operations()}

        losses, _ = train(self.seeker, "step")
        self.assertRegex(
            self.said[0],
            "cannot be placed.*: a session ran 'x' before '.*GradientDescent.*' was in the graph",
        )
        self.setUp()
        with self.assertRaises(BeginAgainError):
            train(self.seeker, "norm")
        placement = self.place()
        moved = {name: DEVICES[1] for name in placement.assignment}
        self.assertIn("norm/Sqrt", moved)
        write_placement(dataclasses.replace(placement, assignment=moved), self.directory.placement)

        placed, devices = train(self.placer(), "norm")
        self.assertAllEqual(placed, losses)
        # TensorFlow has the read of a variable go with it.
        self.assertEqual(devices.pop("norm/ReadVariableOp"), "")
        del moved["norm/ReadVariableOp"]
        self.assertEqual({name: devices[name] for name in moved}, moved)
        self.assertRegex(self.said[-1], "^placed")

        alone = pathlib.Path(self.create_tempdir().full_path) / "placement.json"
        alone.write_bytes(self.directory.placement.read_bytes())
        for path in (self.path, alone):
            steps = self.placer(path)
            placed, devices = train(steps, "step")
            self.assertAllEqual(placed, losses)
            self.assertEqual({*devices.values()}, {""})
            self.assertRegex(self.said[-1], "the graph is not placed: a session ran 'x' before")

    def test_a_function_is_found_and_replaced(self):
        def make() -> tuple[tf.Variable, Any]:
            weights = tf.Variable(np.ones([3, 2], np.float32))

            @tf.function
            def train(x: tf.Tensor, rate: float = 0.1) -> tf.Tensor:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum((x @ weights) ** 2)
                weights.assign_sub(rate * tape.gradient(loss, weights))
                return loss

            return weights, train

        x = tf.ones([4, 3])
        weights, train = make()
        predict = tf.function(lambda x: x @ weights)
        self.assertIsNone(self.seeker.before_function_call(predict, (x,), {}))
        with self.assertRaises(BeginAgainError):
            self.seeker.before_function_call(train, (x,), {"rate": 0.2})
        self.assertAllEqual(weights, np.ones([3, 2]))
        self.place()
        placer = self.placer()
        self.assertIsNone(placer.before_function_call(predict, (x,), {}))
        (plain_weights, plain), (weights, train) = make(), make()
        placed = placer.before_function_call(train, (x,), {"rate": 0.2})
        self.assertIs(placer.before_function_call(train, (x,), {"rate": 0.2}), placed)
        self.assertIsNone(placer.before_function_call(placed, (x,), {"rate": 0.2}), "it is placed")
        for _ in range(3):
            self.assertAllClose(placed(x, rate=0.2), plain(x, rate=0.2))
        self.assertAllClose(weights, plain_weights)
        self.assertTrue(placer.has_met_step)
        # Other shapes are another step.
        placer = self.placer()
        self.assertIsNone(placer.before_function_call(make()[1], (tf.ones([5, 3]),), {"rate": 0.2}))
        self.assertIn("it has changed since, and the script runs unchanged", self.said[-1])
        # A script whose step has to have an answer ends.
        step = read_cached_step(self.path)
        placer = StepPlacer(step, step.placement, MACHINE, say=self.said.append, must_fit=True)
        with self.assertRaisesRegex(SystemExit, "1") as raised:
            placer.before_function_call(make()[1], (tf.ones([5, 3]),), {"rate": 0.2})
        self.assertIn("has no answer for it: the script ends", self.said[-1])
        self.assertRegex(str(raised.exception.__cause__), "has no answer for it: the script ends")
        placer = StepPlacer(
            *(step, step.placement, MACHINE), say=self.said.append, must_fit=True, is_given=True
        )
        with self.assertRaisesRegex(SystemExit, "1"):
            placer.before_function_call(make()[1], (tf.ones([5, 3]),), {"rate": 0.2})
        self.assertIn("leave out --placement and give another --log_dir to ask", self.said[-1])
        # The same holds for an answer that leaves the step as it is.
        placer = StepPlacer(step, None, MACHINE, say=self.said.append, must_fit=True)
        with self.assertRaisesRegex(SystemExit, "1"):
            placer.before_function_call(make()[1], (tf.ones([5, 3]),), {"rate": 0.2})
        placer = StepPlacer(step, None, MACHINE, say=self.said.append, must_fit=True)
        self.assertIsNone(placer.before_function_call(make()[1], (x,), {"rate": 0.2}))
        self.assertTrue(placer.is_explained)
        self.assertFalse(placer.has_placed)

    def test_a_model_is_found_and_placed_without_its_data(self):
        def make() -> tf.keras.Model:
            tf.keras.utils.set_random_seed(1)
            x = tf.keras.Input([3])
            model = tf.keras.Model(x, tf.keras.layers.Dense(2)(x))
            model.compile("sgd", "mse", jit_compile=False)
            return model

        x, y = np.ones([4, 3], np.float32), np.zeros([4, 2], np.float32)
        tf.keras.backend.clear_session()
        model = make()
        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(model, look_at((tf.constant(x), tf.constant(y))))
        self.place()

        losses = []
        for is_placed in (False, True):
            tf.keras.backend.clear_session()
            model = make()
            if is_placed:
                self.placer().before_training(model, no_look)((x, y))
            losses.append(model.fit(x, y, batch_size=4, epochs=3, verbose=0).history["loss"])
        self.assertAllClose(losses[0], losses[1])
        self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")

    def test_models_that_are_built_alike_are_all_placed(self):
        """As in a cross validation; names of Keras count upwards."""

        def make(activation: str = "tanh") -> tf.keras.Model:
            tf.keras.utils.set_random_seed(1)
            x = tf.keras.Input([3])
            hidden = tf.keras.layers.Dense(4, activation=activation)(x)
            model = tf.keras.Model(x, tf.keras.layers.Dense(2)(hidden))
            model.compile("adam", "mse", jit_compile=False)
            return model

        x, y = np.ones([4, 3], np.float32), np.zeros([4, 2], np.float32)
        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(make(), look_at((tf.constant(x), tf.constant(y))))
        self.place()
        placer, losses = self.placer(), []
        for i in range(3):
            model = make()
            if i < 2:
                placer.before_training(model, no_look)((x, y))
            losses.append(model.fit(x, y, batch_size=4, epochs=3, verbose=0).history["loss"])
        self.assertAllClose(losses[:2], [losses[2]] * 2)
        placer.before_training(make("relu"), no_look)((x, y))
        self.assertLen(self.said, 3)
        for line in self.said[1:]:
            self.assertRegex(line, r"^placed \d+ operations of the training step")

    def test_builds_models_from_their_first_batch(self):
        def make() -> tf.keras.Model:
            tf.keras.backend.clear_session()
            tf.keras.utils.set_random_seed(1)
            model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
            model.compile("sgd", "mse", jit_compile=False)
            return model

        def batch(width: int) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.ones([4, width]), tf.zeros([4, 2])

        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(make(), look_at(batch(3)))
        self.place()
        placer = self.placer()
        for width in (5, 3):
            model = make()
            take = placer.before_training(model, no_look)
            self.assertFalse(model.built)
            take(batch(width))
            self.assertEqual(model.input_shape, (4, width))
        self.assertIn("it has changed since", self.said[-2])
        self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")

    def test_a_batch_may_have_an_order_of_its_parts(self):
        class Ordered(tf.keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.scale = self.add_weight(shape=[], initializer="ones", name="scale")

            def train_step(self, data: Any) -> dict[str, tf.Tensor]:
                scaled = {name: self.scale * part for name, part in data[0]["parts"].items()}
                self.scale.assign(tf.add_n([*scaled.values()]) + data[1])
                return scaled

        names = [f"part_{i}" for i in (3, 1, 4, 5, 9, 2, 6, 8, 7, 0)]
        batch = ({"parts": {name: tf.ones([]) for name in names}}, tf.ones([]))
        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(make_model(Ordered), look_at(batch))
        self.place()
        self.placer().before_training(make_model(Ordered), no_look)(batch)
        self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")

    def test_a_batch_may_have_sparse_and_ragged_tensors(self):
        class Sums(tf.keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.total = self.add_weight(shape=[], initializer="zeros", name="total")

            def train_step(self, data: Any) -> dict[str, tf.Tensor]:
                sparse, rows, words = data
                by_row = tf.reduce_sum(rows, axis=2).to_tensor()
                self.total.assign_add(tf.reduce_sum(sparse.values) + tf.reduce_sum(by_row))
                return {"total": self.total + tf.cast(tf.size(words), tf.float32)}

        batch = (
            tf.sparse.from_dense([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0]]),
            tf.ragged.constant([[[1.0], [2.0, 3.0]], [[4.0]]]),
            tf.constant([["a"], ["b"]]),
        )
        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(make_model(Sums), look_at(batch))
        self.place()
        model = make_model(Sums)
        self.placer().before_training(model, no_look)(batch)
        self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")
        self.assertAllEqual(model.train_step(batch)["total"], 17.0)

    def test_a_batch_may_have_types_of_a_library(self):
        class Pair(tf.experimental.ExtensionType):
            left: tf.Tensor
            right: tf.Tensor

        class Sums(tf.keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.total = self.add_weight(shape=[], initializer="zeros", name="total")

            def train_step(self, data: Any) -> dict[str, tf.Tensor]:
                parts = tf.nest.flatten(data, expand_composites=True)
                sums = [tf.reduce_sum(tf.cast(part, tf.float32)) for part in parts]
                self.total.assign_add(tf.add_n(sums))
                return {"total": self.total + 0.0}

        diagonal = tf.linalg.LinearOperatorDiag(tf.ones([3]))
        for batch in (diagonal, Pair([2.0, 1.0], 9.0)):
            self.setUp()
            with self.assertRaises(BeginAgainError):
                self.seeker.before_training(make_model(Sums), look_at(batch))
            self.place()
            model = make_model(Sums)
            self.placer().before_training(model, no_look)(batch)
            self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")
            expected = sum(float(np.sum(p)) for p in tf.nest.flatten(batch, expand_composites=True))
            self.assertAllEqual(model.train_step(batch)["total"], expected)

    def test_a_model_may_train_its_parts_without_being_one_that_can_be_called(self):
        class Pair(tf.keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.parts = [
                    tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(3)])
                    for _ in range(2)
                ]

            def train_step(self, data: Any) -> dict[str, tf.Tensor]:
                with tf.GradientTape() as tape:
                    first, last = (part(data) for part in self.parts)
                    loss = tf.reduce_mean((first - last - 1.0) ** 2)
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(
                    zip(gradients, self.trainable_variables, strict=True)
                )
                return {"loss": loss}

        data = tf.data.Dataset.from_tensors(np.ones([4, 3], np.float32)).repeat(3)
        batch = tf.ones([4, 3])
        with self.assertRaises(BeginAgainError):
            self.seeker.before_training(make_model(Pair), look_at(batch))
        self.place()
        plain, placed, placer = make_model(Pair), make_model(Pair), self.placer()
        placer.before_training(placed, no_look)(batch)
        self.assertRegex(self.said[-1], r"^placed \d+ operations of the training step")
        said = len(self.said)
        self.assertIsNone(placer.before_training(tf.keras.Sequential(), no_look))
        self.assertLen(self.said, said, "models after it are others")
        histories = [model.fit(data, verbose=0, epochs=2).history for model in (plain, placed)]
        self.assertAllClose(*histories)

    def test_reports_once_a_step_that_cannot_be_placed(self):
        weights = tf.Variable(np.ones([3, 2], np.float32))

        @tf.function(jit_compile=True)
        def train(x: tf.Tensor) -> tf.Tensor:
            return weights.assign_sub(tf.matmul(x, x @ weights, transpose_a=True))

        for _ in range(2):
            self.assertIsNone(self.seeker.before_function_call(train, (tf.ones([4, 3]),), {}))
        [line] = self.said
        self.assertRegex(line, "^the training step cannot be placed, and runs unchanged: .*XLA")
        self.assertFalse(self.directory.has_request)

    def test_captures_no_batch_for_models_that_cannot_be_placed(self):
        def compile_model(**options: Any) -> tf.keras.Model:
            model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2)])
            model.compile("sgd", "mse", **options)
            return model

        for options in ({"jit_compile": True}, {"run_eagerly": True}):
            self.setUp()
            model = compile_model(**options)
            self.assertIsNone(self.seeker.before_training(model, no_look))
            self.assertRegex(self.said[-1], "^the training step cannot be placed, and runs")
            self.assertTrue(self.seeker.is_explained)
        self.setUp()

        def look_in_vain(look: Any) -> None:
            raise GraphError("no first batch could be taken: the data is empty")

        with self.assertRaises(BeginPlainlyError):
            self.seeker.before_training(compile_model(jit_compile=False), look_in_vain)
        self.assertRegex(self.said[-1], "runs unchanged: no first batch could be taken")
        self.assertFalse(self.directory.has_request)

    def test_does_not_place_steps_with_unknown_devices(self):
        weights = tf.Variable(np.ones([3, 2], np.float32))

        @tf.function
        def train(x: tf.Tensor) -> tf.Tensor:
            with tf.device("CPU:7"):
                product = tf.matmul(x, x @ weights, transpose_a=True)
            return weights.assign_sub(product)

        self.assertIsNone(self.seeker.before_function_call(train, (tf.ones([4, 3]),), {}))
        [line] = self.said
        self.assertRegex(line, "^the training step cannot be placed, .*: the graph has 'matmul' on")
        self.assertRegex(line, "--clear_devices has devices chosen")
        self.assertFalse(self.directory.has_request)

    def test_a_step_on_given_devices_is_placed_only_without_them(self):
        values = np.ones([4, 3], np.float32)

        def build() -> tuple[tf.Tensor, tf.Operation, tf.Operation]:
            with tf.device("/device:CPU:0"):
                x = tf1.placeholder(tf.float32, [4, 3], name="x")
                weights = tf1.get_variable("weights", initializer=tf.ones([3, 2]))
                loss = tf.reduce_sum(tf.matmul(x, weights)) ** 2
                train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
                return x, [train, loss], tf1.global_variables_initializer()

        clearing = TrainingStepDetector(
            self.directory,
            MACHINE,
            60.0,
            say=self.said.append,
            restart=restart,
            clear_devices=True,
        )
        with tf.Graph().as_default(), tf1.Session() as session:
            x, fetches, initialize = build()
            session.run(initialize)
            self.seeker.before_session_run(session, fetches, {x: values})
            [line] = self.said
            self.assertRegex(line, r"cannot be placed, .*: \d+ of \d+ operations .*--clear_devices")
            self.assertFalse(self.directory.has_request)
            with self.assertRaises(BeginAgainError):
                clearing.before_session_run(session, fetches, {x: values})
        self.assertTrue(read_cached_workload(self.directory)[0].is_cleared)

        placement = self.place()
        self.assertLen(set(placement.assignment.values()), 2)
        losses = []
        for is_placed in (False, True):
            with tf.Graph().as_default() as graph:
                x, fetches, initialize = build()
                config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
                with tf1.Session(config=config) as session:
                    if is_placed:
                        self.placer().before_graph_extension(session)
                    session.run(initialize)
                    losses += [session.run(fetches, {x: values})[1] for _ in range(3)]
                devices = {op.name: op.device for op in graph.get_operations()}
        for name, device in placement.assignment.items():
            self.assertEqual(devices[name], device)
        self.assertAllClose(losses[:3], losses[3:])

    def test_a_function_on_given_devices_is_placed_only_without_them(self):
        weights = tf.Variable(np.ones([3, 2], np.float32))
        traced: list[str] = []

        @tf.function(autograph=False)
        def train(x: tf.Tensor) -> tf.Tensor:
            with tf.device("CPU:0"), tf.GradientTape() as tape:
                product = tf.matmul(x, weights)
                traced.append(product.device)
                loss = tf.reduce_sum(product**2)
            weights.assign_sub(0.01 * tape.gradient(loss, weights))
            return loss

        x = tf.ones([4, 3])
        clearing = TrainingStepDetector(
            self.directory,
            MACHINE,
            60.0,
            say=self.said.append,
            restart=restart,
            clear_devices=True,
        )
        with self.assertRaises(BeginAgainError):
            clearing.before_function_call(train, (x,), {})
        workload = read_cached_workload(self.directory)[0]
        self.assertEqual({node.device for node in workload.graph_def.node}, {""})
        products = [n.name for n in workload.graph_def.node if n.op == "MatMul"]
        write_placement(
            Placement("", DEVICES, dict.fromkeys(products, DEVICES[1])), self.directory.placement
        )
        placed = self.placer().before_function_call(train, (x,), {})
        expected = float(train(x))
        weights.assign(np.ones([3, 2], np.float32))
        self.assertAllClose(placed(x), expected)
        self.assertEqual(traced[-1], DEVICES[1])

    def test_only_what_the_step_needs_counts(self):
        def graph_def(*, extra: bool, scale: float = 2.0) -> tf1.GraphDef:
            with tf.Graph().as_default() as graph:
                x = tf1.placeholder(tf.float32, [3], name="x")
                place = contextlib.nullcontext()
                if extra:
                    place = graph.colocate_with(tf.map_fn(lambda v: v + 1.0, x).op)
                with place:
                    tf.multiply(x, scale, name="y")
            return graph.as_graph_def()

        prints = [
            step_fingerprint(graph_def(extra=False), ["y:0"]),
            step_fingerprint(graph_def(extra=True), ["y:0"]),
            step_fingerprint(graph_def(extra=False, scale=3.0), ["y:0"]),
        ]
        self.assertEqual(prints[0], prints[1])
        self.assertNotEqual(prints[0], prints[2])

    def test_a_placement_without_its_search_fits_graphs_that_have_its_names(self):
        path = self.path / "mine.json"
        write_placement(Placement("", DEVICES, {"a": DEVICES[0], "b": DEVICES[1]}), path)
        step = read_cached_step(path)
        for names, fits in ((["a", "b"], True), (["b", "c"], True), (["c", "d"], False)):
            nodes = [tf1.NodeDef(name=name) for name in names]
            self.assertEqual(step.is_in(tf1.GraphDef(node=nodes)), fits)

    def test_damaged_files_are_named(self):
        with self.assertRaisesRegex(GraphError, "holds no search that can be read"):
            read_cached_step(self.path)
        (self.path / "request.json").write_text("{")
        with self.assertRaisesRegex(ValueError, "request.json is not a JSON file"):
            self.directory.read_machine()


if __name__ == "__main__":
    tf.test.main()
