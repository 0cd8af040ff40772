import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.simulation.simulator import Simulator

NOTHING = np.zeros(0, np.int32)


def make_weights(resident_bytes, memory_bytes):
    """Makes independent operations with resident memory."""
    return make_problem(
        [[1.0] * len(memory_bytes)] * len(resident_bytes),
        resident_bytes=resident_bytes,
        memory_bytes=memory_bytes,
    )


def run_repair(problem, placement, groups=NOTHING, devices=NOTHING, legal=None):
    placement = np.array(placement, np.int32)
    after = placement.copy()
    after[groups] = devices
    peaks = Simulator(problem, threads=1).simulate(after[None]).peak_bytes[0]
    capacities = np.array([device.memory_bytes for device in problem.devices])
    if legal is None:
        legal = np.ones([problem.num_groups, problem.num_devices], np.bool_)
    change = MemoryRepair(problem, legal, 0).repair(
        placement, np.array(groups, np.int32), np.array(devices, np.int32), peaks, capacities
    )
    if change is None:
        return None
    placement[change[0]] = change[1]
    return placement


class MemoryRepairTest(absltest.TestCase):
    def test_moves_the_smallest_group_that_frees_enough(self):
        # 40 + 30 + 20 + 5 on a device of 80: 15 too many, for which the 20 are enough.
        problem = make_weights([40, 30, 20, 5], [80, 50])
        self.assertEqual(run_repair(problem, [0, 0, 0, 0]).tolist(), [0, 0, 1, 0])

    def test_moves_other_groups_than_the_changed_ones(self):
        problem = make_weights([50, 50, 10], [60, 100])
        self.assertEqual(run_repair(problem, [0, 1, 1], [1], [0]).tolist(), [1, 0, 1])

    def test_moves_several_groups_where_one_is_not_enough(self):
        problem = make_weights([10] * 8, [40, 20, 20])
        placement = run_repair(problem, [0] * 8)
        self.assertEqual(np.bincount(placement).tolist(), [4, 2, 2])

    def test_moves_groups_only_to_legal_devices(self):
        problem = make_weights([40, 40], [50, 50, 50])
        legal = np.array([[True, False, False], [True, False, True]])
        self.assertEqual(run_repair(problem, [0, 0], legal=legal).tolist(), [0, 2])
        legal[1] = [True, False, False]
        self.assertIsNone(run_repair(problem, [0, 0], legal=legal))

    def test_returns_none_without_room(self):
        self.assertIsNone(run_repair(make_weights([30, 30], [40, 20]), [0, 0]))

    def test_exchanges_groups_where_no_device_has_enough_room(self):
        # 30 + 25 | 15 in 45 and 30: neither 30 nor 25 fit beside the 15, but 25 fits in its place.
        problem = make_weights([30, 25, 15], [45, 30])
        self.assertEqual(run_repair(problem, [0, 0, 1]).tolist(), [0, 1, 0])

    def test_exchanges_other_groups_than_the_changed_ones(self):
        problem = make_weights([30, 25, 15], [45, 30])
        self.assertEqual(run_repair(problem, [0, 1, 1], [1], [0]).tolist(), [1, 0, 0])
        self.assertIsNone(run_repair(problem, [1, 1, 0], [0, 1, 2], [0, 0, 1]))

    def test_keeps_a_placement_that_fits(self):
        self.assertEqual(run_repair(make_weights([30, 30], [60, 20]), [0, 0]).tolist(), [0, 0])


if __name__ == "__main__":
    absltest.main()
