"""Tests of answers that are kept from one call of `optimize` to the next, with scripted steps."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.placement import read_placement
from tests.graph_parts import new_graph
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, uses_two_devices
from tf_placer.confirmation.outcome import Outcome
from tf_placer.errors import NoAnswerError
from tf_placer.live import optimization
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import optimize, optimize_function, optimize_model
from tf_placer.runs.answer_store import AnswerStore
from tf_placer.runs.result_values import read_result_values
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.search_description import describe_search
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import LogMismatchError
from tf_placer.search.trial_log import read_log

tf1 = tf.compat.v1


def build(prefix: str = "", depth: int = 4, transposed: bool = False) -> tf.Graph:
    """Builds two chains of products of different data."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [3, 3], name=f"{prefix}x")
        ends = []
        for tower in range(2):
            value = x + float(tower)
            for k in range(depth):
                value = tf.matmul(
                    value, value, transpose_a=transposed, name=f"{prefix}t{tower}_{k}"
                )
            ends.append(tf.reduce_sum(value))
        tf.add_n(ends, name=f"{prefix}loss")
    return graph


def split_is_faster(assignment) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


class KeptAnswersTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.script = Script(secs=split_is_faster)
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.answers = self.directory / "answers"
        self.searches = 0
        cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache}))
        self.enter_context(mock.patch.object(optimization, "run_search", self.search_here))

    def search_here(self, directory, given, callback, start_secs, host, forks, max_secs):
        del host, forks, max_secs
        self.searches += 1
        return live_run.run(
            RunDirectory(given),
            directory,
            callback,
            self.script.environment,
            start_secs=start_secs,
        )

    def optimize(self, graph: tf.Graph, prefix: str = "", **settings):
        settings = {"machine": "local:2", "placer": "random", "max_trials": 10, **settings}
        config = SearchConfig(**{"answers": self.answers, **settings})
        feeds = {f"{prefix}x:0": np.ones([3, 3], np.float32)}
        return optimize(graph, [f"{prefix}loss:0"], feeds, config=config, verbose=False)

    def test_the_same_step_with_other_names_is_answered_without_a_search(self):
        first = self.optimize(build())
        self.assertIsNone(first.kept)
        graph = build("z/")
        second = self.optimize(graph, "z/")
        self.assertEqual(self.searches, 1)
        self.assertTrue(second.changed)
        self.assertRegex(second.reason, r"2.00 times as fast.*\. Kept answer of .*, not measured")
        self.assertRegex(second.kept, r"^\d{4}-\d\d-\d\d$")
        self.assertEqual(second.to_json()["kept"], second.kept)
        self.assertEqual((second.speedup, second.winner), (first.speedup, first.winner))
        self.assertEqual(second.table(), first.table())
        self.assertIsNone(second.log_dir)
        # The graph was annotated like the first one.
        devices = {op.name: op.device for op in graph.get_operations() if op.device}
        self.assertEqual(devices, dict(second.placement.assignment))
        expected = {f"z/{name}": device for name, device in first.placement.assignment.items()}
        for name in ("z/t0_0", "z/t1_0", "z/t1_3", "z/loss"):
            self.assertEqual(devices[name], expected[name], name)

    def test_models_and_functions_that_are_built_again_are_answered(self):
        x, y = np.ones([4, 3], np.float32), np.ones([4, 2], np.float32)

        def make_model(units: int = 5) -> tf.keras.Model:
            inputs = tf.keras.Input([3])
            towers = [tf.keras.layers.Dense(units)(inputs) for _ in range(2)]
            outputs = tf.keras.layers.Dense(2)(tf.keras.layers.add(towers))
            model = tf.keras.Model(inputs, outputs)
            model.compile("adam", "mse")
            return model

        def make_function(number: int):
            weights = tf.Variable(np.ones([3, 3], np.float32), name=f"weights_{number}")

            @tf.function(autograph=False)
            def train(values):
                with tf.GradientTape() as tape:
                    product = tf.matmul(values, weights, name=f"product_{number}")
                    loss = tf.reduce_sum(product**2) + tf.reduce_sum(tf.sin(values))
                weights.assign_sub(0.1 * number * tape.gradient(loss, weights))
                return loss

            return train

        config = SearchConfig("local:2", "random", max_trials=10, answers=self.answers)
        for number in (1, 2):
            model = optimize_model(make_model(), (x, y), config=config, verbose=False)
            function = optimize_function(make_function(number), (x,), config=config, verbose=False)
            for result in (model, function):
                self.assertEqual(result.kept is not None, number == 2)
                self.assertEqual(result.step.placement, result.placement)
                self.assertTrue(result.changed)
        self.assertEqual(self.searches, 2)
        required = dataclasses.replace(config, require_answer=True)
        with self.assertRaises(NoAnswerError):
            optimize_model(make_model(units=6), (x, y), config=required, verbose=False)

    def test_a_log_answers_and_resumes_for_the_same_step_with_other_names(self):
        log_dir = self.directory / "run"
        first = self.optimize(build(), log_dir=log_dir, answers=None)
        graph = build("z/")
        result = self.optimize(graph, "z/", log_dir=log_dir, answers=None)
        self.assertEqual(self.searches, 1)
        self.assertEqual((result.speedup, result.trials), (first.speedup, first.trials))
        expected = {f"z/{name}": device for name, device in first.placement.assignment.items()}
        for name in ("z/t0_0", "z/t1_0", "z/t1_3", "z/loss"):
            self.assertEqual(graph.get_operation_by_name(name).device, expected[name])
            self.assertEqual(result.placement.assignment[name], expected[name])
        # With more trials the search resumes, and its files keep their names.
        more = self.optimize(build("y/"), "y/", log_dir=log_dir, max_trials=12)
        self.assertEqual(self.searches, 2)
        self.assertEqual(more.trials[: len(first.trials)], first.trials)
        self.assertLen(more.trials, 12)
        self.assertIn("y/loss", more.placement.assignment)
        self.assertEqual({n.name for n in more.graph_def.node if n.name == "y/loss"}, {"y/loss"})
        self.assertIn("loss", read_placement(log_dir / "placement.json").assignment)
        # The store of answers was filled under the names of the log.
        kept = self.optimize(build("x/"), "x/", max_trials=12)
        self.assertIsNotNone(kept.kept)
        self.assertEqual(kept.placement.assignment["x/t1_3"], more.placement.assignment["y/t1_3"])
        # Another step does not.
        with self.assertRaisesRegex(LogMismatchError, "a log of another graph"):
            self.optimize(build("z/", depth=5), "z/", log_dir=log_dir)

    def test_nothing_is_kept_or_looked_up_by_default(self):
        self.optimize(build(), answers=None)
        self.optimize(build(), answers=None)
        self.assertEqual(self.searches, 2)
        self.assertEmpty(list(pathlib.Path(os.environ["XDG_CACHE_HOME"]).glob("*/answers/*")))

    def test_an_unchanged_graph_is_an_answer(self):
        self.script.secs = lambda assignment: ORIGINAL_SECS
        self.optimize(build())
        result = self.optimize(build("z/"), "z/")
        self.assertEqual(self.searches, 1)
        self.assertFalse(result.changed)
        self.assertRegex(result.reason, "no placement is faster.*Kept answer of")
        # More time may find more.
        self.optimize(build(), max_trials=11)
        self.assertEqual(self.searches, 2)

    def test_a_required_answer_that_is_missing_is_an_error(self):
        with self.assertRaisesRegex(NoAnswerError, "^there is no directory .*answers, which would"):
            self.optimize(build(), require_answer=True)
        self.answers.mkdir()
        with self.assertRaisesRegex(NoAnswerError, "has no answer for this step on this machine"):
            self.optimize(build(), require_answer=True)
        self.assertEqual(self.searches, 0)
        self.optimize(build())
        self.assertTrue(self.optimize(build("z/"), "z/", require_answer=True).changed)
        with self.assertRaisesRegex(NoAnswerError, "is not kept$"):
            self.optimize(build(depth=5), require_answer=True)
        # The fetches of these steps are the same, and their operations are not.
        for graph, differs in (
            (build(depth=3), "It has one for a step of 17 operations where this one has 15$"),
            (build(transposed=True), "It has one for a step of as many operations, 17, of which"),
        ):
            with self.assertRaisesRegex(NoAnswerError, differs):
                self.optimize(graph, require_answer=True)
        # The operation of a tensor is another fetch than the tensor.
        config = SearchConfig("local:2", answers=self.answers, require_answer=True)
        feeds = {"x:0": np.ones([3, 3], np.float32)}
        with self.assertRaisesRegex(NoAnswerError, "It has one for a step with 100% of these oper"):
            optimize(build(), ["loss"], feeds, config=config, verbose=False)
        # Without a store, that of the user is meant.
        with self.assertRaisesRegex(NoAnswerError, os.environ["XDG_CACHE_HOME"]):
            self.optimize(build(), answers=None, require_answer=True)

    def test_says_that_the_store_has_an_answer_for_another_batch_size(self):
        config = SearchConfig("local:2", "random", max_trials=10, answers=self.answers)

        def search(size: int | None, batch: int, **changes) -> str:
            with new_graph() as graph:
                x = tf1.placeholder(tf.float32, [size, 3], name="x")
                ends = [tf.reduce_sum(tf.matmul(x + float(k), x, transpose_a=True)) for k in (0, 1)]
                tf.add_n(ends, name="loss")
            changed = dataclasses.replace(config, **changes)
            feeds = {"x:0": np.ones([batch, 3], np.float32)}
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                optimize(graph, ["loss:0"], feeds, config=changed)
            return errors.getvalue()

        for size in (None, 4):
            text = "with a batch of 4 where this one has 8: an answer is for one batch size"
            self.assertNotIn("a batch of", search(size, 4))
            other = None if size is None else 8
            with self.assertRaisesRegex(NoAnswerError, f"no answer for this .*{text}$"):
                search(other, 8, require_answer=True)
            self.assertRegex(search(other, 8), f"no answer for this step .*{text}\n")
            for file in self.answers.iterdir():
                file.unlink()

    def test_says_that_a_search_without_a_verdict_keeps_no_answer(self):
        config = SearchConfig("local:2", "random", max_trials=10, answers=self.answers)
        with (
            mock.patch.object(AnswerStore, "keep", return_value=False),
            mock.patch.object(Outcome, "is_verdict", False),
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            feeds = {"x:0": np.ones([3, 3], np.float32)}
            result = optimize(build(), ["loss:0"], feeds, config=config)
        self.assertIn("no answer is kept", errors.getvalue())
        self.assertIs(result.to_json()["answer_kept"], False)

    def test_tells_programs_of_answers_that_are_kept_and_used(self):
        for answers, kept, answer_kept in (
            (None, False, None),
            (self.answers, False, True),
            (self.answers, True, True),
        ):
            values = self.optimize(build(), answers=answers).to_json()
            self.assertEqual(values["kept"] is not None, kept)
            self.assertEqual(values["answer_kept"], answer_kept)
            self.assertEqual((values["outcome"], values["has_verdict"]), ("faster", True))
        log_dir = self.directory / "run"
        values = self.optimize(build(), log_dir=log_dir).to_json()
        written = read_result_values(RunDirectory(log_dir))
        self.assertEqual((written["kept"], written["answer_kept"]), (values["kept"], True))
        self.assertEqual(written["placement"], str(log_dir / "placement.json"))

    def test_a_graph_without_a_choice_needs_no_answer(self):
        with new_graph() as graph, tf.device("/device:CPU:0"):
            x = tf1.placeholder(tf.float32, [3, 3], name="x")
            tf.reduce_sum(tf.matmul(x, x), name="loss")
        result = self.optimize(graph, require_answer=True)
        self.assertIn("there is nothing to place", result.reason)

    def test_a_step_that_calls_python_has_no_answer(self):
        with new_graph() as graph:
            x = tf1.placeholder(tf.float32, [3, 3], name="x")
            value = tf.matmul(x, tf.numpy_function(np.tanh, [x], tf.float32))
            tf.reduce_sum(value, name="loss")
        devices = tuple(self.two_cpus().devices)
        self.assertLen(devices, 2)
        with self.assertRaisesRegex(NoAnswerError, "calls a Python function"):
            self.optimize(graph, machine=self.two_cpus(), require_answer=True)

    def two_cpus(self):
        from tf_placer.machines.machine import Device, Machine

        names = (f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in range(2))
        return Machine("attached", "attached", tuple(Device(name, "CPU") for name in names))

    def test_a_new_log_dir_gets_the_answer_and_an_old_one_resumes(self):
        self.optimize(build(), log_dir=self.directory / "first")
        result = self.optimize(build("z/"), "z/", log_dir=self.directory / "second")
        self.assertEqual(self.searches, 1)
        written = RunDirectory(self.directory / "second")
        self.assertIn("ept answer of", written.read_result().note)
        self.assertTrue(written.placement.exists())
        text, values = describe_search(str(written.path))
        self.assertStartsWith(text, "the answer of an earlier search, without its trials")
        self.assertTrue(values["verdict"]["placed"])
        self.assertEqual(result.reason, self.optimize(build("z/"), "z/").reason)
        # The same search has ended in this directory, so it answers.
        self.assertIsNone(self.optimize(build(), log_dir=self.directory / "first").kept)
        # More trials resume the search of the directory.
        more = self.optimize(build(), log_dir=self.directory / "first", max_trials=12)
        self.assertLen(more.trials, 12)
        self.assertEqual(self.searches, 2)

    def test_another_store_gets_the_answer_of_a_search_that_has_ended(self):
        log_dir = self.directory / "run"
        self.optimize(build(), log_dir=log_dir)
        other = self.directory / "other"
        for answers in (self.answers, other):
            self.optimize(build(), log_dir=log_dir, answers=answers)
            result = RunDirectory(log_dir).read_result()
            self.assertEqual((result.answer_kept, result.answer_store), (True, str(answers)))
            self.assertLen(list(answers.iterdir()), 1)
        self.assertIsNotNone(self.optimize(build("z/"), "z/", answers=other).kept)
        self.assertEqual(self.searches, 1)

    def test_a_directory_with_a_kept_answer_may_be_searched_later(self):
        self.optimize(build())
        log_dir = self.directory / "run"
        self.optimize(build(), log_dir=log_dir)
        result = self.optimize(build(), answers=None, log_dir=log_dir)
        self.assertEqual(self.searches, 2)
        self.assertIsNone(result.kept)
        self.assertNotIn("kept answer", result.reason)

    def test_tries_the_placement_of_a_similar_step_first(self):
        first = self.optimize(build())
        num_measured = len(self.script.placed)
        log_dir = self.directory / "run"
        deeper = self.optimize(build(depth=5), log_dir=log_dir)
        self.assertEqual(self.searches, 2)
        self.assertIsNone(deeper.kept)
        _, trials = read_log(log_dir / "trials.jsonl")
        self.assertEqual([each.placer for each in trials[:2]], ["original", "earlier_answer"])
        tried = self.script.placed[num_measured]
        for name in ("t0_0", "t1_0", "t1_3"):
            self.assertEqual(tried[name], first.placement.assignment[name], name)
        self.assertIn("earlier_answer", deeper.finalists)

    def test_a_search_with_an_earlier_answer_resumes_without_the_store(self):
        self.optimize(build())
        log_dir = self.directory / "run"
        self.optimize(build(depth=5), log_dir=log_dir, max_trials=4)
        _, before = read_log(log_dir / "trials.jsonl")
        result = self.optimize(build(depth=5), log_dir=log_dir, max_trials=9, answers=None)
        self.assertLen(result.trials, 9)
        self.assertEqual(result.trials[:4], before)

    def test_says_that_a_kept_answer_has_no_report(self):
        self.optimize(build())
        config = SearchConfig(
            "local:2", answers=self.answers, tensorboard=self.directory / "tensorboard"
        )
        feeds = {"x:0": np.ones([3, 3], np.float32)}
        with contextlib.redirect_stderr(io.StringIO()) as lines:
            optimize(build(), ["loss:0"], feeds, config=config)
        self.assertIn("no trials to draw", lines.getvalue())
        self.assertFalse((self.directory / "tensorboard").exists())


if __name__ == "__main__":
    tf.test.main()
