from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.annotate import Annotate
from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.placement import (
    FittedPlacement,
    Placement,
    assignment_of,
    fit_placement,
    operation_groups,
    read_placement,
    write_placement,
)
from tests import graphs
from tests.graph_passes.logical_devices import device_names

tf1 = tf.compat.v1

DEVICES = device_names(2)
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"

PLACEMENT = Placement(
    "0123",
    DEVICES,
    {"a": DEVICES[0], "b/ü": DEVICES[1]},
    measurement={"step_secs": 0.25, "interval": [1.0, 2.0]},
    provenance={"placer": "colocrl", "seed": 3},
)


class FileTest(tf.test.TestCase, parameterized.TestCase):
    def path(self) -> pathlib.Path:
        return pathlib.Path(self.create_tempdir().full_path) / "placement.json"

    def test_reads_written_files(self):
        path = self.path()
        write_placement(PLACEMENT, path)
        self.assertEqual(vars(read_placement(path)), vars(PLACEMENT))
        self.assertEqual(os.listdir(path.parent), ["placement.json"])

    def test_file_has_format_and_entries(self):
        value = json.loads(PLACEMENT.to_json())
        self.assertEqual(value["format"], 1)
        self.assertCountEqual(
            value,
            ["format", "graph_fingerprint", "devices", "assignment", "measurement", "provenance"],
        )
        self.assertEqual(value["assignment"], PLACEMENT.assignment)

    def test_replaces_existing_files(self):
        path = self.path()
        path.write_text("something old " * 1000)
        write_placement(PLACEMENT, path)
        self.assertEqual(path.read_text(), PLACEMENT.to_json())

    @parameterized.parameters(
        ("", "not a placement"),
        ("{", "not a placement"),
        ("[]", "not a placement"),
        ("3", "not a placement"),
        ("null", "not a placement"),
        ('{"format": 2}', "format is 2: it must be 1"),
        ("{}", 'no entry "format"'),
        ('{"format": 1}', 'no entry "graph_fingerprint"'),
    )
    def test_error_names_files_that_are_no_placements(self, text, reason):
        path = self.path()
        path.write_text(text)
        with self.assertRaises(GraphError) as caught:
            read_placement(path)
        self.assertIn(str(path), str(caught.exception))
        self.assertIn(reason, str(caught.exception))

    @parameterized.parameters(
        ("devices", "abc"),
        ("devices", None),
        ("assignment", ["a"]),
        ("assignment", {"a": "/cpu:7"}),
        ("assignment", {"a": 7}),
        ("measurement", "fast"),
        ("provenance", [1, 2]),
        ("format", True),
        ("graph_fingerprint", 7),
        ("graph_fingerprint", None),
        ("devices", [*DEVICES, DEVICES[0]]),
        ("devices", [*DEVICES, "/gpu:zero"]),
        ("devices", [*DEVICES, "CPU:-1"]),
        ("devices", [*DEVICES, "/job:worker"]),
        ("devices", [*DEVICES, ["/cpu:0"]]),
        ("measurement", {"\ud800": 1}),
    )
    def test_error_names_files_with_invalid_entries(self, part, value):
        path = self.path()
        path.write_text(json.dumps(json.loads(PLACEMENT.to_json()) | {part: value}))
        with self.assertRaisesRegex(GraphError, str(path)):
            read_placement(path)

    def test_error_names_the_invalid_entry(self):
        whole = PLACEMENT.to_json()
        for text, reason in (
            (whole.replace('"format": 1', '"format": 1, "format": 1'), 'the entry "format" twice'),
            (whole.replace('"format": 1', '"format": ' + "[" * 100_000), "nested too deeply"),
            (whole.replace('"format": 1', '"format": Infinity'), "Infinity is no number of JSON"),
            (whole.replace('"format": 1', '"format": true'), "format is true"),
            ("7", "it is 7: it must be an object"),
            (whole.replace(f'"{DEVICES[1]}"', '"' + "x" * 10**6 + '"'), 'is "xxx'),
        ):
            with self.assertRaisesRegex(GraphError, reason) as caught:
                Placement.from_json(text)
            self.assertLess(len(str(caught.exception)), 300)

    def test_error_names_operations_on_unlisted_devices(self):
        text = PLACEMENT.to_json().replace(f'"b/\\u00fc": "{DEVICES[1]}"', '"b": "/cpu:7"')
        with self.assertRaisesRegex(GraphError, '"b" on "/cpu:7"'):
            Placement.from_json(text)

    def test_error_names_unreadable_files(self):
        path = self.path()
        with self.assertRaisesRegex(FileNotFoundError, f"{path}.*No such file"):
            read_placement(path)
        with self.assertRaisesRegex(IsADirectoryError, f"{path.parent}.*directory"):
            read_placement(path.parent)
        path.write_bytes(b"\xff\xfe\x00")
        with self.assertRaisesRegex(GraphError, str(path)):
            read_placement(path)

    def test_failed_write_leaves_no_file(self):
        path = self.path()
        path.mkdir()
        with self.assertRaises(OSError):
            write_placement(PLACEMENT, path)
        with self.assertRaises(TypeError):
            write_placement(Placement("", (), {}, {"value": object()}), path.parent / "other")
        self.assertEqual(os.listdir(path.parent), [path.name])


