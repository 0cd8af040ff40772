"""Tests of the canonical form of steps."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.canonical_form import CanonicalForm, find_canonical_form
from graph_passes.colocation import find_colocation_groups
from graph_passes.op_graph import OpGraph
from tests import graphs
from tests.graph_parts import new_graph

tf1 = tf.compat.v1
FIRST, SECOND = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))


def find_form(graph, fetches, feeds=None) -> tuple[OpGraph, CanonicalForm]:
    graph_def = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
    feeds = {
        name if isinstance(name, str) else name.name: np.asarray(value)
        for name, value in (feeds or {}).items()
    }
    feeds = {name if ":" in name else f"{name}:0": value for name, value in feeds.items()}
    op_graph = OpGraph.from_graph_def(graph_def, fetches, list(feeds))
    form = find_canonical_form(op_graph, find_colocation_groups(op_graph), fetches, feeds)
    return op_graph, form


def rename(text: str) -> str:
    """Renames an operation, so that the order of names is another one."""
    name, colon, port = text.removeprefix("^").partition(":")
    return f"{'^' * text.startswith('^')}m/{name[::-1].replace('/', '.')}.x{colon}{port}"


def rename_graph(graph: tf.Graph, *, reverse: bool = False) -> tf1.GraphDef:
    """Renames all operations of a graph, and names that the operations share resources by."""
    graph_def = graph.as_graph_def()
    renamed = tf1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in reversed(graph_def.node) if reverse else graph_def.node:
        copy = renamed.node.add()
        copy.CopyFrom(node)
        copy.name = rename(node.name)
        copy.input[:] = [rename(each) for each in node.input]
        for attribute in ("shared_name", "frame_name"):
            if attribute in node.attr and node.attr[attribute].s:
                copy.attr[attribute].s += b"_renamed"
        if "_class" in copy.attr:
            copy.attr["_class"].list.s[:] = [
                b"loc:@" + rename(each.removeprefix(b"loc:@").decode()).encode()
                for each in node.attr["_class"].list.s
            ]
    return renamed


def chain(
    *,
    width: int = 3,
    rate: float = 0.1,
    seed: int = 1,
    transposed: bool = False,
    swapped: bool = False,
    axis: int = 0,
    device: str = "",
    colocated: bool = False,
    extra: bool = False,
) -> tf.Graph:
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        weights = tf1.get_variable("w", [4, width], use_resource=True)
        with tf.device(device):
            product = tf.matmul(x, weights, transpose_b=False, name="product")
        other = tf.matmul(product, product, transpose_a=True, transpose_b=transposed, name="other")
        noise = tf.random.uniform([], seed=seed, name="noise")
        with tf1.colocate_with(product.op if colocated else noise.op):
            scaled = tf.multiply(other, rate, name="scaled")
        parts = [tf.reduce_sum(scaled), noise]
        difference = tf.subtract(*(reversed(parts) if swapped else parts), name="difference")
        with tf.control_dependencies([difference, tf.reduce_max(product, axis=axis)]):
            tf.identity(difference, name="loss")
        if extra:
            tf1.summary.scalar("summary", difference)
    return graph


def towers(*, shared: bool = False, crossed: bool = False, together: bool = False) -> tf.Graph:
    """Two equal towers between an input and a group of updates."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [2, 2], name="x")
        sources = [tf.sin(x, name=f"source_{k}") for k in range(2)]
        if shared:
            sources[1] = sources[0]
        middle = [tf.exp(source, name=f"middle_{k}") for k, source in enumerate(sources)]
        if crossed:
            middle.reverse()
        ends = []
        for k in range(2):
            with tf1.colocate_with(middle[1 - k if together else k].op):
                ends.append(tf.add(sources[k], middle[k], name=f"end_{k}"))
        tf.group(*ends, name="train")
    return graph


