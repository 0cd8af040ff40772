import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.heuristics.simulated_annealing import SimulatedAnnealing

_FIRST_COOLING = 800


def _make_annealer(num_groups=6, seed=0):
    """Makes an annealer whose starts took 1, 2, 3 ... seconds."""
    placer = SimulatedAnnealing(
        graphs.chain(num_groups), np.ones([num_groups, 2], np.bool_), seed=seed
    )
    starts = placer.propose(99)
    placer.observe(starts, [Measurement((1.0 + k,)) for k in range(len(starts))])
    return placer


def _measure_move(placer, secs):
    """Measures one move, and tells whether it was accepted."""
    move = placer.propose(1)
    placer.observe(move, [Measurement((secs,))])
    return placer.current.tolist() == move[0].tolist()


class SimulatedAnnealingTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return SimulatedAnnealing(groups, legal, seed=seed)

    def test_always_accepts_better_or_equal_placements(self):
        placer = _make_annealer()
        for secs in (1.0, 0.9, 0.9, 0.5):
            self.assertTrue(_measure_move(placer, secs))

    def test_the_first_temperature_is_a_quantile_of_increases(self):
        placer = _make_annealer()
        self.assertEqual(placer.temperature, 0.0)
        moves = placer.propose(11)
        # The temperature is 0 in this batch, so all moves are rejected and compared with 1 s.
        factors = [math.exp(k / 100) for k in range(1, 12)]
        placer.observe(moves, [Measurement((factor,)) for factor in factors])
        # The 10 % quantile of 0.01 to 0.11 is 0.02, cooled by 11 moves.
        self.assertAlmostEqual(placer.temperature, 0.02 * 0.01 ** (11 / _FIRST_COOLING), places=12)

    def test_accepts_worse_moves_with_the_probability_of_their_factor(self):
        taken = 0
        expected = []
        for seed in range(300):
            placer = _make_annealer(seed=seed)
            placer.observe(placer.propose(8), [Measurement((math.exp(0.02),))] * 8)
            temperature = placer.temperature
            taken += _measure_move(placer, math.exp(0.02))
            expected.append(math.exp(-0.02 / temperature))
        probability = np.mean(expected)
        self.assertBetween(probability, 0.3, 0.4)
        # A deviation of 4 standard deviations occurs by chance once in 16,000 times.
        deviation = math.sqrt(probability * (1 - probability) / 300)
        self.assertBetween(taken / 300, probability - 4 * deviation, probability + 4 * deviation)

    def test_never_accepts_a_failure_instead_of_a_placement_that_runs(self):
        placer = _make_annealer()
        placer.observe(placer.propose(8), [Measurement((1.01,))] * 8)
        before = placer.current.tolist()
        failure = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))
        for _ in range(50):
            placer.observe(placer.propose(1), [failure])
        self.assertEqual(placer.current.tolist(), before)

    def test_cools_to_a_hundredth_and_starts_again_from_the_best(self):
        placer = _make_annealer()
        best = placer.propose(1)
        placer.observe(best, [Measurement((0.5,))])
        placer.observe(placer.propose(8), [Measurement((0.6,))] * 8)
        first = placer.temperature / 0.01 ** (9 / _FIRST_COOLING)
        for count in [39] * 20 + [10]:  # One of the 791 remaining moves is left.
            placer.observe(placer.propose(count), [Measurement((0.6,))] * count)
        # All moves take 0.6 s, so no increase changes the first temperature.
        self.assertAlmostEqual(placer.temperature / first, 0.01, delta=0.001)
        placer.observe(placer.propose(1), [Measurement((0.6,))])
        self.assertEqual(placer.current.tolist(), best[0].tolist())
        self.assertAlmostEqual(placer.temperature, first, places=12)


if __name__ == "__main__":
    absltest.main()
