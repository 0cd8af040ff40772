"""Tests of comparisons of placers, on runs made by hand."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.comparison.report import comparison_markdown
from benchmarks.harness.placement_runs import RunKey
from tests.benchmarks.made_up_runs import make_failed_run, run

# By model and placer: step times of the seeds, or why there are none.
_SECS = {
    "rnnlm_2": {"post": [0.6, 0.5], "heft": [0.4], "random": [0.8], "scotch": "not installed"},
    "nmt_2": {"post": [1.0], "heft": [1.0 * (1 + 1e-12)], "random": [None], "scotch": [3.0]},
    "bert_base": {"post": [None], "heft": [None], "random": [None], "scotch": [None]},
}


def _runs(model, placer):
    secs = _SECS[model][placer]
    if isinstance(secs, str):
        return [make_failed_run(RunKey(model, "2xK80", placer), secs)]
    return [run(RunKey(model, "2xK80", placer, seed=seed), each) for seed, each in enumerate(secs)]


_COMPARISON = {
    f"{model} on 2xK80": {placer: _runs(model, placer) for placer in placers}
    for model, placers in _SECS.items()
}


def _auto(model, seed=0):
    return RunKey(model, "2xK80", "auto", seed=seed)


def _page_of_three_seeds():
    keys = [RunKey("nmt_2", "2xK80", "post", seed=seed) for seed in range(3)]
    runs = [
        run(keys[0], 0.75, samples=100, search_secs=2.0),
        run(keys[1], 0.5, samples=90, search_secs=8.0),
        run(keys[2], None, samples=100, failures=50, search_secs=4.0, commit="0123456789"),
    ]
    return comparison_markdown("Compared", {"nmt_2 on 2xK80": {"post": runs}})


def _tables():
    """The lines of the tables, and the page."""
    page = comparison_markdown("Compared", _COMPARISON)
    tables = [part.splitlines() for part in page.split("\n\n") if part.startswith("|")]
    return *tables, page


class ComparisonTest(absltest.TestCase):
    def test_every_problem_has_its_winner_of_the_seeds_that_all_have(self):
        # The second seed of post, 0.5 s on rnnlm_2, is one that "random" does not have.
        winners, *_ = _tables()
        self.assertEqual(
            winners[2:],
            [
                "| rnnlm_2 on 2xK80 | heft | 0.400 | post 0.600 | heft 0.400 | 0.250 | 1.60 |",
                "| nmt_2 on 2xK80 | post, heft | 1.00 | post 1.00 | heft 1.00 | 0.250 | 4.00 |",
                "| bert_base on 2xK80 | nobody |  | none fits | none fits | 0.250 |  |",
            ],
        )

    def test_a_winner_is_compared_with_its_own_bound_not_with_an_older_one(self):
        older, newer = (RunKey("nmt_2", "2xK80", placer) for placer in ("post", "heft"))
        cells = {
            "post": [run(older, 1.0, lower_bound_secs=0.2)],
            "heft": [run(newer, 0.5, lower_bound_secs=0.4)],
        }
        page = comparison_markdown("Compared", {"nmt_2 on 2xK80": cells})
        self.assertIn("| heft | 0.500 | post 1.00 | heft 0.500 | 0.400 | 1.25 |", page)

    def test_no_placer_is_hidden_and_those_that_place_more_come_first(self):
        _, ratios, *_ = _tables()
        self.assertEqual(
            ratios[2:],
            [
                "| heft | 1.000 | 1.000 | OOM | 1.000 | 2 |",
                "| post | 1.500 | 1.000 | OOM | 1.225 | 1 |",
                "| random | 2.000 | OOM | OOM | 2.000 | 0 |",
                "| scotch | failed | 3.000 | OOM | 3.000 | 0 |",
            ],
        )

    def test_auto_is_compared_seed_by_seed_the_worst_first(self):
        losses = {"transfers": 0.001, "turns": 0.049, "imbalance": 0.1}
        comparison = {
            problem: {**cells, "auto": runs}
            for (problem, cells), runs in zip(
                _COMPARISON.items(),
                (
                    [
                        run(_auto("rnnlm_2"), 0.4, losses=losses),
                        run(_auto("rnnlm_2", 1), 0.44),
                    ],
                    [run(_auto("nmt_2"), None)],
                    [run(_auto("bert_base"), 9.0)],
                ),
                strict=True,
            )
        }
        page = comparison_markdown("Compared", comparison)
        section = page.split("## auto against the fastest of all others")[1].split("\n## ")[0]
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        self.assertEqual(
            lines[2:],
            [
                "| nmt_2 on 2xK80 | 0 | none fits | post 1.00 |  |  |  |",
                "| rnnlm_2 on 2xK80 | 1 | 0.440 | heft 0.400 | 1.1000 | 1.760 |  |",
                "| rnnlm_2 on 2xK80 | 0 | 0.400 | heft 0.400 | 1.0000 | 1.600 | "
                "imbalance 0.40, turns 0.20 |",
                "| bert_base on 2xK80 | 0 | 9.00 | none fits |  | 36.000 |  |",
            ],
        )
        alone = "| bert_base on 2xK80 | auto | 9.00 | none fits | none fits | 0.250 | 36.00 |"
        self.assertIn(alone, page.splitlines())
        mean = (1.6 * 1.76 * 36.0) ** (1 / 3)
        self.assertIn(f"Geometric mean of step / lower bound: {mean:.3f}.", section)

    def test_several_seeds_have_their_median_between_the_best_and_the_worst(self):
        lines = _page_of_three_seeds().splitlines()
        self.assertIn("| post | 0.750 (0.500 to OOM) | 1.000 | 1 | 3 | 2.0 s to 8.0 s |", lines)
        *_, page = _tables()
        self.assertIn("| scotch |  | 3.00 | OOM | 3.000 | 0 | 1 | 2.0 s |", page)

    def test_samples_failures_and_commits_are_said(self):
        page = _page_of_three_seeds()
        # 50 of 290 samples failed.
        self.assertIn("\n| post | 100, 17% |\n", page)
        self.assertIn("\n\nRuns were made: 1 at 0123456; 2 before runs kept their commit", page)

    def test_only_runs_of_the_same_groups_must_be_of_the_same_problem(self):
        by_operation = RunKey("nmt_2", "2xK80", "eagle")
        self.assertEqual(by_operation.problem.granularity, "fine")
        for key, is_mixed in ((by_operation, False), (RunKey("nmt_2", "2xK80", "spotlight"), True)):
            runs = [run(key, 0.5, problem_digest="other")]
            cells = _COMPARISON["nmt_2 on 2xK80"] | {key.placer: runs}
            page = comparison_markdown("Compared", {"nmt_2 on 2xK80": cells})
            self.assertEqual(f"\n- nmt_2 on 2xK80: {key.placer}\n" in page, is_mixed)


if __name__ == "__main__":
    absltest.main()
