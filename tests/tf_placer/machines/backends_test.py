"""Tests of the properties of kinds of machines."""

from __future__ import annotations

import importlib
from typing import get_args

from absl.testing import absltest

from tf_placer.machines.backends import BACKENDS, Kind
from tf_placer.machines.machine import Device, Machine


class BackendsTest(absltest.TestCase):
    def test_every_kind_has_a_backend_with_a_find_function(self):
        self.assertEqual((*BACKENDS,), get_args(Kind))
        for kind, backend in BACKENDS.items():
            self.assertIs(Machine("m", kind, (Device("d", "CPU"),)).backend, backend)
            self.assertIsNone(importlib.import_module(backend.module).find("unknown"))

    def test_properties_are_consistent(self):
        for kind, backend in BACKENDS.items():
            with self.subTest(kind):
                places = backend.in_one_process, backend.starts_servers, backend.is_remote
                self.assertEqual(sum(places), int(backend.is_timed))
                self.assertEqual(backend.default_link is None, backend.is_described)
                self.assertLessEqual(backend.in_this_process, backend.in_one_process)


if __name__ == "__main__":
    absltest.main()
