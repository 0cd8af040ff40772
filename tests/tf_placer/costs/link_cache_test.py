"""Tests of the cache of links."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from unittest import mock

import tensorflow as tf

from tf_placer.costs.link_cache import find_links, keep_links
from tf_placer.files import cache_directory
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Link, Machine

v1 = tf.compat.v1
_NAMES = tuple(f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))
_MACHINE = Machine(
    "local:2", "local", tuple(Device(name, "CPU", None, (k,)) for k, name in enumerate(_NAMES))
)
_MEASURED = dataclasses.replace(
    _MACHINE,
    devices=tuple(
        dataclasses.replace(device, transfer_share=0.5, transfer_overhead_secs=3e-4)
        for device in _MACHINE.devices
    ),
    links=(Link(*_NAMES, 1e-4, 1e9), Link(*_NAMES[::-1], 2e-4, 2e9)),
)

_PAIR = tuple(f"/job:localhost/replica:0/task:0/device:{name}:0" for name in ("CPU", "GPU"))
_BOX = {
    "format": 1,
    "name": "box",
    "devices": [
        {"name": name, "class": model} for name, model in zip(_PAIR, ("CPU", "K80"), strict=True)
    ],
    "links": [
        {
            "source": source,
            "destination": destination,
            "latency_secs": 1e-5,
            "bandwidth_bytes_per_sec": 1e10,
        }
        for source, destination in (_PAIR, _PAIR[::-1])
    ],
}


class LinkCacheTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(self.create_tempdir().full_path)
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.cache)}))

    def test_finds_links_with_their_age(self):
        self.assertIsNone(find_links(_MACHINE, None))
        keep_links(_MEASURED, None)
        known = find_links(_MACHINE, None)
        self.assertEqual(known.machine, _MEASURED)
        self.assertBetween(known.age_secs, 0.0, 600.0)

    def test_finds_no_links_of_another_machine_or_configuration(self):
        keep_links(_MEASURED, None)
        other_cores = tuple(dataclasses.replace(d, cores=(7,)) for d in _MACHINE.devices)
        for machine in (
            dataclasses.replace(_MACHINE, spec="local:2,memory_mb=5"),
            dataclasses.replace(_MACHINE, devices=other_cores),
        ):
            self.assertIsNone(find_links(machine, None))
        self.assertIsNone(find_links(_MACHINE, v1.ConfigProto(log_device_placement=True)))
        with mock.patch.object(tf, "__version__", "3.0"):
            self.assertIsNone(find_links(_MACHINE, None))
        with mock.patch("os.cpu_count", return_value=1000):
            self.assertIsNone(find_links(_MACHINE, None))

    def test_links_of_emulated_gpus_depend_on_the_description(self):
        file = self.cache / "box.json"
        file.write_text(json.dumps(_BOX))
        spec = f"emulated:{file}"
        measured = dataclasses.replace(
            find_machine(spec), links=tuple(Link(*pair, 1e-4, 1e9) for pair in (_PAIR, _PAIR[::-1]))
        )
        keep_links(measured, None)
        self.assertEqual(find_links(find_machine(spec), None).machine, measured)
        faster = [{**link, "bandwidth_bytes_per_sec": 5e10} for link in _BOX["links"]]
        file.write_text(json.dumps({**_BOX, "links": faster}))
        self.assertIsNone(find_links(find_machine(spec), None))

    def test_emulated_gpus_change_the_attached_machine(self):
        attached = Machine("attached", "attached", _MACHINE.devices)
        keep_links(dataclasses.replace(_MEASURED, spec="attached", kind="attached"), None)
        self.assertIsNotNone(find_links(attached, None))
        environ = {
            "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "gpu.so",
            "TF_PLACER_EMULATED_MACHINE": "emulated:2xK80",
            "TF_PLACER_EMULATED": "machine.tsv",
        }
        with mock.patch.dict(os.environ, environ):
            self.assertIsNone(find_links(attached, None))

    def test_replaces_links_of_the_same_machine_only(self):
        other = dataclasses.replace(_MEASURED, spec="local:2,memory_mb=5")
        keep_links(other, None)
        keep_links(_MEASURED, None)
        faster = dataclasses.replace(_MEASURED, links=(Link(*_NAMES, 1e-5, 1e10),))
        keep_links(faster, None)
        self.assertEqual(find_links(_MACHINE, None).machine, faster)
        self.assertEqual(find_links(other, None).machine, other)

    def test_ignores_and_replaces_invalid_files(self):
        file = cache_directory() / "links.json"
        file.parent.mkdir()
        for text in ("", "[1]", '{"format": 3}', '{"format": 2, "machines": []}', "{"):
            file.write_text(text)
            self.assertIsNone(find_links(_MACHINE, None))
        keep_links(_MEASURED, None)
        self.assertEqual(find_links(_MACHINE, None).machine, _MEASURED)

    def test_only_the_user_can_access_the_directory(self):
        keep_links(_MEASURED, None)
        self.assertEqual(cache_directory(), self.cache / "tf_placer")
        self.assertEqual(cache_directory().stat().st_mode & 0o777, 0o700)

    def test_an_unwritable_directory_is_an_error(self):
        (self.cache / "tf_placer").write_text("a file")
        with self.assertRaises(OSError):
            keep_links(_MEASURED, None)


if __name__ == "__main__":
    tf.test.main()
