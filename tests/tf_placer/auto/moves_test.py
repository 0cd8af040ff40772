import collections

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.auto.levels import make_levels
from tf_placer.auto.moves import HotSpots, Moves


def make_moves(legal, *, num_groups=8, seed=0, work_secs=None):
    levels = make_levels(graphs.chain(num_groups), [np.arange(num_groups) // 2])
    return Moves(levels, legal, np.ones(num_groups) if work_secs is None else work_secs, seed)


def drawn(moves, placement, count=500, hot=None, coarse_share=0.5):
    draws = (moves.draw(placement, hot, coarse_share) for _ in range(count))
    return [move for move in draws if move is not None]


class MovesTest(absltest.TestCase):
    def test_every_move_is_legal_and_changes_something(self):
        random = np.random.default_rng(0)
        legal = np.ones([8, 3], np.bool_)
        legal[2] = [True, False, False]
        legal[5] = [False, True, True]
        moves = make_moves(legal)
        for _ in range(20):
            wanted = random.integers(3, size=8)
            placement = np.where(legal[np.arange(8), wanted], wanted, legal.argmax(1))
            for move in drawn(moves, placement.astype(np.int32), 50):
                self.assertTrue(legal[move.groups, move.device].all())
                self.assertTrue((placement[move.groups] != move.device).any())
                self.assertLen(set(move.groups.tolist()), len(move.groups))

    def test_all_kinds_occur_on_both_levels(self):
        moves = drawn(make_moves(np.ones([8, 2], np.bool_)), np.array([0, 1] * 4, np.int32), 2000)
        kinds = collections.Counter(move.kind for move in moves)
        expected = [
            f"{kind} {level}"
            for kind in ("one", "neighbours", "stretch", "join")
            for level in ("groups", "clusters")
        ]
        self.assertCountEqual(kinds, expected)
        self.assertGreater(min(kinds.values()), 40)

    def test_every_placement_of_a_small_graph_can_be_reached(self):
        moves = make_moves(np.ones([4, 2], np.bool_), num_groups=4)
        placement, seen = np.zeros(4, np.int32), set()
        for _ in range(1000):
            for move in drawn(moves, placement, 1):
                placement = placement.copy()
                placement[move.groups] = move.device
            seen.add(placement.tobytes())
        self.assertLen(seen, 16)

    def test_no_coarse_share_moves_no_clusters(self):
        moves = drawn(make_moves(np.ones([8, 2], np.bool_)), np.zeros(8, np.int32), coarse_share=0)
        self.assertNotIn("clusters", " ".join(move.kind for move in moves))

    def test_what_the_step_waits_for_is_drawn_more_often(self):
        hot = HotSpots(np.array([3], np.int32), np.array([1.0]), np.zeros([0, 2], np.int32))
        counts = []
        for spots in (None, hot):
            moves = make_moves(np.ones([8, 2], np.bool_))
            found = drawn(moves, np.zeros(8, np.int32), hot=spots, coarse_share=0.0)
            singles = [move.groups[0] for move in found if move.kind == "one groups"]
            counts.append(np.mean(np.array(singles) == 3))
        self.assertLess(counts[0], 0.25)
        self.assertGreater(counts[1], 0.4)

    def test_joins_the_ends_of_a_transfer(self):
        hot = HotSpots(np.array([0], np.int32), np.array([1.0]), np.array([[0, 7]] * 20, np.int32))
        placement = np.array([0, 1, 1, 1, 1, 1, 1, 2], np.int32)
        moves = drawn(make_moves(np.ones([8, 3], np.bool_)), placement, 1000, hot, 0.0)
        joins = {(*m.groups.tolist(), m.device) for m in moves if m.kind == "join groups"}
        self.assertContainsSubset({(0, 2), (7, 0)}, joins)

    def test_groups_with_one_device_never_move(self):
        legal = np.ones([8, 2], np.bool_)
        legal[:7, 1] = False
        self.assertEqual(
            {tuple(m.groups.tolist()) for m in drawn(make_moves(legal), np.zeros(8, np.int32))},
            {(7,)},
        )
        legal[7, 1] = False
        moves = make_moves(legal)
        self.assertFalse(moves.can_move)
        self.assertEmpty(drawn(moves, np.zeros(8, np.int32)))

    def test_the_same_seed_draws_the_same_moves(self):
        first, second = (
            [(m.kind, m.groups.tolist(), m.device) for m in drawn(make, np.zeros(8, np.int32))]
            for make in (make_moves(np.ones([8, 2], np.bool_), seed=5) for _ in range(2))
        )
        self.assertEqual(first, second)


if __name__ == "__main__":
    absltest.main()
