import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from benchmarks.problems.synthetic import unroll_lstm
from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.heuristics.hill_climbing import HillClimbing
from tf_placer.placers.heuristics.learned_moves import LearnedMoves
from tf_placer.problem.problem_groups import group_graph, legal_devices

FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))
ANYWHERE = np.ones([12, 3], np.bool_)


def measure_fastest(placer, problem, count):
    """Measures the fastest step of the first placements."""
    environment = SimulatedEnvironment(problem, threads=1)
    best_secs = np.inf
    while count > 0:
        placements = placer.propose(min(placer.batch_size, count))
        measurements = environment.measure(placements)
        placer.observe(placements, measurements)
        best_secs = min(best_secs, *(m.median_secs or np.inf for m in measurements))
        count -= len(placements)
    return best_secs


def make_trained_placer(measure, seed=0):
    """Makes a placer that has measured 200 moves of a chain of 12."""
    placer = LearnedMoves(graphs.chain(12), ANYWHERE, seed=seed)
    for _ in range(200):
        placements = placer.propose(1)
        placer.observe(placements, [measure(placements[0], placer.current)])
    return placer


class LearnedMovesTest(placer_conformance.PlacerConformance, parameterized.TestCase):
    def new_placer(self, groups, legal, seed):
        return LearnedMoves(groups, legal, seed=seed)

    def test_moves_that_never_gained_become_rare(self):
        # Only moves of a single group are as fast as one device.
        def measure(placement, current):
            is_one = np.count_nonzero(placement != current) == 1
            return Measurement((1.0 if is_one else 2.0,))

        shares = []
        for placer in (make_trained_placer(measure), HillClimbing(graphs.chain(12), ANYWHERE)):
            while len(np.unique(placer.current)) == 1:
                placements = placer.propose(1)
                placer.observe(placements, [Measurement((1.0,))])
            moved = np.count_nonzero(placer.propose(400) != placer.current, axis=1)
            shares.append(np.mean(moved == 1))
        self.assertGreater(shares[0], 1.2 * shares[1])

    def test_keeps_moving_while_all_placements_fail(self):
        placer = make_trained_placer(lambda placement, current: FAILED)
        self.assertTrue((placer.propose(20) != placer.current).any(axis=1).all())

    @parameterized.product(name=tuple(SMALL_PROBLEMS), seed=(0, 1, 2))
    def test_reaches_the_optimum_of_small_problems_in_250_samples(self, name, seed):
        problem = SMALL_PROBLEMS[name]
        placer = LearnedMoves(
            group_graph(problem), legal_devices(problem), seed=seed, problem=problem
        )
        secs = measure_fastest(placer, problem, 250)
        self.assertTrue(is_optimal(np.array(secs), all_step_secs(problem)[0]))

    def test_needs_fewer_samples_than_hill_climbing(self):
        problem = unroll_lstm(4, 10)
        groups, legal = group_graph(problem), legal_devices(problem)
        means = [
            np.mean(
                [
                    np.log(measure_fastest(make(groups, legal, seed=seed), problem, 300))
                    for seed in range(5)
                ]
            )
            for make in (LearnedMoves, HillClimbing)
        ]
        self.assertLess(means[0], means[1])


if __name__ == "__main__":
    absltest.main()
