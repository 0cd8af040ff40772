import math

from absl.testing import absltest

from benchmarks.distributed.goals import GOAL_SECS, goal_table, median_found


def run(case, workers, batch_size, found_at, seed=0, count=480):
    """Searches whose trials take 10 s; each worker has its next one when its batch has ended."""
    trials = []
    for number in range(count):
        end_secs = 10.0 * (1 + number // workers)
        step_secs = GOAL_SECS / 2 if number + 1 >= found_at else 2 * GOAL_SECS
        trials.append([end_secs, 10.0, step_secs, 1, number // batch_size])
    made = {"case": case, "workers": workers, "batch_size": batch_size, "seed": seed}
    return {**made, "trials": trials}


def post(found_at, **changes):
    return [
        run("Post, one process", 1, 12, found_at, **changes),
        run("Post, 12 workers in step", 12, 12, found_at, **changes),
    ]


class GoalsTest(absltest.TestCase):
    def test_a_seed_that_never_comes_there_counts(self):
        runs = [run("a", 1, 1, found_at) for found_at in (30, 10, 1000)]
        self.assertEqual(median_found(runs, GOAL_SECS), (30.0, 300.0))
        self.assertEqual(median_found([*runs, runs[-1], runs[-1]], GOAL_SECS)[0], math.inf)

    def test_what_was_measured_and_what_is_on_paper(self):
        rows = [row.split(" | ") for row in goal_table(post(120), {}).splitlines()]
        rows = {row[0].strip("| "): [cell.strip("| ") for cell in row[1:]] for row in rows}
        # One after the other, and twelve at a time.
        self.assertEqual(rows["1"], ["120", "20.0 min", "20.0 min"])
        self.assertEqual(rows["12"], ["120", "1.7 min", "1.7 min"])
        # As many samples in batches that are larger, or as many batches.
        self.assertEqual(rows["48"], ["120 to 480", "0.4 to 1.7 min", ""])

    def test_a_form_that_does_not_come_there_is_left_out(self):
        self.assertEqual(goal_table(post(1000), {}), "")
        self.assertEqual(goal_table([], {}), "")


if __name__ == "__main__":
    absltest.main()
