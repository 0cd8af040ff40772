"""Tests of graphs and their costs on described machines."""

from __future__ import annotations

import collections
import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from tests import graph_parts, graphs
from tf_placer.costs import costed_graph
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.costs.costed_graph import CostedGraph, cost_graph
from tf_placer.costs.original_devices import find_nearest_assignment, find_requested_devices
from tf_placer.environments.session import WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Link, Machine
from tf_placer.problem.placement_problem import PlacementProblem

_MACHINE = "2xK80"
_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


_PAIR = Machine(
    "a pair", "attached", tuple(Device(f"{_CPU[:-1]}{i}", "CPU", 10**9) for i in range(2))
)


class EmulatedTest(tf.test.TestCase):
    def test_costs_are_analytic_if_only_shapes_are_computed(self):
        made = graphs.share_graph("matmul_chain")
        source = read_workload(made.graph, made.fetches, made.feeds)
        described = find_machine("2xK80")
        expected = compute_analytic_costs(source.op_graph, described)
        costed = cost_graph(source, find_machine("emulated:2xK80,slowdown=2"), steps=3)
        self.assertEqual(costed.costs.source, "analytic")
        self.assertAllClose(costed.costs.compute_secs, 2 * expected.compute_secs)
        link, slowed = described.links[0], costed.machine.links[0]
        self.assertEqual(slowed.latency_secs, 2 * link.latency_secs)
        self.assertEqual(slowed.bandwidth_bytes_per_sec, link.bandwidth_bytes_per_sec / 2)


class LinksTest(tf.test.TestCase):
    """Tests of the links of a machine with profiled operations, whose measurement may fail."""

    def cost(self, calibrate_links, machine=_PAIR, **settings) -> Machine:
        graph = graphs.two_branches()
        source = read_workload(graph.graph, graph.fetches)
        self.lines: list[str] = []
        with (
            mock.patch.object(costed_graph, "profile_graph", mock.Mock()),
            mock.patch.object(costed_graph, "find_links", return_value=None),
            mock.patch.object(costed_graph, "keep_links") as self.keep_links,
            mock.patch.object(costed_graph, "calibrate_links", calibrate_links),
        ):
            costed = cost_graph(
                source,
                machine,
                steps=1,
                environment=mock.Mock(),
                report=self.lines.append,
                **settings,
            )
        return costed.machine

    def test_measured_links_are_kept(self):
        measured = dataclasses.replace(_PAIR, links=(Link(_CPU, f"{_CPU[:-1]}1", 1e-3, 1e9),))
        self.assertEqual(self.cost(lambda *_, **__: measured).links, measured.links)
        self.keep_links.assert_called_once()

    def test_reports_and_does_not_keep_default_links(self):
        for error in (SearchError("no memory"), WorkerStartError("no worker")):
            machine = self.cost(mock.Mock(side_effect=error))
            self.assertLen(machine.links, 2)
            self.assertRegex(
                self.lines[-1],
                f"^the links of a pair are the default of its kind, .* wrong: {error}",
            )
            self.keep_links.assert_not_called()

    def test_an_emulated_machine_keeps_described_links_if_they_cannot_be_measured(self):
        emulated = find_machine("emulated:2xK80,values")
        for calibrate, why in (
            (mock.Mock(side_effect=SearchError("no memory")), "no memory"),
            (self.fail, "there is no time to measure them"),
        ):
            max_secs = 5.0 if calibrate == self.fail else 60.0
            machine = self.cost(calibrate, emulated, max_secs=max_secs)
            self.assertEqual(machine.links, emulated.links)
            self.assertEqual(
                self.lines[-1],
                f"the links of emulated:2xK80,values are those of its description: {why}",
            )
            self.keep_links.assert_not_called()

    def test_does_not_measure_links_without_time(self):
        machine = self.cost(self.fail, max_secs=5.0)
        self.assertLen(machine.links, 2)
        self.assertIn("there is no time to measure them", self.lines[-1])

    def test_links_may_take_half_of_the_remaining_time(self):
        measure = mock.Mock(return_value=_PAIR)
        self.cost(measure, max_secs=40.0)
        self.assertBetween(measure.call_args.kwargs["timeout_secs"], 4.0, 20.0)
        self.cost(measure)
        self.assertEqual(measure.call_args.kwargs["timeout_secs"], 60.0)

    def test_fails_if_requested_links_cannot_be_measured(self):
        with self.assertRaisesRegex(SearchError, "no memory"):
            self.cost(mock.Mock(side_effect=SearchError("no memory")), measure_links=True)

    def test_rejects_measuring_the_links_of_a_description(self):
        for spec in ("2xK80", "emulated:2xK80"):
            with self.assertRaisesRegex(ValueError, f"links of {spec} .* leave out measure_links"):
                self.cost(self.fail, find_machine(spec), measure_links=True)

    def test_leaves_memory_for_the_variables_of_a_step(self):
        measure = mock.Mock(return_value=_PAIR)
        self.cost(measure)
        # Each of the two sessions of a search holds four matrices of 32 rows and columns.
        self.assertEqual(measure.call_args.kwargs["held_bytes"], 2 * 4 * 32 * 32 * 4)


