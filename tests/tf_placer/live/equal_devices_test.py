"""Tests of placements that differ by an exchange of equal devices."""

from __future__ import annotations

import itertools

import numpy as np
from absl.testing import absltest

from tf_placer.live.equal_devices import find_distinct, find_equal_devices
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.machine import Device, Machine

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


def find_equal(machine: Machine) -> list[int]:
    legal = everywhere(len(machine.devices))
    return find_equal_devices(machine.devices, legal, machine.links).tolist()


class DescribedDevicesTest(absltest.TestCase):
    def test_gpus_of_different_models_are_not_equal(self):
        self.assertEqual(find_equal(make_described_machine("1xA100+2xT4")), [0, 1, 2, 2])
        self.assertEqual(find_equal(make_described_machine("1xV100+1xV100-32GB")), [0, 1, 2])

    def test_gpus_of_one_model_are_equal_where_all_links_are(self):
        for name in ("4xT4", "4xH100"):
            self.assertEqual(find_equal(make_described_machine(name)), [0, 1, 1, 1, 1])

    def test_gpus_of_different_boards_are_not_equal(self):
        # Copies within a board of two GPUs are faster than those to the other board.
        self.assertEqual(find_equal(make_described_machine("4xK80")), [0, 1, 1, 3, 3])
        self.assertEqual(find_equal(make_described_machine("3xK80")), [0, 1, 1, 3])

    def test_gpus_of_different_switches_are_not_equal(self):
        # All have NVSwitch, but two share a connection to the CPU.
        self.assertEqual(find_equal(make_described_machine("3xA100")), [0, 1, 1, 3])

    def test_an_exchange_of_equal_gpus_changes_no_link(self):
        for name in ("8xV100", "1xT4+4xK80", "2xA100+3xL4+1xT4"):
            machine = make_described_machine(name)
            links = {(link.source, link.destination): link for link in machine.links}
            speeds = {ends: link.bandwidth_bytes_per_sec for ends, link in links.items()}
            names = [device.name for device in machine.devices]
            equal = find_equal(machine)
            for i, j in itertools.combinations(range(len(names)), 2):
                if equal[i] == equal[j]:
                    swap = {names[i]: names[j], names[j]: names[i]}
                    for (a, b), speed in speeds.items():
                        self.assertEqual(speeds[swap.get(a, a), swap.get(b, b)], speed)


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
