import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from benchmarks.problems.synthetic import unroll_lstm
from tests.tf_placer.placers import graphs, placer_conformance, problems
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.heuristics.hill_climbing import HillClimbing
from tf_placer.placers.heuristics.simulated_annealing import SimulatedAnnealing
from tf_placer.placers.heuristics.uniform_random import UniformRandom
from tf_placer.problem.problem_groups import group_graph, legal_devices

_CLIMBERS = (HillClimbing, SimulatedAnnealing)
_EVERYWHERE = np.ones([4, 2], np.bool_)


def _measure_steps(placer, problem, count):
    """Measures the step times of the first placements, infinite where they do not fit."""
    environment = SimulatedEnvironment(problem, threads=1)
    steps = []
    while len(steps) < count:
        placements = placer.propose(min(placer.batch_size, count - len(steps)))
        measurements = environment.measure(placements)
        placer.observe(placements, measurements)
        steps += [m.median_secs or np.inf for m in measurements]
    return np.array(steps)


def _make_climber(first=1.0):
    """Makes a climber on a chain of four that has measured its 4 starts, zeros being the best."""
    placer = HillClimbing(graphs.chain(4), _EVERYWHERE)
    placer.observe(placer.propose(4), [Measurement((first + k,)) for k in range(4)])
    return placer


class HillClimbingTest(placer_conformance.PlacerConformance, parameterized.TestCase):
    def new_placer(self, groups, legal, seed):
        return HillClimbing(groups, legal, seed=seed)

    def assert_at(self, placer, placement):
        distances = np.count_nonzero(placer.propose(60) != placement, axis=1)
        self.assertTrue((distances > 0).all() and (distances == 1).any(), distances)

    def test_accepts_better_or_equal_placements_only(self):
        placer = _make_climber()
        for secs, is_taken in ((1.1, False), (1.0, True), (0.9, True), (0.95, False)):
            move = placer.propose(1)
            before = placer.current.copy()
            placer.observe(move, [Measurement((secs,))])
            self.assertEqual(placer.current.tolist(), (move[0] if is_taken else before).tolist())

    def test_perturbs_the_best_after_enough_fruitless_moves(self):
        placer = _make_climber()
        better = placer.propose(1)
        placer.observe(better, [Measurement((0.5,))])
        for _ in range(16):
            self.assert_at(placer, better[0])
            placer.observe(placer.propose(1), [Measurement((0.6,))])
        perturbed = placer.propose(1)
        # The next moves start from the perturbation, even if it is slow.
        placer.observe(perturbed, [Measurement((7.0,))])
        self.assert_at(placer, perturbed[0])
        move = placer.propose(1)
        placer.observe(move, [Measurement((6.0,))])
        self.assert_at(placer, move[0])

    def test_visits_all_placements_while_all_fail(self):
        failure = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))
        placer = HillClimbing(graphs.chain(4), _EVERYWHERE)
        placer.observe(placer.propose(4), [failure] * 4)
        seen = set()
        for _ in range(60):
            placements = placer.propose(2)
            seen |= {tuple(row) for row in placements.tolist()}
            placer.observe(placements, [failure] * 2)
        self.assertLen(seen, 16)

    def test_finds_a_placement_that_fits_by_its_excess_bytes(self):
        # 20 groups of one byte on devices of 2 to 6 bytes fill the memory completely.
        sizes = np.array([2, 3, 4, 5, 6])
        problem = problems.build_task_problem([(1,) * 5] * 20, memory_bytes=sizes.tolist())
        failure = Failure(FailureKind.OUT_OF_MEMORY, "made up")
        placer = HillClimbing(graphs.chain(20), np.ones([20, 5], np.bool_), problem=problem)
        for _ in range(40):
            placements = placer.propose(placer.batch_size)
            measurements = []
            for row in placements:
                held = np.bincount(row, minlength=5)
                measurements.append(
                    Measurement((1.0,), peak_bytes=tuple(held))
                    if (held <= sizes).all()
                    else Measurement(failure=failure, peak_bytes=tuple(held))
                )
            placer.observe(placements, measurements)
        self.assertEqual(placer.best[1], (0, 1.0))

    @parameterized.product(placer=_CLIMBERS, name=tuple(SMALL_PROBLEMS), seed=(0, 1, 2))
    def test_reaches_the_optimum_of_small_problems_in_250_samples(self, placer, name, seed):
        problem = SMALL_PROBLEMS[name]
        made = placer(group_graph(problem), legal_devices(problem), seed=seed, problem=problem)
        steps = _measure_steps(made, problem, 250)
        self.assertTrue(is_optimal(steps, all_step_secs(problem)[0]).any())

    @parameterized.parameters(*_CLIMBERS)
    def test_beats_random_search_and_its_own_starts(self, placer):
        # If both were equal, the test would pass once in 252 times.
        problem = unroll_lstm(4, 10)
        groups, legal = group_graph(problem), legal_devices(problem)
        found, random = (
            [_measure_steps(make(groups, legal, seed=seed), problem, 300) for seed in range(5)]
            for make in (placer, UniformRandom)
        )
        self.assertLess(max(s.min() for s in found), min(s.min() for s in random))
        num_starts = len(placer(groups, legal).propose(99))
        for steps in found:
            self.assertLess(steps.min(), steps[:num_starts].min())


if __name__ == "__main__":
    absltest.main()
