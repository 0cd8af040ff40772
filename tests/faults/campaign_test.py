"""Tests of the counts of a campaign."""

from __future__ import annotations

import subprocess
from unittest import mock

from absl.testing import absltest

from tests.faults.campaign import Case, make_in_child, tables

_LINE = '{"number": 7, "victim": "a", "fault": "f", "answer": "works", "words": ""}\n'


class CampaignTest(absltest.TestCase):
    def make_cases(self, code: int, output: str) -> list[Case]:
        done = subprocess.CompletedProcess([], code, output, "it fails")
        with mock.patch.object(subprocess, "run", return_value=done):
            return make_in_child("kills", 7)

    def test_a_child_that_dies_is_a_case(self):
        self.assertEqual(self.make_cases(0, _LINE), [Case(7, "a", "f", "works")])
        crash = Case(8, "?", "?", "crash", "it fails")
        self.assertEqual(self.make_cases(-11, _LINE), [Case(7, "a", "f", "works"), crash])
        self.assertEqual(self.make_cases(1, _LINE)[1:], [crash])
        self.assertEqual([case.answer for case in self.make_cases(-11, "")], ["crash"])
        with self.assertRaisesRegex(RuntimeError, "the campaign itself fails: it fails"):
            self.make_cases(1, "")

    def test_answers_are_counted_by_victim_and_by_fault(self):
        kinds = (("a", "f", "works"), ("a", "g", "hang"), ("b", "f", "works"))
        victims, faults = tables([Case(0, *each) for each in kinds]).split("\n\n")
        self.assertEqual(
            victims.splitlines()[2:], ["| a | 1 | 1 |", "| b | 1 | 0 |", "| all | 2 | 1 |"]
        )
        self.assertIn("| f | 2 | 0 |", faults)


if __name__ == "__main__":
    absltest.main()
