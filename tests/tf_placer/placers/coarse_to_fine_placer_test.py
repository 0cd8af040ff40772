import os

import numpy as np
from absl.testing import absltest

from graph_passes.grouping.group_graph import GroupGraph
from tests.tf_placer import doubles
from tests.tf_placer.placers import graphs
from tests.tf_placer.placers.placer_conformance import PlacerConformance, measure
from tf_placer.placers.coarse_to_fine_placer import CoarseToFinePlacer
from tf_placer.placers.heuristics.uniform_random import UniformRandom


class CoarseToFinePlacerConformanceTest(PlacerConformance, absltest.TestCase):
    def new_placer(self, groups: GroupGraph, legal: np.ndarray, seed: int) -> CoarseToFinePlacer:
        return CoarseToFinePlacer(
            UniformRandom(groups, legal, seed=seed), groups, legal, np.arange(6)
        )


class CoarseToFinePlacerTest(absltest.TestCase):
    def test_expands_placements_and_passes_coarse_placements_on(self):
        coarse = doubles.ScriptedPlacer("scripted", [[[0, 1, 0], [1, 1, 0]], [[1, 0, 1]]])
        groups = graphs.two_chains(3)
        clusters = np.array([0, 2, 2, 0, 1, 1])
        placer = CoarseToFinePlacer(coarse, groups, np.ones([6, 2], np.bool_), clusters)
        self.assertEqual((placer.name, placer.batch_size), ("scripted", 2))
        placements = placer.propose(2)
        self.assertEqual(placements.tolist(), [[0, 0, 0, 0, 1, 1], [1, 0, 0, 1, 1, 1]])
        measured = measure(placements)
        placer.observe(placements, measured)
        self.assertEqual(coarse.observed, [([[0, 1, 0], [1, 1, 0]], measured)])
        placer.observe(placer.propose(2), measured[:1])
        self.assertEqual(placer.propose(2).shape, (0, 6))

    def test_passes_on_updates_and_state(self):
        learning = doubles.LearningPlacer(graphs.chain(3), np.ones([3, 2], np.bool_))
        groups = graphs.two_chains(3)
        clusters = np.array([0, 2, 2, 0, 1, 1])
        placer = CoarseToFinePlacer(learning, groups, np.ones([6, 2], np.bool_), clusters)
        placements = placer.propose(1)
        placer.observe(placements, measure(placements))
        self.assertEqual(placer.updates, learning.updates)
        self.assertLen(placer.updates, 1)
        directory = self.create_tempdir().full_path
        placer.save(directory)
        self.assertNotEmpty(os.listdir(directory))


if __name__ == "__main__":
    absltest.main()
