import numpy as np
from absl.testing import absltest

from benchmarks.paper_figures.distribution import learn_distributions, two_operations
from tf_placer.simulation.simulator import Simulator


class DistributionTest(absltest.TestCase):
    def test_it_begins_uniform_and_ends_at_the_best_placement(self):
        problem = two_operations()
        stages = list(learn_distributions(problem).values())
        placements = np.stack(np.indices((4, 4)), axis=-1).reshape(-1, 2).astype(np.int32)
        steps = Simulator(problem).simulate(placements).step_secs.reshape(4, 4)
        for share in stages:
            self.assertAlmostEqual(share.sum(), 1.0)
        np.testing.assert_allclose(stages[0], 1 / 16)
        best = np.unravel_index(np.argmin(steps), steps.shape)
        self.assertEqual(np.unravel_index(np.argmax(stages[-1]), steps.shape), best)
        self.assertGreater(stages[-1][best], 0.5)
        # In between it is nearer to the best, and not there yet.
        self.assertBetween(stages[1][best], stages[0][best], stages[-1][best])


if __name__ == "__main__":
    absltest.main()
