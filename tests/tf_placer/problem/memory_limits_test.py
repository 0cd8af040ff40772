"""Tests of limits on the memory of devices."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.small_problem import small_problem
from tf_placer.machines.machine import Device
from tf_placer.problem.memory_limits import (
    check_headroom,
    limit_devices,
    limit_problem,
    parse_size,
    read_max_memory,
)

_LOCAL = "/job:localhost/replica:0/task:0/device:"
_ATTACHED = (
    Device(f"{_LOCAL}CPU:0", "CPU", 1000),
    Device(f"{_LOCAL}GPU:0", "GPU", 100),
    Device(f"{_LOCAL}GPU:1", "GPU", 100),
)
_WORKERS = tuple(
    Device(f"/job:worker/replica:0/task:{task}/device:CPU:0", "CPU") for task in range(2)
)


class MemoryLimitsTest(parameterized.TestCase):
    def limit(self, max_memory=None, headroom=0.0, devices=_ATTACHED):
        limited = limit_devices(devices, max_memory or {}, headroom)
        return [device.memory_bytes for device in limited]

    @parameterized.parameters(
        ("4GB", 4 * 10**9),
        ("4 gb", 4 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("44MB", 44_000_000),
        ("2 KiB", 2048),
        ("17", 17),
        ("8B", 8),
    )
    def test_reads_sizes(self, text, expected):
        self.assertEqual(parse_size(text, "size"), expected)
        self.assertEqual(read_max_memory({"GPU:0": text}), {"GPU:0": expected})

    @parameterized.parameters("", "GB", "4 G B", "-1", "0", "0.1", "1e9", "4XB", "9" * 400)
    def test_refuses_what_is_no_size(self, text):
        with self.assertRaisesRegex(ValueError, 'max_memory of "GPU:0" is .* no size: write a'):
            read_max_memory({"GPU:0": text})

    @parameterized.parameters(
        (4, "max_memory maps devices to sizes, .* unlike 4"),
        ("4GB", 'unlike "4GB"'),
        ({3: 4}, "a device in max_memory is a name, not 3"),
        ({"": 4}, "a device in max_memory is a name"),
        ({"GPU:0": 0}, "a number of bytes from 1 on, .* not 0"),
        ({"GPU:0": 2.5}, "a number of bytes from 1 on, .* not 2.5"),
        ({"GPU:0": True}, "not true"),
        ({"GPU:0": None}, "not null"),
    )
    def test_refuses_limits_of_a_wrong_type(self, value, message):
        with self.assertRaisesRegex(ValueError, message):
            read_max_memory(value)

    def test_numbers_of_bytes_become_those_of_python(self):
        self.assertEqual(read_max_memory(None), {})
        [size] = read_max_memory({"GPU:0": np.int64(5)}).values()
        self.assertIs(type(size), int)

    def test_headroom_is_a_share_below_one(self):
        self.assertIs(type(check_headroom(np.float32(0.5))), float)
        self.assertEqual(check_headroom(0), 0.0)
        for wrong in (-0.1, 1, float("nan"), "10%", True, None):
            with self.assertRaisesRegex(ValueError, "headroom is the share of memory to leave"):
                check_headroom(wrong)

    def test_without_limits_nothing_changes(self):
        self.assertEqual(limit_devices(_ATTACHED, {}, 0.0), _ATTACHED)
        problem = small_problem()
        self.assertIs(limit_problem(problem, {}, 0.0), problem)

    def test_a_device_is_called_by_its_name_or_a_part_of_it(self):
        for name in (f"{_LOCAL}GPU:1", "GPU:1", "gpu:1", "/gpu:1", "/device:GPU:1", "task:0/GPU:1"):
            self.assertEqual(self.limit({name: 7}), [1000, 100, 7], name)
        self.assertEqual(self.limit({"GPU": 7}), [1000, 7, 7])
        self.assertEqual(self.limit({"CPU": 7}), [7, 100, 100])
        self.assertEqual(self.limit({"task:1": 7}, devices=_WORKERS), [None, 7])
        self.assertEqual(self.limit({"CPU:0": 7}, devices=_WORKERS), [7, 7])

    def test_the_smallest_of_several_limits_counts(self):
        self.assertEqual(self.limit({"GPU": 50, "GPU:0": 60, "GPU:1": 40}), [1000, 50, 40])
        self.assertEqual(self.limit({"GPU": 10**6}), [1000, 100, 100])

    def test_headroom_is_left_of_the_own_memory_of_a_device(self):
        self.assertEqual(self.limit(headroom=0.1), [900, 90, 90])
        self.assertEqual(self.limit({"GPU:0": 95, "GPU:1": 85}, 0.1), [900, 90, 85])
        self.assertEqual(self.limit(headroom=0.1, devices=_WORKERS), [None, None])
        huge = (Device("/cpu:0", "CPU", 2**62 + 1),)
        self.assertEqual(self.limit(devices=huge), [2**62 + 1])

    @parameterized.parameters("GPU:2", "GP", "task:1", "GPU:0/GPU:1", "TPU")
    def test_a_device_that_is_not_there_is_an_error_that_lists_those_that_are(self, name):
        with self.assertRaisesRegex(ValueError, f'max_memory is for "{name}", .*GPU:0, .*GPU:1'):
            self.limit({name: 7})

    def test_problems_are_limited_by_the_names_of_their_devices(self):
        limited = limit_problem(small_problem(100, 50), {"gpu": 40}, 0.5)
        self.assertEqual([device.memory_bytes for device in limited.devices], [50, 25])
        with self.assertRaisesRegex(ValueError, "name one of cpu, gpu"):
            limit_problem(small_problem(), {"GPU:0": 40}, 0.0)


if __name__ == "__main__":
    absltest.main()