class CanonicalFormTest(parameterized.TestCase, tf.test.TestCase):
    def digest(self, graph, fetches=("loss:0",), batch: int = 5) -> str:
        return find_form(graph, fetches, {"x:0": np.zeros([batch, 4], np.float32)})[1].digest

    @parameterized.parameters(*graphs.FACTORIES)
    def test_names_and_order_do_not_count(self, name):
        given = graphs.FACTORIES[name]()
        graph, form = find_form(given.graph, given.fetches, given.feeds)
        feeds = {rename(getattr(key, "name", key)): value for key, value in given.feeds.items()}
        fetches = [rename(each) for each in given.fetches]
        renamed, other = find_form(rename_graph(given.graph), fetches, feeds)
        self.assertEqual(form.digest, other.digest)
        self.assertEqual(form.labels, other.labels)
        # The operations correspond by position.
        names = [rename(graph.names[i]) for i in form.operations]
        self.assertEqual(names, [renamed.names[i] for i in other.operations])
        _, backward = find_form(rename_graph(given.graph, reverse=True), fetches[::-1], feeds)
        self.assertEqual(form.digest, backward.digest)

    def test_lists_each_operation_of_the_step_once(self):
        given = graphs.lstm()
        graph, form = find_form(given.graph, given.fetches, given.feeds)
        self.assertLen(set(form.operations.tolist()), len(form.operations))
        self.assertEqual(set(form.operations.tolist()), set(np.flatnonzero(graph.needed).tolist()))

    @parameterized.parameters(
        {"width": 6},
        {"transposed": True},
        {"swapped": True},
        {"axis": 1},
        {"device": "/cpu:0"},
        {"colocated": True},
    )
    def test_structure_counts(self, **change):
        self.assertNotEqual(self.digest(chain()), self.digest(chain(**change)))

    @parameterized.parameters({"rate": 0.2}, {"seed": 5}, {"extra": True})
    def test_data_seeds_and_other_operations_do_not_count(self, **change):
        self.assertEqual(self.digest(chain()), self.digest(chain(**change)))

    def test_fetches_and_shapes_of_feeds_count(self):
        digest = self.digest(chain())
        self.assertNotEqual(digest, self.digest(chain(), batch=6))
        for fetches in (("loss",), ("loss:0", "other:0"), ("difference:0",)):
            self.assertNotEqual(digest, self.digest(chain(), fetches))

    def test_labels_do_not_depend_on_shapes_of_feeds(self):
        forms = [
            find_form(chain(), ("loss:0",), {"x:0": np.zeros([batch, 4], np.float32)})[1]
            for batch in (5, 6)
        ]
        self.assertEqual(forms[0].labels, forms[1].labels)
        self.assertGreater(len(set(forms[0].labels)), 0.8 * len(forms[0].labels))

    def test_symmetrical_towers_have_one_form_and_others_do_not(self):
        x = {"x:0": np.zeros([2, 2], np.float32)}
        digest = find_form(towers(), ("train",), x)[1].digest
        for reverse in (False, True):
            renamed = rename_graph(towers(), reverse=reverse)
            fed = {rename("x:0"): x["x:0"]}
            self.assertEqual(find_form(renamed, (rename("train"),), fed)[1].digest, digest)
        for change in ({"shared": True}, {"together": True}, {"crossed": True}):
            _, form = find_form(towers(**change), ("train",), x)
            self.assertNotEqual(form.digest, digest, change)

    def test_operations_in_functions_may_have_other_names(self):
        def build(number: int, *, scale: int) -> tf.Graph:
            @tf.function
            def scale_value(value):
                return tf.multiply(value, scale, name=f"product_{number}")

            with new_graph() as graph:
                x = tf1.placeholder(tf.int32, [], name="x")
                tf.identity(scale_value(x), name="loss")
            return graph

        x = {"x:0": np.int32(2)}
        digest = find_form(build(1, scale=3), ("loss:0",), x)[1].digest
        self.assertEqual(find_form(build(2, scale=3), ("loss:0",), x)[1].digest, digest)
        self.assertNotEqual(find_form(build(1, scale=4), ("loss:0",), x)[1].digest, digest)


if __name__ == "__main__":
    tf.test.main()