def group_graph(made: graphs.TestGraph) -> GroupedGraph:
    graph_def = made.graph.as_graph_def()
    return group_operations(OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds)))


class OperationGroupsTest(tf.test.TestCase, parameterized.TestCase):
    def groups_by_name(self, made: graphs.TestGraph) -> dict[str, int]:
        found = group_graph(made)
        groups = operation_groups(found.op_graph, found.colocation, found.grouping)
        self.assertAllEqual(groups, found.operation_groups)
        return dict(zip(found.op_graph.names, groups.tolist(), strict=True))

    def test_initial_values_follow_their_variable(self):
        for factory in (graphs.resource_variables, graphs.v1_ref_variables):
            groups = self.groups_by_name(factory())
            variable = groups["layer_0/weights"]
            self.assertGreaterEqual(variable, 0)
            made_of = [n for n in groups if n.startswith("layer_0/weights/Initializer/")]
            self.assertGreater(len(made_of), 3)
            for name in [*made_of, "layer_0/weights/Assign"]:
                self.assertEqual(groups[name], variable, name)

    def test_pinned_operations_have_no_group(self):
        made = graphs.saver_and_summaries()
        groups = self.groups_by_name(made)
        for op in made.graph.get_operations():
            if "Summary" in op.type or op.type in ("SaveV2", "RestoreV2"):
                self.assertEqual(groups[op.name], -1, op.name)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_operations_of_the_step_have_the_group_of_their_colocation_group(self, name):
        found = group_graph(graphs.share_graph(name))
        by_group: dict[int, set[int]] = {}
        for colocated, group in zip(found.colocation.group, found.operation_groups, strict=True):
            by_group.setdefault(int(colocated), set()).add(int(group))
        self.assertTrue(all(len(groups) == 1 for groups in by_group.values()))
        free = found.op_graph.needed & ~found.colocation.pinned[found.colocation.group]
        self.assertTrue((found.operation_groups[free] >= 0).all())
        self.assertAllEqual(
            found.operation_groups[free],
            found.grouping.expand_to_operations(found.colocation)[free],
        )

    def test_operations_outside_the_step_follow_a_single_reader_only(self):
        with tf.Graph().as_default() as graph:
            size = tf.constant(2, name="size")
            start = tf.fill([size, size], 1.0, name="start")
            for name in ("v", "w"):
                tf1.get_variable(name, initializer=start)
            tf.linalg.trace(tf.matmul(*tf1.global_variables()), name="result")
        groups = self.groups_by_name(graphs.TestGraph(graph, ("result:0",)))
        self.assertEqual(len({groups["v"], groups["w"]}), 1)
        self.assertEqual(groups["start"], groups["v"])
        with graph.as_default():
            tf.matmul(start, start, name="apart")
        groups = self.groups_by_name(graphs.TestGraph(graph, ("result:0", "apart:0")))
        self.assertNotEqual(groups["apart"], groups["v"])

    def test_assignment_names_the_chosen_devices(self):
        names, groups = ("a", "b", "c", "d"), np.array([1, -1, 0, 1])
        self.assertEqual(
            assignment_of(names, groups, ("/x", "/y"), np.array([0, 1], np.int32)),
            {"a": "/y", "c": "/x", "d": "/y"},
        )


