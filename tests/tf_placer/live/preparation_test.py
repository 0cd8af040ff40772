"""Tests of the preparation of a search on the devices of sessions and functions."""

from __future__ import annotations

from unittest import mock

import tensorflow as tf

from tests import graphs
from tf_placer.live import preparation
from tf_placer.live.optimization_target import read_target
from tf_placer.live.preparation import explain_little_memory, note_on_gpus, prepare
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

    def prepare_limited(self, session_config=None, **limits) -> tuple[list[int], list[list[float]]]:
        """Returns the memory of the devices, and the limits of the GPUs in sessions in MiB."""
        config = SearchConfig(placer="expert", session_config=session_config, **limits)
        prepared = prepare(self.step, config)
        options = prepared.session_config.gpu_options.experimental
        sizes = [device.memory_bytes for device in prepared.machine.devices]
        return sizes, [list(gpu.memory_limit_mb) for gpu in options.virtual_devices]

    def test_limits_the_memory_of_devices_and_of_gpus_in_sessions(self):
        self.assertEqual(self.prepare_limited(), ([2**34, 3 * 2**28], []))
        limited = self.prepare_limited(max_memory={"GPU:0": "100MiB"})
        self.assertEqual(limited, ([2**34, 100 * 2**20], [[100.0]]))
        self.assertEqual(self.prepare_limited(headroom=0.5), ([2**33, 3 * 2**27], [[384.0]]))
        # TensorFlow refuses a fraction beside other limits; the machine has the fraction already.
        fraction = tf1.ConfigProto()
        fraction.gpu_options.per_process_gpu_memory_fraction = 0.3
        fraction.gpu_options.visible_device_list = "1,0"
        config = SearchConfig(placer="expert", session_config=fraction, headroom=0.5)
        options = prepare(self.step, config).session_config.gpu_options
        self.assertEqual(options.per_process_gpu_memory_fraction, 0.0)
        self.assertEqual(options.visible_device_list, "1")
        self.assertAlmostEqual(fraction.gpu_options.per_process_gpu_memory_fraction, 0.3)

    def test_limits_emulated_gpus_by_a_fraction_of_their_memory(self):
        self.find_machine.side_effect = find_machine
        config = SearchConfig("emulated:2xK80", "expert", max_memory={"GPU:0": "3GiB", "GPU:1": 9})
        options = prepare(self.step, config).session_config.gpu_options
        # A K80 has 12 GB or so, as its class says.
        [k80] = {each.memory_bytes for each in find_machine("2xK80").devices[1:]}
        self.assertEqual(int(options.per_process_gpu_memory_fraction * k80), 3 * 2**30)
        self.assertEmpty(options.experimental.virtual_devices)

    def test_limits_worker_processes_by_their_devices(self):
        self.find_machine.side_effect = find_machine
        limited = prepare(
            self.step, SearchConfig("local:2", "expert", max_memory={"task:1": "44MB"})
        )
        self.assertEqual([d.memory_bytes for d in limited.machine.devices], [None, 44_000_000])
        self.assertEqual(limited.session_config, tf1.ConfigProto())

    def test_refuses_limits_of_absent_devices_and_of_parts_of_gpus(self):
        with self.assertRaisesRegex(ValueError, 'max_memory is for "GPU:1", and no device is'):
            self.prepare_limited(max_memory={"GPU:1": "4GB"})
        divided = tf1.ConfigProto()
        divided.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[100, 200])
        with self.assertRaisesRegex(ValueError, "session_config divides a GPU: limit the parts"):
            self.prepare_limited(divided, headroom=0.1)

    def explain_memory(self, *sizes: int | None) -> str | None:
        """Explains a lack of memory for 3 MiB of variables on CPUs of these sizes."""
        with tf.Graph().as_default() as graph:
            weights = [tf1.get_variable(f"w{i}", [512, 512], use_resource=True) for i in range(3)]
            tf.add_n([weight.read_value() for weight in weights], name="sum")
        given = read_target(graph, "sum")
        devices = tuple(Device(f"{_PREFIX}CPU:{i}", "CPU", size) for i, size in enumerate(sizes))
        return explain_little_memory(given.workload.op_graph, Machine("m", "local", devices))

    def test_explains_that_all_devices_together_cannot_hold_the_variables(self):
        for sizes in ((2**20, 2**21), (2**20, None)):
            self.assertIsNone(self.explain_memory(*sizes))
        self.assertRegex(
            str(self.explain_memory(2**20, 2**20)),
            "variables of the step take 3.000 MiB, and all devices of m together have 2.000 MiB: ",
        )

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
