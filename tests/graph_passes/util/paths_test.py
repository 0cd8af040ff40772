"""Tests of the check of paths."""

from __future__ import annotations

import os
import pathlib

from absl.testing import absltest, parameterized

from graph_passes.util.paths import check_path


class PathsTest(parameterized.TestCase):
    @parameterized.parameters("a", "/x/ä\n", pathlib.Path("a"), os.fsdecode(b"\xff"), "-")
    def test_what_the_system_takes_is_a_path(self, path):
        check_path(path, "report", "file")

    @parameterized.parameters(
        (7,), (None,), (b"a",), ("",), ("a\0b",), ("a\ud800",), (True,), (object(),), ("x" * 5000,)
    )
    def test_anything_else_is_refused(self, path):
        with self.assertRaisesRegex(ValueError, "^report is the path of a file, not .{1,80}$"):
            check_path(path, "report", "file")

    def test_in_a_deleted_directory_only_whole_paths_are_paths(self):
        self.addCleanup(os.chdir, os.getcwd())
        gone = self.create_tempdir().full_path
        os.chdir(gone)
        os.rmdir(gone)
        check_path("/a", "report", "file")
        with self.assertRaisesRegex(
            ValueError, '^report "a" is a path in the working directory, which has been deleted: '
        ):
            check_path("a", "report", "file")


if __name__ == "__main__":
    absltest.main()
