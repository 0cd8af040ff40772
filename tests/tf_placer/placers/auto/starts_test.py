"""Tests of the starts of the search of `auto`."""

from __future__ import annotations

import dataclasses
import itertools
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.placers import registry
from tf_placer.placers.auto.starts import propose_starts
from tf_placer.problem.problem_groups import group_graph

_PROBLEM = build_task_problem([(1, 1)] * 6)


def _list_start_names(seeding: dict[str, int]) -> list[str]:
    """Lists the names of the placers behind the starts, where only some placers seed `auto`."""
    entries = {
        name: dataclasses.replace(entry, seeds_auto=seeding.get(name, 0))
        for name, entry in registry.PLACERS.items()
    }
    with mock.patch.dict(registry.PLACERS, entries):
        return [name for name, _ in propose_starts(_PROBLEM, group_graph(_PROBLEM), seed=0)]


class StartsTest(absltest.TestCase):
    def test_every_seeding_heuristic_proposes_in_the_order_of_the_registry(self):
        names = [name for name, _ in propose_starts(_PROBLEM, group_graph(_PROBLEM), seed=0)]
        seeding = [name for name, entry in registry.PLACERS.items() if entry.seeds_auto]
        turns = [name for name, _ in itertools.groupby(names)]
        self.assertContainsSubset(turns, seeding)
        self.assertEqual(list(dict.fromkeys(turns)), [each for each in seeding if each in turns])
        self.assertContainsSubset(["single_device", "branches", "heft"], turns)

    def test_seeds_auto_limits_the_proposals_before_the_next_placer(self):
        one, cpu = "single_device", "single_cpu"
        self.assertEqual(_list_start_names({one: 1, cpu: 1}), [one, cpu, one])
        self.assertEqual(_list_start_names({one: 2, cpu: 1}), [one, one, cpu])

    def test_seeds_auto_suffices_for_a_placer_to_seed(self):
        self.assertEqual(_list_start_names({"single_cpu": 1}), ["single_cpu"])

    def test_skips_placers_whose_library_is_missing(self):
        entries = {
            "heft": dataclasses.replace(registry.PLACERS["heft"], factory="no_such_library:Heft")
        }
        with mock.patch.dict(registry.PLACERS, entries):
            self.assertEqual(_list_start_names({"single_cpu": 1, "heft": 1}), ["single_cpu"])


if __name__ == "__main__":
    absltest.main()
