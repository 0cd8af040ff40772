from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import pathlib
import threading
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.simulation import oracle
from tests.tf_placer.simulation.random_problems import (
    random_placement,
    random_problem,
    with_barriers,
)
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.problem_file import problem_from_json
from tf_placer.simulation.simulator import Simulator

_WORKED_CASES = pathlib.Path(__file__).parents[1] / "problem" / "testdata" / "worked_cases.json"
_RELATIVE_ERROR = 1e-9


def find_placed_secs(problem, placement):
    """Finds the compute time of each operation on its device."""
    return problem.compute_secs[np.arange(problem.num_operations), placement[problem.groups]]


def longest_path_secs(problem, secs):
    ends = secs.copy()
    for operation in problem.order:
        before = problem.edges[problem.edges[:, 1] == operation, 0]
        ends[operation] += ends[before].max(initial=0.0)
    return ends.max()


def transfer_records(transfers):
    """Converts transfers to sorted records as the oracle has them."""
    columns = (
        transfers.tensors,
        transfers.producers,
        transfers.destinations,
        transfers.request_secs,
        transfers.start_secs,
        transfers.end_secs,
    )
    return np.array(sorted(zip(*(column.tolist() for column in columns), strict=True)))


def random_simulations(count, seed, max_operations=12, **kwargs):
    """Yields random problems, legal placements of them and simulators with one thread."""
    for number in range(count):
        rng = np.random.default_rng([*np.atleast_1d(seed), number])
        problem = random_problem(rng, max_operations, **kwargs)
        yield problem, random_placement(rng, problem), Simulator(problem, threads=1)


