from __future__ import annotations

import concurrent.futures
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.simulation.random_problems import random_placement, random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.simulation.incremental import IncrementalSimulator
from tf_placer.simulation.simulator import Simulator


class Reference:
    """What the full simulation says of a placement and of moves from it."""

    def __init__(self, problem, placement):
        self.simulator = Simulator(problem, threads=1)
        self.placement = placement.copy()

    def moved(self, groups, devices):
        placement = self.placement.copy()
        placement[groups] = devices
        return placement

    def step(self, placement):
        batch = self.simulator.simulate(placement[np.newaxis])
        return float(batch.step_secs[0]), batch.peak_bytes[0].tolist(), bool(batch.feasible[0])


def random_move(rng, problem):
    """Some groups and where they may go, or now and then anywhere."""
    count = min(problem.num_groups, int(rng.choice([1, 1, 1, 2, 4])))
    groups = rng.choice(problem.num_groups, count, replace=False)
    if rng.random() < 0.1:
        return groups, rng.integers(problem.num_devices, size=count)
    return groups, random_placement(rng, problem)[groups]


class RandomMovesTest(parameterized.TestCase):
    def assert_is(self, step, expected):
        self.assertFalse(step.is_cut)
        self.assertEqual((step.step_secs, step.peak_bytes.tolist(), step.feasible), expected)

    def check_walk(self, problem, rng, num_moves):
        """Compares moves, with and without limits, some of which are accepted."""
        reference = Reference(problem, random_placement(rng, problem))
        simulator = IncrementalSimulator(problem)
        expected = reference.step(reference.placement)
        self.assert_is(simulator.set_base(reference.placement), expected)
        base_secs = expected[0]
        num_cut = 0
        for number in range(num_moves):
            groups, devices = random_move(rng, problem)
            expected = reference.step(reference.moved(groups, devices))
            limits = [math.inf, base_secs, expected[0], base_secs * rng.choice([0.0, 0.5, 0.9])]
            limit_secs = limits[number % 4]
            step = simulator.evaluate(groups, devices, limit_secs)
            if step.is_cut:
                num_cut += 1
                self.assertGreater(expected[0], limit_secs)
                self.assertEqual(step.step_secs, math.inf)
                self.assertFalse(step.feasible)
                self.assertFalse(step.peak_bytes.any())
            else:
                self.assert_is(step, expected)
            if rng.random() < 0.2 and expected[0] < math.inf:
                self.assert_is(simulator.accept(groups, devices), expected)
                reference.placement = reference.moved(groups, devices)
                base_secs = expected[0]
                np.testing.assert_array_equal(simulator.base, reference.placement)
        return num_cut

    @parameterized.parameters(
        {"count": 160, "max_operations": 12, "whole_secs": True},
        {"count": 80, "max_operations": 12, "whole_secs": False},
        {"count": 60, "max_operations": 60, "whole_secs": True},
        {"count": 30, "max_operations": 60, "whole_secs": False},
        {"count": 10, "max_operations": 300, "whole_secs": None},
    )
    def test_every_step_is_exactly_that_of_the_full_simulation(
        self, count, max_operations, whole_secs
    ):
        num_cut = 0
        for seed in range(count):
            rng = np.random.default_rng([max_operations, seed])
            problem = random_problem(rng, max_operations, whole_secs=whole_secs)
            num_cut += self.check_walk(problem, rng, 48)
        self.assertGreater(num_cut, count)

    def test_two_threads_with_one_each_find_the_same(self):
        rng = np.random.default_rng(0)
        problem = random_problem(rng, 300)
        placement = random_placement(rng, problem)
        moves = [random_move(rng, problem) for _ in range(400)]
        reference = Reference(problem, placement)
        one = IncrementalSimulator(problem)

        def steps(simulator):
            simulator.set_base(placement)
            return [simulator.evaluate(*move) for move in moves]

        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            both = list(executor.map(steps, [one, one.another()]))
        for move, step, other in zip(moves, *both, strict=True):
            expected = reference.step(reference.moved(*move))
            self.assert_is(step, expected)
            self.assert_is(other, expected)

    def test_a_new_base_has_nothing_of_the_one_before(self):
        rng = np.random.default_rng(1)
        problem = random_problem(rng, 60)
        simulator = IncrementalSimulator(problem)
        for _ in range(20):
            reference = Reference(problem, random_placement(rng, problem))
            self.assert_is(
                simulator.set_base(reference.placement), reference.step(reference.placement)
            )
            move = random_move(rng, problem)
            self.assert_is(simulator.evaluate(*move), reference.step(reference.moved(*move)))


