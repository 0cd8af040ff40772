import dataclasses

from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.report.progress import format_progress, format_simulated_progress
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.search.trial_log import Trial

BEST = Trial(7, "contiguous", 2, (0, 1), Measurement((0.0951,)), None, 30.0, "")
TRIAL = Trial(12, "colocrl", 0, (1, 1), Measurement((0.0980, 0.0987, 0.0988, 0.1)), None, 42.0, "")
PROGRESS = Progress(13, Budget(150, 600.0), BEST, elapsed_secs=42.2, eta_secs=460.0)


class ProgressLineTest(absltest.TestCase):
    def test_tells_trial_step_time_best_and_times(self):
        # Quartiles of the four steps: 98.525 and 99.1 ms.
        self.assertEqual(
            format_progress(TRIAL, PROGRESS),
            "[13/150] trial 12 colocrl: 98.75 ms ± 575.0 µs | best 95.10 ms (trial 7, contiguous)"
            " | elapsed 42 s | at most 7 min 40 s more",
        )

    def test_tells_the_bound_and_the_gap_once_costs_are_known(self):
        progress = dataclasses.replace(PROGRESS, bound_secs=0.08)
        # 95.1 / 80 = 1.189
        self.assertIn(
            "(trial 7, contiguous) | bound 80.00 ms, gap 19% | elapsed",
            format_progress(TRIAL, progress),
        )
        # A bound above a measured step bounds nothing.
        too_high = dataclasses.replace(PROGRESS, bound_secs=0.0952)
        self.assertIn("(trial 7, contiguous) | elapsed", format_progress(TRIAL, too_high))
        progress = dataclasses.replace(progress, best=None)
        self.assertIn("| best none | bound 80.00 ms | elapsed", format_progress(TRIAL, progress))

    def test_a_simulated_search_has_a_gap_if_a_placement_fits(self):
        outcome = SearchOutcome(
            step_secs=0.3,
            feasible=True,
            assignment=(0,),
            peak_bytes=(1,),
            lower_bound_secs=0.2,
            trials=1000,
            elapsed_secs=3.0,
            placer="auto",
            seed=0,
        )
        self.assertEqual(
            format_simulated_progress(outcome, 7.0),
            "1,000 trials | best 300.0 ms | bound 200.0 ms, gap 50% | elapsed 3.0 s | ETA 7.0 s",
        )
        outcome = dataclasses.replace(outcome, feasible=False)
        self.assertIn("| bound 200.0 ms | elapsed", format_simulated_progress(outcome, 7.0))

    def test_tells_the_kind_of_a_failure(self):
        failure = Failure(FailureKind.OUT_OF_MEMORY, "a message\nof many lines")
        trial = dataclasses.replace(TRIAL, measurement=Measurement(failure=failure))
        line = format_progress(trial, PROGRESS)
        self.assertStartsWith(line, "[13/150] trial 12 colocrl: out_of_memory | best 95.10 ms")
        self.assertNotIn("\n", line)

    def test_tells_what_a_trial_repeats(self):
        line = format_progress(dataclasses.replace(TRIAL, repeats=3), PROGRESS)
        self.assertIn("575.0 µs (as trial 3) |", line)

    def test_tells_a_new_best(self):
        line = format_progress(TRIAL, dataclasses.replace(PROGRESS, best=TRIAL))
        self.assertIn("| best so far |", line)

    def test_tells_that_nothing_has_run(self):
        line = format_progress(TRIAL, dataclasses.replace(PROGRESS, best=None))
        self.assertIn("| best none |", line)


if __name__ == "__main__":
    absltest.main()
