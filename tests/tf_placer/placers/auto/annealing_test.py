import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from tests.tf_placer.simulation.random_problems import (
    random_placement,
    random_problem,
    with_barriers,
)
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto import annealing
from tf_placer.placers.auto.annealing import Annealer
from tf_placer.placers.auto.chain import ChainPlan
from tf_placer.placers.auto.found import Found
from tf_placer.placers.auto.levels import make_levels
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator

WARM = ChainPlan(0.5, 0.5)
COLD = ChainPlan(1e-4, 0.2)
KICKED = ChainPlan(1e-4, 0.2, patience=5, kick=2)


def capacities(problem):
    return np.array([device.memory_bytes for device in problem.devices])


def simulated(problem, placement):
    """What the simulator that knows nothing of moves says."""
    result = Simulator(problem, threads=1).simulate(np.array(placement, np.int32)[None])
    peaks = result.peak_bytes[0]
    excess = np.maximum(peaks - capacities(problem), 0).sum()
    return Found(np.array(placement, np.int32), result.step_secs[0], peaks, int(excess))


class Chain:
    """An annealer, and where it is."""

    def __init__(self, problem, start, seed=0):
        self.annealer = Annealer(
            problem,
            Simulator(problem, threads=1),
            legal_devices(problem),
            make_levels(group_graph(problem), [np.arange(problem.num_groups) // 2]),
            simulated(problem, start),
            seed=seed,
        )

    @property
    def placement(self):
        return self.annealer.placement

    def run(self, steps, plan=WARM):
        self.annealer.run(steps, plan)
        return self.annealer.best


def full_problem():
    """Six weights that fill two devices but for four bytes."""
    return make_problem(
        [[1.0, 1.0]] * 6,
        resident_bytes=[40, 30, 20, 10, 10, 10],
        memory_bytes=[62, 62],
    )


class AnnealerTest(parameterized.TestCase):
    def assert_same(self, found, expected):
        self.assertEqual(found.step_secs, expected.step_secs)
        self.assertEqual(found.peak_bytes.tolist(), expected.peak_bytes.tolist())
        self.assertEqual(found.excess_bytes, expected.excess_bytes)

    def assert_legal(self, problem, placement):
        self.assertTrue(legal_devices(problem)[np.arange(problem.num_groups), placement].all())

    def test_the_best_is_what_the_simulator_says_of_its_placement_and_only_improves(self):
        random = np.random.default_rng(0)
        for seed in range(25):
            problem = random_problem(random)
            if seed % 2:
                problem = with_barriers(random, problem)
            start = simulated(problem, random_placement(random, problem))
            chain = Chain(problem, start.placement, seed)
            self.assert_same(chain.annealer.best, start)
            rank = start.rank
            for steps, plan in ((0, WARM), (1, WARM), (30, WARM), (50, KICKED), (200, COLD)):
                best = chain.run(steps, plan)
                self.assert_legal(problem, best.placement)
                self.assert_same(best, simulated(problem, best.placement))
                self.assertLessEqual(best.rank, rank)
                rank = best.rank

    def test_no_placement_that_it_is_at_is_better_than_the_best(self):
        random = np.random.default_rng(1)
        for seed in range(8):
            problem = random_problem(random)
            chain = Chain(problem, random_placement(random, problem), seed)
            for _ in range(60):
                best = chain.run(1, KICKED)
                self.assert_legal(problem, chain.placement)
                self.assertLessEqual(best.rank, simulated(problem, chain.placement).rank)

    @parameterized.parameters(*itertools.product(SMALL_PROBLEMS, (COLD, KICKED)))
    def test_finds_the_optimum_of_small_problems_while_it_cools(self, name, last):
        problem = SMALL_PROBLEMS[name]
        chain = Chain(problem, legal_devices(problem).argmax(axis=1))
        for temperature in (0.1, 0.03, 0.01):
            chain.run(400, ChainPlan(temperature, 0.5))
        best = chain.run(800, last)
        self.assertEqual(best.excess_bytes, 0)
        self.assertTrue(is_optimal(best.step_secs, all_step_secs(problem)[0]))

    def test_accepts_what_is_worse_only_while_it_is_warm(self):
        problem = SMALL_PROBLEMS["chain"]
        for plan, expected in ((ChainPlan(5.0, 0.5), True), (ChainPlan(1e-9, 0.5), False)):
            # One device is the optimum, and whatever is split is slower.
            chain = Chain(problem, [1] * 8)
            steps = []
            for _ in range(20):
                chain.run(10, plan)
                steps.append(simulated(problem, chain.placement).step_secs)
            self.assertEqual(max(steps) > 0.8 * (1 + 1e-9), expected)
            self.assertTrue(is_optimal(chain.annealer.best.step_secs, 0.8))

    def test_what_it_returns_is_not_changed_later(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0] * 8)
        start = chain.annealer.best
        self.assertLess(chain.run(500, COLD).rank, start.rank)
        self.assertEqual(start.placement.tolist(), [0] * 8)
        self.assert_same(start, simulated(problem, [0] * 8))

    def test_while_nothing_fits_the_excess_shrinks(self):
        problem = SMALL_PROBLEMS["memory"]
        chain = Chain(problem, [0] * 8)
        self.assertGreater(chain.annealer.best.excess_bytes, 0)
        self.assertEqual(chain.run(300).excess_bytes, 0)

    def test_the_least_excess_is_best_where_nothing_can_fit(self):
        problem = make_problem([[1.0] * 2] * 3, resident_bytes=[50, 40, 30], memory_bytes=[60, 50])
        best = Chain(problem, [0, 0, 0]).run(200, COLD)
        # 50 | 40 + 30 exceeds by 20, 40 + 30 | 50 by 10.
        self.assertEqual(best.excess_bytes, 10)
        self.assertEqual(best.placement.tolist(), [1, 0, 0])

    def test_once_it_fits_it_never_is_where_it_does_not(self):
        random = np.random.default_rng(2)
        num_tight = 0
        while num_tight < 8:
            problem = random_problem(random)
            placements = [random_placement(random, problem) for _ in range(20)]
            excess = [simulated(problem, placement).excess_bytes for placement in placements]
            if not 0.5 < np.count_nonzero(excess) / len(excess) < 1.0:
                continue
            num_tight += 1
            chain = Chain(problem, placements[int(np.argmin(excess))], num_tight)
            for plan in [WARM] * 50 + [KICKED] * 50:
                self.assertEqual(chain.run(1, plan).excess_bytes, 0)
                if not plan.patience:
                    self.assertEqual(simulated(problem, chain.placement).excess_bytes, 0)

    def test_makes_room_for_moves_and_goes_on(self):
        problem = full_problem()
        chain = Chain(problem, [0, 1, 0, 1, 1, 1])
        self.assertEqual(chain.annealer.best.excess_bytes, 0)
        repair, num_repaired, seen = MemoryRepair.repair, [], set()

        def count(*args):
            change = repair(*args)
            num_repaired.append(change is not None)
            return change

        with mock.patch.object(MemoryRepair, "repair", autospec=True, side_effect=count):
            for _ in range(10_000):
                chain.run(1)
                seen.add(chain.placement.tobytes())
        for row in seen:
            self.assertEqual(simulated(problem, np.frombuffer(row, np.int32)).excess_bytes, 0)
        # Most of the time goes to moves that need no room.
        self.assertBetween(len(num_repaired), 20, 10_000 / 100)
        self.assertGreater(sum(num_repaired), 20)
        # All that fit: with 62 bytes on each device, of 120 in all, 58 to 62 are on each.
        sizes = problem.resident_bytes
        fitting = {
            np.array(placement, np.int32).tobytes()
            for placement in itertools.product(range(2), repeat=6)
            if 58 <= sizes[np.array(placement) == 0].sum() <= 62
        }
        self.assertEqual(seen, fitting)

    def test_a_move_that_room_was_made_for_in_vain_is_dropped(self):
        # Each device is full and no two groups are alike, so nothing but where they are fits.
        problem = make_problem(
            [[1.0] * 2] * 4, resident_bytes=[50, 8, 40, 20], memory_bytes=[58, 60]
        )
        start = [0, 0, 1, 1]

        def in_vain(repair, placement, groups, devices, peak_bytes, capacities):
            return groups.copy(), devices.copy()

        with (
            mock.patch.object(MemoryRepair, "repair", in_vain),
            mock.patch.object(annealing, "_OPERATIONS_PER_REPAIR", 0),
        ):
            chain = Chain(problem, start)
            for _ in range(100):
                best = chain.run(1, ChainPlan(100.0, 0.5))
                self.assertEqual(chain.placement.tolist(), start)
        self.assertEqual(best.placement.tolist(), start)
        # A step is one move, and what was tried to make it fit.
        self.assertBetween(chain.annealer.num_simulated, 150, 200)

    def test_counts_what_it_simulates(self):
        problem = SMALL_PROBLEMS["fork and join"]
        chain = Chain(problem, [0] * 6)
        self.assertEqual(chain.annealer.num_simulated, 0)
        chain.run(70)
        self.assertEqual(chain.annealer.num_simulated, 70)
        chain.run(0)
        chain.run(30)
        self.assertEqual(chain.annealer.num_simulated, 100)

    def test_without_anything_to_move_steps_cost_nothing(self):
        problem = make_problem([[1.0, np.inf], [np.inf, 2.0]])
        chain = Chain(problem, [0, 1])
        best = chain.run(100, KICKED)
        self.assertEqual(best.placement.tolist(), [0, 1])
        self.assertEqual(best.step_secs, 2.0)

    def test_goes_on_from_the_best_where_nothing_helps(self):
        # Whatever is split is slower.
        problem = SMALL_PROBLEMS["chain"]
        chain = Chain(problem, [0] * 8)
        chain.run(50, ChainPlan(1e-9, 0.0))
        self.assertLen(set(chain.placement.tolist()), 1)
        before, places = chain.annealer.num_simulated, set()
        for _ in range(200):
            chain.run(1, ChainPlan(1e-9, 0.0, patience=3, kick=2))
            places.add(chain.placement.tobytes())
        self.assertGreater(len(places), 10)
        # Kicks are simulated, too, and are steps.
        self.assertBetween(chain.annealer.num_simulated - before, 190, 200)
        self.assertTrue(is_optimal(chain.annealer.best.step_secs, 0.8))

    def test_does_not_go_on_from_what_does_not_fit(self):
        problem = full_problem()
        chain = Chain(problem, [0, 1, 0, 1, 1, 1])
        for _ in range(200):
            chain.run(1, ChainPlan(1e-9, 0.5, patience=1, kick=3))
            self.assertEqual(simulated(problem, chain.placement).excess_bytes, 0)
            self.assertEqual(chain.annealer.best.excess_bytes, 0)

    def test_a_restart_goes_elsewhere_and_keeps_the_best(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0] * 8)
        best = chain.run(500, COLD)
        worse = simulated(problem, [0, 1] * 4)
        self.assertGreater(worse.rank, best.rank)
        chain.annealer.restart(worse)
        self.assertEqual(chain.placement.tolist(), [0, 1] * 4)
        self.assertEqual(chain.annealer.best.placement.tolist(), best.placement.tolist())
        self.assert_same(chain.annealer.best, best)

    def test_a_restart_from_what_is_better_is_the_best(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0, 1] * 4)
        better = simulated(problem, [0] * 4 + [1] * 4)
        chain.annealer.restart(better)
        self.assertEqual(chain.annealer.best.placement.tolist(), better.placement.tolist())
        self.assert_same(chain.annealer.best, better)

    def test_the_same_seed_goes_the_same_way(self):
        problem = full_problem()
        ways = []
        for seed in (3, 3, 4):
            chain = Chain(problem, [0, 1, 0, 1, 1, 1], seed)
            ways.append([])
            for steps, plan in itertools.product((1, 1, 7, 100), (WARM, KICKED, COLD)):
                chain.run(steps, plan)
                ways[-1].append((chain.placement.tolist(), chain.annealer.num_simulated))
        self.assertEqual(ways[0], ways[1])
        self.assertNotEqual(ways[0], ways[2])


if __name__ == "__main__":
    absltest.main()
