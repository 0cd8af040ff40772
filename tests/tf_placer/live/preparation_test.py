"""Tests of the preparation of a search on the devices of sessions and functions."""

from __future__ import annotations

from unittest import mock

import tensorflow as tf

from tests import graphs
from tf_placer.live import preparation
from tf_placer.live.optimization_target import read_target
from tf_placer.live.preparation import note_on_gpus, prepare
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine
from tf_placer.search.config import SearchConfig

tf1 = tf.compat.v1
_PREFIX = "/job:localhost/replica:0/task:0/device:"
_MACHINE = Machine(
    "attached",
    "attached",
    (Device(f"{_PREFIX}CPU:0", "CPU", 2**34), Device(f"{_PREFIX}GPU:0", "GPU", 3 * 2**28)),
)
# The environment of a process with emulated GPUs.
_EMULATED = {
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "gpu.so",
    "TF_PLACER_EMULATED_MACHINE": "emulated:2xK80",
}


class PreparationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.find_machine = self.enter_context(
            mock.patch.object(preparation, "find_machine", return_value=_MACHINE)
        )
        self.holds_memory = self.enter_context(
            mock.patch.object(preparation, "holds_gpu_memory", return_value=False)
        )
        self.of_process = tf1.ConfigProto(device_count={"GPU": 1})
        self.enter_context(
            mock.patch.object(preparation, "build_session_config", return_value=self.of_process)
        )
        given = graphs.two_branches()
        self.step = read_target(given.graph, given.fetches)

    def prepare(
        self,
        machine: str | Machine | None = None,
        session_config: tf1.ConfigProto | None = None,
    ) -> SearchConfig:
        config = SearchConfig(machine, "expert", session_config=session_config)
        return prepare(self.step, config)

    def note(self, machine: Machine = _MACHINE) -> str | None:
        return note_on_gpus(self.step, machine, calls_python=False)

    def test_learned_placers_start_at_the_expert(self):
        for placer, expected in (("post", {"start": "expert"}), ("hill_climbing", {})):
            config = prepare(self.step, SearchConfig(placer=placer))
            self.assertEqual(config.placer_options, expected)

    def test_finds_the_machine_under_the_session_configuration(self):
        config = tf1.ConfigProto(device_count={"GPU": 2})
        self.assertEqual(self.prepare(session_config=config).machine, _MACHINE)
        self.find_machine.assert_called_once_with(None, config)

    def test_uses_the_gpus_of_this_process_by_default(self):
        self.find_machine.return_value = Machine("m", "attached", _MACHINE.devices[:1])
        for machine, expected in (
            (None, self.of_process),
            ("attached", self.of_process),
            # This process does not have the GPUs of these machines.
            ("emulated:2xK80", tf1.ConfigProto()),
            ("local:2", tf1.ConfigProto()),
        ):
            with self.subTest(machine=machine):
                self.assertEqual(self.prepare(machine).session_config, expected)
        with mock.patch.dict("os.environ", _EMULATED):
            self.assertEqual(self.prepare("emulated:2xK80").session_config, self.of_process)

    def test_notes_that_this_process_holds_gpu_memory(self):
        self.assertIsNone(self.note())
        self.holds_memory.return_value = True
        self.assertRegex(
            self.note(),
            "has taken the memory of the GPUs .* leaves 768.* of each to .*set_memory_growth.* run",
        )
        self.assertIsNone(self.note(Machine("m", "local", _MACHINE.devices)))
        self.assertIsNone(note_on_gpus(self.step, _MACHINE, calls_python=True))

    def test_notes_that_a_function_lacks_the_emulated_gpus(self):
        emulated = find_machine("emulated:2xK80")
        self.assertIsNone(self.note(emulated), "a graph runs in any session")
        function = tf.function(lambda x: tf.tanh(x @ x), autograph=False)
        self.step = read_target(function, example_inputs=(tf.ones([2, 2]),))
        self.assertRegex(self.note(emulated), "no GPUs .* emulate 2xK80 -- python")
        with mock.patch.dict("os.environ", _EMULATED):
            self.assertIsNone(self.note(emulated))


if __name__ == "__main__":
    tf.test.main()
