"""Tests of machine files."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from absl.testing import absltest, parameterized

from tf_placer.machines import machine_file
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.machine import Device, DeviceClass, Link, Machine, MachineError
from tf_placer.machines.machine_file import parse_machine, read_machine_file

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
_CLASS = {
    "name": "Mine",
    "type": "GPU",
    "memory_bytes": 8e9,
    "peak_flops": 5e12,
    "memory_bandwidth_bytes_per_sec": 3e11,
    "launch_secs": 1e-5,
    "compute_fraction": 0.5,
    "bandwidth_fraction": 1,
}


def _build_value() -> dict[str, Any]:
    speed = {"latency_secs": 0, "bandwidth_bytes_per_sec": 1e9}
    return {
        "format": 1,
        "name": "my-box",
        "devices": [
            {"name": _CPU, "class": "CPU", "memory_bytes": 32e9},
            {"name": _GPU, "class": copy.copy(_CLASS)},
        ],
        "links": [
            {"source": _GPU, "destination": _CPU, **speed},
            {"source": _CPU, "destination": _GPU, **speed, "channel": "bus"},
        ],
    }


class MachineFileTest(parameterized.TestCase):
    def test_reads_a_machine(self):
        path = self.create_tempfile("box.json", json.dumps(_build_value())).full_path
        machine = read_machine_file(path)
        self.assertEqual((machine.spec, machine.kind), ("my-box", "described"))
        self.assertEqual(
            machine.devices,
            (
                Device(_CPU, "CPU", 32_000_000_000, model="CPU"),
                Device(_GPU, "GPU", 8_000_000_000, model="Mine"),
            ),
        )
        self.assertEqual(
            machine.links, (Link(_CPU, _GPU, 0.0, 1e9, "bus"), Link(_GPU, _CPU, 0.0, 1e9))
        )
        self.assertEqual(
            machine.find_class(machine.devices[1]),
            DeviceClass("Mine", "GPU", 8_000_000_000, 5e12, 3e11, 1e-5, 0.5, 1.0, 1, ""),
        )
        self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)

    def test_the_example_of_the_docstring_is_valid(self):
        text = (machine_file.__doc__ or "").partition("with the package:\n")[2]
        example = "\n".join(
            line for line in text.split("\n\n`devices`")[0].splitlines() if line.startswith("    ")
        )
        machine = parse_machine(json.loads(example), "example:")
        self.assertEqual([device.model for device in machine.devices], ["CPU", "V100"])

    def test_later_devices_may_use_a_class_of_the_file(self):
        value = _build_value()
        value["devices"].append({"name": _GPU.replace("GPU:0", "GPU:1"), "class": "Mine"})
        names = [device["name"] for device in value["devices"]]
        speed = {"latency_secs": 0, "bandwidth_bytes_per_sec": 1e9}
        value["links"] = [
            {"source": a, "destination": b, **speed} for a in names for b in names if a != b
        ]
        machine = parse_machine(value, "box.json:")
        self.assertEqual([known.name for known in machine.classes], ["CPU", "Mine"])

    def test_one_device_needs_no_links(self):
        value = _build_value() | {"links": []}
        del value["devices"][1]
        self.assertEqual(parse_machine(value, "box.json:").links, ())

    @parameterized.parameters(
        ("format", 2, "format is 2: it must be 1"),
        ("name", "", 'name is "": it must be a text that is not empty'),
        ("color", "red", 'unknown entry "color": expected format, name, devices, links'),
        ("devices", [], "devices must begin with the CPU"),
        ("devices.1.name", "GPU:0", 'devices[1].name is "GPU:0": it must be a full device name'),
        ("devices.1.name", _CPU, "devices[1].name is there twice"),
        ("devices.1", 5, "devices[1] is 5: it must be an object"),
        ("devices.1.class", "K81", 'devices[1].class is not a known class: "K81"; there are CPU,'),
        ("devices.1.class", "CPU", "devices[1].class is a CPU, but the name of the device says"),
        ("devices.1.class", None, "devices[1].class is null: it must be an object"),
        (
            "devices.1.class.name",
            "K80",
            'devices[1].class.name is the name of another class: "K80"',
        ),
        ("devices.1.class.type", "TPU", 'class.type is "TPU": it must be "CPU" or "GPU"'),
        ("devices.1.class.peak_flops", 0, "class.peak_flops is 0: it must be greater than 0"),
        ("devices.1.class.slots", 0, "class.slots is 0: it must be greater than 0"),
        ("devices.1.class.launch_secs", -1, "class.launch_secs is -1: it must be 0 or more"),
        ("devices.1.class.compute_fraction", 1.5, "compute_fraction is 1.5: it must be greater th"),
        ("devices.0.memory_bytes", -5, "devices[0].memory_bytes is -5: it must be a whole number"),
        ("devices.0.cores", 5, 'devices[0] has an unknown entry "cores": expected name, class, me'),
        ("links.0.source", "GPU:0", 'links[0].source is not a device: "GPU:0"'),
        ("links.0.source", _CPU, "links[0] leads from a device to itself"),
        ("links.0.latency_secs", float("nan"), "links[0].latency_secs is NaN: it must be finite"),
        ("links.1.bandwidth_bytes_per_sec", 0, "bandwidth_bytes_per_sec is 0: it must be greater"),
        ("links", [], f"links has no link from {_CPU} to {_GPU}"),
    )
    def test_an_invalid_entry_is_an_error_with_its_name(self, at, new, message):
        value: Any = _build_value()
        *path, last = at.split(".")
        target = value
        for step in path:
            target = target[int(step) if step.isdecimal() else step]
        target[int(last) if last.isdecimal() else last] = new
        with self.assertRaisesRegex(MachineError, "^" + re.escape("box.json: ")) as caught:
            parse_machine(value, "box.json:")
        self.assertIn(message, str(caught.exception))

    @parameterized.parameters(
        ("devices.1.class.peak_flops", 'devices[1].class has no entry "peak_flops"'),
        ("devices.0.class", 'devices[0] has no entry "class"'),
        ("links.1.latency_secs", 'links[1] has no entry "latency_secs"'),
        ("devices", 'the machine has no entry "devices"'),
    )
    def test_a_missing_entry_is_an_error_with_its_name(self, at, message):
        value: Any = _build_value()
        *path, last = at.split(".")
        target = value
        for step in path:
            target = target[int(step) if step.isdecimal() else step]
        del target[last]
        with self.assertRaisesRegex(MachineError, "^" + re.escape(f"box.json: {message}") + "$"):
            parse_machine(value, "box.json:")

    def test_rejects_duplicate_links(self):
        value = _build_value()
        value["links"].append(value["links"][0])
        with self.assertRaisesRegex(MachineError, r"links\[2\] is the second link from .*GPU:0"):
            parse_machine(value, "box.json:")

    def test_rejects_unreadable_files(self):
        path = self.create_tempfile("box.json", '{"format": ').full_path
        with self.assertRaisesRegex(MachineError, f"machine file {path} is not JSON: "):
            make_described_machine(path)
        with self.assertRaisesRegex(MachineError, "machine file gone.json: No such file"):
            make_described_machine("gone.json")
        with self.assertRaisesRegex(
            MachineError, r"^box.json: the machine is a list: it must be an object$"
        ):
            parse_machine([], "box.json:")


if __name__ == "__main__":
    absltest.main()
