"""Tests of the settings of a search."""

from __future__ import annotations

import json
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers.users_placers import LastDevice
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.search.config import (
    SearchConfig,
    check_machine,
    check_seed,
    override_config,
    starting_options,
)
from tf_placer.search.distributed import workers
from tf_placer.search.distributed.workers import Workers

_MACHINE = Machine("x", "attached", (Device("/cpu:0", "CPU"),))


class SearchConfigTest(parameterized.TestCase):
    def test_numbers_are_converted_to_those_of_python(self):
        for machine in (None, "local:2", _MACHINE):
            self.assertEqual(SearchConfig(machine).machine, machine)
        config = SearchConfig(
            None, "post", {"batch_size": "4"}, np.int64(5), np.float32(3), np.uint8(7)
        )
        values = (
            config.placer_options["batch_size"],
            config.max_trials,
            config.max_secs,
            config.seed,
        )
        self.assertEqual(values, (4, 5, 3.0, 7))
        self.assertEqual([type(value) for value in values], [int, int, float, int])
        self.assertEqual(SearchConfig(max_secs=math.inf).max_secs, math.inf)
        self.assertEqual(SearchConfig(seed=2**63 - 1).seed, 2**63 - 1)

    def test_a_placer_beside_the_options_of_another_one_is_explained(self):
        config = SearchConfig(placer_options={"rounds": 2})
        with self.assertRaisesRegex(
            ValueError,
            r"placer='random' is given beside config=SearchConfig\(placer='auto', .* \(rounds\) "
            "are those of 'auto': leave placer= out, or write placer='random' and its own",
        ):
            override_config(config, {"placer": "random"})
        same = override_config(config, {"placer": "auto", "seed": 3})
        self.assertEqual((same.placer_options, same.seed), ({"rounds": 2}, 3))
        self.assertEqual(override_config(SearchConfig(), {"placer": "random"}).placer, "random")

    def test_options_of_another_placer_without_it_lead_to_a_config_with_both(self):
        with self.assertRaisesRegex(
            ValueError,
            r"'auto' has no option 'moves'.*; options of another placer go with it: "
            r"SearchConfig\(placer=..., placer_options=...\)$",
        ):
            SearchConfig(placer_options={"moves": 2})
        with self.assertRaises(ValueError) as raised:
            SearchConfig(placer_options={"rounds": "many"})
        self.assertNotIn("another placer", str(raised.exception))

    def test_a_given_placement_needs_its_file(self):
        for options in ({}, {"start": "expert"}):
            with self.assertRaisesRegex(ValueError, "--placer given --start best.json"):
                SearchConfig(placer="given", placer_options=options)
        config = SearchConfig(placer="given", placer_options={"start": "best.json"})
        self.assertEqual(config.placer_options, {"start": "best.json"})

    def test_a_gap_to_stop_at_is_a_share(self):
        self.assertIs(type(SearchConfig(stop_at_gap=np.float32(0.5)).stop_at_gap), float)
        for wrong in (-0.1, math.nan, math.inf, "5%", True):
            with self.assertRaisesRegex(ValueError, "stop_at_gap is a share of the lower bound"):
                SearchConfig(stop_at_gap=wrong)

    def test_the_goal_has_what_differs_from_the_defaults(self):
        self.assertEqual(SearchConfig(max_memory={}, headroom=0).goal, {})
        config = SearchConfig(objective="fit", max_memory={"GPU": "4GB"}, headroom=np.float32(0.5))
        goal = {"objective": "fit", "max_memory": {"GPU": 4 * 10**9}, "headroom": 0.5}
        self.assertEqual(config.goal, goal)
        self.assertEqual(config.memory_limits, ({"GPU": 4 * 10**9}, 0.5))
        for wrong, message in (
            ({"objective": "speed"}, "objective is 'time' or 'fit', not 'speed'"),
            ({"max_memory": {"GPU": "much"}}, 'max_memory of "GPU" is "much"'),
            ({"headroom": 1.0}, "headroom is the share of memory"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                SearchConfig(**wrong)

    def test_a_protocol_is_that_of_turns_or_of_a_paper(self):
        self.assertIsNone(SearchConfig().alone_protocol)
        self.assertEqual(SearchConfig(protocol="eagle").alone_protocol, MeasuringProtocol(15, 5))
        self.assertNotIn("protocol", SearchConfig().to_json())
        for wrong in ("paired", None, 3, ["post"]):
            message = "^protocol is 'turns', 'colocrl', 'post' or 'eagle', not "
            with self.assertRaisesRegex(ValueError, message):
                SearchConfig(protocol=wrong)

    def test_wanted_workers_follow_from_the_settings(self):
        self.assertIsNone(SearchConfig().wanted_workers)
        with mock.patch.object(workers, "require_ray"):
            config = SearchConfig(placer="post", workers="ray", num_workers=np.int64(3))
            self.assertEqual(config.wanted_workers, Workers("ray", 3, 1))
            with self.assertRaisesRegex(ValueError, "controllers=2 train a placer that learns"):
                SearchConfig(workers="ray", controllers=2)
        with self.assertRaisesRegex(ValueError, "num_workers is for searches with workers"):
            SearchConfig(num_workers=2)

    def test_a_required_answer_is_one_of_the_default_store(self):
        self.assertIsNone(SearchConfig().answers)
        self.assertEqual(SearchConfig(require_answer=True).answers, "default")
        self.assertEqual(SearchConfig(answers="x", require_answer=True).answers, "x")
        with self.assertRaisesRegex(ValueError, "answers is the path of a directory, not 3"):
            SearchConfig(answers=3)

    def test_the_json_form_survives_a_round_trip_and_refuses_wrong_types(self):
        with mock.patch.object(workers, "require_ray"):
            for config in (
                SearchConfig(),
                SearchConfig("local:2", max_secs=math.inf),
                SearchConfig(stop_at_gap=0.05),
                SearchConfig(protocol="post"),
                SearchConfig(pin={"a/*": "/CPU:0"}, keep_together=["a/*", ["b", "re:c.*"]]),
                SearchConfig(objective="fit", max_memory={"GPU:0": "4GB"}, headroom=0.1),
                SearchConfig(_MACHINE, "post", {"start": "original"}, 5, 3.5, 7),
                SearchConfig(placer="post", workers="auto", num_workers=2, controllers=3),
            ):
                value = json.loads(json.dumps(config.to_json(), allow_nan=False))
                self.assertEqual(SearchConfig.from_json(value), config)
            value = SearchConfig().to_json()
            self.assertNotIn("pin", value)
            for wrong in (
                {"max_trials": "5"},
                {"machine": 3},
                {"workers": "ray"},
                {"seed": None},
                {"pin": ["a/*"]},
                {"keep_together": "a/*"},
                {"protocol": 3},
            ):
                with self.assertRaisesRegex(ValueError, next(iter(wrong))):
                    SearchConfig.from_json(value | wrong)

    def test_pins_are_checked_and_mean_devices_of_the_machine(self):
        config = SearchConfig(_MACHINE, pin={"a/*": "CPU:0"}, keep_together=["b/*"])
        self.assertEqual(config.keep_together, (("b/*",),))
        self.assertEqual(config.restrictions.pin, {"a/*": "/cpu:0"})
        self.assertIsNone(SearchConfig(_MACHINE).restrictions)
        for wrong, message in (
            ({"pin": ["a/*"]}, "pin maps patterns of names to devices"),
            ({"keep_together": "a/*"}, "keep_together is a list"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                SearchConfig(**wrong)

    def test_a_class_is_replaced_by_its_name(self):
        config = SearchConfig(placer=LastDevice)
        self.assertEqual(config.placer, f"{LastDevice.__module__}:LastDevice")
        self.assertEqual(SearchConfig.from_json(config.to_json()), config)
        with self.assertRaisesRegex(ValueError, "LastDevice' has no option 'shift'"):
            SearchConfig(placer=LastDevice, placer_options={"shift": 1})

    def test_the_json_form_has_no_paths(self):
        config = SearchConfig(log_dir="log", report="page.html", tensorboard="events")
        self.assertEqual(config.to_json(), SearchConfig().to_json())

    @parameterized.parameters(
        ({"log_dir": 3}, "log_dir is the path of a directory, not 3"),
        ({"report": ""}, "report is the path of a file"),
        ({"tensorboard": "a\0"}, "tensorboard is the path of a directory"),
        ({"session_config": "soft"}, "session_config is a ConfigProto, not str"),
    )
    def test_values_of_a_wrong_type_are_refused(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            SearchConfig(**values)

    def test_learned_placers_start_at_the_expert_in_live_searches_by_default(self):
        for placer, options, expected in (
            ("post", {}, {"start": "expert"}),
            ("warm_softmax", {}, {}),
            ("post", {"start": "original"}, {"start": "original"}),
            ("post", {"start": "none"}, {"start": None}),
            ("hill_climbing", {}, {}),
        ):
            checked = SearchConfig(placer=placer, placer_options=options).placer_options
            self.assertEqual(starting_options(placer, checked, is_simulated=False), expected)
            self.assertEqual(starting_options(placer, checked, is_simulated=True), checked)

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
        (None, {}, "placer is a name such as 'auto', .* not None"),
        (["auto"], {}, "placer is a name .* not a value of type list"),
        ("auto", None, "placer_options map names to values, unlike None"),
        ("auto", ["a"], "placer_options map names to values, unlike a value of type list"),
        ("auto", {1: 2}, "a name in placer_options is a text, not 1"),
        ("nobody", {}, "nobody"),
    )
    def test_a_placer_of_another_type_is_refused(self, placer, options, message):
        with self.assertRaisesRegex(ValueError, message):
            SearchConfig(placer=placer, placer_options=options)

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
    def test_an_invalid_budget_is_refused(self, max_trials, max_secs, message):
        with self.assertRaisesRegex(ValueError, message):
            SearchConfig(max_trials=max_trials, max_secs=max_secs)

    @parameterized.parameters(
        (-1, "must not be negative, but is -1"),
        (2**63, r"must not be 2\*\*63 or more, but is 9223372036854775808"),
        (0.5, "seed is a whole number, not 0.5"),
        ("0", "seed is a whole number, not '0'"),
        (False, "seed is a whole number, not False"),
    )
    def test_an_invalid_seed_is_refused(self, seed, message):
        with self.assertRaisesRegex(ValueError, message):
            check_seed(seed)

    def test_messages_are_short(self):
        for name, option in (("x" * 10**6, None), ("post", "x" * 10**6)):
            with self.assertRaises(ValueError) as caught:
                SearchConfig(placer=name, placer_options={} if option is None else {option: 1})
            self.assertLess(len(str(caught.exception)), 1000)
        with self.assertRaisesRegex(ValueError, "at least 1, not a number of thousands of digits"):
            SearchConfig(max_trials=-(10**5000))
        for value in (10**5000, "x" * 10**6, b"x" * 10**6):
            for check in (check_seed, check_machine, lambda value: SearchConfig(max_secs=value)):
                if check is check_machine and isinstance(value, str):
                    continue  # No option has this name.
                with self.assertRaises(ValueError) as caught:
                    check(value)
                self.assertLess(len(str(caught.exception)), 200)


if __name__ == "__main__":
    absltest.main()
