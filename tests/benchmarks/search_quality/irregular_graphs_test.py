import contextlib
import io
import pathlib
import shutil
import unittest
from unittest import mock

from absl.testing import absltest

from benchmarks.search_quality import irregular_graphs
from benchmarks.search_quality.irregular_graphs import (
    Case,
    IrregularRun,
    RunFile,
    find_version,
    main,
    run_auto,
    table_of_runs,
)

ROOT = pathlib.Path(irregular_graphs.__file__).resolve().parents[2]


def make_run(method, step_secs, family="U-nets", seed=0, version="1"):
    case = Case(family, 60, seed, 10.0, 1)
    return IrregularRun(case, method, version, 60, 2, step_secs, 1000, 10.0)


def table_cells(runs):
    lines = table_of_runs({(run.case, run.method): run for run in runs}).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


class TableTest(absltest.TestCase):
    def test_ratios_are_geometric_means(self):
        cells = table_cells(
            [
                make_run("auto", 1.0),
                make_run("annealer", 2.0),
                make_run("auto", 4.0, seed=1),
                make_run("annealer", 2.0, seed=1),
                make_run("auto", 1.0, "attention"),
                make_run("annealer", 8.0, "attention"),
            ]
        )
        self.assertEqual(cells["U-nets"], ["2", "100", "1.0000", "0.5000", "2.0000", "1", "100"])
        self.assertEqual(cells["attention"][2:5], ["0.1250"] * 3)
        self.assertEqual(cells["all"], ["3", "100", "0.5000", "0.1250", "2.0000", "1", "100"])

    def test_another_checkout_has_columns_where_it_ran(self):
        runs = [make_run("auto", 1.0), make_run("annealer", 2.0)]
        other = make_run("other", 1.25)
        self.assertLen(table_cells(runs)["all"], 7)
        self.assertEqual(table_cells([*runs, other])["all"][7:10], ["0.8000"] * 3)


class RunFileTest(absltest.TestCase):
    def test_runs_are_those_that_were_added(self):
        path = pathlib.Path(self.create_tempdir().full_path, "runs.jsonl.xz")
        runs = [make_run("auto", 1.0), make_run("annealer", 2.0), make_run("auto", 3.0, seed=1)]
        kept = RunFile(path)
        for run in [make_run("auto", 9.0), *runs]:
            kept.add(run)
        self.assertCountEqual(RunFile(path).runs.values(), runs)


@unittest.skipUnless(shutil.which("g++"), "the benchmark compiles the annealer")
class MainTest(absltest.TestCase):
    def run_main(self, *flags):
        with contextlib.redirect_stdout(io.StringIO()):
            main([f"--out_dir={self.out}", "--seconds=0.2", "--sizes=20", *flags])

    def setUp(self):
        super().setUp()
        self.out = pathlib.Path(self.create_tempdir().full_path)
        # There is no Git in all test environments.
        versions = {ROOT: "1", self.out: "2"}
        self.enter_context(mock.patch.object(irregular_graphs, "find_version", versions.get))

    def test_runs_what_has_not_run(self):
        with mock.patch.object(irregular_graphs, "run_auto", wraps=run_auto) as search:
            self.run_main("--families=attention")
            self.assertEqual(search.call_count, 1)
            self.run_main("--families=attention,U-nets")
            self.assertEqual(search.call_count, 2)
            self.run_main("--only_kept")
            self.assertEqual(search.call_count, 2)
        table = (self.out / "table.md").read_text()
        self.assertIn("| attention | 1 |", table)
        self.assertIn("| all | 2 |", table)

    def test_the_other_checkout_runs_too(self):
        # A checkout is what its packages are linked to.
        for package in ("tf_placer", "graph_passes"):
            (self.out / package).symlink_to(ROOT / package)
        self.run_main("--families=attention", f"--other_checkout={self.out}")
        self.assertIn("auto / other", (self.out / "table.md").read_text())


class FindVersionTest(absltest.TestCase):
    def test_changes_of_the_search_change_the_version(self):
        with mock.patch.object(irregular_graphs.subprocess, "run") as run:
            outputs = ["", "12345678\n", "a change", "12345678\n", "another", "12345678\n"]
            run.side_effect = [mock.Mock(stdout=output) for output in outputs]
            versions = [find_version(ROOT) for _ in range(3)]
        self.assertEqual(versions[0], "12345678")
        self.assertLen(set(versions), 3)
        self.assertStartsWith(versions[1], "12345678+")


if __name__ == "__main__":
    absltest.main()
