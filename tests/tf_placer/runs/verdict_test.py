"""Tests of the words for how a search ended."""

from __future__ import annotations

from absl.testing import absltest

from tests.tf_placer.scripted import confirmation, run_result
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.verdict import best_comparison, verdict


def said(outcome: Outcome, **fields) -> str:
    return verdict(run_result(outcome, **fields))


class VerdictTest(absltest.TestCase):
    def test_a_winner_is_named_with_how_sure_it_is(self):
        text = said(
            Outcome.FASTER,
            confirmed=confirmation({"auto": 1.25}),
            winner="auto",
            note="a note",
        )
        self.assertRegex(
            text,
            r"^auto is faster than the graph as it came: 1\.25 times as fast, and at least "
            r"1\.2\d times with 97\.5 % certainty \(95 % interval .*, 4 rounds\); a note$",
        )

    def test_a_winner_over_an_original_that_does_not_run_says_so(self):
        text = said(
            Outcome.FASTER, confirmed=confirmation({"auto": 1.2}, original=None), winner="auto"
        )
        self.assertEqual(
            text,
            "auto runs, and the graph as it came does not: original does not run (out_of_memory): "
            "it is too large",
        )

    def test_more_time_would_help_where_much_is_still_possible(self):
        text = said(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 1.02}, noise=0.1))
        self.assertStartsWith(text, "no placement is faster than the graph as it came")
        self.assertRegex(text, r"the best is 0\.\d+ to 1\.\d+ times as fast: more time")

    def test_nothing_would_help_where_there_is_nothing_to_gain(self):
        text = said(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 1.0}))
        self.assertEndsWith(text, "the best is at most 1.00 times as fast")

    def test_what_one_round_showed_is_told_where_it_was_all(self):
        text = said(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 0.8, "expert": 0.5}))
        self.assertEndsWith(text, "the best was about 0.80x original")

    def test_notes_and_advice_follow_the_reason(self):
        text = said(Outcome.NOT_CONFIRMED, note="there was no time")
        self.assertEqual(text, "no placement was confirmed to be faster: there was no time")
        self.assertEndsWith(said(Outcome.INTERRUPTED), ": the same call goes on where it was")

    def test_every_outcome_has_a_sentence(self):
        for outcome in Outcome:
            if outcome is not Outcome.FASTER:
                self.assertGreater(len(said(outcome)), 10)

    def test_where_there_is_nothing_to_place_there_is_no_result(self):
        self.assertEndsWith(verdict(None), "there is nothing to place")


class BestComparisonTest(absltest.TestCase):
    def test_it_is_that_of_the_verdict_even_if_another_looked_better(self):
        confirmed = confirmation({"auto": 1.3, "expert": 1.2})
        self.assertIs(best_comparison(confirmed), confirmed.comparisons["auto"])

    def test_without_a_confirmation_there_is_none(self):
        self.assertIsNone(best_comparison(None))


if __name__ == "__main__":
    absltest.main()
