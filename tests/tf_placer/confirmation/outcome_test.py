"""Tests of the ways in which a live search ends."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.confirmation.outcome import Outcome

_TITLES = {
    "faster": "placed",
    **dict.fromkeys(
        ("fits", "not_faster", "different_values", "nothing_to_place"),
        "unchanged",
    ),
    **dict.fromkeys(("interrupted", "no_time", "not_confirmed", "nothing_runs"), "no verdict"),
}


class OutcomeTest(absltest.TestCase):
    def test_an_outcome_that_more_time_may_change_is_no_verdict(self):
        self.assertEqual({each.value: each.title for each in Outcome}, _TITLES)
        for outcome in Outcome:
            self.assertEqual(outcome.is_verdict, outcome.title != "no verdict")


if __name__ == "__main__":
    absltest.main()
