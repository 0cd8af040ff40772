"""The contract of all placers, as a mix-in for test cases.

A test case derives from `PlacerConformance` and `absltest.TestCase` and gives `new_placer`.
"""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tests.tf_placer.placers import graphs
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.placer import Placer

__all__ = ["PlacerConformance", "measure"]

_BATCHES = 3


def measure(placements: np.ndarray) -> list[Measurement]:
    """Makes up measurements; a placement with group 0 on device 1 fails."""
    failure = Failure(FailureKind.OUT_OF_MEMORY, "made up")
    return [
        Measurement(failure=failure)
        if row[0] == 1
        else Measurement((0.1 * (1 + np.count_nonzero(row)), 0.2))
        for row in placements
    ]


class PlacerConformance:
    """The contract of `Placer`, as tests."""

    def new_placer(self, groups: GroupGraph, legal: np.ndarray, seed: int) -> Placer:
        """Makes the placer under test."""
        raise NotImplementedError

    def _make_placer(self, seed: int = 0) -> Placer:
        legal = np.ones([6, 3], np.bool_)
        legal[1] = [True, False, False]
        legal[4] = [False, True, True]
        return self.new_placer(graphs.two_chains(3), legal, seed)

    def test_first_proposes_at_most_the_requested_number_of_legal_placements(self) -> None:
        placer = self._make_placer()
        self.assertIsInstance(placer.name, str)
        self.assertGreaterEqual(placer.batch_size, 1)
        for count in (0, 1, placer.batch_size, placer.batch_size + 3):
            with self.subTest(f"propose({count})"):
                placements = placer.propose(count)
                self.assertEqual(placements.dtype, np.int32)
                self.assertEqual(placements.ndim, 2)
                self.assertEqual(placements.shape[1], 6)
                self.assertLessEqual(len(placements), count)
                self.assertEqual(len(placements) > 0, count > 0)
                self.assertTrue(placer.legal[np.arange(6), placements].all())
                self.assertGreaterEqual(placements.min(initial=0), 0)

    def test_proposing_changes_nothing(self) -> None:
        placer = self._make_placer()
        for _ in range(2):
            first = placer.propose(placer.batch_size)
            placer.propose(2)
            np.testing.assert_array_equal(placer.propose(placer.batch_size), first)
            np.testing.assert_array_equal(
                placer.propose(1), first[:1], "propose(1) is not the first of more placements"
            )
            first[:] = -1  # Callers may overwrite proposals.
            first = placer.propose(placer.batch_size)
            self.assertGreaterEqual(first.min(initial=0), 0)
            placer.observe(first, measure(first))

    def test_proposals_depend_on_seed_and_observations_only(self) -> None:
        placer, restored = self._make_placer(seed=3), self._make_placer(seed=3)
        proposals = []
        for _ in range(_BATCHES):
            proposals.append(placer.propose(placer.batch_size))
            placer.observe(proposals[-1], measure(proposals[-1]))
        np.testing.assert_array_equal(restored.propose(placer.batch_size), proposals[0])
        for proposal in proposals:
            restored.observe(proposal, measure(proposal))
        np.testing.assert_array_equal(restored.propose(8), placer.propose(8))

    def test_observes_any_number_of_placements_failures_included(self) -> None:
        placer = self._make_placer()
        failure = Measurement(failure=Failure(FailureKind.TIMEOUT, "made up"))
        for size in (0, 1, 2 * placer.batch_size + 1):
            placements = placer.propose(size)
            placer.observe(placements, [failure] * len(placements))
        placements = placer.propose(4)
        self.assertTrue(placer.legal[np.arange(6), placements].all())

    def test_a_placer_without_proposals_never_proposes_again(self) -> None:
        placer = self._make_placer()
        for _ in range(30):
            placements = placer.propose(1)
            if not len(placements):
                self.assertEqual(placements.shape, (0, 6))
                self.assertEmpty(placer.propose(5))
                break
            placer.observe(placements, measure(placements))

    def test_groups_with_one_legal_device_are_on_it(self) -> None:
        legal = np.zeros([6, 3], np.bool_)
        legal[np.arange(6), [0, 1, 2, 2, 1, 0]] = True
        placements = self.new_placer(graphs.chain(6), legal, 0).propose(4)
        for placement in placements:
            self.assertEqual(placement.tolist(), [0, 1, 2, 2, 1, 0])

    def test_refuses_a_legal_array_that_does_not_fit(self) -> None:
        groups = graphs.chain(6)
        nowhere = np.ones([6, 2], np.bool_)
        nowhere[4] = False
        for legal, message in (
            (np.ones([5, 2], np.bool_), r"\[6, devices\]"),
            (np.ones([6, 2], np.int32), "int32"),
            (np.ones([6], np.bool_), r"\(6,\)"),
            (nowhere, "group_4"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self.new_placer(groups, legal, 0)
