"""Tests of finding the operations that take elements of one stream in no order."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.races import find_races, list_values_of_chance
from graph_passes.unordered_takes import find_unordered_takes
from tests.graph_parts import new_graph

tf1 = tf.compat.v1


def two_towers(make_take: Callable[[], Callable[[], tf.Tensor]], *, ordered: bool = False):
    """Builds two losses of elements, which one function takes, and their sum, "total"."""
    with new_graph() as graph:
        take = make_take()
        losses = []
        for tower in range(2):
            with tf1.name_scope(f"tower_{tower}/"):
                with tf.control_dependencies(losses if ordered else []):
                    element = take()
                losses.append(tf.square(element, name="loss"))
        tf.add_n(losses, name="total")
        tf.constant(1.0, name="other")
    return graph


def take_from_data_set() -> Callable[[], tf.Tensor]:
    data = tf.data.Dataset.range(9).map(lambda i: tf.cast(i, tf.float32))
    return tf1.data.make_one_shot_iterator(data).get_next


def take_from_queue() -> Callable[[], tf.Tensor]:
    queue = tf1.FIFOQueue(9, tf.float32, [[]], name="queue")
    queue.enqueue_many([[1.0, 2.0]], name="fill")
    return queue.dequeue


def take_from_two_data_sets() -> Callable[[], tf.Tensor]:
    return lambda: take_from_data_set()()


def find(graph: tf.Graph, *fetches: str) -> list[tuple[str, list[str]]]:
    """Lists the types of the streams, and the scopes of their takers."""
    op_graph = OpGraph.from_graph_def(graph.as_graph_def(), fetches)
    return [
        (op_graph.type_of(found.stream), [op_graph.names[i].split("/")[0] for i in found.takers])
        for found in find_unordered_takes(op_graph)
    ]


class UnorderedTakesTest(tf.test.TestCase):
    def test_towers_that_share_an_iterator_take_in_no_order(self):
        towers = ["tower_0", "tower_1"]
        graph = two_towers(take_from_data_set)
        self.assertEqual(find(graph, "total"), [("OneShotIterator", towers)])
        # A step that needs one tower takes once.
        self.assertEmpty(find(graph, "tower_0/loss"))
        self.assertEqual(find(two_towers(take_from_queue), "total"), [("FIFOQueueV2", towers)])

    def test_takes_that_wait_for_each_other_are_in_order(self):
        for make_take in (take_from_data_set, take_from_queue):
            self.assertEmpty(find(two_towers(make_take, ordered=True), "total"))

    def test_streams_of_their_own_need_no_order(self):
        self.assertEmpty(find(two_towers(take_from_two_data_sets), "total"))

    def test_iterators_are_one_by_their_shared_name(self):
        def make_take():
            def take():
                iterator = tf1.data.Iterator.from_structure(
                    tf.float32, tf.TensorShape([]), shared_name="shared"
                )
                return iterator.get_next()

            return take

        self.assertLen(find(two_towers(make_take), "total"), 1)

    def test_what_is_computed_from_the_elements_is_a_matter_of_chance(self):
        graph = OpGraph.from_graph_def(
            two_towers(take_from_data_set).as_graph_def(), ["total", "other"]
        )
        by_chance = list_values_of_chance(graph, find_races(graph), find_unordered_takes(graph))
        self.assertContainsSubset(["tower_0/loss", "tower_1/loss", "total"], by_chance)
        self.assertNotIn("other", by_chance)


if __name__ == "__main__":
    tf.test.main()
