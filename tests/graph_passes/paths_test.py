"""Tests of the check of paths."""

from __future__ import annotations

import os
import pathlib

from absl.testing import absltest, parameterized

from graph_passes.paths import check_path


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


if __name__ == "__main__":
    absltest.main()
