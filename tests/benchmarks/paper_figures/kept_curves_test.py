import gzip
import json
import pathlib

from absl.testing import absltest

from benchmarks.paper_figures.kept_curves import read_curves


def run(placer: str = "post", seed: int = 0, samples: int = 250, **found):
    key = {"model": "nmt_2", "machine": "4xK80", "placer": placer, "options": [["a", "b"]]}
    return {
        "key": {**key, "seed": seed, "small": False},
        "found": {
            "samples": samples,
            "search_secs": 50.0,
            "window": 100,
            "mean_secs": [3.0, None, 2.0],
            "curve": [[5, 1.0, 2.5]],
            **found,
        },
    }


class KeptCurvesTest(absltest.TestCase):
    def write(self, name: str, *runs) -> pathlib.Path:
        path = pathlib.Path(self.create_tempdir().full_path, name)
        with gzip.open(path, "wt") as file:
            file.write("".join(json.dumps(each) + "\n" for each in runs))
        return path

    def test_points_are_where_windows_end(self):
        [curve] = read_curves([self.write("a.gz", run())])
        self.assertEqual(curve.placer, "post a=b")
        self.assertEqual(curve.samples, (100, 200, 250))
        self.assertEqual(curve.secs, (20.0, 40.0, 50.0))
        self.assertEqual(curve.mean_secs, (3.0, None, 2.0))
        self.assertEqual(curve.best, ((5, 1.0, 2.5),))

    def test_of_equal_runs_the_longest_counts(self):
        short = run(mean_secs=[9.0], samples=100)
        paths = [self.write("a.gz", run(), run(seed=1)), self.write("b.gz", short)]
        [curve] = read_curves(paths)
        self.assertLen(curve.mean_secs, 3)

    def test_runs_that_failed_or_learn_nothing_have_no_curve(self):
        failed = {**run(), "found": None}
        self.assertEqual(read_curves([self.write("a.gz", failed, run(mean_secs=[]))]), [])


if __name__ == "__main__":
    absltest.main()
