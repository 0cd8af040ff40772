"""Tests of the order of initializers, by running them in it."""

from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from tests.graph_parts import new_graph
from tf_placer.environments.initializer_order import order_initializers

tf1 = tf.compat.v1


def variable(name, value, use_resource):
    return tf1.get_variable(name, initializer=value, use_resource=use_resource)


class InitializerOrderTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_initializers_follow_the_variables_that_they_read(self, use_resource):
        with new_graph() as graph:
            first = variable("first", tf.ones([4]), use_resource)
            second = variable("second", first.value() * 2.0, use_resource)
            third = variable("third", tf.identity(second.value()) + first.value(), use_resource)
            other = variable("other", tf.zeros([4]), use_resource)
        order = order_initializers([v.initializer for v in (third, second, other, first)])
        self.assertEqual(
            [sorted(each.name for each in together) for together in order],
            [["first/Assign", "other/Assign"], ["second/Assign"], ["third/Assign"]],
        )
        for _ in range(10):
            with tf1.Session(graph=graph) as session:
                for together in order:
                    session.run(together)
                self.assertAllEqual(session.run(third.value()), [3.0] * 4)

    @parameterized.parameters(False, True)
    def test_independent_initializers_run_together(self, use_resource):
        with new_graph():
            variables = [variable(f"v{i}", tf.fill([2], float(i)), use_resource) for i in range(3)]
            values = tf.lookup.KeyValueTensorInitializer(["a"], [1])
            tf.lookup.StaticHashTable(values, 0)
            initializers = [each.initializer for each in variables]
            initializers += tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS)
        [together] = order_initializers(initializers)
        self.assertSameElements(together, initializers)
        self.assertEqual(order_initializers([]), [])

    def test_initializers_that_need_each_other_run_together(self):
        with new_graph():
            first = variable("first", 1.0, use_resource=True)
            second = variable("second", first.value(), use_resource=True)
            back = first.assign(second.value(), read_value=False)
        [together] = order_initializers([back, second.initializer])
        self.assertLen(together, 2)

    def test_iterators_come_after_the_tables_of_their_data_and_before_what_takes_from_them(self):
        with new_graph() as graph:
            content = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
            table = tf.lookup.StaticHashTable(content, 0)
            padding = table.lookup(tf.constant("b"))
            data = tf.data.Dataset.from_tensors(tf.constant(["a", "b"])).map(table.lookup).repeat()
            data = data.padded_batch(2, padded_shapes=[3], padding_values=padding)
            first = tf1.data.make_initializable_iterator(data)
            taken = tf.data.Dataset.from_tensors(first.get_next())
            second = tf1.data.make_initializable_iterator(taken)
            weights = variable("weights", second.get_next(), use_resource=True)
            [fill] = tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS)
        last_first = [weights.initializer, second.initializer, first.initializer, fill]
        order = order_initializers(last_first)
        self.assertEqual(order, [[each] for each in reversed(last_first)])
        with tf1.Session(graph=graph) as session:
            for together in order:
                session.run(together)
            self.assertAllEqual(session.run(weights.value()), [[1, 2, 2]] * 2)

    def test_a_value_read_where_it_is_initialized_counts(self):
        # As averages of variables begin.
        with new_graph():
            first = variable("first", tf.ones([4]), use_resource=False)
            second = variable("second", first.initialized_value(), use_resource=False)
        order = order_initializers([second.initializer, first.initializer])
        self.assertEqual(order, [[first.initializer], [second.initializer]])


if __name__ == "__main__":
    tf.test.main()
