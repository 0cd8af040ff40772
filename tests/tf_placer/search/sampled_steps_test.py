import numpy as np
from absl.testing import absltest

from tf_placer.search.sampled_steps import SampledSteps


class SampledStepsTest(absltest.TestCase):
    def test_infeasible_placements_have_no_step_time(self):
        sampled = SampledSteps()
        sampled.add(np.array([3.0, 2.0, 1.0]), np.array([True, True, False]))
        self.assertEqual([each.step_secs for each in sampled.samples], [3.0, 2.0, None])
        self.assertEqual([each.number for each in sampled.best], [1, 2])

    def test_many_samples_are_thinned_out_but_improvements_are_not(self):
        steps = np.random.default_rng(0).permutation(50_000).astype(float)
        sampled = SampledSteps()
        for batch in np.split(steps, 500):
            sampled.add(batch, np.ones(len(batch), bool))
        numbers = np.array([each.number for each in sampled.samples])
        self.assertBetween(len(numbers), 2000, 4000)
        self.assertLen(set(np.diff(numbers)), 1)
        running = np.minimum.accumulate(steps)
        better = np.flatnonzero(np.diff(running, prepend=np.inf)) + 1
        self.assertEqual([each.number for each in sampled.best], better.tolist())


if __name__ == "__main__":
    absltest.main()
