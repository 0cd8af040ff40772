"""Tests of the arguments of a search."""

from __future__ import annotations

import math

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.live.arguments import (
    check_budget,
    check_machine,
    check_placer,
    check_seed,
)
from tf_placer.machines.machine import Device, Machine, MachineError


class ArgumentsTest(parameterized.TestCase):
    def test_what_is_right_is_taken(self):
        for machine in (None, "local:2", Machine("x", "attached", (Device("/cpu:0", "CPU"),))):
            check_machine(machine)
        self.assertEqual(check_budget(np.int64(5), 3), (5, 3.0))
        self.assertEqual(check_budget(1, math.inf), (1, math.inf))
        self.assertEqual(check_seed(np.uint8(7)), 7)
        self.assertEqual(check_seed(2**63 - 1), 2**63 - 1)
        self.assertEqual(check_placer("auto", None), {})

    def test_a_placer_that_learns_starts_at_the_expert_unless_told_otherwise(self):
        self.assertEqual(check_placer("post", None), {"start": "expert"})
        self.assertEqual(check_placer("warm_softmax", None), {})
        self.assertEqual(check_placer("post", {"start": "original"}), {"start": "original"})
        self.assertEqual(check_placer("post", {"start": "none"}), {"start": None})
        self.assertEqual(check_placer("hill_climbing", None), {})

    @parameterized.parameters(2, b"local:2", object())
    def test_a_machine_of_another_type_is_refused(self, machine):
        with self.assertRaisesRegex(MachineError, "machine is a name such as 'local:2', .* not "):
            check_machine(machine)

    def test_a_machine_without_devices_or_with_one_twice_is_refused(self):
        device = Device("/cpu:0", "CPU")
        for devices, message in (
            ((), "has no devices"),
            ((device, device), 'has the device "/cpu:0" twice'),
            (["/cpu:0"], "devices is not a tuple of Device"),
            (("/cpu:0",), "devices is not a tuple of Device"),
        ):
            with self.assertRaisesRegex(MachineError, message):
                check_machine(Machine("x", "attached", devices))
        with self.assertRaisesRegex(MachineError, 'machine "x" is of no kind that there is'):
            check_machine(Machine("x", "nearby", (device,)))

    @parameterized.parameters(
        (None, None, "placer is a name such as 'auto', not None"),
        (["auto"], None, "placer is a name .* not a value of type list"),
        ("auto", ["a"], "placer_options map names to values, unlike a value of type list"),
        ("auto", {1: 2}, "a name in placer_options is a text, not 1"),
        ("nobody", None, "nobody"),
    )
    def test_a_placer_of_another_type_is_refused(self, placer, options, message):
        with self.assertRaisesRegex(ValueError, message):
            check_placer(placer, options)

    @parameterized.parameters(
        ("10", 5, "max_trials is a whole number, not '10'"),
        (1.5, 5, "max_trials is a whole number, not 1.5"),
        (True, 5, "max_trials is a whole number, not True"),
        (0, 5, "max_trials must be at least 1"),
        (10, "60", "max_secs is a number, not '60'"),
        (10, None, "max_secs is a number, not None"),
        (10, math.nan, "max_secs must be positive"),
        (10, 10**400, "max_secs is a number, not a value of type int"),
    )
    def test_another_budget_is_refused(self, max_trials, max_secs, message):
        with self.assertRaisesRegex(ValueError, message):
            check_budget(max_trials, max_secs)

    @parameterized.parameters(
        (-1, "must not be negative, but is -1"),
        (2**63, r"must not be 2\*\*63 or more, but is 9223372036854775808"),
        (0.5, "seed is a whole number, not 0.5"),
        ("0", "seed is a whole number, not '0'"),
        (False, "seed is a whole number, not False"),
    )
    def test_another_seed_is_refused(self, seed, message):
        with self.assertRaisesRegex(ValueError, message):
            check_seed(seed)

    def test_no_message_is_long(self):
        for name, option in (("x" * 10**6, None), ("post", "x" * 10**6)):
            with self.assertRaises(ValueError) as caught:
                check_placer(name, None if option is None else {option: 1})
            self.assertLess(len(str(caught.exception)), 1000)
        with self.assertRaisesRegex(ValueError, "at least 1, not a number of thousands of digits"):
            check_budget(-(10**5000), 1)
        for value in (10**5000, "x" * 10**6, b"x" * 10**6):
            for check in (check_seed, check_machine, lambda value: check_budget("1", value)):
                if check is check_machine and isinstance(value, str):
                    continue  # A name that nothing has.
                with self.assertRaises(ValueError) as caught:
                    check(value)
                self.assertLess(len(str(caught.exception)), 200)


if __name__ == "__main__":
    absltest.main()
