"""Tests of how a search ends of which no placement ran."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.confirmation.no_finalists import outcome_without_finalists
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure, FailureKind, Measurement


def failed(index, assignment, kind, repeats=None):
    measurement = Measurement(failure=Failure(kind, f"failure {index}"))
    return dataclasses.replace(trial(index, assignment, repeats=repeats), measurement=measurement)


_OOM, _TIMEOUT = FailureKind.OUT_OF_MEMORY, FailureKind.TIMEOUT


class OutcomeWithoutFinalistsTest(absltest.TestCase):
    def outcome(self, *trials) -> Outcome:
        outcome, self.why = outcome_without_finalists(trials, 20, 60.0)
        return outcome

    def test_where_nothing_was_tried_the_budget_was_too_small(self):
        self.assertEqual(self.outcome(trial(0, None)), Outcome.NO_TIME)
        self.assertEqual(
            self.why,
            "only the graph as it came was measured within 20 trials and 60 s: allow more",
        )

    def test_without_any_trial_it_says_so(self):
        self.assertEqual(self.outcome(), Outcome.NO_TIME)
        self.assertIn("not even the graph as it came was measured within", self.why)

    def test_an_original_that_does_not_run_says_nothing_about_placements(self):
        for kind in (_OOM, _TIMEOUT):
            self.assertEqual(self.outcome(failed(0, None, kind)), Outcome.NO_TIME)
            self.assertIn(f"does not run ({kind.value}: failure 0), and nothing else was", self.why)

    def test_time_outs_alone_say_that_more_time_may_help(self):
        trials = [failed(k, [k], _TIMEOUT) for k in (1, 2)]
        for original in (trial(0, None), failed(0, None, _OOM)):
            self.assertEqual(self.outcome(original, *trials), Outcome.NO_TIME)
            self.assertRegex(self.why, "^2 were tried, and each was given up .*the last: failure 2")
            self.assertIn("allow more time, in another directory", self.why)

    def test_any_other_failure_says_that_no_placement_ran(self):
        trials = [
            failed(1, [0], _OOM),
            failed(2, [1], _TIMEOUT),
            failed(3, [2], _OOM),
            failed(4, [0], _OOM, repeats=1),
        ]
        self.assertEqual(self.outcome(trial(0, None), *trials), Outcome.NOTHING_RUNS)
        self.assertEqual(self.why, "3 were tried (2 out_of_memory, 1 timeout); the last: failure 3")
        self.assertEqual(self.outcome(trial(0, None), trials[0]), Outcome.NOTHING_RUNS)
        self.assertEqual(self.why, "1 placement was tried (1 out_of_memory); the last: failure 1")


if __name__ == "__main__":
    absltest.main()
