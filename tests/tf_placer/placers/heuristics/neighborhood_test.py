from collections import Counter

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.heuristics.neighborhood import Neighborhood

# Draws that choose the kind of a move.
_ALONE, _NEIGHBORS, _LAYER, _SWAP = 0.1, 0.3, 0.6, 0.9


class _Draws:
    """A generator that returns given numbers."""

    def __init__(self, *draws):
        self.draws = draws

    def random(self, count):
        assert count == len(self.draws)
        return np.array(self.draws)


def _move(groups, legal, placement, group, target, kind, partner=0.0):
    """Makes a move of a placement; `group` and `target` are numbers drawn."""
    neighborhood = Neighborhood(groups, np.array(legal, np.bool_))
    draws = _Draws(group, target, kind, partner)
    return neighborhood.draw_move(np.array(placement, np.int32), draws).tolist()


class NeighborhoodTest(absltest.TestCase):
    def test_a_group_goes_alone(self):
        everywhere = np.ones([4, 3])
        placement = [0, 0, 0, 0]
        for target, device in ((0.0, 1), (0.49, 1), (0.5, 2), (0.99, 2)):
            found = _move(graphs.chain(4), everywhere, placement, 0.5, target, _ALONE)
            self.assertEqual(found, [0, 0, device, 0])

    def test_a_group_goes_with_its_neighbors_on_the_same_device(self):
        everywhere = np.ones([5, 3])
        for placement, expected in (
            ([0, 0, 0, 0, 0], [0, 1, 1, 1, 0]),
            ([0, 2, 0, 0, 0], [0, 2, 1, 1, 0]),
            ([0, 2, 0, 2, 0], [0, 2, 1, 2, 0]),
        ):
            found = _move(graphs.chain(5), everywhere, placement, 0.5, 0.0, _NEIGHBORS)
            self.assertEqual(found, expected)

    def test_neighbors_stay_if_the_device_is_illegal(self):
        legal = [[1, 1], [1, 0], [1, 1], [1, 1]]
        found = _move(graphs.chain(4), legal, [0, 0, 0, 0], 0.5, 0.0, _NEIGHBORS)
        self.assertEqual(found, [0, 0, 1, 1])

    def test_a_group_goes_with_its_layer(self):
        groups = graphs.group_graph(5, layers=[4, 0, 4, 0, 4])
        found = _move(groups, np.ones([5, 2]), [0, 0, 0, 0, 1], 0.5, 0.0, _LAYER)
        self.assertEqual(found, [1, 0, 1, 0, 1])

    def test_two_groups_change_places(self):
        placement = [0, 1, 2, 1]
        for partner, expected in ((0.0, [1, 0, 2, 1]), (0.6, [1, 1, 2, 0])):
            found = _move(graphs.chain(4), np.ones([4, 3]), placement, 0.0, 0.0, _SWAP, partner)
            self.assertEqual(found, expected)

    def test_exchanges_only_legal_pairs(self):
        legal = [[1, 1], [0, 1], [1, 1], [1, 1]]
        found = _move(graphs.chain(4), legal, [0, 1, 1, 0], 0.0, 0.0, _SWAP)
        self.assertEqual(found, [1, 1, 0, 0])

    def test_a_group_without_an_exchange_partner_goes_alone(self):
        found = _move(graphs.chain(3), np.ones([3, 2]), [0, 0, 0], 0.0, 0.0, _SWAP)
        self.assertEqual(found, [1, 0, 0])

    def test_groups_without_choice_are_never_drawn(self):
        legal = [[1, 0], [1, 1], [0, 1]]
        for group in (0.0, 0.5, 0.99):
            found = _move(graphs.chain(3), legal, [0, 0, 1], group, 0.0, _ALONE)
            self.assertEqual(found, [0, 1, 1])

    def test_counts_moves_of_one_group(self):
        neighborhood = Neighborhood(
            graphs.chain(3), np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)
        )
        self.assertEqual(neighborhood.num_single_moves, 3)
        self.assertEqual(neighborhood.num_movable, 2)

    def test_the_placement_itself_is_not_changed(self):
        placement = np.zeros(4, np.int32)
        neighborhood = Neighborhood(graphs.chain(4), np.ones([4, 2], np.bool_))
        generator = np.random.default_rng(0)
        for _ in range(20):
            self.assertTrue((neighborhood.draw_move(placement, generator) != placement).any())
        self.assertFalse(placement.any())

    def test_all_moves_are_legal_and_every_single_move_comes_up(self):
        rng = np.random.default_rng(1)
        legal = rng.random([6, 4]) < 0.6
        legal[np.arange(6), rng.integers(4, size=6)] = True
        neighborhood = Neighborhood(graphs.two_chains(3), legal)
        placement = legal.argmax(axis=1).astype(np.int32)
        seen = Counter()
        for _ in range(2000):
            found = neighborhood.draw_move(placement, rng)
            self.assertTrue(legal[np.arange(6), found].all())
            changed = np.flatnonzero(found != placement)
            if len(changed) == 1:
                seen[changed[0], found[changed[0]]] += 1
        self.assertLen(seen, neighborhood.num_single_moves)


if __name__ == "__main__":
    absltest.main()
