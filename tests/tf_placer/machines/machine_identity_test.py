"""Tests of the identity of machines."""

from __future__ import annotations

import dataclasses
import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tf_placer.machines import machine_identity
from tf_placer.machines.machine import Device, Machine
from tf_placer.machines.machine_identity import compute_machine_identity

tf1 = tf.compat.v1
_NAMES = tuple(f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))
_MACHINE = Machine(
    "local:2", "local", tuple(Device(name, "CPU", None, (k,)) for k, name in enumerate(_NAMES))
)
_GPU = Device("/device:GPU:0", "GPU", 8 * 2**30)
_ATTACHED = Machine("attached", "attached", (Device("/device:CPU:0", "CPU"), _GPU))


class MachineIdentityTest(absltest.TestCase):
    def test_equal_hardware_has_one_identity(self):
        # The cores of the two devices are others, but as many.
        shifted = tuple(
            dataclasses.replace(device, cores=(device.cores[0] + 2,)) for device in _MACHINE.devices
        )
        same = dataclasses.replace(_MACHINE, devices=shifted)
        identity = compute_machine_identity(_MACHINE, None)
        self.assertEqual(identity, compute_machine_identity(same, tf1.ConfigProto()))
        with mock.patch.object(machine_identity.os, "uname", side_effect=AssertionError):
            self.assertEqual(identity, compute_machine_identity(_MACHINE, None))

    def test_sessions_of_tensorflow_2_count_as_having_no_configuration(self):
        with tf.Graph().as_default(), tf1.Session() as session:
            config = session._config
        self.assertNotEqual(config, tf1.ConfigProto())
        identity = compute_machine_identity(_MACHINE, None)
        self.assertEqual(identity, compute_machine_identity(_MACHINE, config))
        config.gpu_options.allow_growth = True
        self.assertNotEqual(identity, compute_machine_identity(_MACHINE, config))

    def test_everything_that_changes_times_counts(self):
        def widen(device: Device) -> Device:
            return dataclasses.replace(device, cores=(0, 1))

        wider = dataclasses.replace(_MACHINE, devices=tuple(map(widen, _MACHINE.devices)))
        limited = dataclasses.replace(_MACHINE, spec="local:2,memory_mb=100")
        found = [
            compute_machine_identity(_MACHINE, None),
            compute_machine_identity(wider, None),
            compute_machine_identity(limited, None),
            compute_machine_identity(_MACHINE, tf1.ConfigProto(inter_op_parallelism_threads=1)),
            compute_machine_identity(_ATTACHED, None),
        ]
        with mock.patch.object(tf, "__version__", "3.0"):
            found.append(compute_machine_identity(_MACHINE, None))
        with mock.patch.object(machine_identity, "find_processor_name", return_value="Z80"):
            found.append(compute_machine_identity(_MACHINE, None))
        with mock.patch.object(machine_identity.os, "sched_getaffinity", return_value={1, 2, 3}):
            found.append(compute_machine_identity(_MACHINE, None))
        self.assertLen(set(found), len(found))

    def test_free_memory_of_a_gpu_counts_only_if_its_model_is_unknown(self):
        less = dataclasses.replace(_GPU, memory_bytes=2**30)
        machines = [_ATTACHED, dataclasses.replace(_ATTACHED, devices=(_ATTACHED.devices[0], less))]
        for models, num_identities in ((["Tesla K80"], 1), ([], 2)):
            with mock.patch.object(machine_identity, "_find_gpu_models", return_value=models):
                found = {compute_machine_identity(machine, None) for machine in machines}
            self.assertLen(found, num_identities)

    def test_models_of_gpus_are_those_of_the_driver(self):
        driver = pathlib.Path(self.create_tempdir().full_path)
        found = []
        for model in ("Tesla K80", "NVIDIA H100", "NVIDIA H100"):
            (driver / "0000:05:00.0").mkdir(exist_ok=True)
            (driver / "0000:05:00.0" / "information").write_text(f"Model: \t {model}\nIRQ: 7\n")
            with mock.patch.object(machine_identity, "_GPUS", driver):
                self.assertEqual(machine_identity._find_gpu_models(), [model])
                found.append(compute_machine_identity(_ATTACHED, None))
        self.assertNotEqual(found[0], found[1])
        self.assertEqual(found[1], found[2])

    def test_the_addresses_of_a_cluster_count_and_this_computer_does_not(self):
        cluster = Machine("grpc://a:1", "cluster", _MACHINE.devices)
        other = dataclasses.replace(cluster, spec="grpc://b:1")
        identity = compute_machine_identity(cluster, None)
        self.assertNotEqual(identity, compute_machine_identity(other, None))
        with mock.patch.object(machine_identity, "find_processor_name", return_value="Z80"):
            self.assertEqual(identity, compute_machine_identity(cluster, None))


if __name__ == "__main__":
    absltest.main()