class OracleTest(parameterized.TestCase):
    def assert_agrees(self, problem, placement, simulator, relative_error):
        expected = oracle.simulate(problem, placement)

        def assert_secs(actual, wanted):
            np.testing.assert_allclose(actual, wanted, rtol=relative_error, atol=0.0)

        batch = simulator.simulate(placement[np.newaxis])
        assert_secs(batch.step_secs, [expected.step_secs])
        np.testing.assert_array_equal(batch.peak_bytes, [expected.peak_bytes])
        fits = all(
            peak <= device.memory_bytes
            for peak, device in zip(expected.peak_bytes, problem.devices, strict=True)
        )
        self.assertEqual(batch.feasible.tolist(), [fits])

        trace = simulator.trace(placement)
        self.assertEqual(trace.step_secs, batch.step_secs[0])
        np.testing.assert_array_equal(trace.peak_bytes, expected.peak_bytes)
        np.testing.assert_array_equal(trace.operation_devices, placement[problem.groups])
        assert_secs(trace.ready_secs, expected.ready_secs)
        assert_secs(trace.start_secs, expected.start_secs)
        assert_secs(trace.end_secs, expected.end_secs)
        self.assertTrue((np.diff(trace.transfers.end_secs) >= 0.0).all())
        self.assertLen(trace.transfers.tensors, len(expected.transfers))
        np.testing.assert_array_equal(
            trace.transfers.sources, trace.operation_devices[trace.transfers.producers]
        )
        np.testing.assert_array_equal(
            trace.transfers.bytes,
            [0 if t < 0 else problem.tensor_bytes[t] for t in trace.transfers.tensors],
        )
        if expected.transfers:
            assert_secs(
                transfer_records(trace.transfers), np.array(sorted(expected.transfers), np.float64)
            )

        without_memory = Simulator(problem, memory=False, threads=1).simulate(placement[np.newaxis])
        self.assertEqual(without_memory.step_secs, batch.step_secs)
        self.assertFalse(without_memory.peak_bytes.any())
        self.assertTrue(without_memory.feasible.all())
        return fits, len(expected.transfers)

    @parameterized.parameters(
        # Integers have no rounding errors in any order.
        dict(whole_secs=True, relative_error=0.0, max_operations=12, count=600),
        dict(whole_secs=False, relative_error=_RELATIVE_ERROR, max_operations=12, count=400),
        dict(whole_secs=True, relative_error=0.0, max_operations=60, count=60),
        dict(whole_secs=False, relative_error=_RELATIVE_ERROR, max_operations=60, count=60),
    )
    def test_agrees_with_the_oracle_on_random_problems(
        self, whole_secs, relative_error, max_operations, count
    ):
        found = []
        for number, (problem, placement, simulator) in enumerate(
            random_simulations(count, max_operations, max_operations, whole_secs=whole_secs)
        ):
            with self.subTest(number=number):
                found.append(self.assert_agrees(problem, placement, simulator, relative_error))
        fits, num_transfers = np.array(found).T
        # The problems differ in these properties.
        self.assertBetween(fits.mean(), 0.1, 0.9)
        self.assertGreater(num_transfers.mean(), 1.0)

    @parameterized.parameters(
        dict(whole_secs=True, relative_error=0.0, max_operations=12, count=250),
        dict(whole_secs=False, relative_error=_RELATIVE_ERROR, max_operations=40, count=40),
    )
    def test_agrees_with_the_oracle_on_asynchronous_devices(
        self, whole_secs, relative_error, max_operations, count
    ):
        found = []
        for number, (problem, placement, simulator) in enumerate(
            random_simulations(
                count,
                [9, max_operations],
                max_operations,
                whole_secs=whole_secs,
                asynchronous_share=0.7,
            )
        ):
            with self.subTest(number=number):
                found.append(self.assert_agrees(problem, placement, simulator, relative_error))
        fits, num_transfers = np.array(found).T
        self.assertBetween(fits.mean(), 0.1, 0.9)
        self.assertGreater(num_transfers.mean(), 1.0)

    @parameterized.parameters(
        dict(whole_secs=True, relative_error=0.0, max_operations=12, count=250),
        dict(whole_secs=False, relative_error=_RELATIVE_ERROR, max_operations=40, count=40),
    )
    def test_agrees_with_the_oracle_if_copies_run_in_streams(
        self, whole_secs, relative_error, max_operations, count
    ):
        changed = []
        for number, (problem, placement, simulator) in enumerate(
            random_simulations(
                count,
                [10, max_operations],
                max_operations,
                whole_secs=whole_secs,
                asynchronous_share=0.7,
                in_stream_share=0.7,
            )
        ):
            with self.subTest(number=number):
                self.assert_agrees(problem, placement, simulator, relative_error)
            beside = dataclasses.replace(
                problem,
                devices=tuple(
                    dataclasses.replace(device, copies_in_stream=False)
                    for device in problem.devices
                ),
            )
            steps = [
                Simulator(each, threads=1).simulate(placement[np.newaxis]).step_secs[0]
                for each in (problem, beside)
            ]
            changed.append(steps[0] != steps[1])
        self.assertGreater(np.mean(changed), 0.2)

    def test_signals_that_asynchronous_devices_wait_for(self):
        num_barriers = 0
        for number, (plain, placement, _) in enumerate(
            random_simulations(
                150, seed=10, max_operations=20, whole_secs=True, asynchronous_share=0.7
            )
        ):
            with self.subTest(number=number):
                problem = with_barriers(np.random.default_rng([10, 1, number]), plain)
                simulator = Simulator(problem, threads=1)
                self.assert_agrees(problem, placement, simulator, relative_error=0.0)
                num_barriers += simulator.tables.num_barriers
        self.assertGreater(num_barriers, 75)

    def test_operations_that_wait_for_the_same_signals_start_when_all_are_there(self):
        num_barriers = 0
        for number, (plain, placement, _) in enumerate(
            random_simulations(250, seed=8, max_operations=20, whole_secs=True)
        ):
            with self.subTest(number=number):
                problem = with_barriers(np.random.default_rng([8, 1, number]), plain)
                simulator = Simulator(problem, threads=1)
                self.assert_agrees(problem, placement, simulator, relative_error=0.0)
                num_barriers += simulator.tables.num_barriers
        self.assertGreater(num_barriers, 125)

    def test_agrees_with_the_oracle_if_devices_lose_time_to_transfers(self):
        lost = []
        for number, (problem, placement, _) in enumerate(
            random_simulations(250, seed=7, max_operations=30, whole_secs=False)
        ):
            rng = np.random.default_rng([7, 1, number])
            # Scale to milliseconds, so that most devices had another transfer shortly before.
            problem = dataclasses.replace(
                problem,
                compute_secs=problem.compute_secs * 1e-3,
                links=tuple(
                    dataclasses.replace(
                        link,
                        latency_secs=link.latency_secs * 1e-3,
                        bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec * 1e3,
                    )
                    for link in problem.links
                ),
            )
            losing = dataclasses.replace(
                problem,
                devices=tuple(
                    dataclasses.replace(
                        device,
                        transfer_share=rng.choice([0.0, rng.random()]),
                        transfer_overhead_secs=rng.choice([0.0, 2e-3 * rng.random()]),
                    )
                    for device in problem.devices
                ),
            )
            with self.subTest(number=number):
                simulator = Simulator(losing, threads=1)
                self.assert_agrees(losing, placement, simulator, _RELATIVE_ERROR)
            plain_secs = Simulator(problem).simulate(placement[None]).step_secs[0]
            lost.append(simulator.simulate(placement[None]).step_secs[0] > plain_secs)
        self.assertGreater(np.mean(lost), 0.2)

    def test_agrees_with_the_cases_worked_by_hand(self):
        for case in json.loads(_WORKED_CASES.read_text()):
            with self.subTest(case["name"]):
                simulator = Simulator(problem_from_json(case["problem"]))
                batch = simulator.simulate(np.array([case["assignment"]]))
                trace = simulator.trace(np.array(case["assignment"]))
                self.assertEqual(batch.step_secs.tolist(), [case["step_secs"]])
                self.assertEqual(batch.peak_bytes.tolist(), [case["peak_bytes"]])
                self.assertEqual(batch.feasible.tolist(), [case["feasible"]])
                self.assertEqual(trace.start_secs.tolist(), case["start_secs"])
                self.assertEqual(trace.end_secs.tolist(), case["end_secs"])
                self.assertEqual(trace.peak_bytes.tolist(), case["peak_bytes"])


