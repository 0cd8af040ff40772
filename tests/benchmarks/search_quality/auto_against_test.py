import contextlib
import io
import math
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks.search_quality import auto_against
from benchmarks.search_quality.auto_against import Reached, against_table, main


def reached(problem: str, seed: int, other_secs: float, step_secs: float) -> Reached:
    """Runs whose bounds are 1 s in the other tree and 2 s in this one."""
    return Reached(problem, 10.0, seed, other_secs, step_secs, 1.0, 2.0, 100, 200)


class AgainstTableTest(absltest.TestCase):
    def test_ratios_are_geometric_means_over_seeds_and_over_everything(self):
        runs = [
            reached("a on b", 0, 4.0, 2.0),
            reached("a on b", 1, 4.0, 8.0),
            reached("c on d", 0, 4.0, 4.0),
            reached("c on d", 1, 4.0, 1.0),
        ]
        lines = against_table(runs).splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        self.assertEqual(
            cells[2:],
            [
                ["a on b", "4.000 s", "4.000 s", "1.0000", "4.000", "2.000", "2.000", "2.00"],
                ["c on d", "4.000 s", "2.000 s", "0.5000", "4.000", "2.000", "1.000", "2.00"],
                ["all", "", "", "0.7071", "4.000", "2.000", "1.414", "2.00"],
            ],
        )

    def test_where_nothing_fits_the_other_tree_the_row_says_so(self):
        self.assertIn("| inf", against_table([reached("a on b", 0, math.inf, 1.0)]))


class MainTest(absltest.TestCase):
    def test_both_trees_search_at_a_time_and_what_is_done_is_not_done_again(self):
        out = pathlib.Path(self.create_tempdir().full_path)
        searched: list[tuple[str, int, str, str]] = []

        def search(tree: str, core: int, arguments: list[str]) -> tuple[float, float, int]:
            searched.append((tree, core, *arguments[-2:]))
            return (1.0 if tree == "." else 2.0), 0.5, 10

        def run() -> str:
            argv = ["x", "--against", "../before", "--problems", "m:x", "--out_dir", str(out)]
            with (
                mock.patch("sys.argv", [*argv, "--max_secs", "10,60", "--seeds", "2"]),
                mock.patch.object(auto_against, "_search", search),
                mock.patch.object(auto_against, "make_problems", lambda *_: {}),
                mock.patch.object(auto_against.os, "sched_getaffinity", lambda _: {3, 5}),
                contextlib.redirect_stdout(io.StringIO()) as printed,
                contextlib.redirect_stderr(io.StringIO()),
            ):
                main()
            return printed.getvalue()

        text = run()
        budgets = [("10.0", "0"), ("10.0", "1"), ("60.0", "0"), ("60.0", "1")]
        for number, budget in enumerate(budgets):
            here, other = (3, 5) if number % 2 else (5, 3)
            pair = searched[2 * number : 2 * number + 2]
            self.assertCountEqual(pair, [("../before", other, *budget), (".", here, *budget)])
        self.assertIn("## 60 s on one core", text)
        self.assertIn("0.5000", text)
        self.assertEqual((out / "table.md").read_text(), text)
        searched.clear()
        self.assertEqual(run(), text)
        self.assertEmpty(searched)


if __name__ == "__main__":
    absltest.main()
