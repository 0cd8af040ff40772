"""Tests of the classes of devices that ship with the package."""

from __future__ import annotations

import itertools

from absl.testing import absltest

from tf_placer.machines.device_classes import read_device_classes


class DeviceClassesTest(absltest.TestCase):
    def test_has_the_devices_of_the_papers_and_current_ones(self):
        self.assertContainsSubset(
            ["Haswell-18", "Broadwell-8", "2xE5-2650v4", "K80", "P100", "V100", "A100", "H200"],
            read_device_classes(),
        )

    def test_every_number_has_a_source(self):
        for name, device_class in read_device_classes().items():
            self.assertEqual(device_class.name, name)
            self.assertGreater(len(device_class.source), 50, name)

    def test_a_k80_is_half_a_board(self):
        k80 = read_device_classes()["K80"]
        self.assertEqual(k80.peak_flops, 8.74e12 / 2)
        self.assertEqual(k80.memory_bandwidth_bytes_per_sec, 480e9 / 2)
        self.assertBetween(k80.memory_bytes, 11e9, 12e9)

    def test_later_gpus_are_faster_in_every_respect(self):
        gpus = [
            read_device_classes()[name]
            for name in ("K80", "P100", "V100", "A100", "H100", "H200", "B200")
        ]
        for older, newer in itertools.pairwise(gpus):
            self.assertLessEqual(older.peak_flops, newer.peak_flops)
            self.assertLess(
                older.memory_bandwidth_bytes_per_sec, newer.memory_bandwidth_bytes_per_sec
            )
            self.assertGreaterEqual(older.launch_secs, newer.launch_secs)


if __name__ == "__main__":
    absltest.main()
