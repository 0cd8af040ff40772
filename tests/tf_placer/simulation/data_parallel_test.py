"""Tests of the bound of data-parallel steps."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.data_parallel import compute_data_parallel_bound, count_gradient_bytes


def training_problem(
    num_devices: int, *, bandwidth: float = 1.0, channel: str | None = None
) -> PlacementProblem:
    """Makes a step of 6 s: a variable of 100 bytes, its gradient of 12 bytes, and the update."""
    problem = make_problem(
        [[0.0] * num_devices, [4.0] * num_devices, [2.0] * num_devices],
        tensors=[(0, 100, [1, 2]), (1, 12, [2])],
        resident_bytes=[100, 0, 0],
        bandwidth_bytes_per_sec=bandwidth,
        channel=channel,
    )
    return dataclasses.replace(problem, operation_types=("VariableV2", "MatMul", "ApplyAdam"))


def compute_bound(problem: PlacementProblem, peak_bytes: int = 0) -> float | None:
    """Computes the bound of a step that takes 6 s on each device."""
    count = problem.num_devices
    peak_bytes = max(peak_bytes, int(problem.resident_bytes.sum()))
    return compute_data_parallel_bound(problem, np.full(count, 6.0), np.full(count, peak_bytes))


class DataParallelTest(absltest.TestCase):
    def test_the_slower_of_computing_and_sending_bounds_the_step(self):
        # Each of two devices sends 2 * 1/2 * 12 bytes, which takes 12 s or 0.12 s.
        self.assertEqual(compute_bound(training_problem(2)), 12.0)
        self.assertEqual(compute_bound(training_problem(2, bandwidth=100.0)), 3.0)

    def test_a_faster_device_takes_a_larger_share(self):
        # Devices of 6 s and of 3 s share the batch as 1 to 2, so that both compute for 2 s.
        problem = training_problem(2, bandwidth=1e6)
        secs = compute_data_parallel_bound(problem, np.array([6.0, 3.0]), np.array([100, 100]))
        self.assertAlmostEqual(secs, 2.0)
        shares = np.linspace(0.0, 1.0, 1001)
        self.assertAlmostEqual(secs, np.maximum(6.0 * shares, 3.0 * (1 - shares)).min(), delta=0.01)

    def test_examples_are_not_divided(self):
        # One of two devices computes 2 of 3 examples, of 2 s each; one of four devices has none.
        for count, examples, expected_secs in ((2, 3, 4.0), (4, 3, 2.0), (4, 1, 6.0), (4, 8, 1.5)):
            problem = training_problem(count, bandwidth=1e6)
            batch = dataclasses.replace(problem, batch_size=examples)
            self.assertAlmostEqual(compute_bound(batch), expected_secs)
        # Try all divisions of 7 examples among devices of 6 s, 3 s and 2 s.
        problem = dataclasses.replace(training_problem(3, bandwidth=1e6), batch_size=7)
        secs = np.array([6.0, 3.0, 2.0])
        found_secs = compute_data_parallel_bound(problem, secs, np.full(3, 100))
        counts = itertools.product(range(8), repeat=3)
        tried = [max(np.array(each) / 7 * secs) for each in counts if sum(each) == 7]
        self.assertAlmostEqual(found_secs, min(tried))

    def test_what_any_share_takes_does_not_shrink(self):
        problem = training_problem(2, bandwidth=1e6)
        devices = tuple(dataclasses.replace(each, fixed_secs=4.0) for each in problem.devices)
        problem = dataclasses.replace(problem, devices=devices)
        # Each of two devices takes 4 s, and half of the other 2 s.
        self.assertEqual(compute_bound(problem), 5.0)
        # No more than the whole step is fixed.
        longer = tuple(dataclasses.replace(each, fixed_secs=9.0) for each in problem.devices)
        self.assertEqual(compute_bound(dataclasses.replace(problem, devices=longer)), 6.0)

    def test_devices_on_which_any_share_takes_long_get_less_or_nothing(self):
        problem = training_problem(3, bandwidth=1e6)
        secs, fixed_secs = np.array([6.0, 5.0, 8.0]), np.array([1.0, 2.0, 7.0])
        devices = tuple(
            dataclasses.replace(device, fixed_secs=each)
            for device, each in zip(problem.devices, fixed_secs.tolist(), strict=True)
        )
        problem = dataclasses.replace(problem, devices=devices)
        found_secs = compute_data_parallel_bound(problem, secs, np.full(3, 100))
        batch = dataclasses.replace(problem, batch_size=8)
        in_eighths_secs = compute_data_parallel_bound(batch, secs, np.full(3, 100))
        tried = {
            parts: max(
                fixed + part / sum(parts) * (whole - fixed) if part else 0.0
                for part, fixed, whole in zip(parts, fixed_secs, secs, strict=True)
            )
            for total in (8, 60)
            for parts in itertools.product(range(total + 1), repeat=3)
            if sum(parts) == total and (total == 8 or not parts[2])
        }
        eighths = [each for parts, each in tried.items() if sum(parts) == 8]
        self.assertAlmostEqual(in_eighths_secs, min(eighths))
        self.assertAlmostEqual(found_secs, min(tried.values()), delta=0.02)

    def test_links_without_a_common_channel_carry_at_the_same_time(self):
        # Four devices send 2 * 3 * 12 = 72 bytes over twelve links, or over one channel.
        self.assertEqual(compute_bound(training_problem(4)), 6.0)
        shared = training_problem(4, channel="bus")
        self.assertEqual(compute_bound(shared), 72.0)

    def test_the_sum_of_a_computer_crosses_the_network_that_its_devices_share(self):
        def link(source: int, destination: int) -> Link:
            if source // 2 == destination // 2:
                return Link(f"D{source}", f"D{destination}", 0.0, 100.0)
            channel = f"network from {source // 2}"
            return Link(f"D{source}", f"D{destination}", 0.0, 0.5, channel)

        # Two computers with two devices each: 12 bytes leave each of them at 0.5 bytes a second.
        problem = dataclasses.replace(
            training_problem(4),
            links=tuple(link(*pair) for pair in itertools.permutations(range(4), 2)),
        )
        self.assertEqual(compute_bound(problem), 24.0)
        # One channel for both directions carries twice as much.
        both = tuple(
            dataclasses.replace(each, channel=each.channel and "network") for each in problem.links
        )
        self.assertEqual(compute_bound(dataclasses.replace(problem, links=both)), 48.0)

    def test_the_device_with_the_slowest_links_counts(self):
        problem = training_problem(2, bandwidth=100.0)
        links = tuple(
            Link("D1", "D0", 0.0, 2.0) if link.source == "D1" else link for link in problem.links
        )
        slower = dataclasses.replace(problem, links=links)
        self.assertEqual(compute_bound(slower), 6.0)

    def test_gradients_are_the_largest_tensors_that_updates_read(self):
        problem = training_problem(1)
        self.assertEqual(count_gradient_bytes(problem), 12)
        for keras in ("AssignSubVariableOp", "AssignAddVariableOp"):
            types = ("VarHandleOp", "MatMul", keras)
            self.assertEqual(
                count_gradient_bytes(dataclasses.replace(problem, operation_types=types)), 12
            )

    def test_slots_and_counters_are_no_gradients(self):
        # The gradient of 12 bytes goes to a slot and to the variable; 8 bytes count the steps.
        problem = make_problem(
            [[1.0]] * 5,
            tensors=[(0, 12, [1, 2]), (3, 8, [4])],
            resident_bytes=[0] * 5,
            bandwidth_bytes_per_sec=1.0,
        )
        adds = "AssignAddVariableOp"
        for update, expected in (("AssignSubVariableOp", 12), ("AssignVariableOp", 0)):
            types = ("MatMul", adds if expected else update, update, "Const", adds)
            self.assertEqual(
                count_gradient_bytes(dataclasses.replace(problem, operation_types=types)), expected
            )

    def test_no_bound_without_updates_or_other_devices_or_memory_for_all_variables(self):
        problem = training_problem(2)
        for types in (None, ("VariableV2", "MatMul", "Mul")):
            other = dataclasses.replace(problem, operation_types=types)
            self.assertIsNone(compute_bound(other))
        self.assertIsNone(compute_bound(training_problem(1)))
        large = dataclasses.replace(problem, resident_bytes=np.array([1001, 0, 0]))
        self.assertIsNone(compute_bound(large))

    def test_no_bound_where_a_share_of_the_batch_does_not_fit(self):
        # Devices of 1000 bytes hold 100 bytes of variables, and half of what the batch needs.
        problem = training_problem(2)
        self.assertIsNotNone(compute_bound(problem, peak_bytes=1900))
        self.assertIsNone(compute_bound(problem, peak_bytes=1902))

    def test_only_gpus_count_beside_a_cpu(self):
        problem = training_problem(3, bandwidth=100.0)
        first, *gpus = problem.devices
        devices = (dataclasses.replace(first, kind="CPU"), *gpus)
        with_cpu = dataclasses.replace(problem, devices=devices)
        secs = compute_data_parallel_bound(with_cpu, np.array([6.0, 6.0]), np.array([100, 100]))
        self.assertEqual(secs, 3.0)


if __name__ == "__main__":
    absltest.main()
