"""Tests of the directory of a search."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from graph_passes.op_graph import OpGraph
from tests.tf_placer.scripted import confirmation, run_result, search_config
from tf_placer.confirmation.outcome import Outcome
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.inputs.workload import Workload
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.run_directory import RunDirectory, check_writable
from tf_placer.search.config import SearchConfig

_CONFIG = search_config(
    machine=find_machine("local:2,memory_mb=10"),
    placer="post",
    placer_options={"learning_rate": 0.5, "start": "original"},
    max_secs=12.5,
    session_config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=3),
)


def workload(step: Step | None = None) -> Workload:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], "x")
        tf.compat.v1.placeholder(tf.string, [1], "s")
        tf.identity(x, "train")
        tf.identity(x, "loss")
        tf.no_op("init")
    feeds = {"x:0": np.arange(6, dtype=np.float32).reshape(2, 3), "s:0": np.array([b"a"], object)}
    step = step or Step(("train", "loss:0"), feeds, ("init",))
    graph_def = graph.as_graph_def()
    return Workload(OpGraph.from_graph_def(graph_def, step.fetches, step.feeds), step)


def richer_step() -> Step:
    """Makes a step with all optional fields."""
    return Step(
        ("train",),
        initializer_feeds={"rows:0": np.ones([2, 2], np.int32)},
        queue_runners=(QueueRunner("q", ("a", "b"), "close", "cancel", (11,)),),
        restored={"w": np.arange(3.0)},
    )


class RunDirectoryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)

    def test_a_request_is_read_as_it_was_written(self):
        directory = RunDirectory(self.path / "new" / "run")
        written = workload()
        directory.write_request(written, _CONFIG)
        read, config = directory.read_request()
        self.assertEqual(config, _CONFIG)
        self.assertEqual(read.graph_def, written.graph_def)
        np.testing.assert_array_equal(read.op_graph.needed, written.op_graph.needed)
        self.assertEqual(directory.read_machine(), config.machine)
        self.assertEqual(read.step.fetches, written.step.fetches)
        self.assertEqual(read.step.initializers, written.step.initializers)
        self.assertSameElements(read.step.feeds, written.step.feeds)
        for name, value in written.step.feeds.items():
            np.testing.assert_array_equal(read.step.feeds[name], value)

    def test_optional_fields_of_a_step_are_read_as_written(self):
        written = richer_step()
        asked, directory = RunDirectory(self.path / "asked"), RunDirectory(self.path / "run")
        asked.write_request(workload(written), _CONFIG)
        read = asked.read_step()
        self.assertEqual(read.queue_runners, written.queue_runners)
        np.testing.assert_equal(dict(read.initializer_feeds), dict(written.initializer_feeds))
        np.testing.assert_equal(dict(read.restored), dict(written.restored))
        directory.take_request(asked)
        self.assertIn("initializer_feeds", os.listdir(directory.path))
        # Restored values may be as large as the model.
        self.assertNotIn("restored", os.listdir(directory.path))

    def test_a_request_of_an_earlier_version_stays_readable(self):
        directory = RunDirectory(self.path)
        directory.write_request(workload(), _CONFIG)
        path = self.path / "request.json"
        value = json.loads(path.read_text())
        for name in ("queue_runners", "command", "workers"):
            del value[name]
        path.write_text(json.dumps(value))
        read, config = directory.read_request()
        self.assertEqual(config, _CONFIG)
        self.assertIsNone(directory.read_command())
        step = read.step
        self.assertEqual(step.queue_runners, ())
        self.assertEqual((step.initializer_feeds, step.restored), ({}, {}))

    def test_reads_the_request_of_an_earlier_search(self):
        path = pathlib.Path(__file__).parent / "testdata" / "language_model"
        directory = RunDirectory(path)
        config = SearchConfig.from_json(json.loads((path / "request.json").read_text()))
        self.assertEqual(config, SearchConfig(directory.read_machine(), max_secs=560.0))
        self.assertStartsWith(directory.read_command(), "benchmarks/live/")

    def test_writing_leaves_no_temporary_files(self):
        RunDirectory(self.path).write_request(workload(), _CONFIG)
        self.assertSameElements(
            os.listdir(self.path), ["request.json", "graph.pb", "feeds", "session_config"]
        )

    def test_a_request_can_be_taken_from_another_directory(self):
        asked, directory = RunDirectory(self.path / "asked"), RunDirectory(self.path / "run")
        asked.write_request(workload(), _CONFIG)
        directory.take_request(asked)
        for path in asked.path.iterdir():
            self.assertEqual((directory.path / path.name).read_bytes(), path.read_bytes())

    def test_a_result_is_read_as_it_was_written(self):
        directory = RunDirectory(self.path)
        self.assertIsNone(directory.read_result())
        confirmed = confirmation({"auto": 1.25})
        result = run_result(Outcome.FASTER, confirmed=confirmed, winner="auto", num_trials=3)
        for written in (result, dataclasses.replace(result, max_secs=None)):
            directory.write_result(written)
            self.assertEqual(directory.read_result(), written)

    def test_refuses_an_invalid_result(self):
        directory = RunDirectory(self.path)
        directory.write_result(run_result(Outcome.NOT_FASTER))
        written = json.loads(directory.result.read_text())
        for changes, wrong in (
            ({"outcome": "fast"}, 'outcome is "fast": it must be '),
            ({"outcome": "faster"}, "'outcome' and 'winner' do not agree"),
            ({"outcome": "faster", "winner": "x"}, "'winner' is \"x\", which was not confirmed"),
            ({"num_trials": -1}, "num_trials is -1: it must be a whole number"),
            ({"finalists": [1]}, "finalists is a list: it must be an object"),
            ({"confirmation": 7}, "confirmation is 7: it must be an object"),
        ):
            directory.result.write_text(json.dumps({**written, **changes}))
            with self.assertRaises(ValueError) as raised:
                directory.read_result()
            self.assertStartsWith(
                str(raised.exception), f"{directory.result} is not the result of a search: {wrong}"
            )
        del written["winner"]
        for text, wrong in (
            (json.dumps(written), 'is not the result of a search: it has no entry "winner"'),
            ("[" * 100_000, "is not a JSON file: it is nested too deeply"),
            ("7", "is not the result of a search: it is 7: it must be an object"),
        ):
            directory.result.write_text(text)
            with self.assertRaisesRegex(ValueError, f"^{directory.result} {wrong}$"):
                directory.read_result()

    def test_refuses_an_invalid_request(self):
        directory = RunDirectory(self.path)
        directory.write_request(workload(), _CONFIG)
        path = directory.path / "request.json"
        value = json.loads(path.read_text())
        for changes, wrong in (
            ({"seed": "x"}, 'seed is "x": it must be a whole number from 0 on'),
            ({"machine": None}, "machine is null: it must be an object"),
            ({"fetches": "loss"}, 'fetches is "loss": it must be a list'),
        ):
            path.write_text(json.dumps({**value, **changes}))
            for read in (directory.read_request, directory.read_machine, directory.read_step):
                with self.assertRaises(ValueError) as raised:
                    read()
                self.assertEqual(
                    str(raised.exception), f"{path} is not what a search was asked: {wrong}"
                )

    def test_reads_machine_and_step_of_a_request_of_a_later_version(self):
        directory = RunDirectory(self.path)
        directory.write_request(workload(), _CONFIG)
        path = directory.path / "request.json"
        value = json.loads(path.read_text())
        path.write_text(json.dumps({**value, "placer": "of_a_later_version"}))
        self.assertEqual(directory.read_machine(), _CONFIG.machine)
        self.assertEqual(directory.read_step().fetches, ("train", "loss:0"))
        with self.assertRaisesRegex(ValueError, "request.json is not .*'of_a_later_version'"):
            directory.read_request()

    def test_the_path_does_not_depend_on_the_working_directory(self):
        self.assertTrue(RunDirectory("runs/a").path.is_absolute())


class CheckWritableTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)

    def test_accepts_a_missing_directory_without_creating_it(self):
        check_writable(self.path / "a" / "b")
        self.assertEqual(os.listdir(self.path), [])

    def test_refuses_a_path_below_a_file(self):
        file = self.path / "file"
        file.touch()
        with self.assertRaisesRegex(OSError, f"'{file}/a/b': '{file}' is not a directory"):
            check_writable(file / "a" / "b")
        with self.assertRaisesRegex(OSError, f"'{file}' is not a directory"):
            check_writable(str(file))

    def test_refuses_a_read_only_directory(self):
        os.chmod(self.path, 0o555)
        if os.access(self.path, os.W_OK):
            self.skipTest("this user may write everywhere")
        with self.assertRaisesRegex(OSError, "takes no files"):
            check_writable(self.path / "a")


if __name__ == "__main__":
    absltest.main()
