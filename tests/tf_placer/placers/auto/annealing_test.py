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
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.chain import ChainParameters
from tf_placer.placers.auto.levels import make_levels
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator

WARM = ChainParameters(0.5, 0.5)
COLD = ChainParameters(1e-4, 0.2)
PERTURBED = ChainParameters(1e-4, 0.2, patience=5, perturbation_moves=2)


def list_capacities(problem):
    return np.array([device.memory_bytes for device in problem.devices])


def simulate(problem, placement):
    """Simulates a placement from scratch, not as a move from another one."""
    result = Simulator(problem, threads=1).simulate(np.array(placement, np.int32)[None])
    peaks = result.peak_bytes[0]
    excess = np.maximum(peaks - list_capacities(problem), 0).sum()
    return Candidate(np.array(placement, np.int32), result.step_secs[0], peaks, int(excess))


class Chain:
    """An annealer of a problem with clusters of two groups each."""

    def __init__(self, problem, start, seed=0):
        self.annealer = Annealer(
            problem,
            Simulator(problem, threads=1),
            legal_devices(problem),
            make_levels(group_graph(problem), [np.arange(problem.num_groups) // 2]),
            simulate(problem, start),
            seed=seed,
        )

    @property
    def placement(self):
        return self.annealer.placement

    def run(self, steps, parameters=WARM):
        self.annealer.run(steps, parameters)
        return self.annealer.best


def make_full_problem():
    """Makes a problem of six weights that fill two devices but for four bytes."""
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

    def test_the_best_agrees_with_the_simulator_and_only_improves(self):
        random = np.random.default_rng(0)
        for seed in range(25):
            problem = random_problem(random)
            if seed % 2:
                problem = with_barriers(random, problem)
            start = simulate(problem, random_placement(random, problem))
            chain = Chain(problem, start.placement, seed)
            self.assert_same(chain.annealer.best, start)
            rank = start.rank
            for steps, parameters in (
                (0, WARM),
                (1, WARM),
                (30, WARM),
                (50, PERTURBED),
                (200, COLD),
            ):
                best = chain.run(steps, parameters)
                self.assert_legal(problem, best.placement)
                self.assert_same(best, simulate(problem, best.placement))
                self.assertLessEqual(best.rank, rank)
                rank = best.rank

    def test_no_current_placement_is_better_than_the_best(self):
        random = np.random.default_rng(1)
        for seed in range(8):
            problem = random_problem(random)
            chain = Chain(problem, random_placement(random, problem), seed)
            for _ in range(60):
                best = chain.run(1, PERTURBED)
                self.assert_legal(problem, chain.placement)
                self.assertLessEqual(best.rank, simulate(problem, chain.placement).rank)

    @parameterized.parameters(*itertools.product(SMALL_PROBLEMS, (COLD, PERTURBED)))
    def test_finds_the_optimum_of_small_problems_while_it_cools(self, name, last):
        problem = SMALL_PROBLEMS[name]
        chain = Chain(problem, legal_devices(problem).argmax(axis=1))
        for temperature in (0.1, 0.03, 0.01):
            chain.run(400, ChainParameters(temperature, 0.5))
        best = chain.run(800, last)
        self.assertEqual(best.excess_bytes, 0)
        self.assertTrue(is_optimal(best.step_secs, all_step_secs(problem)[0]))

    def test_accepts_worse_placements_only_while_it_is_warm(self):
        problem = SMALL_PROBLEMS["chain"]
        for parameters, expected in (
            (ChainParameters(5.0, 0.5), True),
            (ChainParameters(1e-9, 0.5), False),
        ):
            # One device is the optimum, and every split is slower.
            chain = Chain(problem, [1] * 8)
            steps = []
            for _ in range(20):
                chain.run(10, parameters)
                steps.append(simulate(problem, chain.placement).step_secs)
            self.assertEqual(max(steps) > 0.8 * (1 + 1e-9), expected)
            self.assertTrue(is_optimal(chain.annealer.best.step_secs, 0.8))

    def test_does_not_change_a_returned_candidate_later(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0] * 8)
        start = chain.annealer.best
        self.assertLess(chain.run(500, COLD).rank, start.rank)
        self.assertEqual(start.placement.tolist(), [0] * 8)
        self.assert_same(start, simulate(problem, [0] * 8))

    def test_reduces_the_excess_until_the_placement_fits(self):
        problem = SMALL_PROBLEMS["memory"]
        chain = Chain(problem, [0] * 8)
        self.assertGreater(chain.annealer.best.excess_bytes, 0)
        self.assertEqual(chain.run(300).excess_bytes, 0)

    def test_finds_the_least_excess_where_no_placement_fits(self):
        problem = make_problem([[1.0] * 2] * 3, resident_bytes=[50, 40, 30], memory_bytes=[60, 50])
        best = Chain(problem, [0, 0, 0]).run(200, COLD)
        # 50 | 40 + 30 exceeds by 20, 40 + 30 | 50 by 10.
        self.assertEqual(best.excess_bytes, 10)
        self.assertEqual(best.placement.tolist(), [1, 0, 0])

    def test_never_leaves_the_placements_that_fit(self):
        random = np.random.default_rng(2)
        num_tight = 0
        while num_tight < 8:
            problem = random_problem(random)
            placements = [random_placement(random, problem) for _ in range(20)]
            excess = [simulate(problem, placement).excess_bytes for placement in placements]
            if not 0.5 < np.count_nonzero(excess) / len(excess) < 1.0:
                continue
            num_tight += 1
            chain = Chain(problem, placements[int(np.argmin(excess))], num_tight)
            for parameters in [WARM] * 50 + [PERTURBED] * 50:
                self.assertEqual(chain.run(1, parameters).excess_bytes, 0)
                if not parameters.patience:
                    self.assertEqual(simulate(problem, chain.placement).excess_bytes, 0)

    def test_makes_room_for_moves_and_continues(self):
        problem = make_full_problem()
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
            self.assertEqual(simulate(problem, np.frombuffer(row, np.int32)).excess_bytes, 0)
        # Most of the time is left for moves that need no room.
        self.assertBetween(len(num_repaired), 20, 10_000 / 100)
        self.assertGreater(sum(num_repaired), 20)
        # A placement of 120 bytes on two devices of 62 fits if each device holds 58 to 62.
        sizes = problem.resident_bytes
        fitting = {
            np.array(placement, np.int32).tobytes()
            for placement in itertools.product(range(2), repeat=6)
            if 58 <= sizes[np.array(placement) == 0].sum() <= 62
        }
        self.assertEqual(seen, fitting)

    def test_drops_a_move_that_does_not_fit_after_making_room(self):
        # Each device is full and no two groups are alike, so only the first placement fits.
        problem = make_problem(
            [[1.0] * 2] * 4, resident_bytes=[50, 8, 40, 20], memory_bytes=[58, 60]
        )
        start = [0, 0, 1, 1]

        def change_nothing(repair, placement, groups, devices, peak_bytes, capacities):
            return groups.copy(), devices.copy()

        with (
            mock.patch.object(MemoryRepair, "repair", change_nothing),
            mock.patch.object(annealing, "_OPERATIONS_PER_REPAIR", 0),
        ):
            chain = Chain(problem, start)
            for _ in range(100):
                best = chain.run(1, ChainParameters(100.0, 0.5))
                self.assertEqual(chain.placement.tolist(), start)
        self.assertEqual(best.placement.tolist(), start)
        # A step simulates one move, and once more the move with its repair.
        self.assertBetween(chain.annealer.num_simulated, 150, 200)

    def test_counts_simulated_placements(self):
        problem = SMALL_PROBLEMS["fork and join"]
        chain = Chain(problem, [0] * 6)
        self.assertEqual(chain.annealer.num_simulated, 0)
        chain.run(70)
        self.assertEqual(chain.annealer.num_simulated, 70)
        chain.run(0)
        chain.run(30)
        self.assertEqual(chain.annealer.num_simulated, 100)

    def test_runs_where_no_group_can_move(self):
        problem = make_problem([[1.0, np.inf], [np.inf, 2.0]])
        chain = Chain(problem, [0, 1])
        best = chain.run(100, PERTURBED)
        self.assertEqual(best.placement.tolist(), [0, 1])
        self.assertEqual(best.step_secs, 2.0)

    def test_restarts_from_the_best_after_fruitless_moves(self):
        # Every split is slower.
        problem = SMALL_PROBLEMS["chain"]
        chain = Chain(problem, [0] * 8)
        chain.run(50, ChainParameters(1e-9, 0.0))
        self.assertLen(set(chain.placement.tolist()), 1)
        before, places = chain.annealer.num_simulated, set()
        for _ in range(200):
            chain.run(1, ChainParameters(1e-9, 0.0, patience=3, perturbation_moves=2))
            places.add(chain.placement.tobytes())
        self.assertGreater(len(places), 10)
        # Perturbations are simulated, too, and count as steps.
        self.assertBetween(chain.annealer.num_simulated - before, 190, 200)
        self.assertTrue(is_optimal(chain.annealer.best.step_secs, 0.8))

    def test_rejects_perturbations_that_do_not_fit(self):
        problem = make_full_problem()
        chain = Chain(problem, [0, 1, 0, 1, 1, 1])
        for _ in range(200):
            chain.run(1, ChainParameters(1e-9, 0.5, patience=1, perturbation_moves=3))
            self.assertEqual(simulate(problem, chain.placement).excess_bytes, 0)
            self.assertEqual(chain.annealer.best.excess_bytes, 0)

    def test_a_restart_changes_the_placement_and_keeps_the_best(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0] * 8)
        best = chain.run(500, COLD)
        worse = simulate(problem, [0, 1] * 4)
        self.assertGreater(worse.rank, best.rank)
        chain.annealer.restart(worse)
        self.assertEqual(chain.placement.tolist(), [0, 1] * 4)
        self.assertEqual(chain.annealer.best.placement.tolist(), best.placement.tolist())
        self.assert_same(chain.annealer.best, best)

    def test_a_restart_from_a_better_placement_updates_the_best(self):
        problem = SMALL_PROBLEMS["two chains"]
        chain = Chain(problem, [0, 1] * 4)
        better = simulate(problem, [0] * 4 + [1] * 4)
        chain.annealer.restart(better)
        self.assertEqual(chain.annealer.best.placement.tolist(), better.placement.tolist())
        self.assert_same(chain.annealer.best, better)

    def test_the_same_seed_visits_the_same_placements(self):
        problem = make_full_problem()
        ways = []
        for seed in (3, 3, 4):
            chain = Chain(problem, [0, 1, 0, 1, 1, 1], seed)
            ways.append([])
            for steps, parameters in itertools.product((1, 1, 7, 100), (WARM, PERTURBED, COLD)):
                chain.run(steps, parameters)
                ways[-1].append((chain.placement.tolist(), chain.annealer.num_simulated))
        self.assertEqual(ways[0], ways[1])
        self.assertNotEqual(ways[0], ways[2])


if __name__ == "__main__":
    absltest.main()
