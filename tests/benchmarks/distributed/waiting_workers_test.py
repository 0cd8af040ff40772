import json
import pathlib

from absl.testing import absltest

from benchmarks.distributed.report import write_report
from benchmarks.distributed.runs import idle_share, trials_per_minute
from benchmarks.distributed.waiting_backend import SkippingClock
from benchmarks.distributed.waiting_workers import Case, run_case
from benchmarks.problems.synthetic import unroll_lstm


def run_search(case, samples=24, trial_secs=1000.0, seed=0):
    return run_case(case, unroll_lstm(1, 4), samples=samples, trial_secs=trial_secs, seed=seed)


def skipping(name, placer, workers, **options):
    return Case(name, placer, workers, 1, options, skips=True)


class WaitingWorkersTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        names = {1: "Post, one process", 12: "Post, 12 workers in step"}
        cls.post = {n: run_search(skipping(name, "post", n), 48) for n, name in names.items()}

    def test_a_clock_is_put_forward(self):
        clock = SkippingClock(lambda: 5.0)
        clock.sleep(3.0)
        self.assertEqual(clock(), 8.0)

    def test_four_workers_measure_four_times_as_much(self):
        one, four = (
            run_search(skipping(f"random, {n} workers", "random", n), samples=40 * n)
            for n in (1, 4)
        )
        self.assertAlmostEqual(trials_per_minute(four) / trials_per_minute(one), 4.0, delta=0.3)
        self.assertLess(idle_share(one), 0.01)

    def test_a_placer_samples_the_same_however_many_workers_measure(self):
        steps = [sorted(secs for _, _, secs, *_ in run["trials"]) for run in self.post.values()]
        self.assertEqual(steps[0], steps[1])
        # They wait for the slowest of a batch.
        self.assertGreater(idle_share(self.post[12]), 0.05)

    def test_the_page_has_all_that_was_measured(self):
        runs = [
            run_search(skipping("random, 1 workers", "random", 1), 40),
            run_search(skipping("random, 2 workers", "random", 2), 80),
            *self.post.values(),
        ]
        directory = pathlib.Path(self.create_tempdir().full_path)
        runs = [{**run, "made_by": {"commit": "0123456+"}} for run in runs]
        page = write_report(directory, json.loads(json.dumps(runs)))
        self.assertEqual((directory / "tables.md").read_text(), page)
        self.assertRegex(page, r"\| 1 \| [\d.]+ \| 100.0% \|\n\| 2 \| [\d.]+ \| 9\d.\d% \|")
        self.assertRegex(page, r"\| Post, 12 workers in step \| 1 \| 48 \| 0 \| [\d.]+ ms \|")
        self.assertIn("at commit 0123456+.", page)


if __name__ == "__main__":
    absltest.main()
