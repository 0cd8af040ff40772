"""Tests of what the search of `auto` starts from."""

from __future__ import annotations

import dataclasses
import itertools
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.placers.problems import task_problem
from tf_placer.placers import registry
from tf_placer.placers.auto.starts import starting_placements
from tf_placer.problem.problem_groups import group_graph

_PROBLEM = task_problem([(1, 1)] * 6)


def _starts(seeding: dict[str, int]) -> list[str]:
    """The names of the placers behind the starts, in turn, where only some seed `auto`."""
    entries = {
        name: dataclasses.replace(entry, seeds_auto=seeding.get(name, 0))
        for name, entry in registry.PLACERS.items()
    }
    with mock.patch.dict(registry.PLACERS, entries):
        return [name for name, _ in starting_placements(_PROBLEM, group_graph(_PROBLEM), seed=0)]


class StartsTest(absltest.TestCase):
    def test_every_heuristic_that_seeds_has_a_turn_in_the_order_of_the_registry(self):
        names = [name for name, _ in starting_placements(_PROBLEM, group_graph(_PROBLEM), seed=0)]
        seeding = [name for name, entry in registry.PLACERS.items() if entry.seeds_auto]
        turns = [name for name, _ in itertools.groupby(names)]
        self.assertContainsSubset(turns, seeding)
        self.assertEqual(list(dict.fromkeys(turns)), [each for each in seeding if each in turns])
        self.assertContainsSubset(["single_device", "branches", "heft"], turns)

    def test_the_entry_says_how_many_come_at_once_and_the_others_come_last(self):
        one, cpu = "single_device", "single_cpu"
        self.assertEqual(_starts({one: 1, cpu: 1}), [one, cpu, one])
        self.assertEqual(_starts({one: 2, cpu: 1}), [one, one, cpu])

    def test_one_that_is_given_the_flag_seeds_without_more_ado(self):
        self.assertEqual(_starts({"single_cpu": 1}), ["single_cpu"])

    def test_one_whose_library_is_missing_has_no_turn(self):
        entries = {
            "heft": dataclasses.replace(registry.PLACERS["heft"], made_by="no_such_library:Heft")
        }
        with mock.patch.dict(registry.PLACERS, entries):
            self.assertEqual(_starts({"single_cpu": 1, "heft": 1}), ["single_cpu"])


if __name__ == "__main__":
    absltest.main()
