from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.grouping.grouping import OPERATIONS, PINNED, Grouping, merge_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from tests.graph_passes.logical_devices import device_names

tf1 = tf.compat.v1

CPUS = device_names(2)
GPUS = tuple(f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2))


def chain(count: int) -> OpGraph:
    """Builds operations n0 to n<count - 1>, each reading the previous one."""
    with tf.Graph().as_default() as graph:
        value = tf.constant(1.0, name="n0")
        for number in range(1, count):
            value = tf.negative(value, name=f"n{number}")
    return OpGraph.from_graph_def(graph.as_graph_def())


def colocation_of(
    groups: list[int],
    *,
    cpu: list[bool] | None = None,
    gpu: list[bool] | None = None,
    devices: list[str] | None = None,
) -> ColocationGroups:
    count = max(groups) + 1
    devices = devices or [""] * count
    return ColocationGroups(
        np.array(groups, np.int32),
        tuple(f"first_{i}" for i in range(count)),
        np.array([bool(device) for device in devices]),
        tuple(devices),
        {"CPU": np.array(cpu or [True] * count), "GPU": np.array(gpu or [True] * count)},
    )


def grouping_of(groups: list[int], kinds: list[str] | None = None, sealed=()) -> Grouping:
    kinds = kinds or [OPERATIONS] * (max(groups) + 1)
    is_sealed = np.array([i in sealed for i in range(len(kinds))], bool)
    return Grouping(np.array(groups, np.int32), tuple(kinds), is_sealed)


class GroupingTest(tf.test.TestCase, parameterized.TestCase):
    def test_operations_have_the_group_of_their_colocation_group(self):
        colocation = colocation_of([0, 1, 0, 2])
        grouping = grouping_of([1, 0, -1])
        self.assertEqual(grouping.num_groups, 2)
        self.assertAllEqual(grouping.expand_to_operations(colocation), [1, 0, 1, -1])

    def test_group_is_legal_where_all_members_are(self):
        colocation = colocation_of(
            [0, 1, 2, 3], cpu=[True, True, False, False], gpu=[True, False, True, False]
        )
        cpu, gpu = 1, 2
        self.assertAllEqual(
            grouping_of([0, 1, 2, 3]).legal_types(colocation), [cpu | gpu, cpu, gpu, 0]
        )
        self.assertAllEqual(grouping_of([0, 0, 1, -1]).legal_types(colocation), [cpu, gpu])

    def test_finds_legal_devices_of_a_machine(self):
        colocation = colocation_of([0, 1, 2], gpu=[True, False, True])
        legal = grouping_of([0, 1, 1]).legal_devices(colocation, (*CPUS, *GPUS))
        self.assertAllEqual(legal, [[True] * 4, [True, True, False, False]])

    @parameterized.parameters(
        ("/device:GPU:1", 3), ("/gpu:0", 2), ("/cpu:1", 1), ("/device:CPU:*", 0), ("/job:ps", 0)
    )
    def test_pinned_groups_have_only_their_device(self, device, home):
        colocation = colocation_of([0, 1], devices=[device, ""], cpu=[False, True])
        grouping = grouping_of([0, 1], [PINNED, OPERATIONS])
        legal = grouping.legal_devices(colocation, (*CPUS, *GPUS))
        self.assertEqual(np.flatnonzero(legal[0]).tolist(), [home])
        self.assertTrue(legal[1].all())

    def test_error_names_groups_without_a_legal_device(self):
        colocation = colocation_of([0, 1, 2], gpu=[True, False, True])
        with self.assertRaisesRegex(GraphError, "GPU:0.*'first_1'"):
            grouping_of([0, 1, 2]).legal_devices(colocation, GPUS)

    def test_devices_of_unknown_type_are_illegal(self):
        unknown = "/job:localhost/replica:0/task:0/device:NPU:0"
        grouping, colocation = grouping_of([0]), colocation_of([0])
        self.assertAllEqual(grouping.legal_devices(colocation, (CPUS[0], unknown)), [[True, False]])
        with self.assertRaises(GraphError):
            grouping.legal_devices(colocation, (unknown,))


class MergeGroupsTest(tf.test.TestCase):
    def merge(self, grouping: Grouping, pairs, kinds=None, graph: OpGraph | None = None):
        graph = graph or chain(len(grouping.group))
        sets = UnionFind(grouping.num_groups)
        for a, b in pairs:
            sets.union(a, b)
        return merge_groups(graph, find_colocation_groups(graph), grouping, sets, kinds)

    def test_sets_become_groups_in_the_order_of_the_graph(self):
        new = self.merge(grouping_of([4, 3, 2, 1, 0]), [(0, 2), (3, 4)])
        self.assertAllEqual(new.group, [0, 0, 1, 2, 1])
        self.assertEqual(new.kinds, (OPERATIONS,) * 3)
        self.assertFalse(new.sealed.any())

    def test_groups_are_numbered_by_needed_operations(self):
        graph = chain(4).restrict(["n3"])
        needed = np.array([False, True, True, True])
        with self.subTest("all"):
            self.assertAllEqual(
                self.merge(grouping_of([0, 1, 2, 0]), [], graph=graph).group, [0, 1, 2, 0]
            )
        graph.needed[:] = needed
        self.assertAllEqual(
            self.merge(grouping_of([0, 1, 2, 0]), [], graph=graph).group, [2, 0, 1, 2]
        )

    def test_unneeded_operations_have_no_group(self):
        new = self.merge(grouping_of([-1, 0, 1, -1]), [(0, 1)])
        self.assertAllEqual(new.group, [-1, 0, 0, -1])

    def test_merged_group_inherits_seal_and_kind(self):
        grouping = grouping_of([0, 1, 2, 3], [OPERATIONS, "layer", OPERATIONS, PINNED], [1, 3])
        new = self.merge(grouping, [(0, 1)])
        self.assertEqual(new.kinds, ("layer", OPERATIONS, PINNED))
        self.assertEqual(new.sealed.tolist(), [True, False, True])

    def test_new_kinds_seal_groups(self):
        new = self.merge(grouping_of([0, 1, 2]), [(0, 1)], {0: "branch"})
        self.assertEqual(new.kinds, ("branch", OPERATIONS))
        self.assertEqual(new.sealed.tolist(), [True, False])


if __name__ == "__main__":
    tf.test.main()
