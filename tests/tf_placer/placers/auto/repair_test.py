import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.simulation.simulator import Simulator

NOTHING = np.zeros(0, np.int32)


def weights(resident_bytes, memory_bytes):
    """Operations that have nothing to do with each other and hold what they hold."""
    return make_problem(
        [[1.0] * len(memory_bytes)] * len(resident_bytes),
        resident_bytes=resident_bytes,
        memory_bytes=memory_bytes,
    )


def repaired(problem, placement, groups=NOTHING, devices=NOTHING, legal=None):
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
    def test_sends_away_what_is_just_large_enough(self):
        # 40 + 30 + 20 + 5 on a device of 80: 15 too many, for which the 20 are enough.
        problem = weights([40, 30, 20, 5], [80, 50])
        self.assertEqual(repaired(problem, [0, 0, 0, 0]).tolist(), [0, 0, 1, 0])

    def test_what_was_moved_stays_where_it_was_moved_to(self):
        problem = weights([50, 50, 10], [60, 100])
        self.assertEqual(repaired(problem, [0, 1, 1], [1], [0]).tolist(), [1, 0, 1])

    def test_several_groups_go_where_one_is_not_enough(self):
        problem = weights([10] * 8, [40, 20, 20])
        placement = repaired(problem, [0] * 8)
        self.assertEqual(np.bincount(placement).tolist(), [4, 2, 2])

    def test_nothing_goes_where_it_may_not(self):
        problem = weights([40, 40], [50, 50, 50])
        legal = np.array([[True, False, False], [True, False, True]])
        self.assertEqual(repaired(problem, [0, 0], legal=legal).tolist(), [0, 2])
        legal[1] = [True, False, False]
        self.assertIsNone(repaired(problem, [0, 0], legal=legal))

    def test_says_when_there_is_no_room(self):
        self.assertIsNone(repaired(weights([30, 30], [40, 20]), [0, 0]))

    def test_changes_places_where_there_is_no_room_for_what_has_to_go(self):
        # 30 + 25 | 15 in 45 and 30: neither 30 nor 25 fit beside the 15, but 25 does without.
        problem = weights([30, 25, 15], [45, 30])
        self.assertEqual(repaired(problem, [0, 0, 1]).tolist(), [0, 1, 0])

    def test_what_was_moved_does_not_change_places(self):
        problem = weights([30, 25, 15], [45, 30])
        self.assertEqual(repaired(problem, [0, 1, 1], [1], [0]).tolist(), [1, 0, 0])
        self.assertIsNone(repaired(problem, [1, 1, 0], [0, 1, 2], [0, 0, 1]))

    def test_what_fits_is_left_alone(self):
        self.assertEqual(repaired(weights([30, 30], [60, 20]), [0, 0]).tolist(), [0, 0])


if __name__ == "__main__":
    absltest.main()
