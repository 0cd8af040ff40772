import dataclasses
import doctest
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.placers.heuristics import contiguous
from tf_placer.placers.heuristics.contiguous import Contiguous, cut_equally


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(contiguous))
    return tests


class EqualCutsTest(absltest.TestCase):
    def test_cuts_equal_items_into_equal_parts_with_longer_parts_first(self):
        self.assertEqual(cut_equally(np.ones(6), 3).tolist(), [0, 0, 1, 1, 2, 2])
        self.assertEqual(cut_equally(np.ones(5), 3).tolist(), [0, 0, 1, 1, 2])
        self.assertEqual(cut_equally(np.ones(7), 3).tolist(), [0, 0, 0, 1, 1, 2, 2])

    def test_makes_every_item_a_part_if_there_are_more_parts(self):
        self.assertEqual(cut_equally(np.array([5.0, 0.0, 1.0]), 4).tolist(), [0, 1, 2])

    def test_leaves_no_part_empty_even_if_nothing_weighs_anything(self):
        self.assertEqual(sorted(set(cut_equally(np.zeros(5), 3).tolist())), [0, 1, 2])

    def test_has_the_least_sum_of_squares_of_all_cuts(self):
        rng = np.random.default_rng(0)
        for num_items, num_parts in ((4, 2), (6, 3), (8, 4), (7, 7), *[(13, 4)] * 6):
            weights = rng.integers(0, rng.choice([3, 9]), num_items).astype(np.float64)
            # Among equal cuts, the last part begins as late as possible, then the one before it.
            _, last_first = min(
                (sum(part.sum() ** 2 for part in np.split(weights, cuts)), [-c for c in cuts[::-1]])
                for cuts in itertools.combinations(range(1, num_items), num_parts - 1)
            )
            parts = cut_equally(weights, num_parts)
            self.assertEqual(
                np.flatnonzero(np.diff(parts)).tolist(), [-c - 1 for c in last_first[::-1]]
            )
            self.assertEqual(parts.tolist(), sorted(parts))

    def test_weighs_parts_by_their_powers(self):
        rng = np.random.default_rng(1)
        for num_items, num_parts in ((6, 2), (8, 3), (9, 4), *[(12, 3)] * 10):
            weights = rng.uniform(0.5, 2.0, num_items)
            powers = rng.uniform(0.1, 1.0, num_parts)
            least = min(
                sum(
                    part.sum() ** 2 / power
                    for part, power in zip(np.split(weights, cuts), powers, strict=True)
                )
                for cuts in itertools.combinations(range(1, num_items), num_parts - 1)
            )
            loads = np.bincount(cut_equally(weights, num_parts, powers), weights)
            self.assertAlmostEqual((loads**2 / powers).sum(), least)

    def test_equal_powers_change_nothing(self):
        weights = np.random.default_rng(2).uniform(0.0, 1.0, 50)
        self.assertEqual(
            cut_equally(weights, 7).tolist(), cut_equally(weights, 7, np.ones(7)).tolist()
        )


class ContiguousTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return Contiguous(groups, legal, seed=seed)

    def test_gpus_come_first_wherever_they_are(self):
        # Two computers have a CPU and a GPU each.
        problem = build_task_problem([(1.0,) * 4] * 4)
        devices = tuple(
            dataclasses.replace(device, kind=kind)
            for device, kind in zip(problem.devices, ("CPU", "GPU") * 2, strict=True)
        )
        problem = dataclasses.replace(problem, devices=devices)
        legal = np.ones([4, 4], np.bool_)
        placements = Contiguous(graphs.group_graph(4), legal, problem=problem).propose(99)
        self.assertEqual(placements[0].tolist(), [1, 1, 3, 3])
        self.assertEqual(placements[1].tolist(), [3, 3, 1, 1])
        self.assertIn([0, 1, 2, 3], placements.tolist())

    def test_proposes_three_cuts_each_also_reversed(self):
        groups = graphs.group_graph(
            6,
            type_counts=np.array([[9], [1], [1], [1], [1], [3]]),  # 9 + 1 | 6 or 9 | 7: 9 | 7
            work=[1, 1, 1, 1, 1, 5],  # 5 | 5
        )
        placements = Contiguous(groups, np.ones([6, 2], np.bool_)).propose(99)
        self.assertEqual(
            placements.tolist(),
            [
                [0, 0, 0, 1, 1, 1],
                [0, 1, 1, 1, 1, 1],
                [0, 0, 0, 0, 0, 1],
                [1, 1, 1, 0, 0, 0],
                [1, 0, 0, 0, 0, 0],
                [1, 1, 1, 1, 1, 0],
            ],
        )

    def test_proposes_equal_placements_once(self):
        placements = Contiguous(graphs.chain(4), np.ones([4, 2], np.bool_)).propose(99)
        self.assertEqual(placements.tolist(), [[0, 0, 1, 1], [1, 1, 0, 0]])

    def test_proposals_without_device_0_come_first_if_there_are_more_than_two_devices(self):
        placements = Contiguous(graphs.chain(4), np.ones([4, 3], np.bool_)).propose(99)
        self.assertEqual(
            placements.tolist(), [[1, 1, 2, 2], [2, 2, 1, 1], [0, 0, 1, 2], [2, 2, 1, 0]]
        )

    def test_groups_of_a_layer_stay_together_in_any_order(self):
        groups = graphs.group_graph(6, layers=[0, 7, 0, 3, 7, 3])
        placements = Contiguous(groups, np.ones([6, 3], np.bool_)).propose(99)
        self.assertEqual(placements[-2:].tolist(), [[0, 2, 0, 1, 2, 1], [2, 0, 2, 1, 0, 1]])

    def test_counts_a_layers_groups_operations_and_work_together(self):
        groups = graphs.group_graph(5, layers=[0, 0, 0, 1, 2])
        placements = Contiguous(groups, np.ones([5, 2], np.bool_)).propose(99)
        # Two of three layers, or three of five operations and units of work.
        self.assertEqual(placements[:2].tolist(), [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]])

    def test_replaces_illegal_devices_by_the_first_legal_device(self):
        legal = np.array([[True, True], [True, True], [True, False], [False, True]])
        placements = Contiguous(graphs.chain(4), legal).propose(99)
        self.assertEqual(placements.tolist(), [[0, 0, 0, 1], [1, 1, 0, 1]])

    def test_one_device_gives_one_placement(self):
        placements = Contiguous(graphs.chain(3), np.ones([3, 1], np.bool_)).propose(99)
        self.assertEqual(placements.tolist(), [[0, 0, 0]])


if __name__ == "__main__":
    absltest.main()
