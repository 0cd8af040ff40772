"""Tests of placements under the restrictions of a user, by enumeration and by TensorFlow itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.annotate import Annotate
from graph_passes.clearing_advice import clear_by
from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GRANULARITIES, GroupedGraph, group_operations
from graph_passes.restricted_colocation import (
    VARIABLE_NAME_ATTR,
    describe_restrictions,
    restrict_colocation,
)
from graph_passes.restrictions import (
    check_keep_together,
    match_names,
    resolve_restrictions,
)
from tests import graphs
from tests.graph_passes.logical_devices import device_names, run_steps

tf1 = tf.compat.v1

CPUS = device_names(3)
MIXED = (CPUS[0], *(f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)))


def build_graph(device: str = "") -> OpGraph:
    """Builds two chains: one has an operation that only CPUs run, one an operation on a device."""
    with tf.Graph().as_default() as graph:
        fed = tf1.placeholder(tf.float32, [3], name="fed")
        x = tf.exp(fed, name="a/exp")
        x = tf.random.shuffle(x, name="a/shuffle")
        with tf.device(device):
            y = tf.sin(fed, name="b/sin")
        y = tf.cos(y, name="b/cos")
        tf.add(x, y, name="sum")
        tf.tan(fed, name="unused/tan")
        tf1.summary.scalar("b/summary", tf.reduce_sum(y, name="b/all"))
    return OpGraph.from_graph_def(graph.as_graph_def(), ["sum", "b/summary"], ["fed:0"])


def restrict(
    graph: OpGraph,
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[str | Sequence[str]] = (),
    *,
    granularity: str = "fine",
    devices: Sequence[str] = MIXED,
) -> GroupedGraph:
    found = resolve_restrictions(pin or {}, check_keep_together(keep_together), devices)
    return group_operations(graph, granularity, found)


def list_assignments(
    grouped: GroupedGraph, devices: Sequence[str]
) -> set[frozenset[tuple[str, str]]]:
    """Lists all legal placements, as devices of the operations of the step."""
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    needed = {grouped.op_graph.names[i] for i in np.flatnonzero(grouped.op_graph.needed)}
    return {
        frozenset(
            (name, device)
            for name, device in grouped.assignment(np.array(row, np.int32), tuple(devices)).items()
            if name in needed
        )
        for row in itertools.product(*map(np.flatnonzero, legal))
    }


class EnumerationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ({"a/exp": "/GPU:1"}, ()),
        ({"a/*": "/CPU:0"}, ()),
        ({"b/cos": "/GPU:0", "sum": "/GPU:1"}, ()),
        ({"re:(a/exp|sum)": "/GPU:0"}, ()),
        ({}, [["a/*", "b/sin"]]),
        ({}, ["b/*"]),
        ({}, [["a/exp", "b/sin"], ["b/cos", "sum"]]),
        ({}, [["a/exp", "b/sin"], ["b/sin", "sum"]]),
        ({"sum": "/GPU:1"}, [["a/exp", "sum"], ["b/c*", "b/s*"]]),
    )
    def test_exactly_the_placements_that_obey_are_legal(self, pin, keep_together):
        graph = build_graph()
        allowed = restrict(graph, pin, keep_together)
        found = {
            pattern: next(device for device in MIXED if device.endswith(short[1:]))
            for pattern, short in pin.items()
        }

        def obeys(assignment: frozenset[tuple[str, str]]) -> bool:
            on = dict(assignment)
            pinned = all(
                on[name] == device
                for pattern, device in found.items()
                for name in match_names(pattern, on)
            )
            shared = [
                {on[name] for pattern in patterns for name in match_names(pattern, on)}
                for patterns in check_keep_together(keep_together)
            ]
            return pinned and all(len(devices) == 1 for devices in shared)

        every = list_assignments(restrict(graph), MIXED)
        expected = set(filter(obeys, every))
        self.assertNotEmpty(expected)
        self.assertLess(len(expected), len(every))
        self.assertEqual(list_assignments(allowed, MIXED), expected)
        coarse = list_assignments(restrict(graph, pin, keep_together, granularity="coarse"), MIXED)
        self.assertNotEmpty(coarse)
        self.assertContainsSubset(coarse, expected)

    @parameterized.parameters(
        ({"*": "/GPU:*"}, ()),
        ({"b/*": "GPU:*"}, ()),
        ({"*": "/device:gpu:*", "sum": "/CPU:0"}, ()),
        ({"*": "/GPU:*", "b/cos": "/GPU:1"}, ()),
        # No GPU has a kernel for a/shuffle, and so for what is kept together with it.
        ({"*": "/GPU:*"}, [["a/shuffle", "b/sin"]]),
    )
    def test_a_pin_to_all_gpus_leaves_the_cpu_what_has_no_kernel_there(self, pin, keep_together):
        graph = build_graph()
        to_one = {pattern: on for pattern, on in pin.items() if not on.endswith("*")}
        [to_gpus] = pin.keys() - to_one.keys()
        every = list_assignments(restrict(graph, to_one, keep_together), MIXED)
        on_gpus = {
            name
            for name in match_names(to_gpus, set().union(*(dict(each) for each in every)))
            if any("GPU" in dict(each)[name] for each in every)
        }
        expected = {each for each in every if all("GPU" in dict(each)[name] for name in on_gpus)}
        self.assertBetween(len(expected), 1, len(every) - 1)
        self.assertEqual(list_assignments(restrict(graph, pin, keep_together), MIXED), expected)
        coarse = list_assignments(restrict(graph, pin, keep_together, granularity="coarse"), MIXED)
        self.assertNotEmpty(coarse)
        self.assertContainsSubset(coarse, expected)

    def test_variables_match_by_their_own_names(self):
        with tf.Graph().as_default() as graph:
            handles = {
                name: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], name=name)
                for name in ("mul/resource", "sub/resource", "sub_1/resource")
            }
            reads = [
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
                for handle in handles.values()
            ]
            tf.add_n(reads, name="sum")
        graph_def = graph.as_graph_def()
        slots = {"mul/resource": "last/w", "sub/resource": "slot", "sub_1/resource": "slot"}
        for node in graph_def.node:
            if node.name in slots:
                node.attr[VARIABLE_NAME_ATTR].s = slots[node.name].encode()
        op_graph = OpGraph.from_graph_def(graph_def, ["sum"])
        for pattern, names in (("last*", ["mul/resource"]), ("slot", [*slots][1:])):
            found = list_assignments(restrict(op_graph, {pattern: "/GPU:1"}), MIXED)
            by_operation = restrict(op_graph, dict.fromkeys(names, "/GPU:1"))
            self.assertEqual(found, list_assignments(by_operation, MIXED))

    def test_a_pinned_group_bars_no_other_from_its_devices(self):
        given = graphs.share_graph("two_branches")
        graph = OpGraph.from_graph_def(given.graph.as_graph_def(), given.fetches)
        grouped = restrict(graph, {"chain_0/MatMul": "/GPU:1"}, granularity="coarse")
        legal = grouped.grouping.legal_devices(grouped.colocation, MIXED)
        group = grouped.grouping.expand_to_operations(grouped.colocation)
        self.assertAllEqual(legal[group[graph.index["chain_0/MatMul"]]], [False, False, True])
        self.assertAllEqual(legal[group[graph.index["chain_0/MatMul_1"]]], [True] * 3)

    def test_operations_that_no_placement_moves_are_left_out_and_counted(self):
        graph = build_graph()
        found = resolve_restrictions({"b/*": "/GPU:0"}, (("a/*",),), MIXED)
        grouped = group_operations(graph, "fine", found)
        self.assertEqual(
            describe_restrictions(graph, grouped.colocation, found),
            [
                f"'b/*': 3 operations in 3 colocation groups stay on {MIXED[1]}; no placement "
                "moves 2 more, such as 'b/summary/tags'",
                "'a/*': 2 operations in 1 colocation group share one device",
            ],
        )
        self.assertIs(restrict_colocation(graph, grouped.colocation, None), grouped.colocation)
        found = resolve_restrictions({"b/*": "/GPU:*"}, (), MIXED)
        [line] = describe_restrictions(
            graph, group_operations(graph, "fine", found).colocation, found
        )
        self.assertStartsWith(
            line,
            "'b/*': 3 operations in 3 colocation groups stay on the GPUs as far as they have "
            "kernels there; no placement moves 2 more",
        )

    def test_what_the_graph_has_on_a_device_is_joined_by_the_rest(self):
        graph = build_graph("/device:GPU:1")
        for grouped in (
            restrict(graph, {}, [["b/sin", "b/cos"]]),
            restrict(graph, {"b/*": "/GPU:1"}),
        ):
            for assignment in list_assignments(grouped, MIXED):
                self.assertEqual(dict(assignment)["b/cos"], MIXED[2])
                self.assertNotIn("b/sin", dict(assignment))


class TensorFlowTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        case=(
            ("v1_ref_variables", {"layer_0/*": "/CPU:1"}, [["layer_1/*", "logits/*"]]),
            ("resource_variables", {"gradients/*": "/CPU:2", "logits/*": "/CPU:2"}, []),
            (
                "residual_convnet",
                {"re:.*/weights": "/CPU:1", "logits/bias": "/CPU:0"},
                ["block_0/*"],
            ),
            ("while_loop_v1", {"weights": "/CPU:1"}, [["logits/MatMul", "logits/*"]]),
            ("lstm", {"*embedding*": "/CPU:2"}, []),
        ),
        granularity=GRANULARITIES,
    )
    def test_pinned_graphs_run_where_they_should_without_soft_placement(self, case, granularity):
        name, pin, together = case
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        graph = OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds))
        grouped = restrict(graph, pin, together, granularity=granularity, devices=CPUS)
        legal = grouped.grouping.legal_devices(grouped.colocation, CPUS)
        expected = run_steps(graph_def, made, devices=len(CPUS)).values
        random = np.random.default_rng(0)
        for _ in range(2):
            row = np.array([random.choice(np.flatnonzero(each)) for each in legal], np.int32)
            assignment = grouped.assignment(row, CPUS)
            run = run_steps(Annotate(assignment).run(graph_def), made, devices=len(CPUS))
            self.assertAllClose(run.values, expected, rtol=1e-5, atol=1e-7)
            for pattern, short in pin.items():
                ran = match_names(pattern, assignment.keys() & run.devices.keys())
                self.assertNotEmpty(ran)
                self.assertEqual({run.devices[each] for each in ran}, {CPUS[int(short[-1])]})
            for patterns in check_keep_together(together):
                ran = {
                    each
                    for pattern in patterns
                    for each in match_names(pattern, assignment.keys() & run.devices.keys())
                }
                self.assertLen({run.devices[each] for each in ran}, 1)


class RefusalTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (
            {"A/*": "/GPU:0"},
            (),
            "pin 'A/.*' to .*GPU:0: no operation of the step matches 'A/.*'; the nearest are 'a/",
        ),
        (
            {"unused/*": "/GPU:0"},
            (),
            "pin 'unused/.*' to .*: the step does not run 'unused/tan', nor anything else that m",
        ),
        (
            {"a/*": "/GPU:0"},
            (),
            "pin 'a/.*' to .*GPU:0: 'a/shuffle' has no kernel for GPU: choose another device",
        ),
        (
            {"a/exp": "/GPU:0"},
            [["a/exp", "a/shuffle"]],
            "'a/exp' must share a device with 'a/shuffle', which has no kernel for GPU",
        ),
        (
            {"a/*": "/CPU:0", "*/exp": "/GPU:0"},
            (),
            "pin 'a/.*' to .*CPU:0 and pin '.*/exp' to .*GPU:0 disagree: 'a/exp' cannot be on both",
        ),
        (
            {"b/sin": "/CPU:0", "b/cos": "/GPU:0"},
            ["b/*"],
            "disagree: keep_together joins 'b/sin' and 'b/cos'; change one of them",
        ),
        (
            {"*/summary": "/GPU:0"},
            (),
            "to .*: no placement moves 'b/summary', because it is a ScalarSummary or must share",
        ),
        ({}, ["*/summary"], "keep_together '.*': no placement moves 'b/summary'"),
        (
            {},
            [["a/*", "c/*"]],
            "keep_together 'a/.*', 'c/.*': no operation of the step matches 'c/",
        ),
    )
    def test_names_pattern_operation_and_device(self, pin, keep_together, message):
        with self.assertRaisesRegex(GraphError, message):
            restrict(build_graph(), pin, keep_together)

    def test_devices_of_the_graph_come_first(self):
        graph = build_graph("/device:GPU:1")
        for pin, keep_together, message in (
            (
                {"b/*": "/GPU:0"},
                (),
                "the graph itself has 'b/sin', .*, on .*GPU:1: clear the graph's devices "
                r"\(clear_devices=True\), or leave it out of the pattern",
            ),
            (
                {"sum": "/GPU:0"},
                [["sum", "b/sin"]],
                "keep_together 'sum', 'b/sin' with 'b/sin', which the graph has on .*GPU:1 and pin "
                "'sum' to .*GPU:0 disagree",
            ),
            (
                {},
                [["a/shuffle", "b/sin"]],
                "with 'b/sin', which the graph has on .*GPU:1: 'a/shuffle' has no kernel for GPU",
            ),
        ):
            with self.assertRaisesRegex(GraphError, message):
                restrict(graph, pin, keep_together)
        with clear_by("--clear_devices"), self.assertRaisesRegex(GraphError, "--clear_devices"):
            restrict(graph, {"b/*": "/GPU:0"})
        with clear_by(None), self.assertRaisesRegex(GraphError, "build the graph without tf.dev"):
            restrict(graph, {"b/*": "/GPU:0"})

    def test_operations_on_two_devices_of_the_graph_cannot_be_kept_together(self):
        with tf.Graph().as_default() as graph:
            for number in range(2):
                with tf.device(f"/device:GPU:{number}"):
                    tf.constant(1.0, name=f"x{number}")
            tf.add_n([graph.get_tensor_by_name(f"x{number}:0") for number in range(2)], name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"])
        with self.assertRaisesRegex(
            GraphError, "the graph has 'x0' on .*GPU:0 and 'x1' on .*GPU:1: clear the graph's dev"
        ):
            restrict(op_graph, {}, ["x*"])

    def test_a_machine_without_a_common_device_is_refused(self):
        graph = build_graph()
        with self.assertRaisesRegex(
            GraphError, "keep_together 'a/.*': no device can run all of it, because 'a/shuffle' has"
        ):
            restrict(graph, {}, ["a/*"], devices=MIXED[1:])

    def test_without_restrictions_the_groups_are_those_of_tensorflow(self):
        graph = build_graph()
        colocation = find_colocation_groups(graph)
        self.assertEqual(colocation.required, {})
        self.assertIsNone(colocation.unrestricted)


if __name__ == "__main__":
    tf.test.main()
