"""Tests of the records of machines."""

from __future__ import annotations

import dataclasses
import json
import os
from unittest import mock

from absl.testing import absltest

from tf_placer.machines.emulation_state import SPEC_VARIABLE
from tf_placer.machines.machine import Device, DeviceClass, Link, Machine, MachineError
from tf_placer.processes import PLUGIN_VARIABLE

_LOCAL = Machine(
    "local:2",
    "local",
    (Device("a", "CPU", None, (0, 2)), Device("b", "GPU", 11 * 2**30)),
    (Link("a", "b", 1e-3, 1e9), Link("b", "a", 0.0, 1e8)),
)
_CLASS = DeviceClass("K80", "GPU", 12, 4e12, 2e11, 1e-5, 0.5, 0.75, 1, "a data sheet")
_DESCRIBED = Machine(
    "my-box",
    "described",
    (Device("a", "GPU", 12, model="K80"), Device("b", "CPU", None)),
    (Link("a", "b", 1e-3, 1e9, channel="bus"), Link("b", "a", 1e-3, 1e9)),
    (_CLASS,),
)


class MachineJsonTest(absltest.TestCase):
    def test_json_round_trip_preserves_the_machine(self):
        for machine in (_LOCAL, _DESCRIBED):
            self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)

    def test_json_omits_absent_entries_of_described_machines(self):
        self.assertEqual(
            _LOCAL.to_json(),
            {
                "spec": "local:2",
                "kind": "local",
                "devices": [
                    {"name": "a", "type": "CPU", "memory_bytes": None, "cores": [0, 2]},
                    {"name": "b", "type": "GPU", "memory_bytes": 11 * 2**30, "cores": []},
                ],
                "links": [
                    {
                        "source": "a",
                        "destination": "b",
                        "latency_secs": 1e-3,
                        "bandwidth_bytes_per_sec": 1e9,
                    },
                    {
                        "source": "b",
                        "destination": "a",
                        "latency_secs": 0.0,
                        "bandwidth_bytes_per_sec": 1e8,
                    },
                ],
            },
        )

    def test_ignores_unmeasured_links_of_earlier_versions(self):
        value = _LOCAL.to_json()
        for link in value["links"]:
            link |= {"latency_secs": None, "bandwidth_bytes_per_sec": None}
        self.assertEqual(Machine.from_json(value).links, ())

    def test_rejects_invalid_values(self):
        value = _LOCAL.to_json()
        with self.assertRaisesRegex(ValueError, 'no entry "devices"'):
            Machine.from_json({k: v for k, v in value.items() if k != "devices"})
        with self.assertRaisesRegex(ValueError, 'kind is "cloud": it must be "attached", '):
            Machine.from_json({**value, "kind": "cloud"})


class DeviceClassTest(absltest.TestCase):
    def test_finds_the_class_of_a_device(self):
        self.assertEqual(_DESCRIBED.find_class(_DESCRIBED.devices[0]), _CLASS)

    def test_a_device_without_model_has_no_class(self):
        with self.assertRaisesRegex(MachineError, "'local:2': the device class of a is unknown"):
            _LOCAL.find_class(_LOCAL.devices[0])


class ComputesValuesTest(absltest.TestCase):
    def test_described_machines_compute_no_values(self):
        named = dataclasses.replace(_DESCRIBED, spec="my-box,values")
        for machine in (_DESCRIBED, named):
            self.assertFalse(machine.computes_values)
        self.assertTrue(_LOCAL.computes_values)

    def test_emulated_gpus_compute_values_only_with_the_option(self):
        gpus = {PLUGIN_VARIABLE: "1", SPEC_VARIABLE: "emulated:2xK80"}
        attached = Machine("attached", "attached", _LOCAL.devices)
        emulated = dataclasses.replace(_DESCRIBED, spec="emulated:2xK80", kind="emulated")
        self.assertFalse(emulated.computes_values)
        self.assertTrue(dataclasses.replace(emulated, spec="emulated:2xK80,values").computes_values)
        with mock.patch.dict(os.environ, gpus):
            self.assertFalse(attached.computes_values)
            self.assertTrue(_LOCAL.computes_values)

    def test_costs_are_described_where_no_values_are_computed(self):
        emulated = dataclasses.replace(_DESCRIBED, spec="emulated:2xK80", kind="emulated")
        with_values = dataclasses.replace(emulated, spec="emulated:2xK80,values")
        self.assertTrue(_DESCRIBED.describes_costs)
        self.assertTrue(emulated.describes_costs)
        self.assertFalse(with_values.describes_costs)
        self.assertFalse(_LOCAL.describes_costs)


if __name__ == "__main__":
    absltest.main()
