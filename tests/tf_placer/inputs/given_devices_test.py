from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.clearing_advice import clear_by
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tests import graph_parts
from tf_placer.inputs.given_devices import (
    check_given_devices,
    describe_given_devices,
    describe_immovable_step,
)
from tf_placer.inputs.workload import read_graph, read_workload, remove_devices
from tf_placer.machines.catalog import make_described_machine

tf1 = tf.compat.v1


def graph_on(device: str) -> OpGraph:
    """A graph whose step has an operation on a device, and another one is on one without it."""
    with tf.Graph().as_default() as graph:
        with tf.device(device):
            tf.constant(1.0, name="x")
        with tf.device("/job:elsewhere"):
            tf.constant(1.0, name="unused")
    return OpGraph.from_graph_def(graph.as_graph_def(), ["x"])


class CheckGivenDevicesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.machine = make_described_machine("2xK80")

    def test_devices_of_the_machine_are_accepted(self):
        for device in ("", "/gpu:1", "/cpu:0", "/device:GPU:*"):
            check_given_devices(graph_on(device), self.machine)

    def test_another_device_is_named_with_its_operation(self):
        for device in ("/gpu:2", "/job:worker/task:1"):
            with self.assertRaisesRegex(GraphError, "has 'x' on .*2xK80 has only .*GPU:1: clear"):
                check_given_devices(graph_on(device), self.machine)

    def test_soft_placement_needs_the_task_only(self):
        check_given_devices(graph_on("/gpu:2"), self.machine, soft=True)
        with self.assertRaisesRegex(GraphError, "on /job:worker/task:1"):
            check_given_devices(graph_on("/job:worker/task:1"), self.machine, soft=True)


class GivenDevicesNoteTest(tf.test.TestCase):
    def test_it_counts_what_the_step_keeps_on_devices_and_says_how_to_clear_them(self):
        self.assertEqual(
            describe_given_devices(graph_on("/device:GPU:0")),
            "1 operation of the step keeps the device that the graph came with, such as "
            "'/device:GPU:0': to have it chosen, build the graph without tf.device, or clear its "
            "devices (clear_devices=True)",
        )
        with clear_by(None):
            self.assertEndsWith(
                describe_given_devices(graph_on("/device:GPU:0")), "the graph without tf.device"
            )

    def test_devices_that_no_step_needs_do_not_count(self):
        self.assertIsNone(describe_given_devices(graph_on("")))
        self.assertIsNone(describe_immovable_step(graph_on("")))
        self.assertIsNone(describe_immovable_step(graph_on(""), 0.0))

    def test_a_step_that_nearly_all_stays_is_described_with_the_way_out(self):
        with tf.Graph().as_default() as graph:
            x = tf.constant(1.0, name="free")
            for number in range(19):
                with tf.device(f"/device:GPU:{number // 15}"):
                    x = tf.exp(x, name=f"x{number}")
        graph_def = graph.as_graph_def()
        described = describe_immovable_step(OpGraph.from_graph_def(graph_def, ["x14"]))
        self.assertEqual(
            described,
            "15 of 16 operations of the step are on '/device:GPU:0' because the graph says so: "
            "clear the graph's devices (clear_devices=True) to let them move",
        )
        both = OpGraph.from_graph_def(graph_def, ["x18"])
        with clear_by("--clear_devices"):
            self.assertEqual(
                describe_immovable_step(both),
                "19 of 20 operations of the step are on their devices (15 of them on "
                "'/device:GPU:0') because the graph says so: clear the graph's devices "
                "(--clear_devices) to let them move",
            )
        half = OpGraph.from_graph_def(graph_def, ["x7"])
        self.assertIsNone(describe_immovable_step(half))
        self.assertStartsWith(describe_immovable_step(half, 0.5), "8 of 9 operations")


def on_missing_device(x: tf.Tensor) -> tf.Tensor:
    with tf.device("/device:GPU:7"):
        return tf.exp(x, name="exp")


def in_loop(x: tf.Tensor) -> tf.Tensor:
    return tf1.while_loop(lambda a: a < 3.0, lambda a: on_missing_device(a) + 1.0, [x])


def in_conditional(x: tf.Tensor) -> tf.Tensor:
    return tf1.cond(x > 0, lambda: on_missing_device(x), lambda: x)


def in_data_set(x: tf.Tensor) -> tf.Tensor:
    data_set = tf.data.Dataset.from_tensors(1.0).map(on_missing_device).repeat()
    return tf1.data.make_initializable_iterator(data_set).get_next() + x


def in_function_in_conditional(x: tf.Tensor) -> tf.Tensor:
    return tf1.cond(x > 0, lambda: in_conditional(x), lambda: x)


class DevicesInFunctionsTest(tf.test.TestCase, parameterized.TestCase):
    def check(self, build, *, soft: bool = False, clear: bool = False) -> None:
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=True):
            tf.identity(build(tf1.placeholder(tf.float32, [], name="x")), name="y")
        given = read_graph(graph.as_graph_def())
        workload = read_workload(remove_devices(given) if clear else given, ["y"])
        machine = make_described_machine("2xK80")
        check_given_devices(workload.op_graph, machine, workload.step.initializers, soft=soft)

    @parameterized.parameters(in_loop, in_conditional, in_data_set, in_function_in_conditional)
    def test_operation_and_function_are_named_as_tensorflow_would_refuse_them(self, build):
        with self.assertRaisesRegex(
            GraphError, r"has 'exp\w*' of the function .* on /device:GPU:7"
        ):
            self.check(build)
        self.check(build, soft=True)
        self.check(build, clear=True)

    def test_call_that_allows_other_devices_itself_is_accepted_as_by_tensorflow(self):
        self.check(tf.function(on_missing_device))

        def elsewhere(x: tf.Tensor) -> tf.Tensor:
            with tf.device("/job:elsewhere"):
                return tf.exp(x)

        with self.assertRaisesRegex(GraphError, "of the function .* on /job:elsewhere"):
            self.check(tf.function(elsewhere))


if __name__ == "__main__":
    tf.test.main()
