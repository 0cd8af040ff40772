import dataclasses

from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.report.progress import format_progress
from tf_placer.search.budget import Budget, Progress
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
            " | elapsed 42 s | ETA 7 min 40 s",
        )

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
