"""Tests of the views of a problem by group."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.environments.environment import Measurement
from tf_placer.machines.machine import Link
from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import (
    device_fill,
    device_secs,
    group_graph,
    group_layers,
    legal_devices,
    running_bytes,
    topological_groups,
)

_NAMES = ("cpu", "gpu:0", "gpu:1")


def make_problem(
    compute_secs: np.ndarray,
    groups: list[int],
    tensors: list[tuple[int, int, list[int]]],
    control_edges: list[tuple[int, int]] = (),
) -> PlacementProblem:
    """Makes a problem on up to three devices; tensors are (producer, bytes, consumers)."""
    names = _NAMES[: len(compute_secs[0])]
    return PlacementProblem(
        devices=tuple(ProblemDevice(name, "GPU", 10**9) for name in names),
        links=tuple(Link(*pair, 0.1, 1e9) for pair in itertools.permutations(names, 2)),
        operation_names=tuple(f"op {index}" for index in range(len(groups))),
        compute_secs=compute_secs,
        resident_bytes=[0] * len(groups),
        temp_bytes=[0] * len(groups),
        groups=groups,
        tensor_producers=[producer for producer, _, _ in tensors],
        tensor_bytes=[size for _, size, _ in tensors],
        consumer_start=np.cumsum([0, *(len(readers) for _, _, readers in tensors)]),
        consumers=[reader for _, _, readers in tensors for reader in readers],
        control_edges=control_edges,
    )


def six_operations() -> PlacementProblem:
    """Makes a problem with groups 3, 0, 2 and 5 in this order; groups 1 and 4 are empty.

    The topological order of the operations is 5, 3, 4, 1, 0, 2.
    """
    return make_problem(
        np.array([[1, 2], [math.inf, 4], [4, 3], [8, 9], [16, 15], [32, math.inf]], float),
        [5, 2, 2, 0, 3, 3],
        [
            (5, 40, [4, 3, 2]),  # Within group 3, to 0 and to 2.
            (5, 400, [3]),
            (4, 80, [2, 1, 1]),  # To group 2, once.
            (3, 7, [1]),
            (3, 0, [2]),
            (2, 100, []),
        ],
        [(1, 0)],
    )


class GroupGraphTest(parameterized.TestCase):
    def test_groups_keep_their_numbers_and_take_the_names_of_their_earliest_operations(self):
        groups = group_graph(six_operations())
        self.assertEqual(groups.num_groups, 6)
        self.assertEqual(groups.names, ("op 3", "group 1", "op 1", "op 5", "group 4", "op 0"))
        self.assertEqual(groups.kinds, ("operations",) * 6)
        self.assertEqual(groups.type_names, ("operation",))
        self.assertEqual(groups.type_counts.tolist(), [[1], [0], [2], [2], [0], [1]])
        self.assertEqual(groups.type_counts.dtype, np.int32)

    def test_types_are_those_of_the_problem(self):
        types = ["MatMul", "Add", "MatMul", "Add", "Exp", "Add"]
        groups = group_graph(dataclasses.replace(six_operations(), operation_types=types))
        self.assertEqual(groups.type_names, ("Add", "Exp", "MatMul"))
        self.assertEqual(
            groups.type_counts.tolist(),
            [[1, 0, 0], [0, 0, 0], [1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 1]],
        )
        self.assertEqual(groups.type_counts.dtype, np.int32)

    def test_work_is_the_time_of_operations_on_their_fastest_devices(self):
        self.assertEqual(group_graph(six_operations()).work.tolist(), [8, 0, 7, 47, 0, 1])

    def test_device_secs_are_the_sums_of_operations(self):
        np.testing.assert_array_equal(
            device_secs(six_operations()),
            [[8, 9], [0, 0], [math.inf, 7], [48, math.inf], [0, 0], [1, 2]],
        )

    def test_running_bytes_are_those_of_the_largest_operation(self):
        secs = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
        tensors = [(0, 10, [1, 1, 2]), (1, 20, [2, 3])]
        problem = dataclasses.replace(
            make_problem(secs, [0, 1, 0, 2], tensors),
            temp_bytes=[1, 2, 4, 8],
            local_bytes=[10, 15],
        )
        # Group 0: operation 0 makes 10, operation 2 reads 10 and at least 15, and needs 4. Group 1
        # reads 10, once, and makes 15. Operation 3 may take no time.
        self.assertEqual(running_bytes(problem).tolist(), [29, 27, 0])

    def test_device_fill_has_resident_memory_and_all_outputs(self):
        problem = dataclasses.replace(
            six_operations(),
            resident_bytes=[1, 2, 3, 4, 5, 6],
            local_bytes=[40, 0, 80, 7, 0, 100],
            devices=(ProblemDevice("cpu", "CPU", 100), ProblemDevice("gpu:0", "GPU", 0)),
        )
        # Operation 5 is in group 3 and makes 40 bytes; 4, there too, makes 80.
        self.assertEqual(
            (100 * device_fill(problem))[:, 0].round(9).tolist(),
            [[4, 11], [0, 0], [5, 105], [11, 131], [0, 0], [1, 1]],
        )
        # A device without memory counts as 1 byte.
        self.assertEqual(device_fill(problem)[:, 1, 0].tolist(), [4, 0, 5, 11, 0, 1])

    def test_a_tensor_crosses_once_to_each_group_that_reads_it(self):
        groups = group_graph(six_operations())
        self.assertEqual(groups.edges.tolist(), [[0, 2], [3, 0], [3, 2]])
        self.assertEqual(groups.edge_bytes.tolist(), [7, 440, 120])
        self.assertEqual((groups.edges.dtype, groups.edge_bytes.dtype), (np.int32, np.int64))

    def test_tensors_that_leave_a_group_are_vectors_of_4_byte_elements_most_bytes_first(self):
        self.assertEqual(
            group_graph(six_operations()).output_shapes,
            (((1,), (0,)), (), (), ((100,), (20,), (10,)), (), ()),
        )

    def test_shapes_are_those_of_the_problem(self):
        shapes = [(5, 2), (10, -1), (20,), (), (0, 3), (25,)]
        problem = dataclasses.replace(six_operations(), tensor_shapes=shapes)
        self.assertEqual(
            group_graph(problem).output_shapes,
            (((), (0, 3)), (), (), ((10, -1), (20,), (5, 2)), (), ()),
        )

    def test_layers_are_those_of_the_problem(self):
        problem = dataclasses.replace(six_operations(), layers=[2, 0, 0, 1, 0, 0])
        self.assertEqual(group_graph(problem).layers.tolist(), [1, 2, 0, 0, 2, 2])
        self.assertEqual(group_graph(problem).layers.dtype, np.int32)
        self.assertIsNone(group_layers(six_operations()))
        for known in (problem, six_operations()):
            self.assertEqual(topological_groups(known).tolist(), [3, 0, 2, 5, 1, 4])

    def test_layers_follow_the_order_of_the_operations(self):
        # 3, 0, 2, 5; groups without operations go with the last.
        self.assertEqual(group_graph(six_operations()).layers.tolist(), [1, 3, 2, 0, 3, 3])
        self.assertEqual(group_graph(six_operations()).layers.dtype, np.int32)

    def test_many_groups_and_tensors_do_not_overflow(self):
        count = 60_000
        problem = make_problem(
            np.ones([count, 1]),
            list(range(count - 1, -1, -1)),
            [(index, 4, [index + 1]) for index in range(count - 1)],
        )
        groups = group_graph(problem)
        expected = np.stack([np.arange(1, count), np.arange(count - 1)], axis=1)
        np.testing.assert_array_equal(groups.edges, expected)
        self.assertEqual(groups.layers.tolist(), list(range(count - 1, -1, -1)))

    def test_a_problem_without_tensors_has_no_edges(self):
        groups = group_graph(make_problem(np.ones([2, 2]), [0, 1], []))
        self.assertEqual(groups.edges.shape, (0, 2))
        self.assertEqual(groups.edge_bytes.shape, (0,))


class LegalDevicesTest(absltest.TestCase):
    def test_a_group_may_go_where_all_its_operations_may(self):
        self.assertEqual(
            legal_devices(six_operations()).tolist(),
            [[True, True], [True, True], [False, True], [True, False], [True, True], [True, True]],
        )


class HeuristicPlacersTest(parameterized.TestCase):
    @parameterized.parameters("single_device", "random", "expert")
    def test_propose_legal_placements_of_a_problem(self, name):
        problem = six_operations()
        legal = legal_devices(problem)
        placer = make_placer(name, group_graph(problem), legal, seed=3)
        placements = placer.propose(4)
        self.assertNotEmpty(placements)
        self.assertTrue(legal[np.arange(6), placements].all())
        placer.observe(placements, [Measurement((1.0,))] * len(placements))
        placer.propose(4)

    @parameterized.parameters(
        *("expert", "stretches", "branches", "metis", "scotch", "topological"),
        *("hill_climbing", "simulated_annealing", "learned_moves"),
    )
    def test_only_ratios_of_work_count(self, name):
        random = np.random.default_rng(0)
        readers = [sorted(set(random.integers(k + 1, 40, 2).tolist())) for k in range(39)]
        tensors = [(k, int(random.integers(1, 1000)), readers[k]) for k in range(39)]
        problem = make_problem(random.exponential(1.0, [40, 3]), list(range(40)), tensors)
        groups = group_graph(problem)
        # Scale by a power of 2, so that nothing is rounded.
        scaled = dataclasses.replace(groups, work=2.0**40 * groups.work)
        one, other = (
            make_placer(name, each, legal_devices(problem), seed=3, problem=problem)
            for each in (groups, scaled)
        )
        for _ in range(4):
            placements = one.propose(8)
            np.testing.assert_array_equal(other.propose(8), placements)
            measured = [Measurement((float(row @ np.arange(1, 41)),)) for row in placements]
            one.observe(placements, measured)
            other.observe(placements, measured)

    def test_contiguous_cuts_follow_the_graph_not_the_numbers_of_groups(self):
        # The groups of the chain are numbered at random, and some numbers are unused.
        numbers = [7, 0, 9, 4, 2, 11]
        problem = make_problem(
            np.ones([6, 2]), numbers, [(index, 4, [index + 1]) for index in range(5)]
        )
        placer = make_placer("expert", group_graph(problem), legal_devices(problem))
        along_the_chain = placer.propose(2)[:, numbers]
        self.assertEqual(along_the_chain.tolist(), [[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]])


if __name__ == "__main__":
    absltest.main()
