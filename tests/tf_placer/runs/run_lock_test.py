"""Tests of searches that notice each other on one computer."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import time
from unittest import mock

from absl.testing import absltest

from tf_placer.runs import run_lock
from tf_placer.runs.run_lock import RunLock


class RunLockTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(self.create_tempdir().full_path)
        self.enterContext(mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.cache)))
        self.directory = self.cache / "tf_placer/searches"
        self.lines: dict[str, list[str]] = {}

    def search(self, name: str, **options) -> contextlib.AbstractContextManager[RunLock]:
        return RunLock(f"runs/{name}", self.lines.setdefault(name, []).append, **options)

    def test_a_single_search_reports_nothing_and_leaves_no_file(self):
        with self.search("a") as a:
            a.look()
            [path] = self.directory.iterdir()
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(self.directory.stat().st_mode), 0o700)
        self.assertEmpty(self.lines["a"])
        self.assertIsNone(a.note)
        self.assertEmpty(list(self.directory.iterdir()))

    def test_two_searches_report_each_other_once(self):
        with self.search("a") as a:
            with self.search("b") as b:
                for _ in range(2):
                    a.look()
                    b.look()
                for own, other in (("a", "b"), ("b", "a")):
                    self.assertLen(self.lines[own], 1)
                    self.assertStartsWith(
                        self.lines[own][0],
                        f"another search runs on this computer (process {os.getpid()}, log in "
                        f"runs/{other}): the times of both suffer",
                    )
            with self.search("c"):
                a.look()
            # One line is enough, however many there are.
            self.assertLen(self.lines["a"], 1)
        # The note stays after the other search has ended.
        self.assertIn("another search ran on this computer", a.note)

    def test_ignores_a_search_without_a_process_and_removes_its_file(self):
        self.directory.mkdir(parents=True)
        (self.directory / "killed").write_text('{"process": 1, "log_dir": "x", "computer": "y"}')
        (self.directory / "new_old").write_text("")
        os.utime(self.directory / "new_old", (0, time.time() - 3600))
        (self.directory / "new_young").write_text("")
        with self.search("a"):
            self.assertFalse((self.directory / "killed").exists())
            self.assertFalse((self.directory / "new_old").exists())
            self.assertTrue((self.directory / "new_young").exists())
        self.assertEmpty(self.lines["a"])

    def test_ignores_searches_of_another_computer_with_the_same_home(self):
        with mock.patch.object(run_lock, "_identify_computer", lambda: "elsewhere"):
            far = self.enterContext(self.search("far"))
        with self.search("a") as a:
            far.look()
            a.look()
            self.assertEmpty(self.lines["a"] + self.lines["far"])

    def test_ignores_searches_that_measure_elsewhere(self):
        with self.search("a") as a, self.search("b", is_here=False) as b:
            a.look()
            b.look()
            self.assertEmpty(self.lines["a"] + self.lines["b"])

    def test_reports_nothing_if_the_file_cannot_be_written(self):
        self.cache.joinpath("tf_placer").write_text("in the way")
        with self.search("a") as a:
            a.look()
        self.assertEmpty(self.lines["a"])

    def test_keeps_files_of_other_programs(self):
        (self.directory / "folder").mkdir(parents=True)
        self.enterContext(self.search("b"))
        [path] = [each for each in self.directory.iterdir() if each.is_file()]
        path.write_text("not JSON")
        with self.search("a"):
            self.assertEmpty(self.lines["a"])


if __name__ == "__main__":
    absltest.main()