class ArrivalTest(absltest.TestCase):
    def test_as_many_missing_inputs_are_not_the_same_ones(self):
        # `one` runs on D0 and `other` on D1, both to 1. What they make is at the other device at 3
        # and 8, also for `reader_1` and `reader_0`. A chain on D2 ends at 6. All three are for
        # `all`, which takes 1 and misses two inputs from 1 to 3, on D0 as on D1. `last`, on D1,
        # comes after `reader_0`.
        num_links = 24
        one, other, every, reader_0, reader_1, last = range(6)
        chain = list(range(6, 6 + num_links))
        problem = make_problem(
            [[secs] * 3 for secs in [1.0, 1.0, 1.0, 0.5, 0.5, 3.0] + [0.25] * num_links],
            tensors=[(one, 2, [every, reader_1]), (other, 7, [every, reader_0])],
            control_edges=[
                *itertools.pairwise(chain),
                (chain[-1], every),
                (reader_0, last),
            ],
        )
        simulator = IncrementalSimulator(problem)
        simulator.set_base(np.array([0, 1, 0, 0, 1, 1] + [2] * num_links))
        reference = Simulator(problem, threads=1)
        placement = np.array([0, 1, 1, 0, 1, 1] + [2] * num_links)
        self.assertEqual(reference.simulate(placement[np.newaxis]).step_secs, 11.5)
        self.assertEqual(simulator.evaluate([every], [1]).step_secs, 11.5)
        self.assertEqual(simulator.evaluate([every], [1], 11.5).step_secs, 11.5)


class LimitTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Ten operations of a second each after each other, and one that waits for nothing.
        self.problem = make_problem(
            [[1.0, 1.0]] * 11, control_edges=[(k, k + 1) for k in range(9)], resident_bytes=[7] * 11
        )
        self.simulator = IncrementalSimulator(self.problem)
        self.base = self.simulator.set_base(np.array([0] * 10 + [1]))

    def test_the_base_is_worked_out(self):
        self.assertEqual(self.base.step_secs, 10.0)
        self.assertEqual(self.base.peak_bytes.tolist(), [70, 7])

    def test_a_device_with_too_much_to_do_is_seen_at_once(self):
        self.assertTrue(self.simulator.evaluate([10], [0], 10.5).is_cut)

    def test_a_step_that_is_as_long_as_the_limit_is_not_cut(self):
        self.assertEqual(self.simulator.evaluate([10], [0], 11.0).step_secs, 11.0)
        self.assertEqual(self.simulator.evaluate([9], [1], 10.0).step_secs, 10.0)

    def test_a_limit_below_the_base_cuts_what_takes_as_long_as_the_base(self):
        limit_secs = math.nextafter(self.base.step_secs, 0.0)
        self.assertTrue(self.simulator.evaluate([9], [1], limit_secs).is_cut)

    def test_what_moves_nothing_is_the_base(self):
        self.assertIs(self.simulator.evaluate([3], [0]), self.base)
        self.assertIs(self.simulator.accept([3], [0]), self.base)

    def test_what_fits_nowhere_is_not_feasible(self):
        problem = make_problem([[1.0, 1.0]] * 2, resident_bytes=[6, 6], memory_bytes=[10, 10])
        simulator = IncrementalSimulator(problem)
        self.assertFalse(simulator.set_base(np.array([0, 0])).feasible)
        self.assertTrue(simulator.evaluate([1], [1]).feasible)


class BadInputTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        problem = make_problem([[1.0, 2.0], [1.0, np.inf]])
        self.simulator = IncrementalSimulator(problem)

    def test_a_move_needs_a_base(self):
        for call in (self.simulator.evaluate, self.simulator.accept):
            with self.assertRaisesRegex(ValueError, "there is no base yet: call set_base first"):
                call([0], [1])
        with self.assertRaisesRegex(ValueError, "no base yet"):
            _ = self.simulator.base

    @parameterized.parameters(
        ([0], r"shape \[2\], not \[1\]"),
        ([0, 2], "there is no device 2: they are 0 to 1"),
        ([0.0, 0.0], "devices must be integers, not float64"),
        ([0, 1], "group 1 may not go to device 'D1'"),
    )
    def test_placements_that_are_no_base(self, placement, message):
        with self.assertRaisesRegex(ValueError, message):
            self.simulator.set_base(np.array(placement))

    @parameterized.parameters(
        ([2], [0], "there is no group 2: they are 0 to 1"),
        ([-1], [0], "there is no group -1"),
        ([0], [2], "there is no device 2: they are 0 to 1"),
        ([0, 0], [1, 1], "group 0 is moved twice at once"),
        ([0], [0, 1], r"one shape \[n\], not \[1\] and \[2\]"),
        ([[0]], [[1]], r"one shape \[n\], not \[1, 1\] and \[1, 1\]"),
        ([0.5], [1], "groups must be integers, not float64"),
    )
    def test_moves_that_are_none(self, groups, devices, message):
        base = self.simulator.set_base(np.array([0, 0]))
        for call in (self.simulator.evaluate, self.simulator.accept):
            with self.assertRaisesRegex(ValueError, message):
                call(np.array(groups), np.array(devices))
        self.assertIs(self.simulator.evaluate([], []), base)

    def test_a_group_where_it_may_not_go(self):
        self.simulator.set_base(np.array([0, 0]))
        step = self.simulator.evaluate([0, 1], [1, 1])
        self.assertEqual((step.step_secs, step.feasible, step.is_cut), (math.inf, False, False))
        with self.assertRaisesRegex(ValueError, "group 1 may not go to device 'D1'"):
            self.simulator.accept([0, 1], [1, 1])
        np.testing.assert_array_equal(self.simulator.base, [0, 0])
        self.assertEqual(self.simulator.evaluate([0], [1]).step_secs, 2.0)


if __name__ == "__main__":
    absltest.main()
