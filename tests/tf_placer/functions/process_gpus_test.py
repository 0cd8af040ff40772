"""Tests of reading the GPU settings of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest import mock

import tensorflow as tf
from tensorflow.python.eager import context

from tf_placer.functions.process_gpus import build_session_config, holds_gpu_memory

_GPUS = [tf.config.PhysicalDevice(f"/physical_device:GPU:{k}", "GPU") for k in range(3)]


class ProcessGpusTest(tf.test.TestCase):
    def set_up(
        self,
        visible: Sequence[int] = (0, 1, 2),
        limits: Mapping[int, Sequence[int]] | None = None,
        growing: Sequence[int] = (),
        is_initialized: bool = True,
    ) -> None:
        def division(gpu: tf.config.PhysicalDevice):
            megabytes = (limits or {}).get(_GPUS.index(gpu))
            return megabytes and [tf.config.LogicalDeviceConfiguration(each) for each in megabytes]

        def grows(gpu: tf.config.PhysicalDevice) -> bool:
            return _GPUS.index(gpu) in growing

        for owner, name, value in (
            (tf.config, "list_physical_devices", lambda kind: _GPUS),
            (tf.config, "get_visible_devices", lambda kind: [_GPUS[k] for k in visible]),
            (tf.config, "get_logical_device_configuration", division),
            (tf.config.experimental, "get_memory_growth", grows),
            (context.context(), "_initialized", is_initialized),
            (context.context(), "_physical_devices", _GPUS),
        ):
            self.enter_context(mock.patch.object(owner, name, value))

    def test_sessions_of_a_program_that_has_set_up_nothing_are_the_default(self):
        self.set_up(growing=[1])
        self.assertEqual(build_session_config(), tf.compat.v1.ConfigProto())

    def test_gpus_that_the_program_has_hidden_are_hidden_from_sessions(self):
        self.set_up(visible=[2, 0])
        config = build_session_config()
        self.assertEqual(config.gpu_options.visible_device_list, "2,0")
        self.assertEqual(config.device_count["GPU"], 2)

    def test_does_not_list_gpus_before_the_program(self):
        self.set_up(visible=[1])
        with (
            mock.patch.object(context.context(), "_physical_devices", None),
            mock.patch.object(tf.config, "list_physical_devices", side_effect=AssertionError),
        ):
            self.assertEqual(build_session_config(), tf.compat.v1.ConfigProto())

    def test_without_any_gpu_sessions_have_none(self):
        self.set_up(visible=[])
        self.assertEqual(build_session_config().device_count["GPU"], 0)

    def test_parts_of_gpus_are_those_of_sessions(self):
        self.set_up(limits={1: [1024, 2048]})
        parts = build_session_config().gpu_options.experimental.virtual_devices
        self.assertEqual([list(each.memory_limit_mb) for each in parts], [[], [1024, 2048], []])

    def test_memory_is_taken_when_tensorflow_has_run_unless_it_grows(self):
        for initialized, growing, expected in (
            (False, (), False),
            (True, (), True),
            (True, (0,), True),
            (True, (0, 1, 2), False),
        ):
            with self.subTest(initialized=initialized, growing=growing):
                self.set_up(is_initialized=initialized, growing=growing)
                self.assertEqual(holds_gpu_memory(), expected)

    def test_emulated_gpus_have_memory_in_each_process(self):
        self.set_up()
        environ = {
            "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "gpu.so",
            "TF_PLACER_EMULATED_MACHINE": "emulated:2xK80",
        }
        with mock.patch.dict("os.environ", environ):
            self.assertFalse(holds_gpu_memory())


if __name__ == "__main__":
    tf.test.main()
