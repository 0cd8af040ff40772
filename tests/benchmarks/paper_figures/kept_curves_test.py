"""Tests of learning curves of kept runs."""

from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.harness.kept_runs import KeptRuns
from benchmarks.harness.placement_runs import RunKey
from benchmarks.paper_figures.kept_curves import curve_points, read_curves
from tests.benchmarks.made_up_runs import run


def make_run(seed=0, mean_secs=(3.0, None, 2.0), placer="post"):
    key = RunKey("nmt_2", "4xK80", placer, seed=seed)
    return run(key, 2.0, samples=250, search_secs=50.0, mean_secs=list(mean_secs))


class KeptCurvesTest(absltest.TestCase):
    def write(self, name, *runs):
        kept = KeptRuns(pathlib.Path(self.create_tempdir().full_path, name))
        for each in runs:
            kept.add(each)
        return kept.path

    def test_points_are_where_windows_end(self):
        samples, secs, means = curve_points(make_run())
        self.assertEqual(samples.tolist(), [100, 200, 250])
        self.assertEqual(secs.tolist(), [20.0, 40.0, 50.0])
        self.assertEqual(str(means.tolist()), "[3.0, nan, 2.0]")

    def test_of_equal_runs_the_longest_with_seed_0_counts(self):
        longest = make_run(seed=1, mean_secs=[1.0] * 9)
        paths = [
            self.write("a.gz", make_run(), longest),
            self.write("b.gz", make_run(mean_secs=[9.0])),
        ]
        [curve] = read_curves(paths)
        self.assertEqual(curve.found.mean_secs, [3.0, None, 2.0])

    def test_runs_without_samples_have_no_curve(self):
        self.assertEqual(read_curves([self.write("a.gz", make_run(mean_secs=[]))]), [])


if __name__ == "__main__":
    absltest.main()