class InvariantsTest(absltest.TestCase):
    def test_no_step_is_shorter_than_its_longest_path_or_the_work_of_a_device(self):
        for problem, placement, simulator in random_simulations(200, seed=1):
            secs = find_placed_secs(problem, placement)
            step_secs = simulator.simulate(placement[np.newaxis]).step_secs[0]
            bounds = [longest_path_secs(problem, secs)]
            for index, device in enumerate(problem.devices):
                bounds.append(secs[placement[problem.groups] == index].sum() / device.slots)
            self.assertGreaterEqual(step_secs * (1 + _RELATIVE_ERROR), max(bounds))

    def test_one_device_with_one_slot_takes_the_sum_of_its_operations(self):
        for problem, _, _ in random_simulations(100, seed=2):
            one = dataclasses.replace(
                problem,
                devices=(dataclasses.replace(problem.devices[0], slots=1),),
                links=(),
                compute_secs=problem.compute_secs.min(axis=1, keepdims=True),
            )
            batch = Simulator(one, threads=1).simulate(np.zeros([1, one.num_groups], np.int32))
            np.testing.assert_allclose(
                batch.step_secs, one.compute_secs.sum(), rtol=_RELATIVE_ERROR
            )

    def test_names_of_devices_do_not_matter(self):
        for problem, placement, simulator in random_simulations(100, seed=3):
            names = {d.name: name for d, name in zip(problem.devices, "edcba", strict=False)}
            renamed = dataclasses.replace(
                problem,
                devices=tuple(
                    dataclasses.replace(d, name=names[d.name], kind="CPU") for d in problem.devices
                ),
                links=tuple(
                    dataclasses.replace(
                        link, source=names[link.source], destination=names[link.destination]
                    )
                    for link in problem.links
                ),
            )
            expected = simulator.simulate(placement[np.newaxis])
            actual = Simulator(renamed, threads=1).simulate(placement[np.newaxis])
            self.assertEqual(actual.step_secs, expected.step_secs)
            np.testing.assert_array_equal(actual.peak_bytes, expected.peak_bytes)

    def test_the_order_of_devices_does_not_matter_where_no_two_share_a_channel(self):
        # On a shared channel, the transfer to the device with the lowest index comes first.
        for problem, placement, _ in random_simulations(200, seed=4, whole_secs=False):
            problem = dataclasses.replace(
                problem,
                links=tuple(dataclasses.replace(link, channel=None) for link in problem.links),
            )
            order = np.random.default_rng(0).permutation(problem.num_devices)
            reordered = dataclasses.replace(
                problem,
                devices=tuple(problem.devices[device] for device in order),
                links=problem.links[::-1],
                compute_secs=problem.compute_secs[:, order],
            )
            expected = Simulator(problem, threads=1).simulate(placement[np.newaxis])
            actual = Simulator(reordered, threads=1).simulate(np.argsort(order)[[placement]])
            np.testing.assert_allclose(
                actual.step_secs, expected.step_secs, rtol=_RELATIVE_ERROR, atol=0.0
            )
            np.testing.assert_array_equal(actual.peak_bytes, expected.peak_bytes[:, order])

    def test_repeated_edges_change_nothing(self):
        for problem, placement, simulator in random_simulations(100, seed=5):
            counts = np.diff(problem.consumer_start)
            readers = np.split(problem.consumers, problem.consumer_start[1:-1])
            doubled = dataclasses.replace(
                problem,
                consumer_start=np.concatenate([[0], np.cumsum(2 * counts)]),
                consumers=np.concatenate([np.tile(each, 2) for each in readers]),
                control_edges=np.tile(problem.control_edges, [3, 1]),
            )
            expected = simulator.simulate(placement[np.newaxis])
            actual = Simulator(doubled, threads=1).simulate(placement[np.newaxis])
            self.assertEqual(actual.step_secs, expected.step_secs)
            np.testing.assert_array_equal(actual.peak_bytes, expected.peak_bytes)


class BatchTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        self.problem = random_problem(rng, 40)
        while self.problem.num_devices < 3 or np.isfinite(self.problem.compute_secs).all():
            self.problem = random_problem(rng, 40)
        shape = [300, self.problem.num_groups]
        self.placements = rng.integers(self.problem.num_devices, size=shape)

    def assert_same(self, actual, expected):
        np.testing.assert_array_equal(actual.step_secs, expected.step_secs)
        np.testing.assert_array_equal(actual.peak_bytes, expected.peak_bytes)
        np.testing.assert_array_equal(actual.feasible, expected.feasible)

    def test_results_do_not_depend_on_threads_or_on_what_else_is_in_the_batch(self):
        simulator = Simulator(self.problem, threads=1)
        expected = simulator.simulate(self.placements)
        self.assertGreater(len(set(expected.step_secs.tolist())), 10)
        for threads in (2, 3, None):
            other = Simulator(self.problem, threads=threads)
            self.assert_same(other.simulate(self.placements), expected)
        for index, placement in enumerate(self.placements):
            alone = simulator.simulate(placement[np.newaxis])
            self.assertEqual(alone.step_secs, expected.step_secs[index])
            np.testing.assert_array_equal(alone.peak_bytes[0], expected.peak_bytes[index])

    @parameterized.parameters(1, 2)
    def test_a_simulator_may_be_used_from_several_threads_at_once(self, threads):
        simulator = Simulator(self.problem, threads=threads)
        expected = simulator.simulate(self.placements)
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            for actual in executor.map(simulator.simulate, itertools.repeat(self.placements, 20)):
                self.assert_same(actual, expected)

    def test_a_thread_that_an_interrupt_finds_starting_ends(self):
        simulator = Simulator(self.problem, threads=2)
        expected = Simulator(self.problem, threads=1).simulate(self.placements)
        started = []

        def start_and_interrupt(thread):
            started.append(thread)
            start(thread)
            raise KeyboardInterrupt

        start = threading.Thread.start
        with (
            mock.patch.object(threading.Thread, "start", start_and_interrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            simulator.simulate(self.placements)
        [thread] = started
        thread.join(10.0)
        self.assertFalse(thread.is_alive())
        self.assert_same(simulator.simulate(self.placements), expected)

    def test_an_illegal_placement_is_not_simulated(self):
        batch = Simulator(self.problem).simulate(self.placements)
        legal = np.array(
            [np.isfinite(find_placed_secs(self.problem, row)).all() for row in self.placements]
        )
        self.assertIn(True, legal)
        self.assertIn(False, legal)
        np.testing.assert_array_equal(np.isfinite(batch.step_secs), legal)
        self.assertFalse(batch.peak_bytes[~legal].any())
        self.assertFalse(batch.feasible[~legal].any())
        without_memory = Simulator(self.problem, memory=False).simulate(self.placements)
        np.testing.assert_array_equal(without_memory.step_secs, batch.step_secs)
        np.testing.assert_array_equal(without_memory.feasible, legal)

    def test_an_empty_batch_has_no_results(self):
        batch = Simulator(self.problem).simulate(self.placements[:0])
        self.assertEqual(batch.step_secs.shape, (0,))
        self.assertEqual(batch.peak_bytes.shape, (0, self.problem.num_devices))
        self.assertEqual(batch.feasible.shape, (0,))

    def test_integers_of_any_type_and_layout_are_accepted(self):
        simulator = Simulator(self.problem)
        expected = simulator.simulate(self.placements)
        self.assert_same(simulator.simulate(self.placements.astype(np.uint8)), expected)
        self.assert_same(simulator.simulate(np.asfortranarray(self.placements)), expected)
        self.assert_same(simulator.simulate(self.placements.tolist()), expected)


class LimitTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(count=200, max_operations=12, whole_secs=True),
        dict(count=100, max_operations=12, whole_secs=False),
        dict(count=60, max_operations=60, whole_secs=None),
        dict(count=10, max_operations=300, whole_secs=None),
    )
    def test_only_steps_longer_than_the_limit_are_cut(self, count, max_operations, whole_secs):
        num_cut, num_longer = 0, 0
        for problem, _, simulator in random_simulations(
            count, [7, max_operations], max_operations, whole_secs=whole_secs
        ):
            rng = np.random.default_rng(count)
            placements = np.stack([random_placement(rng, problem) for _ in range(20)])
            for memory in (True, False):
                simulator = Simulator(problem, memory=memory, threads=1)
                expected = simulator.simulate(placements)
                for limit_secs in np.quantile(expected.step_secs, [0.0, 0.1, 0.5, 1.0]):
                    actual = simulator.simulate(placements, limit_secs=limit_secs)
                    is_cut = np.isinf(actual.step_secs)
                    num_cut += np.count_nonzero(is_cut)
                    num_longer += np.count_nonzero(expected.step_secs > limit_secs)
                    self.assertTrue((expected.step_secs[is_cut] > limit_secs).all())
                    self.assertFalse(actual.feasible[is_cut].any())
                    self.assertFalse(actual.peak_bytes[is_cut].any())
                    for name in ("step_secs", "peak_bytes", "feasible"):
                        np.testing.assert_array_equal(
                            getattr(actual, name)[~is_cut], getattr(expected, name)[~is_cut]
                        )
        # Rounding must hide almost nothing.
        self.assertGreater(num_cut, 0.95 * num_longer)

    def setUp(self):
        super().setUp()
        # A chain of ten operations of a second each, and one operation without inputs.
        problem = make_problem(
            [[1.0, 2.0]] * 11, control_edges=[(k, k + 1) for k in range(9)], resident_bytes=[7] * 11
        )
        self.simulator = Simulator(problem, threads=1)

    @parameterized.parameters(
        # The limit is reached by the work of a device, by the chain, or by the clock.
        ([0] * 11, 11.0),
        ([0] * 10 + [1], 10.0),
        ([1] + [0] * 10, 11.0),
    )
    def test_a_step_that_is_as_long_as_the_limit_is_not_cut(self, placement, step_secs):
        placements = np.array([placement])
        at = self.simulator.simulate(placements, limit_secs=step_secs)
        self.assertEqual(at.step_secs.tolist(), [step_secs])
        below = self.simulator.simulate(placements, limit_secs=np.nextafter(step_secs, 0.0))
        self.assertEqual(below.step_secs.tolist(), [np.inf])
        far_below = self.simulator.simulate(placements, limit_secs=0.0)
        self.assertEqual(far_below.step_secs.tolist(), [np.inf])


class OrderTest(absltest.TestCase):
    def test_of_operations_ready_at_one_instant_the_lowest_index_starts_first(self):
        # Two operations that end together make all others ready, from the highest index down.
        count = 20_000
        problem = make_problem(
            [[1.0]] * (2 + count),
            tensors=[(after % 2, 0, [after]) for after in range(count + 1, 1, -1)],
            groups=[0] * (2 + count),
            slots=[2],
        )
        trace = Simulator(problem).trace(np.array([0]))
        np.testing.assert_array_equal(trace.start_secs[2:], 1 + np.arange(count) // 2)

    def test_of_many_rounds_at_one_instant_the_lowest_index_starts_first(self):
        # While the first device is busy, a chain of operations that take no time on the second
        # makes those on the first ready, one in each round, from the highest index down.
        count = 10_000
        chain = range(count, 2 * count)
        problem = make_problem(
            [[1.0, 1.0]] * count + [[0.0, 0.0]] * count + [[1.0, 1.0]],
            tensors=[(link, 0, [2 * count - 1 - link]) for link in chain],
            control_edges=list(itertools.pairwise(chain)),
            groups=[0] * count + [1] * count + [0],
        )
        trace = Simulator(problem).trace(np.array([0, 1]))
        np.testing.assert_array_equal(trace.start_secs[:count], 1 + np.arange(count))
        np.testing.assert_array_equal(trace.ready_secs[:count], np.zeros(count))


class BadInputTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.problem = make_problem([[1.0, 2.0, 3.0], [1.0, np.inf, 1.0]], names=["a", "b"])
        self.simulator = Simulator(self.problem)

    @parameterized.parameters(
        ([0, 0], r"shape \[n, 2\], not \[2\]"),
        ([[0, 0, 0]], r"shape \[n, 2\], not \[1, 3\]"),
        ([[[0, 0]]], r"shape \[n, 2\], not \[1, 1, 2\]"),
        ([[0.0, 1.0]], "must be integers, not float64"),
        ([[True, False]], "must be integers, not bool"),
        ([[0, 0], [0, 3]], "placement 1 puts group 1 on device 3, but .* devices 0 to 2"),
        ([[0, 0], [-1, 0]], "placement 1 puts group 0 on device -1"),
        ([[2**32, 0]], "placement 0 puts group 0 on device 4294967296"),
    )
    def test_refuses_invalid_placements(self, placements, message):
        with self.assertRaisesRegex(ValueError, message):
            self.simulator.simulate(np.array(placements))

    @parameterized.parameters(
        ([0], r"shape \[2\], not \[1\]"),
        ([[0, 0]], r"shape \[2\], not \[1, 2\]"),
        ([0, 3], "puts group 1 on device 3"),
        ([0.0, 1.0], "must be integers, not float64"),
        ([0, 1], "operation 'b' may not go to device 'D1'"),
    )
    def test_refuses_to_trace_illegal_placements(self, placement, message):
        with self.assertRaisesRegex(ValueError, message):
            self.simulator.trace(np.array(placement))

    def test_threads_are_at_least_one(self):
        with self.assertRaisesRegex(ValueError, "threads must be at least 1, not 0"):
            Simulator(self.problem, threads=0)


if __name__ == "__main__":
    absltest.main()
