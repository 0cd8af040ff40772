"""Tests of putting a saved placement on a graph that may have changed."""

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
    def test_what_matches_is_taken_and_the_rest_is_told(self):
        fitted = fit(graph(), placement(b=_CPUS[1], gone=_CPUS[0]))
        self.assertEqual(fitted.assignment, {"b": _CPUS[1]})
        self.assertEqual(fitted.missing, ("gone",))
        self.assertEqual(fitted.unplaced, ("a",))

    def test_the_placement_of_another_graph_is_refused(self):
        with self.assertRaisesRegex(GraphError, "none of its 2 operations is in it, such as 'x'"):
            fit(graph(), placement(x=_CPUS[0], y=_CPUS[1]))

    def test_a_graph_that_is_elsewhere_refuses(self):
        with self.assertRaisesRegex(GraphError, "'b': it is left where it is"):
            fit(graph("/device:CPU:0"), placement(b=_CPUS[1]))

    def test_a_graph_that_is_placed_like_this_needs_nothing(self):
        self.assertEqual(fit(graph(_CPUS[1]), placement(b=_CPUS[1])).assignment, {})

    def test_an_empty_placement_fits_everything(self):
        self.assertEqual(fit(graph(), placement()).assignment, {})


if __name__ == "__main__":
    tf.test.main()
