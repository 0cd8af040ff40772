from __future__ import annotations

import gc
import os
import pathlib
import tempfile
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from tests.saved_models import REQUEST, WORDS, save_functions, save_graph
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE, random_placements
from tf_placer.functions.loaded_model import load_placed
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.workload import read_graph, read_workload

KINDS = ("functions", "graph", "reference_graph")
SWAP = {"CPU:0": "CPU:1", "CPU:1": "CPU:0"}


class LoadedModelTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.saved = {"functions": (save_functions(root), "serving_default")}
        for kind, use_resource in (("graph", True), ("reference_graph", False)):
            folder = root / kind
            folder.mkdir()
            cls.saved[kind] = (save_graph(folder, use_resource=use_resource), "sum")

    def setUp(self):
        super().setUp()
        self.addCleanup(tf.config.set_soft_device_placement, tf.config.get_soft_device_placement())

    def place(self, kind: str) -> tuple[str, dict[str, str]]:
        """Saves a placed SavedModel; returns its directory and the devices of its variables."""
        path, name = self.saved[kind]
        given = read_graph(path, name)
        workload = read_workload(given, feed_dict={"x": REQUEST})
        for placement in random_placements(workload, 20):
            devices = {
                node.name: placement.assignment[node.name]
                for node in workload.graph_def.node
                if node.op in ("VarHandleOp", "VariableV2") and node.name in placement.assignment
            }
            if len(set(devices.values())) == 2:
                break
        new = os.path.join(self.create_tempdir().full_path, "new")
        PlacedSignature(given.signature, MACHINE, placement).save(new)
        return new, devices

    def check_devices(self, loaded, kind: str, devices: Iterable[str]):
        variables = loaded.signatures[self.saved[kind][1]].variables
        if kind == "reference_graph":
            # TensorFlow makes no Python objects of them; they are operations of the function.
            self.assertEmpty(variables)
            nodes = loaded.graph.as_graph_def().node
            self.assertCountEqual([n.device for n in nodes if n.op == "VariableV2"], devices)
        else:
            self.assertCountEqual([each.device for each in variables], devices)

    def check_answers(self, loaded, kind: str):
        path, name = self.saved[kind]
        expected = tf.saved_model.load(path).signatures[name](x=tf.constant(REQUEST))
        answer = loaded.signatures[name](x=tf.constant(REQUEST))
        self.assertAllClose(answer, expected)
        # A signature that was not placed runs, too.
        words, numbers = WORDS
        answer = loaded.signatures["words"](words=tf.constant(words))
        self.assertAllEqual(answer["numbers"], numbers)

    @parameterized.product(kind=KINDS, soft=(False, True))
    def test_variables_are_where_they_were_placed(self, kind, soft):
        directory, devices = self.place(kind)
        tf.config.set_soft_device_placement(soft)
        loaded = load_placed(directory)
        self.assertEqual(tf.config.get_soft_device_placement(), soft)
        self.check_devices(loaded, kind, devices.values())
        self.check_answers(loaded, kind)

    @parameterized.parameters(*KINDS)
    def test_devices_may_have_other_numbers(self, kind):
        directory, devices = self.place(kind)
        before = read_saved_model(directory)
        loaded = load_placed(directory, device_map=SWAP)
        gc.collect()
        other = dict(zip(DEVICES, reversed(DEVICES), strict=True))
        self.check_devices(loaded, kind, [other[device] for device in devices.values()])
        self.check_answers(loaded, kind)
        self.assertEqual(read_saved_model(directory), before)

    @parameterized.parameters(("export", ("serve", "serving_default")), ("save", None))
    def test_models_of_keras_serve_all_their_signatures(self, how, names):
        # These are the layers of MobileNet and EfficientNet.
        layers = keras.layers
        normalization = layers.Normalization(mean=[0.4, 0.5, 0.6], variance=[1.0, 2.0, 3.0])
        blocks = [
            each
            for number in range(2)
            for each in (
                layers.DepthwiseConv2D(3, padding="same", name=f"depthwise_{number}"),
                layers.BatchNormalization(),
                layers.Conv2D(8, 1, activation="relu6", name=f"project_{number}"),
                layers.Dropout(0.2),
            )
        ]
        head = [layers.GlobalAveragePooling2D(), layers.Dense(4, "softmax")]
        model = keras.Sequential([keras.Input([8, 8, 3]), normalization, *blocks, *head])
        path = os.path.join(self.create_tempdir().full_path, "saved")
        if how == "export":
            model.export(path, verbose=False)
        else:
            tf.saved_model.save(model, path)
        given = read_graph(path, names)
        [argument] = given.signature.arguments
        images = np.random.default_rng(0).random([2, 8, 8, 3], np.float32)
        workload = read_workload(given, feed_dict={argument: images})
        expected = model(images)
        for number, placement in enumerate(random_placements(workload, 2)):
            directory = f"{path}_{number}"
            PlacedSignature(given.signature, MACHINE, placement).save(directory)
            loaded = load_placed(directory)
            for name in given.signature.names:
                function = loaded.signatures[name]
                [answer] = function(**{argument: tf.constant(images)}).values()
                self.assertAllClose(answer, expected)
                self.assertLen({each.device for each in function.variables}, 2)

    def test_a_missing_device_is_named(self):
        directory, _ = self.place("functions")
        path = pathlib.Path(directory, "saved_model.pb")
        saved_model = read_saved_model(directory)
        for node in saved_model.meta_graphs[0].object_graph_def.nodes:
            if node.variable.device == DEVICES[1]:
                node.variable.device = "/job:localhost/replica:0/task:0/device:GPU:3"
        path.write_bytes(saved_model.SerializeToString())
        for soft in (False, True):
            tf.config.set_soft_device_placement(soft)
            with self.assertRaisesRegex(
                GraphError,
                "has the variable 'weights' on .*GPU:3, and this process has only .*CPU:0, .*CPU:1:"
                " rename the device, such as by GPU:3=CPU:1",
            ):
                load_placed(directory)
        load_placed(directory, device_map={"GPU:3": "CPU:1"})

    def test_a_machine_that_the_process_is_not_connected_to_is_named(self):
        directory, _ = self.place("functions")
        path = pathlib.Path(directory, "saved_model.pb")
        saved_model = read_saved_model(directory)
        for node in saved_model.meta_graphs[0].object_graph_def.nodes:
            if node.variable.device == DEVICES[1]:
                node.variable.device = "/job:worker/replica:0/task:1/device:CPU:0"
        path.write_bytes(saved_model.SerializeToString())
        with self.assertRaisesRegex(
            GraphError, r"has only .*: connect .*find_machine\('local:2'\)"
        ):
            load_placed(directory)

    def test_bad_input(self):
        directory, _ = self.place("functions")
        for device_map, message in (
            ({"GPU:7": "CPU:0"}, "renames '/device:GPU:7', where nothing is"),
            ({"CPU:0": "CPU:7"}, "to '/device:CPU:7', and this process has only"),
            ({"CPU:0": "CPU"}, "'CPU', which names no device"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                load_placed(directory, device_map=device_map)
        with self.assertRaisesRegex(GraphError, "'no/such' is no SavedModel"):
            load_placed("no/such")


if __name__ == "__main__":
    tf.test.main()
