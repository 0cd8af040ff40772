"""Tests of the verdict of a search in words."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest

from tests.tf_placer.scripted import confirmation, run_result
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.verdict import best_comparison, is_open, lacks_rounds, verdict


def describe(outcome: Outcome, **fields) -> str:
    return verdict(run_result(outcome, **fields))


class VerdictTest(absltest.TestCase):
    def test_names_the_winner_with_the_confidence(self):
        text = describe(
            Outcome.FASTER,
            confirmed=confirmation({"auto": 1.25}),
            winner="auto",
            note="a note",
        )
        self.assertRegex(
            text,
            r"^auto is 1\.25 times as fast as the original "
            r"\(95 % interval 1\.24\d to 1\.25\d, 4 rounds\)\. A note$",
        )

    def test_explains_a_winner_beside_a_faster_single_round(self):
        confirmed = confirmation({"expert": 1.43, "auto": 1.3})
        once = dataclasses.replace(confirmed.comparisons["auto"], speedup=1.57)
        text = describe(
            Outcome.FASTER,
            confirmed=dataclasses.replace(
                confirmed, comparisons={**confirmed.comparisons, "auto": once}
            ),
            winner="expert",
        )
        self.assertStartsWith(text, "expert is 1.43 times as fast as the original (")
        self.assertEndsWith(
            text,
            "rounds). One round measured auto at 1.57 times, which alone proves nothing: with the "
            "times of the search it ranked behind expert",
        )
        # The round that chose has measured the chosen one as faster.
        [measured] = confirmed.selection
        steps = tuple(secs / 2 for secs in measured["expert"].step_secs)
        faster = dataclasses.replace(measured["expert"], step_secs=steps)
        chosen = dataclasses.replace(
            confirmed,
            selection=({**measured, "expert": faster},),
            comparisons={**confirmed.comparisons, "auto": once},
        )
        text = describe(Outcome.FASTER, confirmed=chosen, winner="expert")
        self.assertEndsWith(text, "One round measured auto at 1.57 times, and expert at 2.86")
        # A slower one needs no explanation.
        text = describe(Outcome.FASTER, confirmed=confirmed, winner="expert")
        self.assertEndsWith(text, "4 rounds)")

    def test_compares_a_placement_on_workers_with_one_process_before_details(self):
        result = run_result(
            Outcome.FASTER, confirmed=confirmation({"auto": 2.0}), winner="auto", note="a note"
        )
        for secs, sentence in (
            (
                0.15,
                "One process on all cores takes about 150.0 ms for the original: the placement is "
                "about 3.00 times as fast as that",
            ),
            (
                0.02,
                "But one process on all cores takes about 20.00 ms for the original, 2.50 times as "
                "fast as placed on workers",
            ),
            (
                0.054,
                "One process on all cores takes about 54.00 ms for the original: the placement is "
                "about as fast as that",
            ),
        ):
            result = dataclasses.replace(result, one_process_secs=secs)
            self.assertEqual(verdict(result).split(". ")[1:], [sentence, "A note"])
            # The note of an earlier version has the sentence.
            former = dataclasses.replace(result, note=f"a note. {sentence}")
            self.assertEqual(verdict(former).split(". ")[1:], ["A note", sentence])

    def test_reports_that_the_original_does_not_run(self):
        text = describe(
            Outcome.FASTER, confirmed=confirmation({"auto": 1.2}, original=None), winner="auto"
        )
        self.assertEqual(
            text,
            "auto runs, and the original does not: original does not run (out_of_memory): "
            "it is too large",
        )

    def test_advises_more_time_if_a_large_speedup_is_possible(self):
        confirmed = confirmation({"auto": 1.08}, noise=0.1, most_rounds=4)
        self.assertTrue(confirmed.would_gain_by_rounds)
        text = describe(Outcome.NOT_FASTER, confirmed=confirmed)
        self.assertStartsWith(text, "no placement is faster than the original")
        self.assertRegex(text, r"\. The best is 0\.\d+ to 1\.\d+ times as fast: a longer search")
        self.assertTrue(is_open(run_result(Outcome.NOT_FASTER, confirmed=confirmed)))
        self.assertTrue(lacks_rounds(run_result(Outcome.NOT_FASTER, confirmed=confirmed)))

    def test_advises_a_quiet_machine_if_rounds_ended_because_steps_vary(self):
        confirmed = confirmation({"auto": 1.02}, noise=0.1)
        self.assertFalse(confirmed.would_gain_by_rounds)
        text = describe(Outcome.NOT_FASTER, confirmed=confirmed)
        self.assertRegex(
            text, r"\. The best is 0\.\d+ to 1\.\d+ times as fast: its steps vary so much that"
        )
        self.assertTrue(is_open(run_result(Outcome.NOT_FASTER, confirmed=confirmed)))
        self.assertFalse(lacks_rounds(run_result(Outcome.NOT_FASTER, confirmed=confirmed)))

    def test_says_where_a_single_round_measured_another_placement_as_faster(self):
        confirmed = confirmation({"expert": 1.02, "auto": 1.01}, noise=0.1)
        once = dataclasses.replace(
            confirmed.comparisons["auto"], speedup=1.57, interval=None, reason="about 1.57x"
        )
        confirmed = dataclasses.replace(
            confirmed, best="expert", comparisons={**confirmed.comparisons, "auto": once}
        )
        text = describe(Outcome.NOT_FASTER, confirmed=confirmed)
        self.assertIn("One round measured auto at 1.57 times", text)

    def test_gives_no_advice_if_no_speedup_is_possible(self):
        text = describe(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 1.0}))
        self.assertEndsWith(text, ". The best is at most 1.00 times as fast")
        self.assertFalse(
            is_open(run_result(Outcome.NOT_FASTER, confirmed=confirmation({"a": 1.0})))
        )

    def test_reports_a_single_round(self):
        text = describe(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 0.8, "expert": 0.5}))
        self.assertEndsWith(text, ". The best was about 0.80x original")

    def test_notes_and_advice_follow_the_reason(self):
        text = describe(Outcome.NOT_CONFIRMED, note="there was no time")
        self.assertEqual(text, "no placement was confirmed. There was no time")

    def test_an_interrupted_search_is_told_with_its_trials_and_what_they_showed(self):
        self.assertEqual(
            describe(Outcome.INTERRUPTED),
            "interrupted after 2 of 100 trials, before a placement was confirmed. The same call "
            "resumes it",
        )
        text = describe(Outcome.INTERRUPTED, confirmed=confirmation({"auto": 1.0}), note="a note")
        self.assertEndsWith(
            text, ". A note. The best is at most 1.00 times as fast. The same call resumes it"
        )

    def test_every_outcome_has_a_sentence(self):
        for outcome in Outcome:
            if outcome is not Outcome.FASTER:
                self.assertGreater(len(describe(outcome)), 10)

    def test_a_search_with_nothing_to_place_has_no_result(self):
        self.assertEndsWith(verdict(None), "there is nothing to place")


class BestComparisonTest(absltest.TestCase):
    def test_best_comparison_is_the_one_of_the_verdict(self):
        confirmed = confirmation({"auto": 1.3, "expert": 1.2})
        self.assertIs(best_comparison(confirmed), confirmed.comparisons["auto"])

    def test_there_is_no_best_comparison_without_a_confirmation(self):
        self.assertIsNone(best_comparison(None))


if __name__ == "__main__":
    absltest.main()
