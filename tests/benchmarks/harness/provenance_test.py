"""Tests of what is told about what made a result."""

from __future__ import annotations

import subprocess
from unittest import mock

from absl.testing import absltest

from benchmarks.harness import provenance as module


class ProvenanceTest(absltest.TestCase):
    def test_without_a_repository_the_commit_is_unknown(self):
        error = subprocess.CalledProcessError(128, "git")
        with mock.patch.object(module.subprocess, "run", side_effect=error):
            self.assertEqual(module.commit(), "")

    def test_a_tree_that_differs_from_its_commit_has_a_mark(self):
        for changes, expected in (("", "abc"), (" M file", "abc+")):
            outputs = [mock.Mock(stdout="abc\n"), mock.Mock(stdout=changes)]
            with mock.patch.object(module.subprocess, "run", side_effect=outputs):
                self.assertEqual(module.commit(), expected)


if __name__ == "__main__":
    absltest.main()
