"""Tests of the benchmark of the page about a search, on a small problem."""

from __future__ import annotations

import pathlib
import unittest

from absl.testing import absltest

from benchmarks.speed import report_page
from tf_placer.report.page.page import require_page_libraries
from tf_placer.runs.run_page import read_run_view


class ReportPageTest(absltest.TestCase):
    def test_a_page_of_a_model_that_is_unrolled(self):
        try:
            require_page_libraries()
        except ImportError as error:
            raise unittest.SkipTest(str(error)) from error
        directory = pathlib.Path(self.create_tempdir().full_path)
        problem = report_page.layered_lstm(1000)
        self.assertBetween(problem.num_operations, 900, 1300)
        self.assertEqual(set(problem.layers), set(range(8)))
        report_page.write_plan(problem, directory)
        view = read_run_view(directory)
        self.assertLen(view.steps, 2)
        self.assertLen(set(view.steps[-1].trace.operation_devices), 4)
        self.assertGreater(report_page.page_secs(directory, directory / "page.html"), 0.0)
        self.assertIn("<svg", (directory / "page.html").read_text())


if __name__ == "__main__":
    absltest.main()
