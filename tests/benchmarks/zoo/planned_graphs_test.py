"""Every kind of graph is read without its collections, and planned for a machine."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.zoo.catalogue import KINDS
from benchmarks.zoo.graph_parts import StepGraph
from benchmarks.zoo.placed_runs import PlacedGraph, script_values
from graph_passes.errors import GraphError
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.live.equal_values import describe_difference
from tf_placer.machines.lookup import find_machine
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

# Their operations do not say what fills the queues.
_NEED_COLLECTIONS = ("queue_runners",)
_READ = [name for name in KINDS if name not in _NEED_COLLECTIONS]


@functools.cache
def read(name: str) -> tuple[StepGraph, PlacedGraph]:
    """Reads a graph of a kind, but not its collections."""
    made = KINDS[name]()
    return made, PlacedGraph(made, has_collections=False)


class ReadGraphsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*((name,) for name in _NEED_COLLECTIONS))
    def test_says_why_it_refuses_a_graph_without_collections(self, name):
        with self.assertRaisesRegex(GraphError, "waits for the queue .* which nothing fills"):
            PlacedGraph(KINDS[name](), has_collections=False)

    @parameterized.parameters(*(name for name in _READ if name != "reference_race"))
    def test_finds_initialisers_that_give_the_values_of_the_script(self, name):
        made, placed = read(name)
        values = placed.values(placed.random_placement(np.random.default_rng(1)))
        expected = {key: value for key, value in script_values(made).items() if key in values}
        self.assertNotEmpty(values)
        self.assertIsNone(describe_difference(expected, values))


class PlannedGraphsTest(tf.test.TestCase, parameterized.TestCase):
    machine = find_machine("2xK80")

    @parameterized.parameters(*_READ)
    def test_costs_about_as_much_as_what_ran(self, name):
        _, placed = read(name)
        problem = cost_graph(placed.source, self.machine, steps=1).problem()
        devices = tuple(device.name for device in self.machine.devices)
        legal = placed.grouped.grouping.legal_devices(placed.grouped.colocation, devices)
        all_on = [np.where(legal[:, d], d, legal.argmax(axis=1)) for d in range(len(devices))]
        steps = Simulator(problem, threads=1).simulate(np.stack(all_on).astype(np.int32))
        self.assertTrue(steps.feasible.all())
        self.assertTrue(np.isfinite(steps.step_secs).all())
        self.assertAllGreaterEqual(steps.step_secs, 0.999 * lower_bounds(problem).step_secs)
        # Operations of this size take their launch, and half of them or more cost nothing: a
        # trace says how many ran on a CPU, whatever else the computer did meanwhile.
        on_cpu = np.zeros(len(placed.legal), np.int32)
        traced = placed.traced(on_cpu, 2)["operations"]
        ran = traced.keys() & placed.source.op_graph.index.keys()
        # Those of functions, which loops run again and again, have other names than in the graph.
        runs = sum(operation["runs"] for operation in traced.values())
        launch_secs = self.machine.class_of(self.machine.devices[0]).launch_secs
        self.assertBetween(steps.step_secs[0] / launch_secs, len(ran) / 5, runs * 5)


if __name__ == "__main__":
    tf.test.main()
