"""Tests of trials compared with the original."""

from __future__ import annotations

from absl.testing import absltest

from tests.tf_placer.scripted import confirmation, trial
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.compared_trials import compare_trials

ORIGINAL = trial(0, None, 0.1)


class ComparedTrialsTest(absltest.TestCase):
    def test_the_original_comes_first_and_then_the_fastest(self):
        trials = {
            "expert": trial(1, [0, 1], 0.05),
            "broken": trial(2, [1, 0], None),
            "auto": trial(3, [1, 1], 0.04),
            "original": ORIGINAL,
        }
        compared = compare_trials(trials, None, None)
        self.assertEqual(
            [each.label for each in compared], ["original", "auto", "expert", "broken"]
        )
        self.assertEqual([each.step_secs for each in compared], [0.1, 0.04, 0.05, None])
        self.assertEqual([each.speedup for each in compared], [1.0, 2.5, 2.0, None])
        bases = [each.basis for each in compared]
        self.assertEqual(bases, ["", "in the search", "in the search", "failed: out_of_memory"])

    def test_a_confirmation_overrides_the_search(self):
        # In the search 4 times as fast, beside the original twice.
        trials = {"original": ORIGINAL, "auto": trial(1, [0, 1], 0.025)}
        confirmed = confirmation({"auto": 2.0})
        original, auto = compare_trials(trials, confirmed, "auto")
        self.assertAlmostEqual(auto.speedup, 2.0, delta=0.01)
        self.assertAlmostEqual(auto.step_secs, original.step_secs / auto.speedup)
        self.assertEqual(auto.interval, confirmed.comparisons["auto"].interval)
        self.assertEqual(auto.basis, "found: faster beyond the noise")

    def test_an_interrupted_confirmation_does_not_say_that_nothing_is_faster(self):
        trials = {"original": ORIGINAL, "auto": trial(1, [0, 1], 0.05)}
        for outcome, basis in (
            (Outcome.INTERRUPTED, "interrupted, not confirmed"),
            (Outcome.NOT_FASTER, "not faster beyond the noise"),
        ):
            _, auto = compare_trials(trials, confirmation({"auto": 1.0}), None, outcome)
            self.assertEqual(auto.basis, basis)

    def test_an_original_that_fails_has_no_speedup(self):
        trials = {"original": trial(0, None, None), "auto": trial(1, [0, 1], 0.025)}
        original, auto = compare_trials(trials, None, None)
        self.assertIsNone(original.speedup)
        self.assertEqual(original.basis, "failed: out_of_memory")
        self.assertEqual((auto.step_secs, auto.speedup), (0.025, None))

    def test_json_has_the_number_of_the_trial(self):
        [original] = compare_trials({"original": ORIGINAL}, None, None)
        self.assertEqual(
            original.to_json(),
            {
                "label": "original",
                "trial": 0,
                "step_secs": 0.1,
                "speedup": 1.0,
                "speedup_interval": None,
                "basis": "",
            },
        )


if __name__ == "__main__":
    absltest.main()
