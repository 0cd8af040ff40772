"""Tests of emulated GPUs in TensorFlow's runtime, each in a process that has them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.emulated import emulated_steps
from tests.tf_placer.native_pass.built import in_cache_of_tests
from tf_placer import emulated
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.inputs.workload import read_workload
from tf_placer.library_build import LibraryError
from tf_placer.machines.lookup import find_machine
from tf_placer.processes import environment_without_gpus


@functools.cache
def run(spec: str, *names: str) -> dict[str, Any]:
    """Runs functions of `emulated_steps` on an emulated machine."""
    with in_cache_of_tests():
        try:
            environ = emulated.make_environment(find_machine(spec))
        except LibraryError as error:
            if "says" in str(error):
                raise
            raise unittest.SkipTest(str(error)) from None
        # Disable oneDNN, because it rounds differently.
        environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "TF_ENABLE_ONEDNN_OPTS": "0"}
        ended = subprocess.run(
            [sys.executable, "-m", emulated_steps.__name__, *names],
            env=environ,
            capture_output=True,
            text=True,
        )
    if ended.returncode:
        raise AssertionError(ended.stderr)
    return json.loads(ended.stdout.splitlines()[-1])


class ValuesTest(absltest.TestCase):
    def test_placements_compute_the_same_bits_as_the_cpu(self):
        equal = run("emulated:2xK80,values", "values", "convolutions")["values"]
        self.assertEqual({name for name in equal if not all(equal[name])}, set())
        self.assertEqual(set(equal), set(emulated_steps.VALUES_OF))

    def test_activations_on_the_cpu_take_less_memory_and_leave_all_bits(self):
        original, moved = run("emulated:2xK80,values", "moved")["moved"]
        self.assertEqual(moved["losses"], original["losses"])
        self.assertGreater(len(set(original["losses"])), 2)
        self.assertLess(moved["peak_bytes"], 0.85 * original["peak_bytes"])

    def test_activations_of_a_model_on_the_cpu_take_less_memory_and_leave_all_bits(self):
        original, moved = run("emulated:2xK80,values", "offloaded")["offloaded"]
        self.assertEqual(moved["losses"], original["losses"])
        self.assertGreater(len(set(original["losses"])), 2)
        self.assertLess(moved["peak_bytes"], 0.85 * original["peak_bytes"])

    def test_convolutions_keep_the_layout_of_the_cpu(self):
        placed, expected = run("emulated:2xK80,values", "values", "convolutions")["convolutions"]
        np.testing.assert_allclose(placed, expected, rtol=1e-5)


class TimesTest(absltest.TestCase):
    def test_kernels_take_the_time_of_the_analytic_model(self):
        made = graphs.share_graph("small_convnet")
        graph = read_workload(made.graph, made.fetches, made.feeds).op_graph
        expected = compute_analytic_costs(graph, find_machine("2xK80")).compute_secs[:, 1]
        traced = run("emulated:2xK80", "trace", "touched", "memory")["trace"]["kernels"]
        grouped = group_operations(graph)
        legal = grouped.grouping.legal_devices(grouped.colocation, emulated_steps.DEVICES)
        on_gpu = legal[grouped.grouping.expand_to_operations(grouped.colocation), 1] & graph.needed
        for i in np.flatnonzero(on_gpu & (expected > 0)).tolist():
            # Traces have whole microseconds.
            with self.subTest(graph.names[i], type=graph.type_of(i)):
                self.assertAlmostEqual(
                    traced.get(graph.names[i], 0.0), 1e6 * expected[i], delta=1.01
                )

    def test_copies_take_the_time_of_the_link(self):
        machine = find_machine("2xK80")
        link = machine.links[0]
        copies = run("emulated:2xK80", "trace", "touched", "memory")["trace"]["copies"]
        for label, micros in copies:
            num_bytes = int(re.search(r"(\d+) bytes", label)[1])
            expected = link.latency_secs + num_bytes / link.bandwidth_bytes_per_sec
            with self.subTest(label):
                self.assertAlmostEqual(micros, 1e6 * expected, delta=1.01)
        self.assertNotEmpty(copies)

    def test_memory_has_the_limit_of_the_machine(self):
        found = run("emulated:2xK80", "trace", "touched", "memory")
        machine = find_machine("emulated:2xK80")
        self.assertEqual(
            found["trace"]["memory_limits"][1:],
            [device.memory_bytes for device in machine.devices[1:]],
        )
        self.assertIn("OOM when allocating tensor", found["memory"])

    def test_large_tensors_take_no_memory_of_the_host(self):
        touched = run("emulated:2xK80", "trace", "touched", "memory")["touched"]
        # The conditions alone have four times as many bytes.
        self.assertLess(touched, 64 << 20)


class AttachedTest(absltest.TestCase):
    """Tests of a program under `emulate`, whose attached machine has the emulated GPUs."""

    def test_the_attached_machine_has_the_visible_gpus(self):
        spec = "emulated:2xK80"
        run(spec, "trace", "touched", "memory")  # Skips the test if the plugin cannot be compiled.
        config = tf.compat.v1.ConfigProto()
        config.gpu_options.visible_device_list = "1"
        config.gpu_options.per_process_gpu_memory_fraction = 0.25
        with in_cache_of_tests():
            environ = emulated.make_environment(find_machine(spec))
        with mock.patch.dict(os.environ, environment_without_gpus(environ)):
            found = find_machine("attached", config)
            self.assertFalse(found.computes_values)
        self.assertTrue(found.computes_values)
        self.assertEqual(
            [(device.name, device.type) for device in found.devices],
            [(device.name, device.type) for device in find_machine(spec, config).devices],
        )
        self.assertEqual(
            found.devices[1].memory_bytes, find_machine(spec, config).devices[1].memory_bytes
        )


class EnvironmentTest(absltest.TestCase):
    def test_rejects_a_cuda_build_of_tensorflow(self):
        build_info = {"is_cuda_build": True}
        with (
            mock.patch.object(tf.sysconfig, "get_build_info", return_value=build_info),
            self.assertRaisesRegex(LibraryError, "install tensorflow-cpu"),
        ):
            emulated.make_environment(find_machine("emulated:2xK80"))


class EmulateCommandTest(absltest.TestCase):
    def emulate(self, *args: str) -> subprocess.CompletedProcess[str]:
        with in_cache_of_tests():
            return subprocess.run(
                [sys.executable, "-m", "tf_placer", "emulate", *args],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
            )

    def test_a_command_gets_the_printed_variables(self):
        run(
            "emulated:2xK80", "trace", "touched", "memory"
        )  # Skips the test if the plugin cannot be compiled.
        printed = self.emulate("2xK80").stdout
        self.assertIn("export TF_PLUGGABLE_DEVICE_LIBRARY_PATH=", printed)
        shown = self.emulate("2xK80", "--", "printenv", "TF_PLACER_EMULATED").stdout.strip()
        self.assertIn(f"export TF_PLACER_EMULATED={shown}\n", printed)

    def test_reports_an_unknown_machine(self):
        refused = self.emulate("2xFOO", "--", "true")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("tf_placer: unknown machine '2xFOO'", refused.stderr)


if __name__ == "__main__":
    absltest.main()
