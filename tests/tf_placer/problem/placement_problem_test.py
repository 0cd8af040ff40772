"""Tests of the checks of a placement problem in memory."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import re

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice, ProblemError

_CPU, _GPU = ProblemDevice("cpu", "CPU", 100, 2), ProblemDevice("gpu", "GPU", 50)
_THERE, _BACK = Link("cpu", "gpu", 0.5, 10.0), Link("gpu", "cpu", 0.0, 20.0, "bus")


def entries(**changes) -> dict[str, object]:
    """Makes the columns of three operations on two devices; "b" reads both tensors of "a"."""
    return {
        "devices": [_CPU, _GPU],
        "links": [_THERE, _BACK],
        "operation_names": ["a", "b", "c"],
        "compute_secs": [[1, np.inf], [2, 3], [4, 5]],
        "resident_bytes": [1, 2, 3],
        "temp_bytes": [0, 0, 7],
        "groups": [0, 0, 2],
        "tensor_producers": [0, 0],
        "tensor_bytes": [8, 9],
        "consumer_start": [0, 1, 3],
        "consumers": [1, 1, 2],
        "control_edges": [[1, 2]],
    } | changes


NO_TENSORS = {
    "tensor_producers": [],
    "tensor_bytes": [],
    "consumer_start": [0],
    "consumers": [],
}


def chain_of(count: int, **changes) -> PlacementProblem:
    """Makes a chain of operations of one group on one device, each reading the one before."""
    return PlacementProblem(
        **{
            "devices": [_CPU],
            "links": [],
            "operation_names": [f"operation {index}" for index in range(count)],
            "compute_secs": np.ones([count, 1]),
            "resident_bytes": np.zeros(count, int),
            "temp_bytes": np.zeros(count, int),
            "groups": np.zeros(count, int),
            "tensor_producers": np.arange(count - 1),
            "tensor_bytes": np.ones(count - 1, int),
            "consumer_start": np.arange(count),
            "consumers": np.arange(1, count),
            "control_edges": [],
        }
        | changes
    )


def adjacency(edges: np.ndarray, count: int) -> np.ndarray:
    matrix = np.zeros([count, count], np.int64)
    matrix[edges[:, 0], edges[:, 1]] = 1
    return matrix


class SoundProblemTest(absltest.TestCase):
    def test_arrays_are_converted_copied_and_made_read_only(self):
        given = np.array([1, 2, 3])
        problem = PlacementProblem(**entries(resident_bytes=given))
        given[0] = 99
        self.assertEqual(problem.resident_bytes.tolist(), [1, 2, 3])
        types = {
            field.name: getattr(problem, field.name).dtype
            for field in dataclasses.fields(problem)
            if isinstance(getattr(problem, field.name), np.ndarray)
        }
        wide = {"compute_secs": "float64"} | dict.fromkeys(
            ("local_bytes", "resident_bytes", "temp_bytes", "tensor_bytes"), "int64"
        )
        self.assertEqual(types, dict.fromkeys(types, np.dtype("int32")) | wide)
        self.assertLen(types, 10)
        for name in (*types, "edges", "order"):
            with self.assertRaises(ValueError):
                getattr(problem, name)[0] = 1

    def test_numbers_of_devices_and_links_are_converted(self):
        device = ProblemDevice("cpu", "CPU", np.int32(7), np.int64(2))
        link = Link("cpu", "gpu", 0, np.float32(0.5))
        problem = PlacementProblem(**entries(devices=[device, _GPU], links=[link, _BACK]))
        self.assertEqual(problem.devices[0], ProblemDevice("cpu", "CPU", 7, 2))
        self.assertIs(type(problem.devices[0].memory_bytes), int)
        self.assertIs(type(problem.devices[0].slots), int)
        self.assertIs(type(problem.links[0].latency_secs), float)
        self.assertIs(type(problem.links[0].bandwidth_bytes_per_sec), float)

    def test_counts(self):
        problem = PlacementProblem(**entries())
        self.assertEqual(
            (problem.num_operations, problem.num_devices, problem.num_tensors, problem.num_groups),
            (3, 2, 2, 3),
        )
        self.assertIsInstance(problem.devices, tuple)
        self.assertIsInstance(problem.links, tuple)
        self.assertIsInstance(problem.operation_names, tuple)

    def test_it_is_shown_by_its_counts(self):
        shown = repr(PlacementProblem(**entries()))
        self.assertRegex(
            shown, r"^<PlacementProblem: 3 operations in \d groups, \d tensors, \d dev"
        )

    def test_edges_are_reads_and_control_edges(self):
        problem = PlacementProblem(**entries())
        self.assertEqual(problem.edges.tolist(), [[0, 1], [0, 1], [0, 2], [1, 2]])

    def test_a_single_operation_on_one_device_is_valid(self):
        problem = chain_of(1)
        self.assertEqual(problem.control_edges.shape, (0, 2))
        self.assertEqual(problem.order.tolist(), [0])

    def test_repeated_consumers_and_control_edges_are_allowed(self):
        problem = PlacementProblem(**entries(consumers=[1, 1, 1], control_edges=[[1, 2], [1, 2]]))
        self.assertEqual(problem.order.tolist(), [0, 1, 2])

    def test_operations_are_in_topological_order_and_ties_go_to_the_lowest_index(self):
        # The edges are 4 -> 0 -> 2 and 3 -> 1; ties go to the lowest index.
        problem = PlacementProblem(
            **entries(
                operation_names=list("abcde"),
                compute_secs=np.ones([5, 2]),
                resident_bytes=[0] * 5,
                temp_bytes=[0] * 5,
                groups=[0] * 5,
                tensor_producers=[4, 0],
                consumer_start=[0, 1, 2],
                consumers=[0, 2],
                control_edges=[[3, 1]],
            )
        )
        self.assertEqual(problem.order.tolist(), [3, 1, 4, 0, 2])

    def test_the_order_of_random_graphs_respects_their_edges(self):
        rng = np.random.default_rng(1)
        for _ in range(50):
            count = int(rng.integers(2, 30))
            names = rng.permutation(count)
            edges = np.sort(rng.integers(0, count, [40, 2]), axis=1)
            edges = names[edges[edges[:, 0] != edges[:, 1]]]
            problem = chain_of(count, **NO_TENSORS, control_edges=edges)
            self.assertCountEqual(problem.order.tolist(), range(count))
            place = np.argsort(problem.order)
            self.assertTrue((place[edges[:, 0]] < place[edges[:, 1]]).all())

    def test_a_problem_survives_pickling(self):
        problem = pickle.loads(pickle.dumps(PlacementProblem(**entries())))
        self.assertEqual(problem.devices, (_CPU, _GPU))
        self.assertEqual(problem.consumers.tolist(), [1, 1, 2])

    def test_a_problem_of_100000_operations_is_checked_in_any_order(self):
        count = 100_000
        names = np.random.default_rng(0).permutation(count)
        problem = chain_of(count, tensor_producers=names[:-1], consumers=names[1:])
        self.assertEqual(problem.order.tolist(), names.tolist())


class RefusedProblemTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("no_devices", {"devices": []}, "devices is empty"),
        ("no_operations", {"operation_names": []}, "operations is empty"),
        (
            "short_row",
            {"compute_secs": [[1], [2], [3]]},
            r"compute_secs must be of shape \[3, 2\], not \[3, 1\]",
        ),
        ("ragged", {"compute_secs": [[1, 2], [2], [3]]}, "compute_secs is no array"),
        ("flat", {"resident_bytes": 3}, r"resident_bytes must be of shape \[3\], not \[\]"),
        ("resident", {"resident_bytes": [1]}, r"resident_bytes must be of shape \[3\], not \[1\]"),
        ("temp", {"temp_bytes": [1] * 4}, r"temp_bytes must be of shape \[3\], not \[4\]"),
        ("groups", {"groups": []}, r"groups must be of shape \[3\], not \[0\]"),
        ("tensor_bytes", {"tensor_bytes": [1]}, r"tensor_bytes must be of shape \[2\], not \[1\]"),
        (
            "local_bytes",
            {"local_bytes": [8, 10]},
            r"tensors\[1\].local_bytes is 10 \(made by operation .*\): .* from 0 to those of",
        ),
        (
            "transfer_share",
            {"devices": [_CPU, dataclasses.replace(_GPU, transfer_share=1.5)]},
            r"devices\[1\].transfer_share is 1.5 .*: it must be a number from 0 to 1",
        ),
        (
            "transfer_overhead_secs",
            {"devices": [_CPU, dataclasses.replace(_GPU, transfer_overhead_secs=math.inf)]},
            r"devices\[1\].transfer_overhead_secs is Infinity .*: it must be a finite",
        ),
        ("starts", {"consumer_start": [0, 3]}, r"consumer_start must be of shape \[3\]"),
        ("starts_late", {"consumer_start": [1, 2, 3]}, "consumer_start must rise from 0 to 3"),
        ("starts_fall", {"consumer_start": [0, 4, 3]}, "consumer_start must rise from 0 to 3"),
        ("ends_early", {"consumer_start": [0, 1, 2]}, "consumer_start must rise from 0 to 3"),
        ("triples", {"control_edges": [[0, 1, 2]]}, r"control_edges must be of shape \[1, 2\]"),
        (
            "fractions",
            {"groups": [0, 0.5, 1]},
            "groups must be an array of whole numbers, not of fl",
        ),
        (
            "booleans",
            {"groups": [True] * 3},
            "groups must be an array of whole numbers, not of bool",
        ),
        ("texts", {"compute_secs": [["1", "2"]] * 3}, "compute_secs must be an array of numbers"),
        (
            "beyond_int64",
            {"resident_bytes": np.array([0, 0, 2**63], np.uint64)},
            "resident_bytes must fit into int64, and 9223372036854775808 does not",
        ),
        (
            "beyond_int32",
            {"consumers": [1, 2**40, 2]},
            r'tensors\[1\].consumers\[0\] is 1099511627776 \(made by operation "a"\): it must be '
            "the index of an operation, 0 to 2",
        ),
        ("slots", {"devices": [_CPU, dataclasses.replace(_GPU, slots=1.5)]}, r"devices\[1\].slots"),
        (
            "bandwidth",
            {"links": [_THERE, dataclasses.replace(_BACK, bandwidth_bytes_per_sec=np.inf)]},
            r"links\[1\].bandwidth_bytes_per_sec is Infinity",
        ),
        (
            "fixed",
            {"devices": [_CPU, dataclasses.replace(_GPU, fixed_secs=-1.0)]},
            r"devices\[1\].fixed_secs is -1.0 .*: it must be a finite",
        ),
        ("batch", {"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        ("minus_infinity", {"compute_secs": -np.inf * np.ones([3, 2])}, "is -Infinity"),
    )
    def test_is_refused_with_one_sentence(self, changes, message):
        with self.assertRaisesRegex(ProblemError, message) as caught:
            PlacementProblem(**entries(**changes))
        self.assertNotIn("\n", str(caught.exception))

    def test_each_operation_of_a_cycle_waits_for_the_one_named_before_it(self):
        rng = np.random.default_rng(2)
        found = 0
        for _ in range(50):
            edges = rng.integers(0, 12, [12, 2])
            cyclic = any(
                np.linalg.matrix_power(adjacency(edges, 12), k).trace() for k in range(1, 13)
            )
            try:
                chain_of(12, **NO_TENSORS, control_edges=edges)
                self.assertFalse(cyclic)
            except ProblemError as error:
                self.assertTrue(cyclic)
                cycle = [int(index) for index in re.findall(r"operations\[(\d+)\]", str(error))]
                self.assertEqual(cycle[0], cycle[-1])
                self.assertLen(set(cycle), len(cycle) - 1)
                for pair in itertools.pairwise(cycle):
                    self.assertIn(list(pair), edges.tolist())
                found += 1
        self.assertBetween(found, 10, 45)

    def test_a_cycle_may_go_through_tensors_and_control_edges(self):
        with self.assertRaises(ProblemError) as caught:
            PlacementProblem(**entries(consumers=[1, 1, 1], control_edges=[[1, 2], [2, 0]]))
        self.assertEqual(
            str(caught.exception),
            'the operations form a cycle: operations[1] ("b") -> operations[2] ("c") -> '
            'operations[0] ("a") -> operations[1] ("b")',
        )

    def test_a_cycle_is_found_among_operations_before_and_behind_it(self):
        with self.assertRaises(ProblemError) as caught:
            chain_of(6, control_edges=[[3, 2]])
        named = {
            f"operation {index}"
            for index in range(6)
            if f'"operation {index}"' in str(caught.exception)
        }
        self.assertEqual(named, {"operation 2", "operation 3"})

    def test_an_operation_that_waits_for_itself_is_a_cycle(self):
        with self.assertRaisesRegex(
            ProblemError, r'operations\[1\] \("b"\) -> operations\[1\] \("b"\)$'
        ):
            PlacementProblem(**entries(control_edges=[[1, 1]]))

    def test_a_cycle_of_100000_operations_is_found_and_cut_short(self):
        count = 100_000
        with self.assertRaisesRegex(ProblemError, r"-> 99992 more -> operations\[") as caught:
            chain_of(count, control_edges=[[count - 1, 0]])
        self.assertLess(len(str(caught.exception)), 1000)

    def test_sums_that_overflow_are_refused(self):
        with self.assertRaisesRegex(ProblemError, "add up to more than 2\\*\\*62"):
            PlacementProblem(**entries(resident_bytes=[2**62, 2**62, 2**62]))
        with self.assertRaisesRegex(ProblemError, "add up to infinity"):
            PlacementProblem(**entries(compute_secs=np.full([3, 2], 1e308)))
        slow = dataclasses.replace(_BACK, bandwidth_bytes_per_sec=5e-324)
        with self.assertRaisesRegex(ProblemError, "add up to infinity"):
            PlacementProblem(**entries(links=[_THERE, slow]))


if __name__ == "__main__":
    absltest.main()
