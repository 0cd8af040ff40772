"""Tests of the checks that files in a directory were written by a live search."""

from __future__ import annotations

import pathlib

import tensorflow as tf
from absl.testing import absltest

from tests import graphs
from tests.tf_placer.scripted import Script, request_directory
from tf_placer.inputs.workload import read_workload
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import optimize
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.own_files import TRAINED_BY, check_own_run, check_own_step, own_paths
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.scripts.script_run import prepare_script
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import LogError


def contents(directory: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class OwnFilesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.run_directory = RunDirectory(self.directory / "run")

    def search(self) -> None:
        workload = read_workload(graphs.two_branches().graph.as_graph_def(), "result")
        given = request_directory(self.create_tempdir().full_path, workload)
        live_run.run(given, self.run_directory, Callback(), Script().environment)

    def test_refuses_a_single_file_with_a_name_of_a_search(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        self.run_directory.path.mkdir()
        for path in own_paths(self.run_directory.path):
            path.write_text("mine")
            before = contents(self.directory)
            with self.assertRaisesRegex(LogError, f"'{path}' is there, .*: move it away"):
                optimize(graph_def, "result", machine="local:2", log_dir=self.run_directory.path)
            self.assertEqual(contents(self.directory), before)
            path.unlink()

    def test_refuses_a_foreign_file_among_those_of_a_search(self):
        self.search()
        check_own_run(self.run_directory)
        for path in own_paths(self.run_directory.path):
            # The search itself checks its result, and weights cannot be recognized.
            if path == self.run_directory.result or path.suffix in (".h5", ".npz"):
                continue
            was = path.read_bytes() if path.exists() else None
            path.write_text("mine")
            with self.assertRaisesRegex(LogError, f"'{path}' is there"):
                check_own_run(self.run_directory)
            if was is None:
                path.unlink()
            else:
                path.write_bytes(was)
        check_own_run(self.run_directory)

    def test_a_script_is_not_run_where_its_step_would_replace_files(self):
        script = self.directory / "train.py"
        script.write_text(f"open({str(self.directory / 'ran')!r}, 'w')")
        self.run_directory.path.mkdir()
        self.run_directory.graph.write_text("mine")
        settings = {"machine": "local:2", "placement": None, "search_secs": 1.0}
        with self.assertRaisesRegex(LogError, "graph.pb' is there"):
            prepare_script(str(script), (), log_dir=str(self.run_directory.path), **settings)
        self.assertEqual(contents(self.run_directory.path), {self.run_directory.graph: b"mine"})
        self.assertFalse((self.directory / "ran").exists())

    def test_accepts_a_step_that_was_written_in_part_before_a_kill(self):
        self.run_directory.path.mkdir()
        (self.run_directory.path / TRAINED_BY).write_text('["train"]\n')
        self.run_directory.graph.write_bytes(b"")
        check_own_step(self.run_directory)

    def test_outputs_in_the_directory_of_the_search_replace_none_of_its_files(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        with self.assertRaisesRegex(OSError, "it would replace another file of the command"):
            optimize(
                graph_def,
                "result",
                machine=find_machine("local:2"),
                log_dir=self.run_directory.path,
                config=SearchConfig(report=self.run_directory.path / "result.json"),
            )
        self.assertFalse(self.run_directory.path.exists())


if __name__ == "__main__":
    absltest.main()
