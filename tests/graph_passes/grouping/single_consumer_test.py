from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import networkx as nx
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.grouping.grouping import OPERATIONS, Grouping
from graph_passes.grouping.single_consumer import merge_single_consumers
from graph_passes.op_graph import OpGraph
from graph_passes.work import estimate_work
from tests import graphs
from tests.graph_passes.grouping import models

tf1 = tf.compat.v1

Sets = set[frozenset[int]]


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A graph and its groups before the merge."""

    op_graph: OpGraph
    colocation: ColocationGroups
    grouping: Grouping

    def merge(self, max_work_share: float) -> Grouping:
        return merge_single_consumers(self.op_graph, self.colocation, self.grouping, max_work_share)


def group_dag(inputs: Sequence[Collection[int]], sealed: Collection[int] = ()) -> Grouped:
    """Builds a graph of additions, in which every operation is a group."""
    with tf.Graph().as_default() as graph:
        values: list[tf.Tensor] = []
        for number, producers in enumerate(inputs):
            if producers:
                added = [values[p] for p in producers]
                values.append(tf.raw_ops.AddN(inputs=added, name=f"n{number}"))
            else:
                values.append(tf.constant([1.0, 2.0], name=f"n{number}"))
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    colocation = find_colocation_groups(op_graph)
    # Groups are numbered in topological order.
    grouping = Grouping(
        np.arange(len(inputs), dtype=np.int32),
        (OPERATIONS,) * len(inputs),
        np.isin([int(name[1:]) for name in colocation.first_names], list(sealed)),
    )
    return Grouped(op_graph, colocation, grouping)


def merge(grouped: Grouped, max_work_share: float = 1) -> Sets:
    """Merges groups, and returns the numbers of their operations."""
    grouping = grouped.merge(max_work_share)
    sets: dict[int, set[int]] = {}
    for name, group in zip(
        grouped.op_graph.names,
        grouping.expand_to_operations(grouped.colocation).tolist(),
        strict=True,
    ):
        sets.setdefault(group, set()).add(int(name[1:]))
    assert len(sets) == grouping.num_groups
    return {frozenset(each) for each in sets.values()}


def merge_by_definition(inputs: Sequence[Collection[int]], sealed: Collection[int] = ()) -> Sets:
    """Applies the rule of the paper, one merge after the other."""
    edges = [(p, c) for c, producers in enumerate(inputs) for p in producers]
    sets = {frozenset([i]) for i in range(len(inputs))}
    while True:
        for each in sorted(sets, key=min):
            if each & set(sealed):
                continue
            readers = {
                other for other in sets - {each} for p, c in edges if p in each and c in other
            }
            if len(readers) == 1:
                (reader,) = readers
                sets -= {each, reader}
                sets.add(each | reader)
                break
        else:
            return sets


def sets_of(*sets: Collection[int]) -> Sets:
    return {frozenset(each) for each in sets}


class SingleConsumerMergeTest(tf.test.TestCase, parameterized.TestCase):
    def test_chain_becomes_one_group(self):
        self.assertEqual(merge(group_dag([[], [0], [1], [2]])), sets_of({0, 1, 2, 3}))

    def test_diamond_becomes_one_group_from_its_end(self):
        inputs = [[], [0], [0], [1, 2]]
        self.assertEqual(merge(group_dag(inputs)), sets_of({0, 1, 2, 3}))

    def test_groups_with_two_consumers_stay_separate(self):
        inputs = [[], [0], [1], [0], [3]]
        self.assertEqual(merge(group_dag(inputs)), sets_of({0}, {1, 2}, {3, 4}))

    def test_repeated_reads_count_as_one_consumer(self):
        self.assertEqual(merge(group_dag([[], [0, 0]])), sets_of({0, 1}))

    def test_sealed_groups_absorb_but_never_move(self):
        chain = [[], [0], [1], [2]]
        self.assertEqual(merge(group_dag(chain, sealed=[1])), sets_of({0, 1}, {2, 3}))
        self.assertEqual(merge(group_dag(chain, sealed=[0, 1, 2, 3])), sets_of({0}, {1}, {2}, {3}))

    def test_groups_stay_in_the_sealed_group_they_join(self):
        # Group 1 joins 2; if 2 were not sealed, both would join 3.
        inputs = [[], [0], [1], [2], [0, 3]]
        self.assertEqual(merge(group_dag(inputs, sealed=[2])), sets_of({0}, {1, 2}, {3, 4}))

    def test_control_edges_are_ignored(self):
        with tf.Graph().as_default() as graph:
            first = tf.constant([1.0], name="n0")
            with tf.control_dependencies([first]):
                tf.constant([1.0], name="n1")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        colocation = find_colocation_groups(op_graph)
        grouped = dataclasses.replace(group_dag([[], []]), op_graph=op_graph, colocation=colocation)
        self.assertEqual(merge(grouped), sets_of({0}, {1}))

    def test_agrees_with_the_definition_on_random_graphs(self):
        random = np.random.default_rng(0)
        partly = 0
        for _ in range(150):
            count = int(random.integers(2, 13))
            density = random.uniform(0.5, 2.5)
            inputs = [
                sorted(
                    {int(random.integers(0, i)) for _ in range(random.poisson(density))}
                    if i
                    else []
                )
                for i in range(count)
            ]
            sealed = np.flatnonzero(random.random(count) < random.choice([0, 0.3])).tolist()
            expected = merge_by_definition(inputs, sealed)
            self.assertEqual(merge(group_dag(inputs, sealed)), expected, (inputs, sealed))
            partly += 1 < len(expected) < count
        self.assertGreater(partly, 60)

    def test_merging_again_changes_nothing(self):
        for made in (graphs.lstm(), graphs.small_convnet()):
            found = models.Groups(made).grouped
            again = merge_single_consumers(found.op_graph, found.colocation, found.grouping)
            self.assertAllEqual(again.group, found.grouping.group)

    def test_long_chain_needs_no_recursion(self):
        self.assertLen(merge(group_dag([[], *([i] for i in range(3000))])), 1)

    def test_groups_with_other_legal_devices_stay_separate(self):
        with tf.Graph().as_default() as graph:
            numbers = tf.constant([[1, 2], [3, 4]], name="n0")
            # This type has no GPU kernel.
            squares = tf.matmul(numbers, numbers, name="n1")
            tf.negative(squares, name="n2")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        grouped = dataclasses.replace(
            group_dag([[], [0], [1]]),
            op_graph=op_graph,
            colocation=find_colocation_groups(op_graph),
        )
        self.assertEqual(merge(grouped), sets_of({0}, {1}, {2}))


class WorkLimitTest(tf.test.TestCase, parameterized.TestCase):
    def chain_of_products(self, sizes: Sequence[int]) -> Grouped:
        """Builds a chain of products n0, n1, ... with work proportional to the sizes."""
        with tf.Graph().as_default() as graph:
            value = tf.zeros([1, 1000])
            for number, size in enumerate(sizes):
                weights = tf1.placeholder(tf.float32, [1000, 1000 * size])
                value = tf.matmul(value, weights, name=f"n{number}")[:, :1000]
        graph_def = graph.as_graph_def()
        weights = [node.name for node in graph_def.node if node.op == "Placeholder"]
        op_graph = OpGraph.from_graph_def(graph_def, [value.name], weights)
        colocation = find_colocation_groups(op_graph)
        needed = op_graph.needed[[op_graph.index[name] for name in colocation.first_names]]
        groups = np.where(needed, np.cumsum(needed) - 1, -1).astype(np.int32)
        count = int(needed.sum())
        grouping = Grouping(groups, (OPERATIONS,) * count, np.zeros(count, bool))
        return Grouped(op_graph, colocation, grouping)

    def product_groups(self, grouped: Grouped, share: float, count: int) -> list[list[int]]:
        of_operation = grouped.merge(share).expand_to_operations(grouped.colocation)
        found: dict[int, list[int]] = {}
        for number in range(count):
            group = int(of_operation[grouped.op_graph.index[f"n{number}"]])
            found.setdefault(group, []).append(number)
        return list(found.values())

    @parameterized.parameters(
        (1.0, [[0, 1, 2, 3]]),
        (0.51, [[0, 1], [2, 3]]),
        (0.30, [[0], [1], [2], [3]]),
    )
    def test_groups_stay_within_the_limit(self, share, expected):
        grouped = self.chain_of_products([1, 1, 1, 1])
        self.assertEqual(self.product_groups(grouped, share, 4), expected)

    def test_light_groups_join_heavy_consumers(self):
        grouped = self.chain_of_products([1000, 1, 1000])
        self.assertEqual(self.product_groups(grouped, 0.4, 3), [[0], [1, 2]])

    def test_share_of_one_is_no_limit_despite_rounding(self):
        random = np.random.default_rng(0)
        for _ in range(10):
            sizes = random.integers(1, 50, 12).tolist()
            self.assertLen(self.product_groups(self.chain_of_products(sizes), 1, 12), 1)

    def test_merged_groups_stay_within_the_limit(self):
        for made in (graphs.lstm(), graphs.residual_convnet(), models.attention_decoder("luong")):
            grouped = models.Groups(made).grouped
            work = np.where(grouped.op_graph.needed, estimate_work(grouped.op_graph), 0)
            of_operation = grouped.grouping.expand_to_operations(grouped.colocation)
            total = np.bincount(
                of_operation[of_operation >= 0],
                work[of_operation >= 0],
                grouped.grouping.num_groups,
            )
            free = ~grouped.grouping.sealed
            # Light groups may double the limit.
            self.assertLess(total[free].max(), 2 / 32 * work.sum())

    def test_many_light_operations_are_not_merged_without_bound(self):
        grouped = group_dag([[], *([i] for i in range(3000))])
        found = merge(grouped, 1 / 10)
        self.assertBetween(len(found), 5, 10)
        self.assertLessEqual(max(map(len, found)), 2 / 10 * 3000 + 1)

    @parameterized.parameters(0, -0.1, 1.1, float("nan"))
    def test_rejects_invalid_share(self, share):
        with self.assertRaisesRegex(ValueError, "max_work_share"):
            group_dag([[]]).merge(share)


class DegenerateTest(tf.test.TestCase):
    def test_forward_graph_is_one_group_without_limit_and_seals(self):
        random = np.random.default_rng(1)
        for _ in range(20):
            inputs = [[], *([int(random.integers(0, i))] for i in range(1, 8))]
            graph = nx.DiGraph((p, c) for c, producers in enumerate(inputs) for p in producers)
            ends = [n for n in graph if graph.out_degree(n) == 0]
            inputs.append(ends)
            self.assertLen(merge(group_dag(inputs)), 1)


if __name__ == "__main__":
    tf.test.main()
