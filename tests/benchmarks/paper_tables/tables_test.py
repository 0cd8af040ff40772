"""Tests of what the commands run and write."""

from __future__ import annotations

import contextlib
import io
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.comparison import comparison
from benchmarks.harness import kept_runs
from benchmarks.harness.kept_runs import KeptRuns
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.paper_tables import count_table, tables
from benchmarks.paper_tables.published_tables import TABLES
from benchmarks.problems import export as export_problems
from benchmarks.problems.paper import ProblemKey, write_parts
from benchmarks.problems.small import SMALL_PROBLEMS
from tests.benchmarks.made_up_runs import failed_run, run
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices


def _made_up(keys, budget, runs_dir, **settings):
    """Runs of which every other one fails."""
    runs = {
        key: run(key, 0.5, budget) if number % 2 else failed_run(key, "not installed")
        for number, key in enumerate(dict.fromkeys(keys))
    }
    for each in runs.values():
        settings.get("ended", lambda run: None)(each)
    return runs


class CommandsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def write_problems(self, keys):
        problem = SMALL_PROBLEMS["chain"]
        groups, legal = group_graph(problem), legal_devices(problem)
        for key in keys:
            write_parts(
                key, self.folder / "problems", groups, legal, problem, num_graph_operations=9
            )

    def call(self, module, *arguments):
        """Calls the command of a module; what it prints, and its status."""
        flags = [f"--runs_dir={self.folder}", f"--out_dir={self.folder / 'out'}", *arguments]
        printed, status = io.StringIO(), 0
        with (
            mock.patch.object(sys, "argv", ["command", *flags]),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            try:
                module.main()
            except SystemExit as exit:
                status = exit.code
        return printed.getvalue(), status

    def test_tables_are_written(self):
        with mock.patch.object(kept_runs, "run_all", _made_up):
            text, status = self.call(tables, "--tables=post_1,eagle_4", "--seeds=0,1")
        self.assertEqual(status, 0)
        self.assertIn("# Post, table 1", text)
        written = {path.name for path in (self.folder / "out").iterdir()}
        for name in ("post_1", "eagle_4"):
            self.assertContainsSubset([f"{name}.md", f"{name}.csv"], written)
        self.assertIn("provenance.json", written)
        page = (self.folder / "out" / "eagle_4.md").read_text()
        self.assertIn("--tables=post_1,eagle_4", page)
        self.assertIn("seeds: 0, 1", page)

    def test_tables_go_on_from_what_is_kept_beside_them(self):
        with mock.patch.object(kept_runs, "run_all", side_effect=_made_up) as run_all:
            self.call(tables, "--tables=colocrl_large")
            wanted = run_all.call_args.args[0]
            self.call(tables, "--tables=colocrl_large")
            again = run_all.call_args.args[0]
        self.assertEqual(again, wanted[::2])  # every other one had failed

    def test_counts_stand_beside_those_of_the_paper(self):
        keys = [ProblemKey(m, "4xK80", small=True) for m in ("rnnlm_2", "nmt_2", "inception_v3")]
        self.write_problems(keys)
        page = count_table.write_count_table(self.folder, self.folder / "problems", True, "made")
        self.assertIn("| NMT | 22097 | 9 | 8 | 280 | 8 |", page)
        self.assertEqual((self.folder / "colocrl_1.md").read_text(), page + "\n")

    def test_the_table_of_counts_needs_no_runs(self):
        with mock.patch.object(tables, "write_count_table", return_value="counted"):
            text, status = self.call(tables, "--tables=colocrl_1")
        self.assertEqual((text, status), ("counted\n", 0))

    def test_a_quick_table_has_the_first_models_once(self):
        quick = tables.quick_table(TABLES["colocrl_2"])
        self.assertEqual([row.model for row in quick.rows], ["rnnlm_2", "nmt_2"])

    def test_only_random_placers_run_with_all_seeds(self):
        table = TABLES["post_1"]
        runs = {
            column.title: tables.row_keys(table.rows[0], column, [3, 4], True)
            for column in table.columns
        }
        self.assertEqual([key.seed for key in runs["Post"]], [3, 4])
        self.assertEqual([key.seed for key in runs["Single GPU"]], [3])
        self.assertTrue(runs["Post"][0].small)
        without = [row for row in TABLES["eagle_4"].rows if row.expert is None]
        self.assertEqual(tables.row_keys(without[0], TABLES["eagle_4"].columns[1], [0], False), [])

    def test_a_comparison_is_written(self):
        flags = ("--problems=nmt_2:2xK80,bert_base:4xP100", "--placers=random,post:batch_size=24")
        with mock.patch.object(kept_runs, "run_all", _made_up):
            text, status = self.call(comparison, *flags, "--wall_secs=60")
        self.assertEqual(status, 0, text)
        self.assertIn("| post batch_size=24 |", text)
        written = {path.name for path in (self.folder / "out").iterdir()}
        names = ["60-wall-secs.md", "60-wall-secs.csv", "60-wall-secs_provenance.json"]
        self.assertContainsSubset(names, written)
        self.assertNotIn("60-wall-secs_curves", written)

    def test_a_comparison_goes_on_from_what_is_kept_beside_it(self):
        flags = ("--problems=nmt_2:2xK80", "--placers=heft,random,post", "--core_secs=60")
        text, status = self.call(comparison, *flags, "--only_kept")
        self.assertEqual(status, 2, text)
        self.assertRegex(text, "no runs are kept in .*60-core-secs_runs.jsonl.gz")
        for wanted in (["heft", "random", "post"], ["heft", "post"], ["heft"]):
            with mock.patch.object(kept_runs, "run_all", side_effect=_made_up) as run_all:
                text, status = self.call(comparison, *flags)
            self.assertEqual(status, 0, text)
            self.assertEqual([key.placer for key in run_all.call_args.args[0]], wanted)
            text, status = self.call(comparison, *flags, "--only_kept")
            self.assertEqual(status, 0, text)
            # It failed each time: nothing of it is kept.
            self.assertNotIn("| heft |", text)
        self.assertIn("| random | 1.000 |", text)
        with mock.patch.object(kept_runs, "run_all", side_effect=_made_up) as run_all:
            self.call(comparison, *flags[:2], "--core_secs=61")
        self.assertLen(run_all.call_args.args[0], 3)

    def test_a_comparison_takes_over_what_does_not_depend_on_the_budget(self):
        flags = ("--problems=nmt_2:2xK80", "--placers=random,heft")

        def ended(keys, budget, runs_dir, **settings):
            for key in keys:
                how = "nothing more" if key.placer == "heft" else "secs"
                settings["ended"](run(key, 0.5, budget, ended=how))
            return {}

        with mock.patch.object(kept_runs, "run_all", ended):
            self.call(comparison, *flags, "--core_secs=60")
        with mock.patch.object(kept_runs, "run_all", side_effect=_made_up) as run_all:
            text, status = self.call(comparison, *flags, "--core_secs=10")
        self.assertEqual(status, 0, text)
        self.assertEqual([key.placer for key in run_all.call_args.args[0]], ["random"])
        self.assertIn("1 of 2 runs are in", text)
        kept = KeptRuns(self.folder / "out" / "10-core-secs_runs.jsonl.gz")
        self.assertIsNotNone(kept.get(RunKey("nmt_2", "2xK80", "heft"), SearchBudget(10.0)))

    def test_runs_of_different_versions_of_a_problem_are_told(self):
        flags = ("--problems=nmt_2:2xK80", "--placers=heft,random,post", "--core_secs=60")

        def other(keys, budget, runs_dir, **settings):
            return {key: run(key, 0.5, budget, problem_digest="other") for key in keys}

        with mock.patch.object(kept_runs, "run_all", _made_up):
            text, _ = self.call(comparison, *flags)
        self.assertNotIn("versions of their problem", text)
        with mock.patch.object(kept_runs, "run_all", other):
            text, _ = self.call(comparison, *flags)
        self.assertIn("nmt_2 on 2xK80: runs are of different versions of their problem", text)

    def test_wrong_names_are_refused_before_anything_runs(self):
        for flag, message in (
            ("--problems=nmt_2", "'nmt_2' is not MODEL:MACHINE"),
            ("--problems=nmt_9:2xK80", "there is no model 'nmt_9'"),
            ("--problems=nmt_2:2xK81", "unknown machine '2xK81'"),
            ("--placers=posts", "no placer 'posts'"),
            ("--placers=post:rate", "no placer 'post:rate'"),
            ("--placers=post:published:rate=1", "placer 'post:published' has no option 'rate'"),
            ("--wall_secs=0", "max_secs must be positive"),
            ("--core_secs=nan", "max_secs must be positive"),
        ):
            text, status = self.call(comparison, flag)
            self.assertEqual(status, 2, text)
            self.assertIn(message, text)

    def test_problems_of_the_default_comparison_exist(self):
        for text in comparison.PROBLEMS:
            comparison._problem(text)

    def test_problems_are_exported(self):
        self.write_problems([ProblemKey("nmt_2", "2xK80", "fine", small=True)])
        text, status = self.call(export_problems, "--models=nmt_2", "--machines=2xK80", "--small")
        self.assertEqual(status, 0, text)
        path = self.folder / "out" / "nmt_2-2xK80.json"
        self.assertEqual(read_problem(path).num_operations, 8)
        self.assertIn(f"{path}: ", text)

    def test_what_cannot_be_exported_is_said(self):
        text, status = self.call(export_problems, "--models=nmt_9")
        self.assertEqual(status, 2)
        self.assertIn("there is no model 'nmt_9'", text)
        with mock.patch.object(export_problems, "make_problems", return_value={"nmt_2": "no"}):
            _, status = self.call(export_problems, "--models=nmt_2")
        self.assertEqual(status, 1)


if __name__ == "__main__":
    absltest.main()
