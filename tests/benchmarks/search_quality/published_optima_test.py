import contextlib
import io
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.search_quality.published_optima import (
    OptimumRun,
    main,
    make_problem,
    page_of_runs,
    run_graph,
)
from tests.benchmarks.search_quality.task_graphs import (
    DIAMOND,
    random_graph,
    require_usable_solver,
    write_gxl,
)


def make_run(name="a", **values):
    run = {
        "name": name,
        "tasks": 10,
        "processors": 2,
        "optimal": 100,
        "says_solver_time": True,
        "auto_fifo": 110,
        "auto_ordered": 105,
        "auto_secs": 0.1,
        "found": 100,
        "found_secs": 0.5,
        "found_fifo": 120,
        "best_fifo": 104,
        "proof": "solver",
        "proof_secs": 2.0,
        "commit": "c0ffee",
    }
    return OptimumRun(**{**run, **values})


def run_main(*flags):
    """Runs the command, and returns what it printed, errors included."""
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["command", *flags]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        contextlib.suppress(SystemExit),
    ):
        main()
    return out.getvalue()


class PublishedOptimaTest(absltest.TestCase):
    def test_the_problem_has_a_link_for_each_pair_of_processors(self):
        problem = make_problem(random_graph(0, num_tasks=5, num_processors=3))
        self.assertLen(problem.links, 6)
        self.assertTrue(all(link.channel is None for link in problem.links))

    def test_solves_a_graph(self):
        require_usable_solver(self)
        # The light branch runs elsewhere.
        run = run_graph(DIAMOND)
        self.assertEqual((run.found, run.auto_fifo, run.auto_ordered), (10, 10, 10))
        self.assertEqual(run.proof, "solver")

    def test_page_counts_and_names(self):
        runs = [
            make_run(),
            make_run("b", found=101, found_secs=9.0, proof="shorter"),
            make_run("c", found=105, proof="unknown", says_solver_time=False),
            make_run("d", tasks=21, found=90, proof="bound", auto_ordered=None),
        ]
        page = page_of_runs(runs)
        found = "| 10 | 3 | 33.3% | 66.7% | 1.0200 | 1.0500 | 0.50 s | 8.15 s | 9.00 s |"
        self.assertIn(found, page)
        self.assertIn("| 10 | 3 | 33.3% | 0 | 1 | 1 | 1 | 2.00 s | 2.00 s |", page)
        self.assertIn("| 21 | 1 | 100.0% | 1 | 0 | 0 | 0 |  |  |", page)
        self.assertIn(
            "| 10 | 0.0% | 1.040, 1.040 | 1.100, 1.100 | 1.050, 1.050 | 1.048, 1.048 |", page
        )
        self.assertIn("`d` has 100 as its published optimum, found 90", page)
        self.assertNotIn("`b` has", page)
        self.assertIn("3 of 4 files say", page)
        self.assertIn("0 of 1 optima are proved here", page)

    def test_resumes_and_prints_what_is_kept(self):
        require_usable_solver(self)
        graphs, out = (pathlib.Path(self.create_tempdir().full_path) for _ in range(2))
        nodes = [("1", 3, 0, 0), ("2", 4, 3, 0), ("3", 2, 4, 1)]
        content = write_gxl(nodes, [("1", "2", 5), ("1", "3", 1)], length=7)
        (graphs / "first.gxl").write_text(content)
        flags = (f"--graphs_dir={graphs}", f"--out_dir={out}")
        self.assertIn("1 of 1", run_main(*flags))
        (graphs / "second.gxl").write_text(content)
        printed = run_main(*flags)
        self.assertIn("2 of 2", printed)
        self.assertNotIn("1 of 2", printed)
        self.assertIn("| 3 | 2 | 100.0%", run_main("--only_kept", f"--out_dir={out}"))

    def test_says_what_is_missing(self):
        out = self.create_tempdir().full_path
        self.assertIn("--graphs_dir is missing", run_main(f"--out_dir={out}"))
        self.assertIn("no *.gxl", run_main(f"--out_dir={out}", f"--graphs_dir={out}"))
        self.assertIn("has no runs", run_main("--only_kept", f"--out_dir={out}"))
        self.assertIn("is no directory", run_main(f"--out_dir={out}", "--graphs_dir=/no/such"))
        self.assertIn("Total schedule length", run_main("--help"))


if __name__ == "__main__":
    absltest.main()
