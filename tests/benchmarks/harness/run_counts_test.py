"""Tests of the samples of runs and the share of them that failed."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.run_counts import explain_counts, format_counts
from tests.benchmarks.made_up_runs import make_failed_run, run


def post(seed, **values):
    return run(RunKey("nmt_2", "2xK80", "post", seed=seed), 0.5, **values)


class RunCountsTest(absltest.TestCase):
    def test_the_share_of_failures_is_that_of_all_seeds(self):
        self.assertEqual(format_counts([post(0, failures=30), post(1, failures=10)]), "100, 20%")
        self.assertEqual(format_counts([post(0, failures=None)]), "100")
        self.assertEqual(format_counts([make_failed_run(RunKey("nmt_2", "2xK80", "post"), "")]), "")
        self.assertEqual(format_counts([]), "")

    def test_the_last_samples_have_a_share_of_their_own_where_all_runs_know_it(self):
        # The first run has 20 samples in its last window, the second one 100.
        known = [
            post(0, samples=120, failures=105, window_failures=[100, 5]),
            post(1, samples=100, failures=100, window_failures=[100]),
        ]
        self.assertEqual(format_counts(known), "100, 93% (88%)")
        self.assertEndsWith(explain_counts(known), "the share of the last 100 samples of each run.")
        self.assertEqual(format_counts([*known, post(2, failures=0)]), "100, 64%")

    def test_pages_of_older_runs_do_not_mention_the_last_samples(self):
        self.assertNotIn("last", explain_counts([post(0)]))


if __name__ == "__main__":
    absltest.main()
