"""Tests of flattening the arguments of `Session.run` to names."""

from __future__ import annotations

import collections

import tensorflow as tf

from graph_passes.errors import GraphError
from tests.graph_parts import new_graph
from tf_placer.inputs.session_arguments import flatten_feeds, list_names

tf1 = tf.compat.v1


class Squared:
    """A type that a user registers with TensorFlow."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor


class SessionArgumentsTest(tf.test.TestCase):
    def test_errors_for_deep_or_large_values_are_short(self):
        itself: list = []
        itself.append(itself)
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        for items in (itself, deep):
            with self.assertRaisesRegex(GraphError, "nested too deeply, or holds itself"):
                list_names(items)
        with self.assertRaisesRegex(GraphError, "^a value of type set is neither"):
            list_names([set(range(1000))])

    def test_flattens_any_nesting(self):
        Pair = collections.namedtuple("Pair", ["first", "second"])
        with new_graph():
            a, b = (tf.constant(1.0, name=name) for name in "ab")
            sparse = tf.SparseTensor([[0]], [1.0], [2])
            for items, names in (
                ("a", ["a"]),
                (a, ["a:0"]),
                (a.op, ["a"]),
                ([a, [b, "c:1"]], ["a:0", "b:0", "c:1"]),
                ({"x": Pair(a, b), "y": ()}, ["a:0", "b:0"]),
                (sparse, [sparse.indices.name, sparse.values.name, sparse.dense_shape.name]),
                (tf.IndexedSlices(a, b), ["a:0", "b:0"]),
                (tf.IndexedSlices(a, b, a), ["a:0", "b:0", "a:0"]),
            ):
                self.assertEqual(list_names(items), names)
        for items in (None, [None], {"x": 1.5}, [["a"], 2]):
            with self.assertRaisesRegex(GraphError, "is neither an operation, a tensor nor"):
                list_names(items)

    def test_splits_registered_types(self):
        from tensorflow.python.client import session

        session.register_session_run_conversion_functions(
            Squared,
            lambda fetch: ([fetch.tensor], lambda values: values[0]),
            lambda key, value: [(key.tensor, value**0.5)],
        )
        self.addCleanup(session._REGISTERED_EXPANSIONS.pop, 0)
        with new_graph():
            squared = Squared(tf1.placeholder(tf.float32, [], name="x"))
        self.assertEqual(list_names([squared]), ["x:0"])
        self.assertEqual(flatten_feeds({squared: 4.0}), {"x:0": 2.0})

    def test_a_variable_stands_for_its_value(self):
        with new_graph():
            for use_resource, name in ((True, "r/Read/ReadVariableOp:0"), (False, "v:0")):
                variable = tf1.get_variable(name[0], [2], use_resource=use_resource)
                self.assertEqual(list_names(variable), [name])
                self.assertEqual(flatten_feeds({variable: 1}), {name: 1})

    def test_feeds_may_be_names_without_a_port(self):
        self.assertEqual(
            flatten_feeds({"x": 1, "y:1": 2, ("a", "b"): (3, 4)}),
            {"x:0": 1, "y:1": 2, "a:0": 3, "b:0": 4},
        )
        self.assertEqual(flatten_feeds(None), {})

    def test_a_tensor_that_is_fed_twice_and_bytes_for_a_name_are_refused(self):
        for feeds in ({"x": 1, "x:0": 1}, {"x": 1, ("y", "x"): (2, 3)}):
            with self.assertRaisesRegex(GraphError, "'x:0' is fed twice"):
                flatten_feeds(feeds)
        with self.assertRaisesRegex(GraphError, "^b'x' is neither"):
            list_names(b"x")


if __name__ == "__main__":
    tf.test.main()
