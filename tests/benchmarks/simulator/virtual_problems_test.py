"""TensorFlow's simulated machine and the simulator of this project on the same problems."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.simulator.virtual_cluster import VirtualCluster, VirtualStep, plain_device
from benchmarks.simulator.virtual_problems import (
    graph_of_problem,
    problem_of_step,
    set_nanos,
    whole_nanoseconds,
)
from tests.tf_placer.simulation import oracle
from tests.tf_placer.simulation.random_problems import random_placement, random_problem
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.simulation.simulator import Simulator


def _chain() -> PlacementProblem:
    """A (3) sends 10 bytes to B (2), one byte per second, after a signal to C (1)."""
    return PlacementProblem(
        devices=tuple(ProblemDevice(name, "GPU", 1 << 40) for name in ("x", "y")),
        links=(Link("x", "y", 4.0, 1.0), Link("y", "x", 4.0, 1.0)),
        operation_names=("A", "B", "C"),
        compute_secs=np.array([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]),
        resident_bytes=np.zeros(3, np.int64),
        temp_bytes=np.zeros(3, np.int64),
        groups=np.arange(3, dtype=np.int32),
        tensor_producers=np.array([0], np.int32),
        tensor_bytes=np.array([10], np.int64),
        consumer_start=np.array([0, 1], np.int32),
        consumers=np.array([1], np.int32),
        control_edges=np.array([[0, 2]], np.int32),
    )


def _random_problem(random: np.random.Generator) -> PlacementProblem:
    """One that the cluster can be told: whole nanoseconds, one slot, no empty operations."""
    problem = random_problem(random, max_operations=40, whole_secs=True)
    return dataclasses.replace(
        problem,
        devices=tuple(
            dataclasses.replace(device, slots=1, transfer_share=0.0) for device in problem.devices
        ),
        # Two bytes a second and odd sizes would make halves.
        links=tuple(dataclasses.replace(k, bandwidth_bytes_per_sec=1.0) for k in problem.links),
        compute_secs=np.maximum(problem.compute_secs, 1.0),
    )


def _measure(problem: PlacementProblem, placement: np.ndarray) -> tuple[VirtualStep, list[int]]:
    """The step and the starts of the operations."""
    graph_def, devices, fetches = graph_of_problem(problem, placement)
    with VirtualCluster(devices) as cluster:
        step = cluster.measure(graph_def, fetches)
    return step, [step.start_nanos[name] for name in fetches]


class GraphOfProblemTest(absltest.TestCase):
    def test_transfers_take_latency_and_bytes_in_turn(self):
        # The tensor is under way from 3 to 17, the signal, behind it, from 17 to 21.
        step, starts = _measure(_chain(), np.array([0, 1, 1], np.int32))
        self.assertEqual(starts, [0, 17, 21])
        self.assertEqual(step.step_nanos, 22)

    def test_one_device_runs_one_operation_after_the_other(self):
        step, starts = _measure(_chain(), np.array([1, 1, 1], np.int32))
        self.assertEqual(starts, [0, 3, 5])
        self.assertEqual(step.step_nanos, 6)

    def test_both_simulators_start_every_operation_at_the_same_time(self):
        random = np.random.default_rng(0)
        for number in range(40):
            problem = _random_problem(random)
            placement = random_placement(random, problem)
            with self.subTest(number=number):
                step, starts = _measure(problem, placement)
                self.assertEqual(starts, oracle.simulate(problem, placement).start_secs)
                simulated = Simulator(problem).simulate(placement[None]).step_secs[0]
                self.assertEqual(step.step_nanos, simulated)

    def test_devices_that_the_cluster_does_not_know_are_refused(self):
        problem = _chain()
        for change, message in (
            ({"slots": 2}, "no 2 slots of x"),
            ({"transfer_share": 0.5}, "has x lose no time"),
            ({"transfer_overhead_secs": 1e-3}, "has x lose no time"),
        ):
            devices = (dataclasses.replace(problem.devices[0], **change), problem.devices[1])
            changed = dataclasses.replace(problem, devices=devices)
            with self.assertRaisesRegex(ValueError, message):
                graph_of_problem(changed, np.zeros(3, np.int32))

    def test_time_at_which_tensorflow_would_end_the_process_is_refused(self):
        with self.assertRaisesRegex(ValueError, "slow takes 2.15 s, too long"):
            set_nanos(tf.compat.v1.NodeDef(name="slow"), 1 << 31)


class ReadinessTest(absltest.TestCase):
    def test_cluster_alone_lets_an_operation_start_before_an_input_is_there(self):
        # "long" is processed first, because it is ready first, and ends last.
        graph_def = tf.compat.v1.GraphDef()
        devices = [plain_device(d) for d in range(4)]
        for name, device, inputs, nanos in (
            ("long", 0, [], 100),
            ("before", 1, [], 10),
            ("short", 2, ["^before"], 10),
            ("reader", 3, ["^long", "^short"], 1),
        ):
            node = graph_def.node.add(
                name=name, op="Const", device=devices[device].name, input=inputs
            )
            node.attr["dtype"].type = tf.int32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0))
            set_nanos(node, nanos)
        with VirtualCluster(devices) as cluster:
            step = cluster.measure(graph_def, ["reader"])
        self.assertEqual(step.start_nanos["reader"], 20)


class WholeNanosecondsTest(absltest.TestCase):
    def test_times_are_rounded_up_and_none_is_zero(self):
        problem = dataclasses.replace(
            _chain(),
            links=(Link("x", "y", 0.0, 8e9), Link("y", "x", 0.0, 8e9)),
            compute_secs=np.array([[0.0, np.inf], [3e-9, 2.1e-9], [0.7, 1e-9]]),
            tensor_bytes=np.array([17], np.int64),
        )
        whole = whole_nanoseconds(problem)
        self.assertEqual(whole.compute_secs.tolist(), [[1, np.inf], [3, 3], [7e8, 1]])
        self.assertEqual(whole.tensor_bytes.tolist(), [3])
        self.assertEqual({k.bandwidth_bytes_per_sec for k in whole.links}, {1.0})


class ProblemOfStepTest(absltest.TestCase):
    def test_has_what_the_cluster_ran_and_takes_as_long(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [8, 8], name="x")
            first = tf.identity(x, name="first")
            with tf.control_dependencies([first]):
                tf.add(first, x, name="second")
        graph_def = graph.as_graph_def()
        devices = [plain_device(d) for d in range(2)]
        for node in graph_def.node:
            node.device = devices[node.name == "second"].name
        with VirtualCluster(devices) as cluster:
            step = cluster.measure(graph_def, ["second"])
        problem, placement = problem_of_step(graph_def, step)
        added = sorted(name.split("_")[0] for name in problem.operation_names)
        self.assertEqual(added, ["Recv", "Recv", "Send", "Send", "first", "second", "x"])
        # The channel to the second device is a device as well.
        self.assertEqual(problem.num_devices, 3)
        simulated = Simulator(problem).simulate(placement[None]).step_secs[0]
        self.assertEqual(simulated, step.step_nanos)


if __name__ == "__main__":
    absltest.main()
