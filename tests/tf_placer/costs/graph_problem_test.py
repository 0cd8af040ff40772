"""Tests of building placement problems from graphs."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.grouping import Grouping
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GRANULARITIES, group_operations
from tests import graphs
from tf_placer.costs.costed_graph import CostedGraph
from tf_placer.costs.graph_problem import build_graph_problem, list_needed_operations
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.machines.machine import Device, DeviceClass, Link, Machine, MachineError
from tf_placer.problem.placement_problem import PlacementProblem, ProblemError
from tf_placer.problem.problem_groups import group_graph
from tf_placer.simulation.simulator import Simulator

v1 = tf.compat.v1
_NAMES = tuple(
    f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
)
_MACHINE = Machine(
    "three devices",
    "attached",
    tuple(Device(name, name[-5:-2], 10**9 + d) for d, name in enumerate(_NAMES)),
    tuple(Link(a, b, 1e-5, 1e9) for a in _NAMES for b in _NAMES if a != b),
)


def _build_costs(op_graph: OpGraph, devices: int = 3) -> OperationCosts:
    """Builds different costs for each operation, tensor and device."""
    n = op_graph.num_operations
    return OperationCosts(
        np.arange(1, n + 1)[:, None] * 1e-6 * np.arange(1, devices + 1),
        np.arange(n, dtype=np.int64),
        np.maximum(op_graph.tensor_bytes, 0),
        "analytic",
    )


def _build_problem(
    op_graph: OpGraph, groups=None, legal=None, machine=_MACHINE
) -> PlacementProblem:
    """Builds the problem of a graph; each operation is a group by default."""
    if groups is None:
        groups = np.arange(op_graph.num_operations)
    if legal is None:
        legal = np.ones([op_graph.num_operations, len(machine.devices)], bool)
    return build_graph_problem(
        op_graph, groups, legal, machine, _build_costs(op_graph, len(machine.devices))
    )


def _list_edges(problem: PlacementProblem) -> set[tuple[str, str]]:
    """Lists the producer and consumer of each tensor."""
    return {
        (problem.operation_names[producer], problem.operation_names[consumer])
        for t, producer in enumerate(problem.tensor_producers)
        for consumer in problem.consumers[problem.consumer_start[t] : problem.consumer_start[t + 1]]
    }


def _list_control_edges(problem: PlacementProblem) -> set[tuple[str, str]]:
    return {
        (problem.operation_names[a], problem.operation_names[b]) for a, b in problem.control_edges
    }


class GraphProblemTest(tf.test.TestCase):
    def small(self, fetches=("train", "loss:0"), feeds=("x:0",)) -> OpGraph:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4, 2], name="x")
            w = v1.get_variable("w", [2, 3], use_resource=True)
            y = tf.matmul(x, w, name="y")
            tf.reduce_sum(y, [0, 1], name="loss")
            tf.square(y, name="not_needed")
            with tf.control_dependencies([tf.no_op(name="before"), y]):
                tf.group(w.assign_sub(tf.ones([2, 3])), name="train")
        return OpGraph.from_graph_def(graph.as_graph_def(), fetches, feeds)

    def test_the_batch_is_the_first_dimension_of_all_inputs(self):
        for shapes, batch_size in (
            ([[8, 3], [8], []], 8),
            ([[8, 3], [3, 8]], None),
            ([[None, 3]], None),
            ([], None),
        ):
            with tf.Graph().as_default() as graph:
                fed = [
                    v1.placeholder(tf.float32, shape, name=f"x{number}")
                    for number, shape in enumerate(shapes)
                ]
                tf.add_n([tf.reduce_sum(each) for each in [tf.ones([2, 3]), *fed]], name="y")
            feeds = [f"x{number}:0" for number in range(len(shapes))]
            op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds)
            self.assertEqual(_build_problem(op_graph).batch_size, batch_size)

    def test_the_batch_of_a_dataset_is_that_of_its_iterator(self):
        with tf.Graph().as_default() as graph:
            batches = tf.data.Dataset.from_tensors((np.zeros([5, 2]), np.zeros([5])))
            features, labels = v1.data.make_one_shot_iterator(batches).get_next()
            tf.add(tf.reduce_sum(features), tf.reduce_sum(labels), name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"])
        self.assertEqual(_build_problem(op_graph).batch_size, 5)

    def test_has_the_needed_operations_in_topological_order(self):
        op_graph = self.small()
        problem = _build_problem(op_graph)
        names = problem.operation_names
        self.assertEqual(names, tuple(op_graph.names[i] for i in list_needed_operations(op_graph)))
        self.assertContainsSubset(["w", "y", "loss", "before", "train"], names)
        self.assertNoCommonElements(["not_needed", "w/Initializer"], names)
        for before, after in [*_list_edges(problem), *_list_control_edges(problem)]:
            self.assertLess(names.index(before), names.index(after))
        self.assertContainsSubset([("y", "loss")], _list_edges(problem))
        self.assertIn(("before", "train"), _list_control_edges(problem))

    def test_every_operation_keeps_its_costs_and_its_group(self):
        op_graph = self.small()
        groups = np.arange(op_graph.num_operations)[::-1] // 2
        problem = _build_problem(op_graph, groups)
        for place, i in enumerate(list_needed_operations(op_graph).tolist()):
            self.assertEqual(problem.operation_names[place], op_graph.names[i])
            self.assertEqual(problem.groups[place], groups[i])
            self.assertEqual(problem.temp_bytes[place], i)
            secs = [(i + 1) * 1e-6 * d for d in (1, 2, 3)]
            self.assertAllClose(problem.compute_secs[place], secs)

    def test_operations_take_infinite_time_on_illegal_devices(self):
        op_graph = self.small()
        legal = np.ones([op_graph.num_operations, 3], bool)
        legal[op_graph.index["y"], [0, 2]] = False
        problem = _build_problem(op_graph, legal=legal)
        y = problem.operation_names.index("y")
        self.assertEqual(np.isinf(problem.compute_secs[y]).tolist(), [True, False, True])
        self.assertEqual(np.isinf(problem.compute_secs).sum(), 2)

    def test_fed_tensors_take_no_time(self):
        with tf.Graph().as_default() as graph:
            x = tf.exp(v1.placeholder(tf.float32, [4], name="x"), name="fed")
            tf.group(tf.square(x, name="y"), tf.exp(x.op.inputs[0]), name="all")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["all", "fed"], ["x:0", "fed:0"])
        problem = _build_problem(op_graph)
        secs = dict(zip(problem.operation_names, problem.compute_secs.tolist(), strict=True))
        self.assertNotIn("x", secs)
        self.assertEqual(secs["fed"], [0, 0, 0])
        self.assertNotIn(("fed", "y"), _list_edges(problem))

    def test_consumers_of_a_handle_are_in_its_group(self):
        op_graph = self.small()
        grouped = group_operations(op_graph)
        problem = _build_problem(
            op_graph,
            grouped.grouping.expand_to_operations(grouped.colocation),
            grouped.grouping.legal_devices(grouped.colocation, _NAMES),
        )
        w = problem.operation_names.index("w")
        [handle] = np.flatnonzero(problem.tensor_producers == w)
        self.assertEqual(problem.tensor_bytes[handle], 0)
        users = problem.consumers[
            problem.consumer_start[handle] : problem.consumer_start[handle + 1]
        ]
        self.assertEqual({problem.groups[user] for user in users}, {problem.groups[w]})

    def test_peak_memory_equals_a_count_by_hand(self):
        op_graph = self.small()
        costs = dataclasses.replace(
            _build_costs(op_graph), temp_bytes=np.zeros(op_graph.num_operations, np.int64)
        )
        groups = np.zeros(op_graph.num_operations, np.int32)
        problem = build_graph_problem(op_graph, groups, np.ones([1, 3], bool), _MACHINE, costs)
        # Resident are w of 24 bytes, ones(2, 3) of 24 and the numbers of two axes. At the peak,
        # y of 48 bytes and the loss of 4 exist as well; x is fed.
        self.assertEqual(problem.resident_bytes.sum(), 24 + 24 + 8)
        result = Simulator(problem, threads=1).simulate(np.array([[1]], np.int32))
        self.assertEqual(result.peak_bytes.tolist(), [[0, 24 + 24 + 8 + 48 + 4, 0]])

    def test_sent_tensors_are_held_at_both_ends(self):
        with tf.Graph().as_default() as graph:
            made = tf.exp(v1.placeholder(tf.float32, [100], name="x"), name="made")
            tf.reduce_sum(tf.reshape(made, [10, 10], name="shaped"), name="far")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["far"], ["x"])
        far = ("far", "Const")
        groups = np.array([name in far for name in op_graph.names], np.int32)
        costs = dataclasses.replace(
            _build_costs(op_graph), temp_bytes=np.zeros(op_graph.num_operations, np.int64)
        )
        problem = build_graph_problem(op_graph, groups, np.ones([2, 3], bool), _MACHINE, costs)
        result = Simulator(problem, threads=1).simulate(np.array([[0, 1], [2, 2]], np.int32))
        # The transfer holds 400 bytes under one of two names, and two axes or the new shape.
        self.assertEqual(result.peak_bytes[0].tolist(), [400 + 8, 400 + 8 + 4, 0])
        self.assertEqual(result.peak_bytes[1].tolist(), [0, 0, 400 + 8 + 8 + 4])

    def test_devices_and_links_are_those_of_the_machine(self):
        problem = _build_problem(self.small())
        self.assertEqual([device.name for device in problem.devices], list(_NAMES))
        self.assertEqual([device.kind for device in problem.devices], ["CPU", "GPU", "GPU"])
        # A share of the memory stays free, because the order of ready operations is not known.
        self.assertEqual(problem.devices[2].memory_bytes, int(0.97 * (10**9 + 2)))
        self.assertEqual([d.is_asynchronous for d in problem.devices], [False, True, True])
        self.assertLen(problem.links, 6)
        channel = dataclasses.replace(_MACHINE.links[0], channel="bus")
        machine = dataclasses.replace(_MACHINE, links=(channel, *_MACHINE.links[1:]))
        problem = _build_problem(self.small(), machine=machine)
        self.assertEqual([link.channel for link in problem.links], ["bus"] + [None] * 5)

    def test_described_devices_have_the_properties_of_their_class(self):
        model = DeviceClass("Old", "CPU", 5, 1e12, 1e11, 1e-5, 0.5, 0.5, 4, "")
        devices = tuple(
            dataclasses.replace(device, model="Old", memory_bytes=4 << 30)
            for device in _MACHINE.devices
        )
        machine = dataclasses.replace(_MACHINE, kind="described", devices=devices, classes=(model,))
        cpu, gpu, _ = _build_problem(self.small(), machine=machine).devices
        self.assertEqual((cpu.kind, cpu.slots, cpu.memory_bytes), ("Old", 4, 4 << 30))
        # TensorFlow reserves a part of the memory of a GPU.
        self.assertEqual(gpu.memory_bytes, int(0.97 * ((4 << 30) - (300 << 20))))

    def test_copies_of_gpus_run_in_their_stream_if_their_class_says_so(self):
        model = DeviceClass("Old", "GPU", 5, 1e12, 1e11, 1e-5, 0.5, 0.5, copies_in_stream=True)
        cpu = dataclasses.replace(model, name="Host", type="CPU", copies_in_stream=False)
        devices = tuple(
            dataclasses.replace(device, model="Old" if device.type == "GPU" else "Host")
            for device in _MACHINE.devices
        )
        machine = dataclasses.replace(
            _MACHINE, kind="described", devices=devices, classes=(model, cpu)
        )
        problem = _build_problem(self.small(), machine=machine)
        self.assertEqual([d.copies_in_stream for d in problem.devices], [False, True, True])
        plain = _build_problem(self.small())
        self.assertFalse(any(device.copies_in_stream for device in plain.devices))

    def test_fails_without_links_or_memory_sizes(self):
        machine = dataclasses.replace(_MACHINE, links=())
        with self.assertRaisesRegex(MachineError, "the links of .* have not been measured"):
            _build_problem(self.small(), machine=machine)
        device = dataclasses.replace(_MACHINE.devices[2], memory_bytes=None)
        machine = dataclasses.replace(_MACHINE, devices=(*_MACHINE.devices[:2], device))
        with self.assertRaisesRegex(MachineError, "not known how much memory .*GPU:1 has"):
            _build_problem(self.small(), machine=machine)

    def test_rejects_invalid_costs(self):
        op_graph = self.small()
        costs = _build_costs(op_graph)
        costs.compute_secs[op_graph.index["y"], 1] = math.nan
        groups = np.arange(op_graph.num_operations)
        legal = np.ones([len(groups), 3], bool)
        with self.assertRaisesRegex(ProblemError, "NaN"):
            build_graph_problem(op_graph, groups, legal, _MACHINE, costs)


class FactoriesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_problems_of_all_graphs_can_be_simulated(self, factory):
        graph = graphs.share_graph(factory)
        op_graph = OpGraph.from_graph_def(
            graph.graph.as_graph_def(), graph.fetches, list(graph.feeds)
        )
        grouped = group_operations(op_graph)
        groups = grouped.grouping.expand_to_operations(grouped.colocation)
        legal = grouped.grouping.legal_devices(grouped.colocation, _NAMES)
        problem = _build_problem(op_graph, groups, legal)
        self.check_edges(problem, op_graph)

        rng = np.random.default_rng(7)
        all_on = [np.where(legal[:, d], d, legal.argmax(axis=1)) for d in range(3)]
        mixed = [[rng.choice(np.flatnonzero(row)) for row in legal] for _ in range(20)]
        placements = np.array([*all_on, *mixed], np.int32)
        result = Simulator(problem, threads=1).simulate(placements)
        self.assertTrue(result.feasible.all())
        self.assertAllInRange(result.step_secs, 1e-6, 10.0)
        # The CPU can run all operations, without waiting and without transfers.
        whole_secs = problem.compute_secs[:, 0].sum()
        self.assertAllClose(result.step_secs[0], whole_secs)
        self.assertGreaterEqual(result.peak_bytes[0, 0], problem.resident_bytes.sum())
        self.assertEqual(result.peak_bytes[0, 1:].tolist(), [0, 0])

    def check_edges(self, problem: PlacementProblem, op_graph: OpGraph):
        """Checks that the dependencies are those of the graph except back edges of loops."""
        needed = set(problem.operation_names)
        given = {op_graph.names[op_graph.tensor_producer[t]] for t in np.flatnonzero(op_graph.fed)}
        data, control = set(), set()
        for node in op_graph.graph_def.node:
            for name in node.input:
                producer = name.lstrip("^").partition(":")[0]
                if not {producer, node.name} <= needed or producer in given:
                    continue
                (control if name.startswith("^") else data).add((producer, node.name))
        types = {node.name: node.op for node in op_graph.graph_def.node}
        data = {edge for edge in data if types[edge[0]] != "NextIteration"}
        self.assertEqual(_list_control_edges(problem), control)
        self.assertContainsSubset(data, _list_edges(problem))
        waits = nx.DiGraph([*data, *control])
        for before, after in _list_edges(problem) - data:
            self.assertTrue(nx.has_path(waits, before, after), f"{before} -> {after}")


class GroupGraphTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of the groups of a graph and of its problem, which are equal."""

    @parameterized.product(name=list(graphs.FACTORIES), granularity=GRANULARITIES)
    def test_a_graph_and_its_problem_have_the_same_groups(self, name, granularity):
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        op_graph = OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds))
        grouped = group_operations(op_graph, granularity)
        problem = CostedGraph(grouped, _MACHINE, _build_costs(op_graph)).problem()
        ours, theirs = grouped.group_graph, group_graph(problem)
        for field in dataclasses.fields(ours):
            one, other = getattr(ours, field.name), getattr(theirs, field.name)
            if isinstance(one, np.ndarray):
                self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape), field.name)
        self.assertEqual(ours.names, theirs.names)
        self.assertEqual(ours.type_names, theirs.type_names)
        self.assertAllEqual(ours.type_counts, theirs.type_counts)
        self.assertAllEqual(ours.edges, theirs.edges)
        self.assertAllEqual(ours.edge_bytes, theirs.edge_bytes)
        self.assertAllEqual(ours.layers, theirs.layers)
        self.assertEqual(ours.output_shapes, theirs.output_shapes)
        # A problem has no kinds, and measures work in seconds.
        self.assertEqual(theirs.kinds, ("operations",) * ours.num_groups)

    def test_sorts_shapes_by_elements_and_then_by_producer(self):
        with tf.Graph().as_default() as graph:
            values = [tf.exp(tf.zeros(s)) for s in ([2, 3], [5], [3, 2], [3, 4], [1, 6])]
            tf.group(*map(tf.negative, values), name="all")
        graph_def = graph.as_graph_def()
        # The order of operations in a graph carries no meaning.
        graph_def.node.sort(key=lambda node: node.name, reverse=True)
        op_graph = OpGraph.from_graph_def(graph_def, ["all"])
        groups = op_graph.has_type(["Neg", "NoOp"]).astype(np.int32)
        colocation = find_colocation_groups(op_graph)
        of_colocated = np.zeros(colocation.num_groups, np.int32)
        of_colocated[colocation.group] = groups
        grouping = Grouping(of_colocated, ("operations",) * 2, np.zeros(2, bool))
        ours = build_group_graph(op_graph, colocation, grouping)
        problem = _build_problem(op_graph, groups, np.ones([2, 3], bool))
        theirs = group_graph(problem)
        made = [op_graph.position[op_graph.index[name]] for name in ("Exp", "Exp_2", "Exp_4")]
        equal = [((2, 3), (3, 2), (1, 6))[i] for i in np.argsort(made)]
        self.assertEqual(ours.output_shapes, (((3, 4), *equal, (5,)), ()))
        self.assertEqual(theirs.output_shapes, ours.output_shapes)
        without_shapes = group_graph(dataclasses.replace(problem, tensor_shapes=None))
        self.assertEqual(without_shapes.output_shapes, (((12,), (6,), (6,), (6,), (5,)), ()))


if __name__ == "__main__":
    tf.test.main()
