import numpy as np
import tensorflow as tf

from tests.tf_placer.placers.learned.algorithms.table_agent import TableAgent, plain_steps
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tf_placer.placers.learned.algorithms.gradient_steps import GradientSteps

setUpModule = leave_graphs_as_traced

_ACTIONS = [np.zeros([2, 1], np.int32)]


class GradientStepsTest(tf.test.TestCase):
    def test_a_gradient_that_is_not_finite_ends_the_update_before_its_step(self):
        agent = TableAgent(np.zeros([1, 2]))
        num_steps = tf.Variable(0.0)

        def loss(now, before, advantages, weights):
            # The first step is a plain one, the second one beyond all numbers.
            factor = tf.where(num_steps.assign_add(1.0) < 2, 1.0, np.inf)
            return tf.reduce_sum(now[0].log_dists[..., 0] * advantages) * factor

        steps = GradientSteps("ppo", agent, plain_steps(agent), loss, num_steps=4)
        update = steps.run(_ACTIONS, -np.ones(2), np.ones(2, np.bool_))
        self.assertFalse(np.isfinite(update.gradient_norm))
        self.assertEqual(float(num_steps), 2)
        # The gradient of 2 log softmax.
        self.assertAllClose(agent.tables()[0], [[1.0, -1.0]])
        self.assertGreater(update.divergence, 0)

    def test_every_set_of_decisions_weighs_the_same_in_a_report(self):
        # One decision with an entropy of log 2, and nine of which only one counts and is certain.
        certain = np.array([[100.0, -100.0]] * 9)
        counted = [np.ones([1, 1]), np.eye(9)[:1]]
        agent = TableAgent(np.zeros([1, 2]), certain, counted=counted)

        def loss(now, before, advantages, weights):
            return -tf.reduce_sum(now[0].log_dists[..., 0] * weights) * 2.0

        steps = GradientSteps("made up", agent, plain_steps(agent), loss)
        actions = [np.zeros([2, 1], np.int32), np.zeros([2, 9], np.int32)]
        update = steps.run(actions, np.ones(2), np.ones(2, np.bool_))
        self.assertAllClose(update.entropy, np.log(2) / 2)
        # The first logits become 1 and -1.
        share = 1 / (1 + np.exp(-2))
        expected = 0.5 * np.log(0.5 / share) + 0.5 * np.log(0.5 / (1 - share))
        self.assertAllClose(update.divergence, expected / 2, rtol=1e-5)

    def test_only_comparing_losses_see_the_decisions_before(self):
        for compares in (False, True):
            agent = TableAgent(np.zeros([1, 2]))
            seen = []

            def loss(now, before, advantages, weights, seen=seen):
                seen.append(len(before))
                return tf.reduce_sum(now[0].log_dists)

            steps = GradientSteps("made up", agent, plain_steps(agent), loss, compares=compares)
            steps.run(_ACTIONS, np.ones(2), np.ones(2, np.bool_))
            self.assertEqual(seen, [int(compares)])


if __name__ == "__main__":
    tf.test.main()
