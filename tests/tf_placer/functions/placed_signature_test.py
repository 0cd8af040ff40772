from __future__ import annotations

import gc
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from graph_passes.placement import Placement
from tests.saved_models import REQUEST, WORDS, save_functions, save_graph
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE, random_placements
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.workload import read_graph, read_workload
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.lookup import find_machine

tf1 = tf.compat.v1
WITH_DEVICES = tf.saved_model.LoadOptions(
    experimental_variable_policy=tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES
)
# Operations that TensorFlow adds to a graph, or that replace constants and identities.
_NOT_COMPARED = ("_Arg", "Const", "Identity", "NoOp", "StatelessWhile")


def place(path: str, name: str | None, count: int = 1, **feeds: Any) -> list[PlacedSignature]:
    given = read_graph(path, name)
    workload = read_workload(given, feed_dict=feeds)
    return [
        PlacedSignature(given.signature, MACHINE, placement)
        for placement in random_placements(workload, count)
    ]


def serve(path: str, name: str, feeds: Mapping[str, Any], target: str = "") -> tuple[dict, dict]:
    """Serves a request as servers do; returns the results and the device of each operation."""
    config = tf1.ConfigProto(device_count={"CPU": 2})
    # Functions that restore variables see those of all servers.
    config.experimental.share_cluster_devices_in_session = True
    with tf.Graph().as_default(), tf1.Session(target, config=config) as session:
        loaded = tf1.saved_model.load(session, [tf.saved_model.SERVING], path)
        signature = loaded.signature_def[name]
        metadata = tf1.RunMetadata()
        values = session.run(
            {key: info.name for key, info in signature.outputs.items()},
            {signature.inputs[key].name: value for key, value in feeds.items()},
            options=tf1.RunOptions(output_partition_graphs=True),
            run_metadata=metadata,
        )
    return values, devices_of(metadata.partition_graphs)


def devices_of(partitions: Any) -> dict[str, str]:
    return {
        node.name: node.device
        for graph in partitions
        for node in graph.node
        if node.op not in _NOT_COMPARED
    }


class PlacedSignatureTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.functions = save_functions(root)
        cls.graphs = {}
        for use_resource in (False, True):
            folder = root / str(use_resource)
            folder.mkdir()
            cls.graphs[use_resource] = save_graph(folder, use_resource=use_resource)

    def setUp(self):
        super().setUp()
        self.new = os.path.join(self.create_tempdir().full_path, "new")

    def check_devices(self, found: Mapping[str, str], expected: Mapping[str, str]):
        names = expected.keys() & found.keys()
        self.assertGreater(len(names), 4)
        self.assertEqual({n: found[n] for n in names}, {n: expected[n] for n in names})
        self.assertLen({expected[name] for name in names}, 2)

    def test_every_legal_placement_serves_the_same_where_it_should(self):
        original = tf.saved_model.load(self.functions)
        expected = original.signatures["serving_default"](x=tf.constant(REQUEST))["sum"]
        for number, step in enumerate(place(self.functions, None, count=2, x=REQUEST)):
            path = f"{self.new}_{number}"
            step.save(path)
            values, found = serve(path, "serving_default", {"x": REQUEST})
            self.assertAllEqual(values["sum"], expected)
            self.check_devices(found, step.placement.assignment)
            tf.config.set_soft_device_placement(True)  # as it is by default
            loaded = tf.saved_model.load(path, options=WITH_DEVICES)
            tf.config.set_soft_device_placement(False)
            self.assertAllEqual(loaded(REQUEST)["sum"], expected)
            self.assertAllEqual(loaded.numbers(WORDS[0])["numbers"], WORDS[1])
            nodes = {n.name: n for n in step.signature.inlined.graph_def.node}
            handles = {n for n in nodes if nodes[n].op == "VarHandleOp"}
            wanted = sorted(
                device for n, device in step.placement.assignment.items() if n in handles
            )
            variables = (loaded.left, loaded.right, loaded.requests)
            self.assertEqual(sorted(variable.device for variable in variables), wanted)

    def test_the_function_runs_where_it_should_and_counts_on(self):
        [step] = place(self.functions, None, x=REQUEST)
        assignment = step.placement.assignment
        function = step.function
        self.assertIs(step.function, function)
        del step
        gc.collect()  # frees the loaded SavedModel, except for the function
        context.enable_run_metadata()
        first = function(x=tf.constant(REQUEST))
        metadata = context.export_run_metadata()
        context.disable_run_metadata()
        found: dict[str, str] = {}
        for each in metadata.function_graphs:
            found |= devices_of(each.partition_graphs)
        # The call that a session makes is the function itself.
        inside = {name.partition("/")[2]: device for name, device in assignment.items()}
        self.check_devices(found, {name: d for name, d in inside.items() if name})
        second = function(x=tf.constant(2 * REQUEST))
        self.assertEqual((first["requests"].numpy(), second["requests"].numpy()), (1, 2))
        expected = tf.saved_model.load(self.functions)(2 * REQUEST)["sum"]
        self.assertAllEqual(second["sum"], expected)

    def test_graphs_of_tensorflow_1(self):
        words, numbers = WORDS
        for use_resource, path in self.graphs.items():
            [step] = place(path, "sum", x=REQUEST)
            expected, _ = serve(path, "sum", {"x": REQUEST})
            new = f"{self.new}_{use_resource}"
            step.save(new)
            values, found = serve(new, "sum", {"x": REQUEST})
            self.assertAllEqual(values["sum"], expected["sum"])
            self.check_devices(found, step.placement.assignment)
            self.assertAllEqual(serve(new, "words", {"words": words})[0]["numbers"], numbers)
            function = step.function
            self.assertAllEqual(function(x=tf.constant(REQUEST))["sum"], expected["sum"])
            for variable in function.variables:
                name = variable.name.partition(":")[0]
                self.assertEqual(variable.device, step.placement.assignment[name])
            [step] = place(path, "words", words=words)
            self.assertAllEqual(step.function(words=tf.constant(words))["numbers"], numbers)

    def test_without_a_placement_nothing_changes(self):
        given = read_graph(self.functions)
        step = PlacedSignature(given.signature, MACHINE)
        step.save(self.new)
        self.assertEqual(
            read_saved_model(self.new).meta_graphs, given.signature.saved_model.meta_graphs
        )
        self.assertEqual(step.function(x=tf.constant(REQUEST))["requests"].numpy(), 1)

    def test_a_server_of_a_cluster_serves_it(self):
        machine = find_machine("local:2")
        given = read_graph(self.functions)
        names = {device.name: own for device, own in zip(machine.devices, DEVICES, strict=True)}
        [step] = place(self.functions, None, x=REQUEST)
        there = {own: name for name, own in names.items()}
        assignment = {name: there[own] for name, own in step.placement.assignment.items()}
        placement = Placement("", tuple(names), assignment)
        PlacedSignature(given.signature, machine, placement).save(self.new)
        with LocalCluster(machine) as cluster:
            values, found = serve(self.new, "serving_default", {"x": REQUEST}, cluster.target)
        expected = tf.saved_model.load(self.functions)(REQUEST)
        np.testing.assert_array_equal(values["sum"], expected["sum"])
        self.check_devices(found, assignment)


if __name__ == "__main__":
    tf.test.main()
