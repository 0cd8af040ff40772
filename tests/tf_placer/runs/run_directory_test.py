"""Tests of the directory of a search."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import numpy as np
from absl.testing import absltest

from tests.tf_placer.scripted import confirmation, run_result
from tf_placer.confirmation.outcome import Outcome
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.run_directory import Request, RunDirectory, check_writable


def request(**changes) -> Request:
    feeds = {"x:0": np.arange(6, dtype=np.float32).reshape(2, 3), "s:0": np.array([b"a"], object)}
    values = {
        "step": Step(("train", "loss:0"), feeds, ("init",)),
        "machine": find_machine("local:2,memory_mb=10"),
        "placer": "random",
        "placer_options": {"a": 1.5, "b": "c"},
        "max_trials": 7,
        "max_secs": 12.5,
        "seed": 3,
    }
    return Request(**{**values, **changes})


def richer_step() -> Step:
    """One that uses all that a step may have."""
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
        directory.write_request(request(), b"graph", b"config")
        read, config = directory.read_request()
        self.assertEqual(config, b"config")
        self.assertEqual(directory.graph.read_bytes(), b"graph")
        written = request()
        self.assertEqual(read.step.fetches, written.step.fetches)
        self.assertEqual(read.step.initializers, written.step.initializers)
        self.assertSameElements(read.step.feeds, written.step.feeds)
        for name, value in written.step.feeds.items():
            np.testing.assert_array_equal(read.step.feeds[name], value)
        for name in ("machine", "placer", "placer_options", "max_trials", "max_secs", "seed"):
            self.assertEqual(getattr(read, name), getattr(written, name), name)

    def test_what_few_steps_have_is_read_as_it_was_written(self):
        written = richer_step()
        asked, directory = RunDirectory(self.path / "asked"), RunDirectory(self.path / "run")
        asked.write_request(request(step=written), b"graph", b"config")
        read = asked.read_request()[0].step
        self.assertEqual(read.queue_runners, written.queue_runners)
        np.testing.assert_equal(dict(read.initializer_feeds), dict(written.initializer_feeds))
        np.testing.assert_equal(dict(read.restored), dict(written.restored))
        directory.take_request(asked)
        self.assertIn("initializer_feeds", os.listdir(directory.path))
        # They may be as large as the model.
        self.assertNotIn("restored", os.listdir(directory.path))

    def test_a_request_of_an_earlier_version_stays_readable(self):
        directory = RunDirectory(self.path)
        directory.write_request(request(), b"graph", b"config")
        path = self.path / "request.json"
        value = json.loads(path.read_text())
        del value["queue_runners"]
        path.write_text(json.dumps(value))
        step = directory.read_request()[0].step
        self.assertEqual(step.queue_runners, ())
        self.assertEqual((step.initializer_feeds, step.restored), ({}, {}))

    def test_writing_leaves_no_temporary_files(self):
        RunDirectory(self.path).write_request(request(), b"graph", b"config")
        self.assertSameElements(
            os.listdir(self.path), ["request.json", "graph.pb", "feeds", "session_config"]
        )

    def test_a_request_can_be_taken_from_another_directory(self):
        asked, directory = RunDirectory(self.path / "asked"), RunDirectory(self.path / "run")
        asked.write_request(request(), b"graph", b"config")
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

    def test_a_result_that_is_none_is_said_to_be(self):
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

    def test_a_request_that_is_none_is_said_to_be(self):
        directory = RunDirectory(self.path)
        directory.write_request(request(), b"graph", b"config")
        path = directory.path / "request.json"
        value = json.loads(path.read_text())
        for changes, wrong in (
            ({"seed": "x"}, 'seed is "x": it must be a whole number from 0 on'),
            ({"machine": None}, "machine is null: it must be an object"),
            ({"fetches": "loss"}, 'fetches is "loss": it must be a list'),
        ):
            path.write_text(json.dumps({**value, **changes}))
            for read in (directory.read_request, directory.read_machine, directory.read_command):
                with self.assertRaises(ValueError) as raised:
                    read()
                self.assertEqual(
                    str(raised.exception), f"{path} is not what a search was asked: {wrong}"
                )

    def test_the_path_does_not_depend_on_the_working_directory(self):
        self.assertTrue(RunDirectory("runs/a").path.is_absolute())


class CheckWritableTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)

    def test_a_directory_that_can_be_made_is_fine_and_not_made(self):
        check_writable(self.path / "a" / "b")
        self.assertEqual(os.listdir(self.path), [])

    def test_a_path_below_a_file_is_named(self):
        file = self.path / "file"
        file.touch()
        with self.assertRaisesRegex(OSError, f"'{file}/a/b': '{file}' is not a directory"):
            check_writable(file / "a" / "b")
        with self.assertRaisesRegex(OSError, f"'{file}' is not a directory"):
            check_writable(str(file))

    def test_a_read_only_directory_is_named(self):
        os.chmod(self.path, 0o555)
        if os.access(self.path, os.W_OK):
            self.skipTest("this user may write everywhere")
        with self.assertRaisesRegex(OSError, "takes no files"):
            check_writable(self.path / "a")


if __name__ == "__main__":
    absltest.main()
