from __future__ import annotations

import dataclasses
import gc

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.annotate import Annotate, ClearDevices, DropDanglingColocation
from graph_passes.colocation import FindColocationGroups
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass, GraphState, PassResult, Sequential
from graph_passes.grouping.default_groups import DefaultGroups
from graph_passes.grouping.model_rules import ModelRules
from graph_passes.grouping.single_consumer import SingleConsumerMerge
from graph_passes.op_graph import ReadOperations
from graph_passes.placement import Placement
from tests import graphs

tf1 = tf.compat.v1

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


class AddFetch(GraphPass):
    """Adds a fetch once."""

    def __init__(self, name: str) -> None:
        self._fetch = name

    def run(self, state: GraphState) -> PassResult:
        if self._fetch in state.fetches:
            return PassResult(state, modified=False)
        fetches = (*state.fetches, self._fetch)
        return PassResult(dataclasses.replace(state, fetches=fetches), modified=True)


class Fail(GraphPass):
    def run(self, state: GraphState) -> PassResult:
        raise GraphError("the culprit")


class FailDifferently(GraphPass):
    def run(self, state: GraphState) -> PassResult:
        raise KeyError("a bug")


def arrays_of(state: GraphState) -> dict[tuple[str, str], np.ndarray]:
    """All arrays in a state, by part and name."""
    return {
        (part, name): value
        for part in ("op_graph", "colocation", "grouping")
        if getattr(state, part) is not None
        for name, value in vars(getattr(state, part)).items()
        if isinstance(value, np.ndarray)
    }


class SequentialTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.state = GraphState(tf1.GraphDef())

    def test_passes_run_in_order_on_what_the_last_one_left(self):
        result = Sequential([AddFetch("a"), AddFetch("b")]).run(self.state)
        self.assertEqual(result.state.fetches, ("a", "b"))
        self.assertTrue(result.modified)
        self.assertEqual(self.state.fetches, ())

    def test_modified_says_whether_any_pass_did(self):
        once = Sequential([AddFetch("a")]).run(self.state).state
        self.assertTrue(Sequential([AddFetch("a"), AddFetch("b")]).run(once).modified)
        self.assertFalse(Sequential([AddFetch("a"), AddFetch("a")]).run(once).modified)
        self.assertFalse(Sequential([]).run(once).modified)
        self.assertIs(Sequential([]).run(once).state, once)

    def test_is_a_pass_itself(self):
        passes = Sequential([Sequential([AddFetch("a")]), AddFetch("b")])
        self.assertEqual(passes.run(self.state).state.fetches, ("a", "b"))
        self.assertEqual(passes.name, "Sequential")

    def test_error_names_the_pass_once(self):
        with self.assertRaises(GraphError) as caught:
            Sequential([AddFetch("a"), Sequential([Sequential([Fail()])])]).run(self.state)
        self.assertEqual(str(caught.exception), "the culprit")
        self.assertEqual(caught.exception.__notes__, ["raised by the pass Fail"])

    def test_bug_is_not_dressed_up(self):
        with self.assertRaises(KeyError) as caught:
            Sequential([FailDifferently()]).run(self.state)
        self.assertFalse(getattr(caught.exception, "__notes__", []))

    def test_garbage_collection_waits_for_the_last_pass(self):
        seen = []

        class Look(GraphPass):
            def run(self, state: GraphState) -> PassResult:
                seen.append(gc.isenabled())
                return PassResult(state, modified=False)

        Sequential([Sequential([Look()]), Look()]).run(self.state)
        self.assertEqual(seen, [False, False])
        self.assertTrue(gc.isenabled())
        with self.assertRaises(GraphError):
            Sequential([Fail()]).run(self.state)
        self.assertTrue(gc.isenabled())


class GraphStateTest(tf.test.TestCase):
    def test_new_graph_drops_what_was_known_of_the_old(self):
        graph_def = graphs.matmul_chain().graph.as_graph_def()
        known = Sequential([ReadOperations(), FindColocationGroups(), DefaultGroups()])
        state = known.run(GraphState(graph_def, ("result:0",))).state
        placement = Placement("", (DEVICE,), {})
        state = dataclasses.replace(state, placement=placement)
        other = state.with_graph(tf1.GraphDef())
        self.assertEqual(other.fetches, ("result:0",))
        self.assertIs(other.placement, placement)
        self.assertIsNone(other.op_graph)
        self.assertIsNone(other.colocation)
        self.assertIsNone(other.grouping)


class PurityTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_no_pass_changes_what_it_is_given(self, name):
        made = graphs.shared(name)
        graph_def = made.graph.as_graph_def()
        assignment = {node.name: DEVICE for node in graph_def.node}
        state = GraphState(
            graph_def,
            made.fetches,
            tuple(made.feeds),
            placement=Placement("", (DEVICE,), assignment),
        )
        reading = [
            ReadOperations(),
            FindColocationGroups(),
            DefaultGroups(),
            ModelRules(),
            SingleConsumerMerge(),
        ]
        for graph_pass in [*reading, Annotate(), ClearDevices(), DropDanglingColocation()]:
            before = state.graph_def.SerializeToString(deterministic=True)
            fields, arrays = dict(vars(state)), arrays_of(state)
            copies = {key: array.copy() for key, array in arrays.items()}
            result = graph_pass.run(state)
            self.assertEqual(state.graph_def.SerializeToString(deterministic=True), before)
            self.assertEqual(dict(vars(state)), fields, graph_pass.name)
            for key, array in arrays.items():
                self.assertAllEqual(array, copies[key], f"{key} by {graph_pass.name}")
            if not result.modified:
                self.assertIs(result.state, state, graph_pass.name)
            state = result.state


if __name__ == "__main__":
    tf.test.main()
