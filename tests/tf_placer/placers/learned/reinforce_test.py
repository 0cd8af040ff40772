import numpy as np
import tensorflow as tf

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.embedding import GroupFeatures
from tf_placer.placers.learned.reinforce import Reinforce
from tf_placer.placers.learned.seq2seq import Seq2SeqPolicy

_PLACEMENTS = np.array([[0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]], np.int32)


def _policy():
    legal = np.array([[1, 1], [1, 1], [1, 1], [1, 1]], np.bool_)
    policy = Seq2SeqPolicy(
        GroupFeatures.from_groups(graphs.chain(4), shape_dims=2, shape_outputs=1),
        legal,
        type_units=3,
        hidden_units=6,
        attention_units=5,
        device_units=3,
    )
    rng = np.random.default_rng(0)
    policy.set_weights(
        [weights + rng.normal(0, 0.4, weights.shape) for weights in policy.get_weights()]
    )
    return policy


def _loss(policy, weights):
    """The loss, added up outside of TensorFlow."""
    log_probs = policy.log_prob(tf.constant(_PLACEMENTS))[0].numpy().astype(np.float64)
    return float(weights @ log_probs)


class ReinforceTest(tf.test.TestCase):
    def test_gradient_of_every_weight_equals_finite_differences(self):
        policy = _policy()
        before = policy.get_weights()
        signals, baseline = np.array([2.0, 0.5, 1.0]), 1.25
        weights = (signals - baseline) / 3
        reinforce = Reinforce(policy, clip_norm=1e9)
        reinforce._optimizer = tf.keras.optimizers.SGD(1.0)
        reinforce._optimizer.build(policy.trainable_variables)
        loss, norm, _ = reinforce.update(_PLACEMENTS, weights)
        gradients = [old - new for old, new in zip(before, policy.get_weights(), strict=True)]
        policy.set_weights(before)
        self.assertAllClose(loss, _loss(policy, weights), rtol=1e-5)
        self.assertAllClose(norm, np.sqrt(sum((g**2).sum() for g in gradients)), rtol=1e-4)

        rng = np.random.default_rng(1)
        self.assertGreater(min(np.abs(gradient).max() for gradient in gradients), 1e-4)
        for index, gradient in enumerate(gradients):
            # Half random, half along the gradient, so that the slope is not lost in rounding.
            direction = rng.normal(size=gradient.shape)
            direction /= np.linalg.norm(direction)
            direction += gradient / np.linalg.norm(gradient)
            losses = []
            for distance in (1e-2, -1e-2):
                moved = list(before)
                moved[index] = before[index] + distance * direction
                policy.set_weights(moved)
                losses.append(_loss(policy, weights))
            slope = (losses[0] - losses[1]) / 2e-2
            self.assertAllClose(slope, (gradient * direction).sum(), rtol=0.02, atol=2e-5)

    def test_first_adam_step_moves_every_weight_by_the_learning_rate_against_its_gradient(self):
        policy = _policy()
        before = policy.get_weights()
        reinforce = Reinforce(policy, learning_rate=1e-3)
        reinforce.update(_PLACEMENTS, np.array([0.5, -0.25, -0.25]))
        moves = [new - old for old, new in zip(before, policy.get_weights(), strict=True)]
        largest = max(np.abs(move).max() for move in moves)
        self.assertAllClose(largest, 1e-3, rtol=0.02)

    def test_long_gradients_are_shortened_to_the_clip_norm(self):
        policy = _policy()
        before = policy.get_weights()
        reinforce = Reinforce(policy, clip_norm=0.5)
        reinforce._optimizer = tf.keras.optimizers.SGD(1.0)
        reinforce._optimizer.build(policy.trainable_variables)
        _, norm, _ = reinforce.update(_PLACEMENTS, np.array([9.0, -4.0, -5.0]))
        moves = [new - old for old, new in zip(before, policy.get_weights(), strict=True)]
        self.assertGreater(norm, 1.0)
        self.assertAllClose(np.sqrt(sum((move**2).sum() for move in moves)), 0.5, rtol=1e-3)

    def test_better_placements_become_more_probable_than_worse_ones(self):
        policy = _policy()
        before = policy.log_prob(tf.constant(_PLACEMENTS))[0].numpy()
        reinforce = Reinforce(policy, learning_rate=1e-4)
        for _ in range(3):
            reinforce.update(_PLACEMENTS, np.array([0.5, -0.5, 0.0]))
        worse, better, _ = policy.log_prob(tf.constant(_PLACEMENTS))[0].numpy() - before
        self.assertLess(worse, better - 1e-3)

    def test_placements_of_weight_zero_change_nothing(self):
        policy = _policy()
        before = policy.get_weights()
        Reinforce(policy).update(_PLACEMENTS, np.zeros(3))
        for old, new in zip(before, policy.get_weights(), strict=True):
            self.assertAllEqual(old, new)

    def test_reports_the_mean_entropy_of_a_group(self):
        policy = _policy()
        _, entropies = policy.log_prob(tf.constant(_PLACEMENTS))
        _, _, entropy = Reinforce(policy).update(_PLACEMENTS, np.ones(3))
        self.assertAllClose(entropy, np.mean(entropies) / 4)
        self.assertBetween(entropy, 0.0, np.log(2))

    def test_is_compiled_once(self):
        reinforce = Reinforce(_policy())
        for weight in (0.1, 0.2, 0.3):
            reinforce.update(_PLACEMENTS, np.full(3, weight))
        self.assertEqual(reinforce.step.experimental_get_tracing_count(), 1)


if __name__ == "__main__":
    tf.test.main()
