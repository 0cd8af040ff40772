"""Tests of placements that differ by an exchange of equal devices."""

from __future__ import annotations

import itertools

import numpy as np
from absl.testing import absltest

from tf_placer.live.equal_devices import find_distinct, find_equal_devices
from tf_placer.machines.machine import Device

TWO_WORKERS = (Device("/task:0", "CPU", cores=(0,)), Device("/task:1", "CPU", cores=(1,)))


def everywhere(num_devices: int) -> np.ndarray:
    return np.ones([3, num_devices], bool)


class EqualDevicesTest(absltest.TestCase):
    def test_workers_with_as_many_cores_are_equal(self):
        self.assertEqual(find_equal_devices(TWO_WORKERS, everywhere(2)).tolist(), [0, 0])
        larger = (*TWO_WORKERS, Device("/task:2", "CPU", cores=(2, 3)))
        self.assertEqual(find_equal_devices(larger, everywhere(3)).tolist(), [0, 0, 2])

    def test_described_devices_of_one_model_are_equal(self):
        devices = [Device(f"/gpu:{n}", "GPU", 2**30, model=m) for n, m in enumerate("abab")]
        self.assertEqual(find_equal_devices(devices, everywhere(4)).tolist(), [0, 1, 0, 1])

    def test_attached_devices_are_not_known_to_be_equal(self):
        devices = [Device("/gpu:0", "GPU", 2**30), Device("/gpu:1", "GPU", 2**30)]
        self.assertEqual(find_equal_devices(devices, everywhere(2)).tolist(), [0, 1])

    def test_devices_for_different_groups_are_not_equal(self):
        legal = everywhere(2)
        legal[1, 1] = False
        self.assertEqual(find_equal_devices(TWO_WORKERS, legal).tolist(), [0, 1])


class EquivalentPlacementsTest(absltest.TestCase):
    def test_one_of_each_pair_of_mirror_images_is_kept(self):
        placements = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 1, 0]], np.int32)
        found = find_distinct(placements, [[0, 0, 0]], np.array([0, 0]))
        self.assertEqual(found.tolist(), [False, True, False, True])

    def test_different_devices_are_not_exchanged(self):
        placements = np.array([[0, 1, 1], [1, 0, 0]], np.int32)
        self.assertTrue(find_distinct(placements, [], np.array([0, 1])).all())
        self.assertFalse(find_distinct(placements, placements.tolist(), np.array([0, 1])).any())

    def test_keeps_one_of_each_class_of_all_placements(self):
        # Devices 0 and 2 are equal, 1 and 3 are different from all.
        equal = np.array([0, 1, 0, 3])
        every = np.array(list(itertools.product(range(4), repeat=3)), np.int32)
        kept = {tuple(row) for row in every[find_distinct(every, [], equal)].tolist()}
        exchange = np.array([2, 1, 0, 3])
        for row in every:
            images = {tuple(row.tolist()), tuple(exchange[row].tolist())}
            self.assertLen(images & kept, 1)


if __name__ == "__main__":
    absltest.main()
