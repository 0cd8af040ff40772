import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.heuristics.simulated_annealing import SimulatedAnnealing

_FIRST_COOLING = 800


def _after_starts(num_groups=6, seed=0):
    """An annealer whose starts took 1, 2, 3 ... seconds."""
    placer = SimulatedAnnealing(
        graphs.chain(num_groups), np.ones([num_groups, 2], np.bool_), seed=seed
    )
    starts = placer.propose(99)
    placer.observe(starts, [Measurement((1.0 + k,)) for k in range(len(starts))])
    return placer


def _take(placer, secs):
    """Measures one move; whether it was taken."""
    move = placer.propose(1)
    placer.observe(move, [Measurement((secs,))])
    return placer.current.tolist() == move[0].tolist()


class SimulatedAnnealingTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return SimulatedAnnealing(groups, legal, seed=seed)

    def test_always_takes_what_is_better_or_equal(self):
        placer = _after_starts()
        for secs in (1.0, 0.9, 0.9, 0.5):
            self.assertTrue(_take(placer, secs))

    def test_the_first_temperature_is_that_of_small_changes_for_the_worse(self):
        placer = _after_starts()
        self.assertEqual(placer.temperature, 0.0)
        moves = placer.propose(11)
        # Nothing worse is taken in this batch, so all are beside 1 s.
        factors = [math.exp(k / 100) for k in range(1, 12)]
        placer.observe(moves, [Measurement((factor,)) for factor in factors])
        # A tenth of 1 to 11 hundredths: 2 hundredths; 11 moves have cooled it.
        self.assertAlmostEqual(placer.temperature, 0.02 * 0.01 ** (11 / _FIRST_COOLING), places=12)

    def test_takes_a_move_for_the_worse_with_the_probability_of_its_factor(self):
        taken = 0
        expected = []
        for seed in range(300):
            placer = _after_starts(seed=seed)
            placer.observe(placer.propose(8), [Measurement((math.exp(0.02),))] * 8)
            temperature = placer.temperature
            taken += _take(placer, math.exp(0.02))
            expected.append(math.exp(-0.02 / temperature))
        probability = np.mean(expected)
        self.assertBetween(probability, 0.3, 0.4)
        # Within 4 standard deviations; wrong about once in 16,000 times.
        deviation = math.sqrt(probability * (1 - probability) / 300)
        self.assertBetween(taken / 300, probability - 4 * deviation, probability + 4 * deviation)

    def test_never_leaves_what_runs_for_what_fails(self):
        placer = _after_starts()
        placer.observe(placer.propose(8), [Measurement((1.01,))] * 8)
        before = placer.current.tolist()
        failure = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))
        for _ in range(50):
            placer.observe(placer.propose(1), [failure])
        self.assertEqual(placer.current.tolist(), before)

    def test_cools_to_a_hundredth_and_starts_again_from_the_best(self):
        placer = _after_starts()
        best = placer.propose(1)
        placer.observe(best, [Measurement((0.5,))])
        placer.observe(placer.propose(8), [Measurement((0.6,))] * 8)
        first = placer.temperature / 0.01 ** (9 / _FIRST_COOLING)
        for count in [39] * 20 + [10]:  # All but one of the 791 that are left.
            placer.observe(placer.propose(count), [Measurement((0.6,))] * count)
        # Moves from what was taken are beside 0.6 s, and none is for the worse: it stays as it was.
        self.assertAlmostEqual(placer.temperature / first, 0.01, delta=0.001)
        placer.observe(placer.propose(1), [Measurement((0.6,))])
        self.assertEqual(placer.current.tolist(), best[0].tolist())
        self.assertAlmostEqual(placer.temperature, first, places=12)


if __name__ == "__main__":
    absltest.main()
