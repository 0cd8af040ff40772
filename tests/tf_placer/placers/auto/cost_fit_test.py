import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.placers.auto.cost_fit import fit_factors, scale_costs
from tf_placer.simulation.simulator import Simulator


def random_placements(problem, count, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(problem.num_devices, size=[count, problem.num_groups]).astype(np.int32)


class CostFitTest(absltest.TestCase):
    def test_finds_the_factors_that_made_the_measurements(self):
        problem = SMALL_PROBLEMS["two chains"]
        true = scale_costs(problem, np.array([0.5, 2.0]), 3.0)
        placements = random_placements(problem, 30)
        measured = Simulator(true).simulate(placements).step_secs
        factors = fit_factors(problem, placements, measured)
        np.testing.assert_allclose(factors.compute, [0.5, 2.0], rtol=0.15)
        self.assertAlmostEqual(factors.transfer, 3.0, delta=0.3)
        self.assertLess(factors.deviation, 0.03)

    def test_keeps_correct_costs(self):
        problem = SMALL_PROBLEMS["two chains"]
        placements = random_placements(problem, 5)
        factors = fit_factors(
            problem, placements, Simulator(problem).simulate(placements).step_secs
        )
        np.testing.assert_array_equal(factors.compute, 1.0)
        self.assertEqual(factors.transfer, 1.0)
        self.assertEqual(factors.deviation, 0.0)

    def test_hardly_changes_costs_without_measurements(self):
        # With everything on device 0, device 1 and the transfers are not measured.
        problem = SMALL_PROBLEMS["chain"]
        placements = np.zeros([3, problem.num_groups], np.int32)
        measured = 1.5 * Simulator(problem).simulate(placements).step_secs
        factors = fit_factors(problem, placements, measured)
        self.assertAlmostEqual(factors.compute[0], 1.5, delta=0.05)
        self.assertLess(abs(np.log(factors.compute[1])), 0.45)

    def test_the_deviation_estimates_the_noise(self):
        problem = SMALL_PROBLEMS["fork and join"]
        placements = random_placements(problem, 40)
        noise = np.exp(np.random.default_rng(1).normal(0.0, 0.1, 40))
        measured = Simulator(problem).simulate(placements).step_secs * noise
        self.assertBetween(fit_factors(problem, placements, measured).deviation, 0.06, 0.13)

    def test_refuses_invalid_measurements(self):
        problem = SMALL_PROBLEMS["chain"]
        placements = random_placements(problem, 2)
        for secs, message in (
            ([1.0], "a step time for each placement"),
            ([1.0, np.nan], "must be positive"),
            ([1.0, 0.0], "must be positive"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                fit_factors(problem, placements, np.array(secs))


if __name__ == "__main__":
    absltest.main()