class FitTest(tf.test.TestCase):
    def fit(self, graph: tf.Graph | tf1.GraphDef, placement: Placement) -> FittedPlacement:
        graph_def = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
        op_graph = OpGraph.from_graph_def(graph_def)
        return fit_placement(op_graph, find_colocation_groups(op_graph), placement)

    def small_graph(self, *, changed: bool = False) -> tf.Graph:
        """Builds constant, variable and product; changed: one missing, one new."""
        with tf.Graph().as_default() as graph:
            value = tf.constant([[1.0]], name="value")
            variable = tf1.get_variable("variable", initializer=[[2.0]], use_resource=True)
            if changed:
                tf.add(value, 1.0, name="new")
            else:
                tf.exp(value, name="gone")
            tf.matmul(value, variable, name="product")
        return graph

    def test_placement_of_the_same_graph_fits(self):
        made = graphs.lstm()
        found = group_graph(made)
        row = np.random.default_rng(0).integers(0, 2, found.grouping.num_groups)
        assignment = found.assignment(row, DEVICES)
        fitted = self.fit(made.graph, Placement("", DEVICES, assignment))
        self.assertEqual(fitted.assignment, assignment)
        self.assertEqual(fitted.missing, ())
        self.assertEmpty(fitted.refused)

    def test_a_device_that_is_not_listed_is_refused(self):
        for devices in ((), DEVICES):
            with self.assertRaisesRegex(GraphError, 'puts "a" on "/device:TPU:0", which it does'):
                Placement("", devices, {"a": "/device:TPU:0"})

    def test_lists_missing_and_unplaced_operations(self):
        names = [op.name for op in self.small_graph().get_operations()]
        placement = Placement("", DEVICES, dict.fromkeys(names, DEVICES[1]))
        fitted = self.fit(self.small_graph(changed=True), placement)
        self.assertEqual(fitted.missing, ("gone",))
        self.assertCountEqual(fitted.unplaced, ["new", "new/y"])
        self.assertEmpty(fitted.refused)
        self.assertEqual(set(fitted.assignment.values()), {DEVICES[1]})
        self.assertNotIn("gone", fitted.assignment)

    def test_unnamed_operations_follow_their_colocation_group(self):
        fitted = self.fit(self.small_graph(), Placement("", DEVICES, {"variable": DEVICES[1]}))
        self.assertEqual(fitted.assignment["variable/Assign"], DEVICES[1])
        self.assertIn("product", fitted.unplaced)

    def test_refuses_split_colocation_groups(self):
        assignment = {"variable": DEVICES[0], "variable/Assign": DEVICES[1], "value": DEVICES[0]}
        fitted = self.fit(self.small_graph(), Placement("", DEVICES, assignment))
        self.assertLen(fitted.refused, 1)
        (reason,) = fitted.refused.values()
        self.assertIn(f"{DEVICES[0]} and {DEVICES[1]}", reason)
        self.assertEqual(fitted.assignment, {"value": DEVICES[0]})
        self.assertIn("variable", fitted.unplaced)

    def test_operations_outside_the_step_do_not_split_a_group(self):
        graph = self.small_graph()
        with graph.as_default():
            other = tf.constant(2.0, name="other")
            with tf1.colocate_with(other.op):
                tf.identity(other, name="first")
                tf.identity(other, name="second")
        assignment = {"variable": DEVICES[0], "variable/Assign": DEVICES[1]}
        assignment |= {"first": DEVICES[0], "second": DEVICES[1]}
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ("product",))
        self.assertFalse(op_graph.needed[op_graph.index["variable/Assign"]])
        fitted = fit_placement(
            op_graph, find_colocation_groups(op_graph), Placement("", DEVICES, assignment)
        )
        self.assertEqual(fitted.assignment["variable/Assign"], DEVICES[0])
        self.assertEqual(fitted.refused, {})
        self.assertTrue(fitted.assignment.keys().isdisjoint(["other", "first", "second"]))

    def test_refuses_devices_without_kernels(self):
        with tf.Graph().as_default() as graph:
            value = tf.constant([3, 1], name="value")
            tf.matmul([[1, 2]], tf.expand_dims(value, 1), name="product")
        fitted = self.fit(graph, Placement("", (GPU,), {"product": GPU, "value": GPU}))
        self.assertEqual(list(fitted.refused), ["product"])
        self.assertIn(GPU, fitted.refused["product"])
        self.assertEqual(fitted.assignment, {"value": GPU})
        unknown = "/job:localhost/replica:0/task:0/device:NPU:0"
        fitted = self.fit(graph, Placement("", (unknown,), {"value": unknown}))
        self.assertEqual(list(fitted.refused), ["value"])

    def test_refuses_pinned_operations(self):
        with tf.Graph().as_default() as graph:
            tf.strings.length("text", name="length")
        fitted = self.fit(graph, Placement("", DEVICES, {"length": DEVICES[1]}))
        self.assertEmpty(fitted.assignment)
        self.assertEqual(list(fitted.refused), ["length"])

    def test_pinned_operations_may_be_placed_where_they_are(self):
        for requested in ("", "/task:0", "/device:CPU:0", "/device:CPU:*"):
            with tf.Graph().as_default() as graph, tf.device(requested):
                tf.strings.length("text", name="length")
            fitted = self.fit(graph, Placement("", DEVICES, {"length": DEVICES[0]}))
            self.assertEmpty(fitted.assignment)
            self.assertEmpty(fitted.refused)

    def test_placed_graph_has_nothing_to_place(self):
        graph_def = self.small_graph().as_graph_def()
        names = [node.name for node in graph_def.node]
        placement = Placement("", DEVICES, dict.fromkeys(names, DEVICES[1]))
        placed = Annotate(placement.assignment).run(graph_def)
        fitted = self.fit(placed, placement)
        self.assertEmpty(fitted.assignment)
        self.assertEmpty(fitted.refused)
        self.assertEmpty(fitted.unplaced)

    def test_fitted_groups_have_one_device_each(self):
        made = graphs.v1_ref_variables()
        random = np.random.default_rng(0)
        names = [op.name for op in made.graph.get_operations()]
        for _ in range(5):
            assignment = {n: str(random.choice(DEVICES)) for n in names if random.random() < 0.7}
            fitted = self.fit(made.graph, Placement("", DEVICES, assignment))
            op_graph = OpGraph.from_graph_def(made.graph.as_graph_def())
            colocation = find_colocation_groups(op_graph)
            by_group: dict[int, set[str]] = {}
            for name, group in zip(op_graph.names, colocation.group.tolist(), strict=True):
                by_group.setdefault(group, set()).add(fitted.assignment.get(name, ""))
            self.assertTrue(all(len(devices) == 1 for devices in by_group.values()))


if __name__ == "__main__":
    tf.test.main()