class CostedGraphTest(tf.test.TestCase):
    def cost_graph_of(
        self, graph: tf.Graph, fetches, machine: Machine | None = None, *, soft: bool = False
    ) -> CostedGraph:
        source = read_workload(graph, fetches)
        config = tf.compat.v1.ConfigProto(allow_soft_placement=soft)
        machine = machine or find_machine(_MACHINE)
        return cost_graph(source, machine, steps=1, session_config=config)

    def devices(self, problem: PlacementProblem, placement: np.ndarray) -> dict[str, int]:
        """Finds the device of each operation."""
        return dict(zip(problem.operation_names, placement[problem.groups].tolist(), strict=True))

    def test_reports_loops_with_unknown_number_of_iterations(self):
        said: list[str] = []
        for limit in (None, 8):
            with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=False):
                tf.compat.v1.while_loop(
                    lambda x: tf.reduce_sum(x) < 9.0,
                    lambda x: tf.matmul(x, x),
                    [tf.ones([2, 2])],
                    maximum_iterations=limit,
                    name=f"until_{limit}",
                )
                tf.identity(graph.get_tensor_by_name(f"until_{limit}/Exit:0"), name="y")
            source = read_workload(graph, ["y"])
            cost_graph(source, find_machine(_MACHINE), steps=1, report=said.append)
        [note] = [line for line in said if "loops run" in line]
        self.assertStartsWith(note, "constants and shapes do not tell how often these loops")
        self.assertIn(": 'until_None'; of each", note)

    def test_reports_sizes_that_depend_on_values(self):
        said: list[str] = []
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [3, 4], name="x")
            kept, _ = tf.dynamic_partition(x, tf.cast(x[:, 0] > 0, tf.int32), 2, name="kept")
            tf.reduce_sum(kept, name="y")
        source = read_workload(graph, ["y"], {"x:0": np.ones([3, 4], np.float32)})
        cost_graph(source, find_machine(_MACHINE), steps=1, report=said.append)
        [note] = [line for line in said if "unknown dimension" in line]
        self.assertRegex(
            note, "^the size(s of 2 tensors, the first of them|  of) 'kept:0' .* depend"
        )
        # All that can be fed is fed.
        self.assertNotIn("Feed", note)

    def test_omits_operations_that_the_step_does_not_need(self):
        graph = graphs.saver_and_summaries()
        problem, placement = self.cost_graph_of(graph.graph, graph.fetches).build_placed_problem(
            None
        )
        self.assertEqual(placement.shape, (problem.num_groups,))
        self.assertEqual(placement.dtype, np.int32)
        self.assertLess(problem.num_operations, len(graph.graph.get_operations()))

    def test_operations_have_the_devices_of_the_graph_or_the_default_of_tensorflow(self):
        with tf.Graph().as_default() as graph:
            words = tf.constant(["a", "b"], name="words")
            a = tf.random.uniform([2], name="a")
            with tf.device("/gpu:1"):
                b = tf.add(a, 1.0, name="b")
            with tf.device("/cpu:0"):
                c = tf.add(b, 1.0, name="c")
            with tf.device("/gpu:7"):
                d = tf.add(c, 1.0, name="d")
            lengths = tf.strings.length(words, name="lengths")
            tf.group(d, lengths, name="all")
        with self.assertRaisesRegex(GraphError, "'d/y' on /device:GPU:7, and 2xK80 has only"):
            self.cost_graph_of(graph, ["all"])
        problem, placement = self.cost_graph_of(graph, ["all"], soft=True).build_placed_problem(
            None
        )
        devices = self.devices(problem, placement)
        wanted = {"a/RandomUniform": 1, "b": 2, "c": 0, "lengths": 0, "words": 0}
        self.assertEqual({name: devices[name] for name in wanted}, wanted)
        # Soft placement replaces a missing device by the first.
        self.assertEqual(devices["d"], 0)
        secs = problem.compute_secs[np.arange(len(devices)), list(devices.values())]
        self.assertTrue(np.isfinite(secs).all())

    def test_a_search_has_fewer_groups_than_colocation_groups(self):
        graph = graphs.lstm()
        costed = self.cost_graph_of(graph.graph, graph.fetches)
        self.assertLess(
            costed.problem().num_groups, costed.build_placed_problem(None)[0].num_groups
        )
        self.assertEqual(
            costed.problem().operation_names, costed.build_placed_problem(None)[0].operation_names
        )

    def test_fine_groups_are_the_colocation_groups_of_the_step(self):
        graph = graphs.lstm()
        source = read_workload(graph.graph, graph.fetches)
        machine = find_machine(_MACHINE)
        costed = cost_graph(source, machine, steps=1, granularity="fine")
        problem, (wanted, _) = costed.problem(), costed.build_placed_problem(None)
        # Colocation groups that the step does not need have numbers, but no operations.
        self.assertLen(set(wanted.groups.tolist()), problem.num_groups)
        pairs = set(zip(problem.groups.tolist(), wanted.groups.tolist(), strict=True))
        self.assertLen(pairs, problem.num_groups)
        with self.assertRaisesRegex(ValueError, "unknown granularity 'none'"):
            cost_graph(source, machine, steps=1, granularity="none")

    def test_each_group_gets_the_most_frequent_device_of_its_operations(self):
        graph = graphs.lstm()
        costed = self.cost_graph_of(graph.graph, graph.fetches)
        op_graph, colocation = costed.grouped.op_graph, costed.grouped.colocation
        names = [device.name for device in costed.machine.devices]
        rng = np.random.default_rng(0)
        chosen = rng.integers(0, 3, colocation.num_groups)
        chosen[::2] = 1
        where = zip(op_graph.names, colocation.group, strict=True)
        placement = Placement("", tuple(names), {name: names[chosen[i]] for name, i in where})
        asked = find_requested_devices(op_graph, colocation, placement, costed.machine.devices)
        found = find_nearest_assignment(
            costed.grouped.grouping, colocation, costed.machine.devices, asked
        )
        counts = [collections.Counter() for _ in found]
        for colocated, group in enumerate(costed.grouped.grouping.group.tolist()):
            if group >= 0:
                counts[group][int(chosen[colocated])] += 1
        most = [max(range(3), key=lambda device: (count[device], -device)) for count in counts]
        self.assertEqual(found.tolist(), most)
        self.assertGreater(len(set(most)), 1)
        with self.assertRaisesRegex(GraphError, "on /device:TPU:0, which is not there"):
            find_requested_devices(
                op_graph,
                colocation,
                Placement("", ("/device:TPU:0",), {op_graph.names[0]: "/device:TPU:0"}),
                costed.machine.devices,
            )

    def test_everything_is_on_the_first_cpu_without_gpus(self):
        known = find_machine(_MACHINE)
        names = (_CPU, f"{_CPU[:-1]}1")
        devices = tuple(
            dataclasses.replace(known.devices[0], name=name, memory_bytes=10**9) for name in names
        )
        links = (Link(*names, 1e-5, 1e9), Link(*names[::-1], 1e-5, 1e9))
        machine = Machine("two CPUs", "described", devices, links, known.classes)
        graph = graphs.two_branches()
        _, placement = self.cost_graph_of(graph.graph, graph.fetches, machine).build_placed_problem(
            None
        )
        self.assertEqual(set(placement.tolist()), {0})


if __name__ == "__main__":
    tf.test.main()
