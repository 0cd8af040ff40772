"""TensorFlow's simulated machine and the simulator of this project on the same graphs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.simulator.virtual_cluster import VirtualCluster, VirtualStep, one_cpu_and_k80s
from benchmarks.simulator.virtual_graphs import VirtualGraph, graph_with_transfers, virtual_graph
from benchmarks.simulator.virtual_problems import problem_of_step
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graphs
from tf_placer.simulation.simulator import Simulator

_BANDWIDTH = 1e9  # a byte per nanosecond


def _virtual(graph: graphs.TestGraph) -> VirtualGraph:
    fetches = [name.partition(":")[0] for name in graph.fetches]
    op_graph = OpGraph.from_graph_def(graph.graph.as_graph_def(), fetches)
    grouped = group_operations(op_graph)
    alone = grouped.group_graph.num_groups
    groups = np.where(grouped.operation_groups < 0, alone, grouped.operation_groups)
    return virtual_graph(op_graph, fetches, groups, one_cpu_and_k80s(2), _BANDWIDTH)


def _measure(virtual: VirtualGraph, placement: np.ndarray) -> VirtualStep:
    graph_def, devices = graph_with_transfers(virtual, placement)
    with VirtualCluster(devices) as cluster:
        return cluster.measure(graph_def, virtual.fetches)


class VirtualGraphTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.virtual = _virtual(graphs.lstm())
        cls.problem = cls.virtual.problem

    def _random_placements(self, count: int) -> np.ndarray:
        random = np.random.default_rng(0)
        return random.integers(3, size=[count, self.problem.num_groups]).astype(np.int32)

    def test_problem_has_the_needed_operations_in_the_order_of_their_names(self):
        graph = self.virtual.graph
        needed = [name for name, n in zip(graph.names, graph.needed, strict=True) if n]
        self.assertEqual(list(self.problem.operation_names), sorted(needed))

    def test_costs_differ_between_types_of_devices_only(self):
        cpu, gpu, other_gpu = self.problem.compute_secs.T
        self.assertEqual(gpu.tolist(), other_gpu.tolist())
        self.assertLess(gpu.sum(), cpu.sum())

    def test_tensors_have_the_sizes_of_the_graph(self):
        graph = self.virtual.graph
        sizes = graph.tensor_bytes[self.virtual.tensors]
        # Of what selects from a tensor TensorFlow knows no size.
        with tf.Graph().as_default() as imported:
            tf.graph_util.import_graph_def(graph.graph_def, name="")
        outputs = [imported.get_operation_by_name(name).outputs for name in graph.names]
        shapes = [tensor.shape for tensors in outputs for tensor in tensors]
        known = np.array([shapes[t].is_fully_defined() for t in self.virtual.tensors]) & (
            sizes >= 0
        )
        self.assertGreater(known.mean(), 0.9)
        self.assertEqual(self.problem.tensor_bytes[known].tolist(), sizes[known].tolist())

    def test_single_device_takes_the_sum_of_all_operations_in_both(self):
        for device in (0, 2):
            placement = np.full(self.problem.num_groups, device, np.int32)
            expected = self.problem.compute_secs[:, device].sum()
            step = _measure(self.virtual, placement)
            self.assertAlmostEqual(step.step_nanos * 1e-9, expected)
            [simulated] = Simulator(self.problem).simulate(placement[None]).step_secs
            self.assertAlmostEqual(simulated, expected)

    def test_costs_do_not_depend_on_the_placement(self):
        for placement in self._random_placements(3):
            step = _measure(self.virtual, placement)
            on = placement[self.problem.groups]
            expected = self.problem.compute_secs[np.arange(len(on)), on]
            found = [step.nanos[name] * 1e-9 for name in self.problem.operation_names]
            np.testing.assert_allclose(found, expected)

    def test_each_transfer_takes_its_bytes(self):
        placement = self._random_placements(1)[0]
        graph_def, _ = graph_with_transfers(self.virtual, placement)
        step = _measure(self.virtual, placement)
        on = placement[self.problem.groups]
        expected = []
        for tensor, producer in enumerate(self.problem.tensor_producers):
            start, end = self.problem.consumer_start[tensor : tensor + 2]
            away = set(on[self.problem.consumers[start:end]]) - {on[producer]}
            expected += [int(self.problem.tensor_bytes[tensor])] * len(away)
        added = {node.name for node in graph_def.node} - set(self.problem.operation_names)
        found = [step.nanos[n.name] for n in graph_def.node if n.name in added and n.op != "NoOp"]
        self.assertNotEmpty(found)
        self.assertEqual(sorted(found), sorted(expected))

    def test_simulators_agree_on_all_that_the_cluster_ran(self):
        for placement in self._random_placements(5):
            graph_def, devices = graph_with_transfers(self.virtual, placement)
            with VirtualCluster(devices) as cluster:
                step = cluster.measure(graph_def, self.virtual.fetches)
            problem, row = problem_of_step(graph_def, step)
            [simulated] = Simulator(problem).simulate(row[None]).step_secs
            self.assertAlmostEqual(simulated / step.step_nanos, 1.0, delta=0.01)

    def test_simulators_nearly_agree_on_the_graph(self):
        placements = self._random_placements(5)
        simulated = Simulator(self.problem).simulate(placements).step_secs
        for placement, secs in zip(placements, simulated, strict=True):
            step = _measure(self.virtual, placement)
            self.assertAlmostEqual(secs * 1e9 / step.step_nanos, 1.0, delta=0.1)


if __name__ == "__main__":
    absltest.main()
