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

Parts = set[frozenset[int]]


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A graph with groups that are to be merged."""

    op_graph: OpGraph
    colocation: ColocationGroups
    grouping: Grouping

    def merged(self, max_work_share: float) -> Grouping:
        return merge_single_consumers(self.op_graph, self.colocation, self.grouping, max_work_share)


def grouped_dag(inputs: Sequence[Collection[int]], sealed: Collection[int] = ()) -> Grouped:
    """A graph in which operation i adds up its inputs, each a group of its own."""
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
    # Numbered as every grouping is, in topological order.
    grouping = Grouping(
        np.arange(len(inputs), dtype=np.int32),
        (OPERATIONS,) * len(inputs),
        np.isin([int(name[1:]) for name in colocation.first_names], list(sealed)),
    )
    return Grouped(op_graph, colocation, grouping)


def merged(grouped: Grouped, max_work_share: float = 1) -> Parts:
    """Merges groups, and names the results by the numbers of their operations."""
    grouping = grouped.merged(max_work_share)
    parts: dict[int, set[int]] = {}
    for name, group in zip(
        grouped.op_graph.names, grouping.of_operations(grouped.colocation).tolist(), strict=True
    ):
        parts.setdefault(group, set()).add(int(name[1:]))
    assert len(parts) == grouping.num_groups
    return {frozenset(part) for part in parts.values()}


def merged_by_definition(inputs: Sequence[Collection[int]], sealed: Collection[int] = ()) -> Parts:
    """The rule as the paper has it, one merge after the other."""
    edges = [(p, c) for c, producers in enumerate(inputs) for p in producers]
    parts = {frozenset([i]) for i in range(len(inputs))}
    while True:
        for part in sorted(parts, key=min):
            if part & set(sealed):
                continue
            readers = {
                other for other in parts - {part} for p, c in edges if p in part and c in other
            }
            if len(readers) == 1:
                (reader,) = readers
                parts -= {part, reader}
                parts.add(part | reader)
                break
        else:
            return parts


def parts_of(*parts: Collection[int]) -> Parts:
    return {frozenset(part) for part in parts}


class SingleConsumerMergeTest(tf.test.TestCase, parameterized.TestCase):
    def test_chain_becomes_one_group(self):
        self.assertEqual(merged(grouped_dag([[], [0], [1], [2]])), parts_of({0, 1, 2, 3}))

    def test_diamond_becomes_one_group_from_its_end(self):
        inputs = [[], [0], [0], [1, 2]]
        self.assertEqual(merged(grouped_dag(inputs)), parts_of({0, 1, 2, 3}))

    def test_two_ends_stay_apart_from_what_both_read(self):
        inputs = [[], [0], [1], [0], [3]]
        self.assertEqual(merged(grouped_dag(inputs)), parts_of({0}, {1, 2}, {3, 4}))

    def test_same_tensor_read_twice_is_one_reader(self):
        self.assertEqual(merged(grouped_dag([[], [0, 0]])), parts_of({0, 1}))

    def test_sealed_absorbs_and_never_moves(self):
        chain = [[], [0], [1], [2]]
        self.assertEqual(merged(grouped_dag(chain, sealed=[1])), parts_of({0, 1}, {2, 3}))
        self.assertEqual(
            merged(grouped_dag(chain, sealed=[0, 1, 2, 3])), parts_of({0}, {1}, {2}, {3})
        )

    def test_what_reaches_a_sealed_group_stays_with_it(self):
        # 1 goes to 2, which is sealed; otherwise it would go on to 3.
        inputs = [[], [0], [1], [2], [0, 3]]
        self.assertEqual(merged(grouped_dag(inputs, sealed=[2])), parts_of({0}, {1, 2}, {3, 4}))

    def test_control_edges_are_no_readers(self):
        with tf.Graph().as_default() as graph:
            first = tf.constant([1.0], name="n0")
            with tf.control_dependencies([first]):
                tf.constant([1.0], name="n1")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        colocation = find_colocation_groups(op_graph)
        grouped = dataclasses.replace(
            grouped_dag([[], []]), op_graph=op_graph, colocation=colocation
        )
        self.assertEqual(merged(grouped), parts_of({0}, {1}))

    def test_random_graphs_merge_as_defined(self):
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
            expected = merged_by_definition(inputs, sealed)
            self.assertEqual(merged(grouped_dag(inputs, sealed)), expected, (inputs, sealed))
            partly += 1 < len(expected) < count
        self.assertGreater(partly, 60)

    def test_merging_again_changes_nothing(self):
        for made in (graphs.lstm(), graphs.small_convnet()):
            found = models.Groups(made).grouped
            again = merge_single_consumers(found.op_graph, found.colocation, found.grouping)
            self.assertAllEqual(again.group, found.grouping.group)

    def test_long_chain_needs_no_recursion(self):
        self.assertLen(merged(grouped_dag([[], *([i] for i in range(3000))])), 1)

    def test_groups_that_may_not_go_to_the_same_devices_stay_apart(self):
        with tf.Graph().as_default() as graph:
            numbers = tf.constant([[1, 2], [3, 4]], name="n0")
            # This has no kernel for a GPU.
            squares = tf.matmul(numbers, numbers, name="n1")
            tf.negative(squares, name="n2")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        grouped = dataclasses.replace(
            grouped_dag([[], [0], [1]]),
            op_graph=op_graph,
            colocation=find_colocation_groups(op_graph),
        )
        self.assertEqual(merged(grouped), parts_of({0}, {1}, {2}))


class WorkLimitTest(tf.test.TestCase, parameterized.TestCase):
    def chain_of_products(self, sizes: Sequence[int]) -> Grouped:
        """Products n0, n1 and so on, of work proportional to the sizes."""
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
        of_operation = grouped.merged(share).of_operations(grouped.colocation)
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
    def test_heavy_groups_stay_within_their_share(self, share, expected):
        grouped = self.chain_of_products([1, 1, 1, 1])
        self.assertEqual(self.product_groups(grouped, share, 4), expected)

    def test_light_goes_with_its_reader_however_heavy_that_is(self):
        grouped = self.chain_of_products([1000, 1, 1000])
        self.assertEqual(self.product_groups(grouped, 0.4, 3), [[0], [1, 2]])

    def test_no_limit_is_none_despite_rounding(self):
        random = np.random.default_rng(0)
        for _ in range(10):
            sizes = random.integers(1, 50, 12).tolist()
            self.assertLen(self.product_groups(self.chain_of_products(sizes), 1, 12), 1)

    def test_merged_groups_hold_no_more_than_their_share(self):
        for made in (graphs.lstm(), graphs.residual_convnet(), models.attention_decoder("luong")):
            grouped = models.Groups(made).grouped
            work = np.where(grouped.op_graph.needed, estimate_work(grouped.op_graph), 0)
            of_operation = grouped.grouping.of_operations(grouped.colocation)
            total = np.bincount(
                of_operation[of_operation >= 0],
                work[of_operation >= 0],
                grouped.grouping.num_groups,
            )
            free = ~grouped.grouping.sealed
            # What is light may come on top.
            self.assertLess(total[free].max(), 2 / 32 * work.sum())

    def test_many_light_operations_are_not_one_group(self):
        grouped = grouped_dag([[], *([i] for i in range(3000))])
        found = merged(grouped, 1 / 10)
        self.assertBetween(len(found), 5, 10)
        self.assertLessEqual(max(map(len, found)), 2 / 10 * 3000 + 1)

    @parameterized.parameters(0, -0.1, 1.1, float("nan"))
    def test_share_must_be_one(self, share):
        with self.assertRaisesRegex(ValueError, "max_work_share"):
            grouped_dag([[]]).merged(share)


class DegenerateTest(tf.test.TestCase):
    def test_forward_graph_with_one_end_would_be_one_group_without_limit_and_seals(self):
        random = np.random.default_rng(1)
        for _ in range(20):
            inputs = [[], *([int(random.integers(0, i))] for i in range(1, 8))]
            graph = nx.DiGraph((p, c) for c, producers in enumerate(inputs) for p in producers)
            ends = [n for n in graph if graph.out_degree(n) == 0]
            inputs.append(ends)
            self.assertLen(merged(grouped_dag(inputs)), 1)


if __name__ == "__main__":
    tf.test.main()
