import os

import numpy as np
from absl.testing import absltest

from graph_passes.grouping.group_graph import GroupGraph
from tests.tf_placer import doubles
from tests.tf_placer.placers import graphs
from tests.tf_placer.placers.placer_conformance import PlacerConformance, measure
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.best_start import BestStart
from tf_placer.placers.heuristics.simple_starts import simple_starts
from tf_placer.placers.heuristics.uniform_random import UniformRandom

_ANYWHERE = np.ones([4, 2], np.bool_)
_FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "too much"))


def _make_best_start(starts: list, scripted: doubles.ScriptedPlacer) -> BestStart:
    """Makes a placer of four groups that records the starts of the other placer."""

    def make(start):
        starts.append(None if start is None else start.tolist())
        return scripted

    return BestStart("learned", graphs.chain(4), _ANYWHERE, seed=0, make=make)


class BestStartConformanceTest(PlacerConformance, absltest.TestCase):
    def new_placer(self, groups: GroupGraph, legal: np.ndarray, seed: int) -> BestStart:
        return BestStart(
            "learned",
            groups,
            legal,
            seed=seed,
            make=lambda start: UniformRandom(groups, legal, seed=seed),
        )


class BestStartTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scripted = doubles.ScriptedPlacer("scripted", [[[0, 1, 0, 1], [1, 1, 0, 0]]])
        self.starts: list = []
        self.simple = simple_starts(graphs.chain(4), _ANYWHERE, seed=0).propose(99)
        self.assertIn([0, 0, 1, 1], self.simple.tolist())

    def test_proposes_simple_placements_then_starts_the_other_placer_at_the_best(self):
        placer = _make_best_start(self.starts, self.scripted)
        self.assertEqual((placer.name, placer.batch_size), ("learned", 1))
        self.assertEqual(placer.propose(99).tolist(), self.simple.tolist())
        self.assertEqual(self.starts, [])
        # The fastest placement is neither the first nor the last.
        secs = [3.0, 1.0, *[2.0] * (len(self.simple) - 2)]
        placer.observe(self.simple, [Measurement((each,)) for each in secs])
        self.assertEqual(self.starts, [self.simple[1].tolist()])
        self.assertEqual(placer.batch_size, 2)
        self.assertEqual(placer.propose(99).tolist(), [[0, 1, 0, 1], [1, 1, 0, 0]])

    def test_a_batch_may_contain_placements_of_both_placers(self):
        placer = _make_best_start(self.starts, self.scripted)
        placements = np.concatenate([self.simple, np.array([[0, 1, 0, 1]], np.int32)])
        measured = measure(placements)
        placer.observe(placements[:1], measured[:1])
        placer.observe(placements[1:], measured[1:])
        self.assertEqual(self.scripted.observed, [([[0, 1, 0, 1]], measured[-1:])])

    def test_if_no_simple_placement_runs_the_other_placer_has_no_start(self):
        placer = _make_best_start(self.starts, self.scripted)
        placer.observe(self.simple, [_FAILED] * len(self.simple))
        self.assertEqual(self.starts, [None])

    def test_passes_on_updates_and_state(self):
        learning = doubles.LearningPlacer(graphs.chain(4), _ANYWHERE)
        placer = _make_best_start(self.starts, learning)
        directory = self.create_tempdir().full_path
        placer.save(directory)
        self.assertEmpty(os.listdir(directory))
        self.assertEmpty(placer.updates)
        placer.observe(self.simple, measure(self.simple))
        placements = placer.propose(1)
        placer.observe(placements, measure(placements))
        self.assertLen(placer.updates, 1)
        self.assertEqual(placer.updates, learning.updates)
        placer.save(directory)
        self.assertNotEmpty(os.listdir(directory))


if __name__ == "__main__":
    absltest.main()
