"""Tests of `check` with processes that load and run SavedModels."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
import unittest
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from tests.saved_models import REQUEST, save_functions
from tests.tf_placer.native_pass.built import in_cache_of_tests
from tf_placer import emulated
from tf_placer.errors import SearchError
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.workload import read_graph
from tf_placer.library_build import LibraryError
from tf_placer.live.signature_check import SavedModelCheck, check_saved_model
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine, MachineError

tf1 = tf.compat.v1
HOST = "/job:localhost/replica:0/task:0/device"
CPU, GPUS = f"{HOST}:CPU:0", (f"{HOST}:GPU:0", f"{HOST}:GPU:1")
ATTACHED = Machine("attached", "attached", (Device(CPU, "CPU"),))
# Each of two blocks has three matrices of 8 MB.
SIZE, NUM_LAYERS = 1440, 3
BLOCK_BYTES = NUM_LAYERS * 4 * SIZE**2
# TensorFlow keeps 255 MiB of such a GPU for itself.
GPU_BYTES = (255 + 44) * 2**20


class Layers(tf.Module):
    """Two blocks of layers whose operations have their name; together they take 50 MB."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.first, self.second = (
            [
                tf.Variable(
                    factor * random.normal(0, 0.03, [SIZE, SIZE]), name=name, dtype="float32"
                )
                for _ in range(NUM_LAYERS)
            ]
            for name in ("first", "second")
        )

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE], name="x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": apply_layers(x, self.first, self.second)}

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE], name="x")])
    def seventh(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.name_scope("second"):
            return {"seventh": tf.reshape(x @ self.second[0], [7, -1])}


def apply_layers(
    x: tf.Tensor, first: Sequence[tf.Tensor], second: Sequence[tf.Tensor]
) -> tf.Tensor:
    for name, layers in (("first", first), ("second", second)):
        for weights in layers:
            with tf.name_scope(name):
                x = tf.tanh(tf.matmul(x, weights))
    return x


def save_layers(path: str, factor: float = 1.0) -> str:
    model = Layers(factor)
    tf.saved_model.save(model, path, {"serving_default": model.__call__, "seventh": model.seventh})
    return path


def save_layers_as_graph(path: str) -> str:
    """Saves the layers as TensorFlow 1 does."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, SIZE], name="x")
        variables = [
            [
                tf1.get_variable(
                    f"{name}/{layer}",
                    [SIZE, SIZE],
                    initializer=tf1.ones_initializer(),
                    use_resource=True,
                )
                for layer in range(NUM_LAYERS)
            ]
            for name in ("first", "second")
        ]
        y = apply_layers(x, *variables)
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
    return path


def split(
    path: str,
    new: str,
    machine: Machine,
    devices: tuple[str, str],
    names: Sequence[str] = ("serving_default",),
) -> str:
    """Saves a SavedModel with each block of some signatures on a device of its own."""
    signature = read_graph(path, names).signature
    assignment = {
        node.name: device
        for node in signature.inlined.graph_def.node
        for name, device in zip(("first", "second"), devices, strict=True)
        if re.search(rf"\b{name}(_\d+)?\b", node.name)
    }
    known = tuple(dict.fromkeys([*(device.name for device in machine.devices), *devices]))
    PlacedSignature(signature, machine, Placement("", known, assignment)).save(new)
    return new


class SignatureCheckTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.functions = save_functions(cls.root)
        cls.layers = save_layers(str(cls.root / "layers"))

    def setUp(self):
        super().setUp()
        self.new = os.path.join(self.create_tempdir().full_path, "new")

    def find_small_gpus(self) -> Machine:
        """Finds a machine with two emulated GPUs, each of which holds one block."""
        names = (CPU, *GPUS)
        value = {
            "format": 1,
            "name": "small",
            "devices": [
                {"name": CPU, "class": "CPU"},
                *({"name": name, "class": "K80", "memory_bytes": GPU_BYTES} for name in GPUS),
            ],
            "links": [
                {
                    "source": a,
                    "destination": b,
                    "latency_secs": 1e-5,
                    "bandwidth_bytes_per_sec": 1e10,
                }
                for a in names
                for b in names
                if a != b
            ],
        }
        path = self.create_tempfile("small.json", json.dumps(value)).full_path
        machine = find_machine(f"emulated:{path},values")
        self.enter_context(in_cache_of_tests())
        try:
            emulated.make_environment(machine)
        except LibraryError as error:
            raise unittest.SkipTest(str(error)) from None
        return machine

    def test_variables_that_fit_no_gpu_are_served_by_two(self):
        machine = self.find_small_gpus()
        with self.assertRaisesRegex(
            SearchError, "layers' cannot be loaded: out of memory in loading: "
        ):
            check_saved_model(self.layers, machine, signature_key="serving_default")
        placed = split(self.layers, self.new, machine, GPUS)
        check = check_saved_model(
            placed, machine, original=self.layers, signature_key="serving_default"
        )
        self.assertIsNone(check.failure)
        [signature] = check.signatures
        self.assertTrue(signature.is_compared)
        self.assertGreater(signature.step_secs, 0)
        self.assertEqual(check.variable_bytes, dict.fromkeys(GPUS, BLOCK_BYTES))
        for gpu in GPUS:
            self.assertBetween(signature.peak_bytes[gpu], BLOCK_BYTES, 44 * 2**20)
        self.assertIn("equal", check.table())

    def test_so_are_those_of_tensorflow_1_under_other_names(self):
        machine = self.find_small_gpus()
        graph = save_layers_as_graph(str(self.create_tempdir().full_path) + "/graph")
        placed = split(graph, self.new, machine, (f"{HOST}:GPU:2", f"{HOST}:GPU:3"))
        with self.assertRaisesRegex(
            GraphError, r"GPU:[23], and emulated:.*GPU:2=GPU:1 \(device_map"
        ):
            check_saved_model(placed, machine)
        check = check_saved_model(placed, machine, device_map={"GPU:2": "GPU:1", "GPU:3": "GPU:0"})
        self.assertIsNone(check.failure)
        self.assertEqual(check.variable_bytes, dict.fromkeys(GPUS, BLOCK_BYTES))

    def test_worker_processes_serve_all_signatures(self):
        machine = find_machine("local:2")
        tasks = tuple(device.name for device in machine.devices)
        placed = split(self.layers, self.new, machine, tasks)
        feeds = self.create_tempfile("feeds.npz").full_path
        np.savez(feeds, x=np.ones([7, SIZE]))
        check = check_saved_model(placed, machine, original=self.layers, feeds=feeds)
        self.assertIsNone(check.failure)
        self.assertEqual([each.name for each in check.signatures], ["serving_default", "seventh"])
        self.assertTrue(all(each.is_compared for each in check.signatures))
        self.assertEqual(check.variable_bytes, dict.fromkeys(tasks, BLOCK_BYTES))

    def test_variables_outside_of_the_machine_have_a_row(self):
        tasks = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]
        machine = Machine("local:2", "local", tuple(Device(name, "CPU") for name in tasks))
        check = SavedModelCheck("saved", machine, (), {CPU: 2048, tasks[1]: 0})
        rows = {each["name"]: each["variable_bytes"] for each in check.to_json()["devices"]}
        self.assertEqual(rows, {tasks[0]: 0, tasks[1]: 0, CPU: 2048})
        lines = check.table().splitlines()
        self.assertEqual(
            [line.split("  ")[0] for line in lines[-3:-1]], ["task:0/CPU:0", "task:1/CPU:0"]
        )
        self.assertRegex(lines[-1], r"^CPU:0 of the process +2\.000 KiB")

    def test_steps_with_values_are_told_to_be_those_of_the_cpu(self):
        for spec, is_told in (("emulated:2xK80,values", True), ("emulated:2xK80", False)):
            check = SavedModelCheck("saved", find_machine(spec), (), {})
            self.assertEqual("take the time of the GPUs" in check.table(), is_told)

    def test_several_signatures_are_placed_and_served_together(self):
        machine = find_machine("local:2")
        tasks = tuple(device.name for device in machine.devices)
        # Without a placement of its own, the second signature would have operations without device.
        names = ["serving_default", "seventh"]
        placed = split(self.layers, self.new, machine, tasks, names)
        [meta_graph] = read_saved_model(placed).meta_graphs
        products = [
            node.device
            for function in meta_graph.graph_def.library.function
            for node in function.node_def
            if node.op == "MatMul" and "seventh" in function.signature.name
        ]
        self.assertEqual(products, [tasks[1]])
        feeds = self.create_tempfile("feeds.npz").full_path
        np.savez(feeds, x=np.ones([7, SIZE]))
        check = check_saved_model(placed, machine, original=self.layers, feeds=feeds)
        self.assertIsNone(check.failure)
        self.assertEqual([each.is_compared for each in check.signatures], [True, True])

    def test_failures_and_other_values_are_told(self):
        other = save_layers(self.new, factor=2.0)
        check = check_saved_model(self.layers, ATTACHED, original=other)
        served, seventh = check.signatures
        # One row is made up, which this signature cannot divide by 7.
        self.assertRegex(seventh.error, "reshape|Reshape")
        self.assertRegex(check.failure, "^the signature 'seventh' of '.*' does not run: ")
        self.assertRegex(served.difference, "'y' differs by up to ")
        self.assertIsNone(served.error)
        value = json.loads(json.dumps(check.to_json()))
        self.assertEqual(value["signatures"][0]["difference"], served.difference)
        self.assertRegex(check.table(), r"seventh +no\n")
        self.assertRegex(check.table(), r"serving_default  yes  .* different")

    @parameterized.parameters(
        ({"directory": "no/such"}, GraphError, "'no/such' is no SavedModel"),
        ({"signature_key": "nope"}, GraphError, "no signature 'nope': name one of serving_default"),
        ({"original": "no/such"}, GraphError, "'no/such' is no SavedModel"),
        ({"feeds": "no.npz"}, FileNotFoundError, "cannot read the feeds 'no.npz'"),
        ({"device_map": {"GPU:0": "GPU:1"}}, GraphError, "'/device:GPU:1', and attached has only"),
        ({"device_map": {"GPU:0": "CPU:0"}}, GraphError, "'/device:GPU:0', where nothing is"),
        ({"device_map": {"x": "CPU:0"}}, GraphError, "'x', which names no device"),
    )
    def test_bad_input_starts_no_process(self, arguments, error, message):
        arguments = {"directory": self.functions, "machine": ATTACHED, **arguments}
        with self.assertRaisesRegex(error, message):
            check_saved_model(**arguments)

    def test_machines_that_cannot_tell(self):
        with self.assertRaisesRegex(MachineError, "only described: check .* on 'emulated:2xK80'"):
            check_saved_model(self.functions, find_machine("2xK80"))
        machine = find_machine("emulated:2xK80")
        with self.assertRaisesRegex(MachineError, "shapes alone, .*: append ',values'"):
            check_saved_model(self.functions, machine, original=self.functions)

    def test_a_saved_model_without_signatures(self):
        tf.saved_model.save(tf.Module(), self.new)
        with self.assertRaisesRegex(GraphError, "has no signatures, so nobody can call it"):
            check_saved_model(self.new, ATTACHED)

    def test_feeds_that_no_signature_takes(self):
        feeds = self.create_tempfile("feeds.npz").full_path
        np.savez(feeds, z=REQUEST)
        with self.assertRaisesRegex(GraphError, "no signature has the argument 'z' of the feeds"):
            check_saved_model(self.functions, ATTACHED, feeds=feeds)


if __name__ == "__main__":
    tf.test.main()
