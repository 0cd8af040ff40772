from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from graph_passes.errors import GraphError
from graph_passes.placement import Placement, write_placement
from tests.tf_placer.native_pass.built import in_cache_of_tests, skip_unless_built
from tf_placer.native_pass.loading import place, place_by_environment

tf1 = tf.compat.v1
_CPU = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
_PRODUCTS = {"first": _CPU[1], "second": _CPU[0], "third": _CPU[1]}
_EYE = np.eye(4, dtype=np.float32)


def setUpModule():
    skip_unless_built()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.set_soft_device_placement(False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def products(value: tf.Tensor) -> tf.Tensor:
    first = tf.matmul(value, value, name="first")
    second = tf.matmul(first, value, name="second")
    return tf.matmul(second, first, name="third")


def fed() -> tf.Tensor:
    """A placeholder, without which TensorFlow computes the products before it runs them."""
    return tf1.placeholder(tf.float32, [4, 4], name="fed")


def session(**options: bool) -> tf1.Session:
    config = tf1.ConfigProto(device_count={"CPU": 2}, **options)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf1.Session(config=config)


def devices_in_session(opened: tf1.Session, fetched: object, feeds: object = None) -> dict:
    """The device of each operation that ran, by name."""
    metadata = tf1.RunMetadata()
    opened.run(fetched, feeds, tf1.RunOptions(output_partition_graphs=True), metadata)
    return {node.name: node.device for part in metadata.partition_graphs for node in part.node}


def devices_in_function(function: Callable, *arguments: tf.Tensor) -> dict[str, str]:
    """The device of each operation that ran, by the last part of its name."""
    context.enable_run_metadata()
    context.enable_graph_collection()
    try:
        function(*arguments)
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
        context.disable_run_metadata()
    return {
        node.name.rpartition("/")[2]: node.device
        for part in metadata.partition_graphs
        for node in part.node
    }


class PlacingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(in_cache_of_tests())
        # C++ writes to the file descriptor, not to sys.stderr.
        self.written = tempfile.TemporaryFile()  # noqa: SIM115
        self.addCleanup(self.written.close)
        before = os.dup(2)
        self.addCleanup(os.close, before)
        self.addCleanup(os.dup2, before, 2)
        os.dup2(self.written.fileno(), 2)
        self.addCleanup(place, {})

    def lines(self) -> list[str]:
        self.written.seek(0)
        lines = self.written.read().decode().splitlines()
        return [line for line in lines if line.startswith("tf_placer: ")]

    def assertDevices(self, devices: Mapping[str, str], wanted: Mapping[str, str] = _PRODUCTS):
        self.assertEqual({name: devices.get(name) for name in wanted}, dict(wanted))

    def test_a_session_is_placed_by_names(self):
        place({**_PRODUCTS, "gone": _CPU[0]})
        with tf.Graph().as_default():
            value = fed()
            result = products(value)
            with session() as opened:
                self.assertDevices(devices_in_session(opened, result, {value: _EYE}))
                self.assertAllEqual(opened.run(result, {value: 2 * _EYE}), 32 * _EYE)
        (line,) = self.lines()
        self.assertEqual(line, "tf_placer: the graph of a session: placed 3 of 4 operations")

    def test_an_operation_that_came_with_a_device_keeps_it(self):
        place(_PRODUCTS)
        with tf.Graph().as_default() as graph:
            result = products(fed())
            graph.get_operation_by_name("first")._set_device("/device:CPU:0")
            with session() as opened:
                devices = devices_in_session(opened, result, {"fed:0": _EYE})
        self.assertDevices(devices, {**_PRODUCTS, "first": _CPU[0]})
        (line,) = self.lines()
        self.assertEndsWith(line, ": placed 2 of 3 operations")

    def test_a_graph_with_less_than_half_of_the_names_stays_as_it_is(self):
        place({**_PRODUCTS, **{f"other_{i}": _CPU[1] for i in range(4)}})
        with tf.Graph().as_default():
            result = products(fed())
            with session() as opened:
                devices = devices_in_session(opened, result, {"fed:0": _EYE})
        self.assertDevices(devices, dict.fromkeys(_PRODUCTS, _CPU[0]))
        self.assertEmpty(self.lines())

    def test_a_session_that_grows_stays_placed(self):
        place({"variable": _CPU[1], **_PRODUCTS})
        with tf.Graph().as_default(), session() as opened:
            variable = tf1.get_variable("variable", initializer=_EYE, use_resource=True)
            result = products(variable)
            opened.run(variable.initializer)
            self.assertDevices(devices_in_session(opened, result))
            devices = devices_in_session(opened, tf.add(result, 1.0, name="more"))
            self.assertDevices(devices)
            self.assertEqual(devices["more"], _CPU[0])
        self.assertLen(self.lines(), 1)

    def test_tensorflow_refuses_impossible_placements(self):
        nowhere = "/job:localhost/replica:0/task:0/device:CPU:7"
        for assignment, error in (
            ({**_PRODUCTS, "first": nowhere}, "Cannot assign a device for operation first.*CPU:7"),
            ({"first": _CPU[0], "beside": _CPU[1]}, "Cannot colocate nodes.*beside.*first"),
        ):
            place(assignment)
            with tf.Graph().as_default() as graph:
                value = fed()
                result = products(value)
                with tf1.colocate_with(graph.get_operation_by_name("first")):
                    tf.identity(value, name="beside")
                with (
                    session() as opened,
                    self.assertRaisesRegex(tf.errors.InvalidArgumentError, error),
                ):
                    opened.run(result, {value: _EYE})
                with session(allow_soft_placement=True) as opened:
                    self.assertAllEqual(opened.run(result, {value: _EYE}), _EYE)
        place({"first": nowhere})
        function = tf.function(lambda value: tf.matmul(value, value, name="first"))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "CPU:7"):
            function(tf.constant(_EYE))

    def test_a_function_is_placed_by_names(self):
        place(_PRODUCTS)
        function = tf.function(products)
        self.assertDevices(devices_in_function(function, tf.constant(_EYE)))
        (line,) = self.lines()
        self.assertRegex(
            line, "^tf_placer: function '__inference_products_.*': placed 3 of 3 operations$"
        )

    def test_functions_inside_others_and_loops_are_placed_by_names(self):
        place(_PRODUCTS)
        function = tf.function(products)
        outer = tf.function(lambda value: function(value) + 1.0)
        self.assertDevices(devices_in_function(outer, tf.constant(_EYE)))
        self.assertLen(self.lines(), 1)

        @tf.function
        def loop(value: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(count):
                value = function(value)
            return value

        self.assertDevices(devices_in_function(loop, tf.constant(_EYE), tf.constant(2)))
        self.assertAllEqual(loop(tf.constant(_EYE * 2), tf.constant(1)), 32 * _EYE)

    def test_functions_called_by_sessions_are_placed_by_names(self):
        place(_PRODUCTS)
        with tf.Graph().as_default():
            value = fed()
            result = tf.function(products)(value)
            metadata = tf1.RunMetadata()
            options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
            with session() as opened:
                opened.run(result, {value: _EYE}, options, metadata)
        ran = {
            (node.node_name.rpartition("/")[2], device.device)
            for device in metadata.step_stats.dev_stats
            for node in device.node_stats
        }
        self.assertContainsSubset(_PRODUCTS.items(), ran)

    def test_variables_and_gradients_of_a_function_are_placed_by_names(self):
        with tf.device(_CPU[1]):
            weight = tf.Variable(_EYE)

        @tf.function
        def step(value: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(products(value), weight, name="fourth"))
            gradient = tape.gradient(loss, weight)
            weight.assign_sub(tf.multiply(gradient, 0.5, name="update"))
            return loss

        names = ("first", "second", "third", "fourth", "update")
        for device in _CPU:
            place(dict.fromkeys(names, device))
            again = tf.function(step.python_function)
            self.assertDevices(
                devices_in_function(again, tf.constant(_EYE)), dict.fromkeys(names, device)
            )

    def test_the_environment_names_the_placement(self):
        path = self.create_tempfile("placement.json").full_path
        write_placement(Placement("", _CPU, _PRODUCTS), path)
        with mock.patch.dict(os.environ, {"TF_PLACER_PLACEMENT": path}):
            place_by_environment()
        self.assertDevices(devices_in_function(tf.function(products), tf.constant(_EYE)))

    def test_a_placement_that_cannot_be_read_is_named(self):
        for text in ("", '{"format": 1}'):
            path = self.create_tempfile("placement.json", text).full_path
            with (
                mock.patch.dict(os.environ, {"TF_PLACER_PLACEMENT": path}),
                self.assertRaisesRegex(GraphError, f"^cannot read the placement '{path}': "),
            ):
                place_by_environment()

    def test_without_the_variable_the_import_does_nothing(self):
        code = (
            "import sys, tf_placer.native_pass; "
            "maps = open('/proc/self/maps').read(); "
            "print('tensorflow' in sys.modules, 'pre_placement_pass' in maps)"
        )
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        environ.pop("TF_PLACER_PLACEMENT", None)
        output = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
        ).stdout
        self.assertEqual(output, "False False\n")


if __name__ == "__main__":
    tf.test.main()
