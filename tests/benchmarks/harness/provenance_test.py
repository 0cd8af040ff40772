"""Tests of what is told about what made a result."""

from __future__ import annotations

import subprocess
from unittest import mock

from absl.testing import absltest

import tf_placer
from benchmarks.harness import provenance as module
from benchmarks.harness.provenance import package_versions, provenance, provenance_line


class ProvenanceTest(absltest.TestCase):
    def test_versions_are_those_that_are_installed(self):
        versions = package_versions()
        self.assertEqual(versions["tf_placer"], tf_placer.__version__)
        self.assertContainsSubset(["python", "numpy"], versions)

    def test_without_a_repository_the_commit_is_unknown(self):
        error = subprocess.CalledProcessError(128, "git")
        with mock.patch.object(module.subprocess, "run", side_effect=error):
            made_by = provenance()
        self.assertEqual(made_by["commit"], "")
        self.assertIn("at commit unknown", provenance_line(made_by, "60 s", [0]))

    def test_a_tree_that_differs_from_its_commit_has_a_mark(self):
        for changes, expected in (("", "abc"), (" M file", "abc+")):
            outputs = [mock.Mock(stdout="abc\n"), mock.Mock(stdout=changes)]
            with mock.patch.object(module.subprocess, "run", side_effect=outputs):
                self.assertEqual(module.commit(), expected)

    def test_the_line_has_command_budget_and_seeds(self):
        program = mock.Mock(__spec__=mock.Mock())
        program.__spec__.name = "benchmarks.paper_tables.tables"
        with (
            mock.patch.object(module.sys, "argv", ["x", "--quick"]),
            mock.patch.dict(module.sys.modules, {"__main__": program}),
        ):
            line = provenance_line(provenance(), "60 s", [0, 1])
        self.assertIn("`python -m benchmarks.paper_tables.tables --quick`", line)
        self.assertIn("Budget of each run: 60 s; seeds: 0, 1", line)


if __name__ == "__main__":
    absltest.main()
