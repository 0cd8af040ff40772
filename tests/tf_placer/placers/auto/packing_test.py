import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto import packing
from tf_placer.placers.auto.packing import Packer, pack, repack
from tf_placer.simulation.simulator import Simulator

SIZES = [70, 65, 60, 55, 50, 45, 40, 38, 35, 30, 28, 25, 22, 20, 18, 15, 12, 10, 8, 5]


def everywhere(num_groups, num_devices):
    return np.ones([num_groups, num_devices], np.bool_)


def excess(sizes, capacities, placement):
    held = np.bincount(placement, sizes, minlength=len(capacities))
    return int(np.maximum(held - capacities, 0).sum())


def fits_somehow(sizes, capacities, legal):
    """Tells whether some distribution fits, by trying all."""
    devices = [np.flatnonzero(row) for row in legal]
    placements = np.array(list(itertools.product(*devices)))
    held = np.stack([((placements == d) * sizes).sum(axis=1) for d in range(len(capacities))], 1)
    return bool((held <= capacities).all(axis=1).any())


class RepackTest(parameterized.TestCase):
    def repack_checked(self, sizes, capacities, placement, legal=None, **kwargs):
        if legal is None:
            legal = everywhere(len(sizes), len(capacities))
        placement = repack(
            np.array(sizes),
            np.array(capacities),
            legal,
            np.array(placement, np.int32),
            np.random.default_rng(0),
            **kwargs,
        )
        self.assertTrue(legal[np.arange(len(sizes)), placement].all())
        return placement

    def test_keeps_a_placement_that_fits(self):
        self.assertEqual(self.repack_checked([30, 30, 0], [30, 30], [1, 0, 1]).tolist(), [1, 0, 1])

    def test_moves_a_group_to_a_device_with_room(self):
        self.assertEqual(self.repack_checked([40, 30, 5], [60, 30], [0, 0, 0]).tolist(), [0, 1, 0])

    def test_exchanges_a_large_group_with_a_small_one(self):
        # Neither 30 nor 25 fit beside the 15, but 25 + 15 | 30 does.
        self.assertEqual(self.repack_checked([30, 25, 15], [40, 30], [0, 0, 1]).tolist(), [1, 0, 0])

    def test_moves_groups_only_to_legal_devices(self):
        legal = np.array([[True, False, True], [True, False, False]])
        self.assertEqual(self.repack_checked([5, 5], [5, 5, 5], [0, 0], legal).tolist(), [2, 0])

    def test_finds_the_least_excess_where_no_placement_fits(self):
        # 40 + 30 | 50 exceeds by 10, every other distribution by more.
        placement = self.repack_checked([50, 40, 30], [60, 50], [0, 0, 0])
        self.assertEqual(placement.tolist(), [1, 0, 0])

    def test_gives_up_soon_where_all_devices_together_lack_memory(self):
        # 700 bytes for 600: what is left over is at least 100.
        sizes, few = [35] * 20, 60
        for capacities, is_hopeless in (([400, 200], True), ([690, 10], False)):
            with mock.patch.object(
                packing, "_find_best_exchange", return_value=(-1, -1, -1)
            ) as find:
                self.repack_checked(sizes, capacities, [0] * 20)
            self.assertEqual(find.call_count < few, is_hopeless)

    def test_is_never_worse_than_before(self):
        random = np.random.default_rng(1)
        for _ in range(50):
            sizes, capacities = random.integers(1, 50, 12), random.integers(40, 90, 3)
            before = random.integers(3, size=12).astype(np.int32)
            after = self.repack_checked(
                sizes, capacities, before, max_exchanges=int(random.integers(5))
            )
            self.assertLessEqual(
                excess(sizes, capacities, after), excess(sizes, capacities, before)
            )


