"""Tests of searches where a good placement is known; `kept_pages_test` has their tables."""

from __future__ import annotations

import math

from absl.testing import absltest

from benchmarks.search_quality.known_placements import run_one


class KnownPlacementsTest(absltest.TestCase):
    def test_auto_is_timed_until_it_is_within_two_percent(self):
        key = (0, 0.5, 500, "tree")
        run = run_one(key)
        self.assertEqual(run.key, key)
        self.assertGreater(run.simulated, 1)
        self.assertEqual(run.ratio <= 1.02, math.isfinite(run.within_secs))


if __name__ == "__main__":
    absltest.main()
