import collections
import ctypes
import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.native.library import Struct, array_of, core, int64, pointer_to, random_struct
from tf_placer.placers.auto.levels import make_levels
from tf_placer.placers.auto.moves import KINDS, make_drawn_move, make_move_tables

CLUSTERS, GROUPS = range(2)
NO_TRANSFERS = np.zeros([0, 2], np.int32)


class HotSpots(Struct):
    """The critical path of a step: the struct of the same name in `native/moves.h`."""

    _fields_ = (
        ("groups", array_of(np.int32)),
        ("cumulated", array_of(np.float64)),
        ("transfers", array_of(np.int32)),
        ("num_items", int64),
        ("num_transfers", int64),
    )


def make_hot_spots(groups=(), secs=(), transfers=NO_TRANSFERS):
    """Makes hot spots from groups, their seconds, and the two groups of each transfer."""
    return HotSpots(
        groups=np.array(groups, np.int32),
        cumulated=np.cumsum(np.array(secs, np.float64)),
        transfers=np.array(transfers, np.int32),
        num_items=len(groups),
        num_transfers=len(transfers),
    )


@dataclasses.dataclass(frozen=True)
class Move:
    kind: str
    level: int
    groups: tuple[int, ...]
    devices: tuple[int, ...]


class Drawer:
    """Draws moves of a chain of groups with clusters of two groups each."""

    def __init__(self, legal, *, seed=0, work_secs=None):
        count = len(legal)
        levels = make_levels(graphs.chain(count), [np.arange(count) // 2])
        work_secs = np.ones(count) if work_secs is None else np.array(work_secs, np.float64)
        self._tables = make_move_tables(levels, np.array(legal), work_secs)
        self._drawn = make_drawn_move(count)
        self._random = np.random.default_rng(seed)

    def draw(self, placement, count=500, *, hot=None, coarse_share=0.5):
        hot = make_hot_spots() if hot is None else hot
        placement = np.array(placement, np.int32)
        before, moves = placement.copy(), []
        for _ in range(count):
            moved = core().tf_placer_draw_move(
                ctypes.byref(self._tables),
                ctypes.byref(hot),
                ctypes.byref(self._drawn),
                ctypes.byref(random_struct(self._random)),
                pointer_to(placement, np.int32),
                coarse_share,
            )
            if moved:
                kind, level = self._drawn["kind"]
                groups, devices = self._drawn["groups"][:moved], self._drawn["devices"][:moved]
                moves.append(
                    Move(KINDS[kind], int(level), tuple(groups.tolist()), tuple(devices.tolist()))
                )
        np.testing.assert_array_equal(placement, before)
        return moves


def anywhere(num_groups, num_devices):
    return np.ones([num_groups, num_devices], np.bool_)


def apply_moves(moves, placement):
    """Builds the placement after each move."""
    after = np.tile(np.array(placement, np.int32), [len(moves), 1])
    for row, move in zip(after, moves, strict=True):
        row[list(move.groups)] = move.devices
    return after


class DrawMoveTest(absltest.TestCase):
    def test_every_move_is_legal_and_moves_each_of_its_groups_once(self):
        random = np.random.default_rng(0)
        legal = anywhere(8, 3)
        legal[2] = [True, False, False]
        legal[5] = [False, True, True]
        drawer = Drawer(legal)
        for _ in range(40):
            wanted = random.integers(3, size=8)
            placement = np.where(legal[np.arange(8), wanted], wanted, legal.argmax(1))
            moves = drawer.draw(placement, 100)
            self.assertLen(moves, 100)
            for move in moves:
                groups, devices = list(move.groups), list(move.devices)
                self.assertTrue(legal[groups, devices].all())
                self.assertTrue((placement[groups] != devices).all())
                self.assertLen(set(groups), len(groups))

    def test_changes_the_devices_of_exactly_the_counted_groups(self):
        placement = np.array([0, 1, 2, 0, 1, 2, 0, 1])
        moves = Drawer(anywhere(8, 3)).draw(placement)
        num_changed = (apply_moves(moves, placement) != placement).sum(axis=1)
        self.assertEqual(num_changed.tolist(), [len(move.groups) for move in moves])

    def test_all_kinds_occur_on_both_levels(self):
        moves = Drawer(anywhere(8, 2)).draw([0, 1, 1, 0, 0, 1, 1, 0], 2000)
        kinds = collections.Counter((move.kind, move.level) for move in moves)
        expected = [(kind, level) for kind in KINDS for level in (CLUSTERS, GROUPS)]
        self.assertCountEqual(kinds, expected)
        self.assertGreater(min(kinds.values()), 40)

    def test_every_placement_of_a_small_graph_can_be_reached(self):
        drawer, seen = Drawer(anywhere(4, 2)), set()
        placement = np.zeros(4, np.int32)
        for _ in range(1000):
            [placement] = apply_moves(drawer.draw(placement, 1), placement)
            seen.add(placement.tobytes())
        self.assertLen(seen, 16)

    def test_all_but_swaps_go_to_one_device(self):
        for move in Drawer(anywhere(8, 3)).draw([0, 1, 2, 2, 1, 0, 0, 1], 2000):
            if move.kind != "swap":
                self.assertLen(set(move.devices), 1)

    def test_moves_of_one_take_one_group_or_a_cluster(self):
        moves = Drawer(anywhere(8, 2)).draw([0] * 8, 1000)
        singles = {move.groups for move in moves if (move.kind, move.level) == ("one", GROUPS)}
        self.assertEqual(singles, {(group,) for group in range(8)})
        pairs = {move.groups for move in moves if (move.kind, move.level) == ("one", CLUSTERS)}
        self.assertEqual(pairs, {(group, group + 1) for group in range(0, 8, 2)})

    def test_stretches_consist_of_consecutive_groups(self):
        moves = Drawer(anywhere(8, 2)).draw([0] * 8, 1000, coarse_share=0.0)
        lengths = set()
        for move in moves:
            if move.kind == "stretch":
                first = min(move.groups)
                self.assertCountEqual(move.groups, range(first, first + len(move.groups)))
                lengths.add(len(move.groups))
        self.assertContainsSubset({1, 2, 3, 4}, lengths)

    def test_neighbors_are_one_or_two_edges_away(self):
        moves = Drawer(anywhere(8, 2)).draw([0] * 8, 2000, coarse_share=0.0)
        found = {frozenset(move.groups) for move in moves if move.kind == "neighbors"}
        around = [
            frozenset(range(max(0, group - reach), min(8, group + reach + 1)))
            for group in range(8)
            for reach in (1, 2)
        ]
        self.assertEqual(found, set(around))

    def test_the_coarse_share_is_the_share_of_cluster_moves(self):
        for coarse_share, level in ((0.0, GROUPS), (1.0, CLUSTERS)):
            moves = Drawer(anywhere(8, 2)).draw([0] * 8, coarse_share=coarse_share)
            self.assertEqual({move.level for move in moves}, {level})

    def test_swapped_groups_change_places(self):
        placement = np.array([0, 1, 2, 0, 1, 2, 0, 1])
        swaps = [
            move
            for move in Drawer(anywhere(8, 3)).draw(placement, 2000, coarse_share=0.0)
            if move.kind == "swap"
        ]
        for swap in swaps:
            one, other = swap.groups
            self.assertEqual(swap.devices, (placement[other], placement[one]))
        # Every two groups of different devices can be exchanged, wherever they are.
        pairs = {frozenset(swap.groups) for swap in swaps}
        self.assertEqual(
            pairs, {frozenset((a, b)) for a in range(8) for b in range(a) if (a - b) % 3}
        )

    def test_swapped_clusters_change_places(self):
        placement = np.array([0, 0, 1, 1, 2, 2, 0, 0])
        moves = Drawer(anywhere(8, 3)).draw(placement, 1000, coarse_share=1.0)
        swaps = [move for move in moves if move.kind == "swap"]
        self.assertGreater(len(swaps), 50)
        for swap in swaps:
            self.assertLen(swap.groups, 4)
            clusters = {group // 2 for group in swap.groups}
            self.assertLen(clusters, 2)
            one, other = (placement[2 * cluster] for cluster in clusters)
            for group, device in zip(swap.groups, swap.devices, strict=True):
                self.assertEqual({placement[group], device}, {one, other})

    def test_a_swap_preserves_the_number_of_groups_on_each_device(self):
        placement = np.array([0, 1, 1, 0, 2, 1, 0, 2])
        moves = Drawer(anywhere(8, 3)).draw(placement, 1000, coarse_share=0.0)
        after = apply_moves([move for move in moves if move.kind == "swap"], placement)
        for row in after:
            self.assertEqual(np.bincount(row, minlength=3).tolist(), [3, 3, 2])

    def test_never_swaps_groups_on_one_device(self):
        moves = Drawer(anywhere(8, 2)).draw([1] * 8)
        self.assertNotIn("swap", {move.kind for move in moves})

    def test_draws_long_groups_more_often(self):
        moves = Drawer(anywhere(8, 2), work_secs=[1.0] * 7 + [100.0]).draw(
            [0] * 8, 1000, coarse_share=0.0
        )
        singles = collections.Counter(move.groups[0] for move in moves if move.kind == "one")
        self.assertGreater(singles[7], 3 * max(singles[group] for group in range(7)))
        self.assertGreater(min(singles[group] for group in range(7)), 0)

    def test_draws_groups_on_the_critical_path_more_often(self):
        hot = make_hot_spots([3], [1.0])
        shares = []
        for spots in (None, hot):
            moves = Drawer(anywhere(8, 2)).draw([0] * 8, hot=spots, coarse_share=0.0)
            singles = [move.groups[0] for move in moves if move.kind == "one"]
            shares.append(np.mean(np.array(singles) == 3))
        self.assertLess(shares[0], 0.25)
        self.assertGreater(shares[1], 0.4)

    def test_joins_the_ends_of_a_transfer(self):
        hot = make_hot_spots([0], [1.0], [[0, 7]] * 20)
        moves = Drawer(anywhere(8, 3)).draw([0, 1, 1, 1, 1, 1, 1, 2], 1000, hot=hot, coarse_share=0)
        joins = {(*move.groups, *move.devices) for move in moves if move.kind == "join"}
        self.assertContainsSubset({(0, 2), (7, 0)}, joins)

    def test_joins_groups_that_exchange_tensors(self):
        placement = np.array([0, 1, 2, 0, 1, 2, 0, 1])
        for move in Drawer(anywhere(8, 3)).draw(placement, 1000, coarse_share=0.0):
            if move.kind == "join":
                [group], [device] = move.groups, move.devices
                self.assertIn(device, placement[max(0, group - 1) : group + 2])

    def test_groups_with_one_device_never_move(self):
        legal = anywhere(8, 2)
        legal[:7, 1] = False
        moves = Drawer(legal).draw([0] * 8)
        self.assertNotEmpty(moves)
        self.assertEqual({move.groups for move in moves}, {(7,)})

    def test_draws_no_move_where_no_group_can_move(self):
        legal = anywhere(8, 2)
        legal[:, 1] = False
        self.assertEmpty(Drawer(legal).draw([0] * 8))
        self.assertEmpty(Drawer(anywhere(8, 1)).draw([0] * 8))
        self.assertEmpty(Drawer(anywhere(1, 1)).draw([0]))

    def test_moves_groups_that_take_no_time(self):
        moves = Drawer(anywhere(4, 2), work_secs=[0.0] * 4).draw([0] * 4)
        self.assertEqual({group for move in moves for group in move.groups}, {0, 1, 2, 3})

    def test_the_same_seed_draws_the_same_moves(self):
        first, same, other = (
            Drawer(anywhere(8, 2), seed=seed).draw([0, 1] * 4) for seed in (5, 5, 6)
        )
        self.assertEqual(first, same)
        self.assertNotEqual(first, other)


if __name__ == "__main__":
    absltest.main()
