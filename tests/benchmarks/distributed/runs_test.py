from absl.testing import absltest

from benchmarks.distributed import runs


def run(trials, workers=2):
    return {"case": "made up", "workers": workers, "trials": trials}


# Two workers, batches of two by one controller: end, how long it took, step, controller, batch.
TWO = run(
    [
        [1.0, 1.0, 0.4, 1, 0],
        [2.0, 2.0, 0.3, 1, 0],
        [4.0, 1.0, 0.2, 1, 1],
        [5.0, 2.0, 0.2, 1, 1],
        [7.0, 1.0, 0.1, 1, 2],
        [7.0, 0.0, 0.1, 1, 2],
        [9.0, 1.0, None, 1, 3],
        [9.0, 1.0, 0.1, 1, 3],
    ]
)


class RunsTest(absltest.TestCase):
    def test_what_was_measured_before_is_not_counted(self):
        self.assertAlmostEqual(runs.trials_per_minute(TWO), 60.0 * 7 / 9.0)
        self.assertEqual(runs.best_secs(TWO), 0.1)

    def test_idle_is_counted_between_the_first_trials_and_the_last(self):
        # From second 5, when four trials have ended, to second 8, when the last two start: one
        # worker has measured for a second.
        self.assertAlmostEqual(runs.idle_share(TWO), 1.0 - 1.0 / 6.0)

    def test_a_placement_is_found_by_the_first_that_is_so_fast(self):
        self.assertEqual(runs.find_goal(TWO, 0.2), (3, 4.0))
        self.assertEqual(runs.find_goal(TWO, 0.1), (5, 7.0))
        self.assertIsNone(runs.find_goal(TWO, 0.05))

    def test_failures_are_in_no_mean(self):
        trials = [[float(n), 1.0, n / 100 if n % 2 else None, 1, 0] for n in range(1, 101)]
        # 91, 93, 95, 97 and 99.
        self.assertAlmostEqual(runs.last_mean_secs(run(trials)), 0.95)


if __name__ == "__main__":
    absltest.main()