class PackTest(parameterized.TestCase):
    def test_fills_devices_to_the_last_byte(self):
        # The sizes add up to 27, which is exactly three times 9.
        sizes, capacities = np.array([8, 5, 4, 4, 3, 2, 1]), np.array([9, 9, 9])
        placements = [
            pack(sizes, capacities, everywhere(7, 3), np.zeros(7, np.int32), random)
            for random in map(np.random.default_rng, range(20))
        ]
        self.assertEqual(min(excess(sizes, capacities, each) for each in placements), 0)

    @parameterized.parameters(range(20))
    def test_finds_a_placement_that_fits_if_one_exists(self, seed):
        random = np.random.default_rng(seed)
        num_groups, num_devices = int(random.integers(6, 10)), int(random.integers(2, 4))
        sizes = (100 * random.lognormal(0.0, random.choice([0.1, 1.0]), num_groups)).astype(int)
        capacities = random.dirichlet(np.full(num_devices, 20.0)) * sizes.sum() / 0.95
        capacities = capacities.astype(int)
        legal = random.random([num_groups, num_devices]) < 0.9
        legal[np.arange(num_groups), random.integers(num_devices, size=num_groups)] = True
        placement = legal.argmax(axis=1).astype(np.int32)
        least = min(
            excess(sizes, capacities, repack(sizes, capacities, legal, packed, random))
            for packed in (pack(sizes, capacities, legal, placement, random) for _ in range(10))
        )
        self.assertEqual(least == 0, fits_somehow(sizes, capacities, legal))

    def test_keeps_groups_of_size_zero_in_place(self):
        sizes, before = np.array([5, 0, 5, 0]), np.array([0, 1, 0, 0], np.int32)
        after = pack(sizes, np.array([5, 5]), everywhere(4, 2), before, np.random.default_rng(0))
        self.assertEqual(after[[1, 3]].tolist(), [1, 0])
        self.assertCountEqual(after[[0, 2]].tolist(), [0, 1])

    def test_places_groups_with_one_legal_device(self):
        legal = np.array([[True, False], [True, True], [True, True]])
        for seed in range(10):
            after = pack(
                np.array([10, 6, 4]),
                np.array([10, 10]),
                legal,
                np.zeros(3, np.int32),
                np.random.default_rng(seed),
            )
            self.assertEqual(after.tolist(), [0, 1, 1])


class PackerTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_packs_weights_that_fill_nearly_all_memory(self, only_resident):
        memory = -(-sum(SIZES) * 100 // 98) // 3
        problem = make_problem(
            [[1.0] * 3] * len(SIZES), resident_bytes=SIZES, memory_bytes=[memory] * 3
        )
        legal = everywhere(len(SIZES), 3)
        packer = Packer(problem, legal, 0, only_resident=only_resident)
        placement = np.zeros(len(SIZES), np.int32)
        peaks = Simulator(problem, threads=1).simulate(placement[None]).peak_bytes[0]
        for packed in (packer.repack(placement, peaks), packer.pack(placement)):
            self.assertEqual(excess(SIZES, np.full(3, memory), packed), 0)

    def test_leaves_room_for_simulated_copies(self):
        # The tensor of 20 needs room on both devices: 40 + 20 and 30 + 20 of 60 each. The group of
        # 5 fits only beside the group of 30.
        problem = make_problem(
            [[1.0] * 2] * 4,
            tensors=[(0, 20, [1])],
            resident_bytes=[40, 30, 5, 0],
            memory_bytes=[60, 60],
        )
        placement = np.array([0, 1, 0, 0], np.int32)
        simulator = Simulator(problem, threads=1)
        peaks = simulator.simulate(placement[None]).peak_bytes[0]
        self.assertEqual(peaks.tolist(), [65, 50])
        packer = Packer(problem, everywhere(4, 2), 0, only_resident=True)
        after = packer.repack(placement, peaks)
        self.assertTrue(simulator.simulate(after[None]).feasible[0])


if __name__ == "__main__":
    absltest.main()
