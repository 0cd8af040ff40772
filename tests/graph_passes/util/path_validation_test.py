"""Tests of the check of paths."""

from __future__ import annotations

import os
import pathlib

from absl.testing import absltest, parameterized

from graph_passes.util.path_validation import check_path


class PathsTest(parameterized.TestCase):
    @parameterized.parameters("a", "/x/ä\n", pathlib.Path("a"), os.fsdecode(b"\xff"), "-")
    def test_accepts_paths(self, path):
        check_path(path, "report", "file")

    @parameterized.parameters(
        (7,), (None,), (b"a",), ("",), ("a\0b",), ("a\ud800",), (True,), (object(),), ("x" * 5000,)
    )
    def test_rejects_other_values(self, path):
        with self.assertRaisesRegex(ValueError, "^report is the path of a file, not .{1,80}$"):
            check_path(path, "report", "file")

    def test_rejects_relative_paths_in_a_deleted_directory(self):
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
