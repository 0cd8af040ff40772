"""Tests of fitting a saved placement to a graph that may have changed."""

from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.fitting import fit
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement
from tests.graph_parts import new_graph

_CPUS = ("/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0")


def graph(device: str = "") -> OpGraph:
    with new_graph() as built, tf.device(device):
        tf.tanh(tf.constant([1.0], name="a"), name="b")
    return OpGraph.from_graph_def(built.as_graph_def(), ["b"])


def placement(**assignment: str) -> Placement:
    return Placement("f", _CPUS, assignment)


class FitTest(tf.test.TestCase):
    def test_returns_matches_and_lists_the_rest(self):
        fitted = fit(graph(), placement(b=_CPUS[1], gone=_CPUS[0]))
        self.assertEqual(fitted.assignment, {"b": _CPUS[1]})
        self.assertEqual(fitted.missing, ("gone",))
        self.assertEqual(fitted.unplaced, ("a",))

    def test_rejects_the_placement_of_another_graph(self):
        with self.assertRaisesRegex(GraphError, "none of its 2 operations is in it, such as 'x'"):
            fit(graph(), placement(x=_CPUS[0], y=_CPUS[1]))

    def test_rejects_the_placement_of_another_graph_with_few_common_names(self):
        # A graph of 2 operations, and one of the 3 of the placement: half of the smaller one.
        few = placement(b=_CPUS[0], x=_CPUS[0], y=_CPUS[0])
        self.assertEqual(fit(graph(), few).assignment, {"b": _CPUS[0]})
        with new_graph() as built:
            for name in ("b", "c", "d"):
                tf.constant([1.0], name=name)
        larger = OpGraph.from_graph_def(built.as_graph_def())
        with self.assertRaisesRegex(GraphError, "another graph: of its 3 operations 1 are among"):
            fit(larger, few)
        # A part of a graph that others will join has few of the names, too.
        self.assertEqual(fit(larger, few, may_grow=True).assignment, {"b": _CPUS[0]})

    def test_takes_the_placement_of_a_step_for_a_part_of_its_graph(self):
        names = {name: _CPUS[0] for name in ("a", "b", "x", "y", "z", "u", "v")}
        self.assertEqual(fit(graph(), placement(**names)).assignment.keys(), {"a", "b"})

    def test_rejects_a_graph_with_other_devices(self):
        with self.assertRaisesRegex(GraphError, "'b': it is pinned"):
            fit(graph("/device:CPU:0"), placement(b=_CPUS[1]))

    def test_placed_graph_needs_no_changes(self):
        self.assertEqual(fit(graph(_CPUS[1]), placement(b=_CPUS[1])).assignment, {})

    def test_empty_placement_fits_every_graph(self):
        self.assertEqual(fit(graph(), placement()).assignment, {})

    def test_what_one_device_reads_follows_a_plan(self):
        # A plan has no initializers, and its graph no step.
        with new_graph() as built:
            for name in ("left", "right"):
                start = tf.random.uniform([2], name=f"{name}_start")
                tf.compat.v1.get_variable(name, initializer=start, use_resource=True)
            both = tf.constant(1.0, name="both")
            tf.add(tf.constant([2.0], name="only"), both, name="a")
            tf.add(tf.constant([3.0], name="other"), both, name="b")
        op_graph = OpGraph.from_graph_def(built.as_graph_def())
        plan = {"left": _CPUS[0], "a": _CPUS[0], "right": _CPUS[1], "b": _CPUS[1]}
        found = fit(op_graph, Placement("", _CPUS, plan)).assignment
        for name, device in (("left", _CPUS[0]), ("right", _CPUS[1])):
            for each in (name, f"{name}_start/RandomUniform", f"{name}/Assign"):
                self.assertEqual(found[each], device, each)
        self.assertEqual((found["only"], found["other"]), _CPUS)
        self.assertNotIn("both", found)
        measured = fit(op_graph, Placement("f", _CPUS, plan)).assignment
        self.assertNotIn("only", measured)


if __name__ == "__main__":
    tf.test.main()
