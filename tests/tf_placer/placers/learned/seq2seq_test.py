import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.embedding import GroupFeatures
from tf_placer.placers.learned.seq2seq import Seq2SeqPolicy, _additive_scores


def _policy(legal, seed=0, **options):
    groups = graphs.chain(len(legal))
    sizes = {"type_units": 4, "hidden_units": 8, "attention_units": 6, "device_units": 4}
    return Seq2SeqPolicy(
        GroupFeatures.from_groups(groups), np.array(legal), seed=seed, **sizes | options
    )


def _sharpen(policy, seed=0):
    """Moves all weights far from where they start, so that no two placements are alike."""
    rng = np.random.default_rng(seed)
    policy.set_weights(
        [weights + rng.normal(0, 0.7, weights.shape) for weights in policy.get_weights()]
    )


def _seed(first, row=0):
    return tf.constant([first, row], tf.int64)


def _reference_log_probs(policy, legal, placements, feed_item):
    """The network in plain numpy, one placement and one step at a time."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def lstm(weights, inputs, hidden, cell):
        kernel, recurrent, bias = weights
        i, f, c, o = np.split(inputs @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(cell), cell

    type_weights = policy._type_weights.numpy()
    items = np.concatenate(
        [
            type_weights @ tf.convert_to_tensor(policy._type_vectors).numpy(),
            policy._fixed_features.numpy(),
        ],
        axis=1,
    ).astype(np.float64)
    half = policy._forward_encoder.units
    states, finals = [], []
    for layer, order in ((policy._forward_encoder, 1), (policy._backward_encoder, -1)):
        hidden, cell, outputs = np.zeros(half), np.zeros(half), []
        for item in items[::order]:
            hidden, cell = lstm(layer.get_weights(), item, hidden, cell)
            outputs.append(hidden)
        states.append(np.array(outputs)[::order])
        finals.append((hidden, cell))
    encoded = np.concatenate(states, axis=1)
    key_kernel, key_bias = policy._keys.get_weights()
    (query_kernel,) = policy._query.get_weights()
    scorer = tf.convert_to_tensor(policy._scorer).numpy()[:, 0]
    device_vectors = tf.convert_to_tensor(policy._device_vectors).numpy()
    logit_kernel, logit_bias = policy._logits.get_weights()
    result = []
    for placement in placements:
        hidden, cell = (np.concatenate(pair) for pair in zip(*finals, strict=True))
        previous, total = len(device_vectors) - 1, 0.0
        for group, device in enumerate(placement):
            scores = np.tanh(encoded @ key_kernel + key_bias + hidden @ query_kernel) @ scorer
            attention = np.exp(scores - scores.max())
            attention /= attention.sum()
            inputs = [device_vectors[previous], attention @ encoded]
            if feed_item:
                inputs.append(encoded[group])
            hidden, cell = lstm(policy._decoder.get_weights(), np.concatenate(inputs), hidden, cell)
            logits = (hidden @ logit_kernel + logit_bias)[legal[group]]
            chosen = np.flatnonzero(legal[group]).tolist().index(device)
            total += logits[chosen] - np.log(np.exp(logits).sum())
            previous = device
        result.append(total)
    return result


class Seq2SeqPolicyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_probabilities_of_all_placements_sum_to_one(self, feed_item):
        legal = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 0]], np.bool_)
        policy = _policy(legal, feed_item=feed_item)
        _sharpen(policy)
        everything = itertools.product(*(np.flatnonzero(row) for row in legal))
        placements = np.array(list(everything), np.int32)
        log_probs, entropies = policy.log_prob(tf.constant(placements))
        self.assertLen(placements, 18)
        probabilities = np.exp(log_probs.numpy().astype(np.float64))
        self.assertAllClose(probabilities.sum(), 1.0, atol=1e-5)
        # The expectation of the summed conditional entropies is the entropy of the whole.
        self.assertAllClose(
            (probabilities * entropies.numpy()).sum(),
            -(probabilities * log_probs.numpy()).sum(),
            atol=1e-4,
        )
        self.assertGreater(probabilities.std(), 0.01)

    @parameterized.parameters(False, True)
    def test_log_probabilities_equal_those_of_the_equations_in_numpy(self, feed_item):
        legal = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 0]], np.bool_)
        policy = _policy(legal, feed_item=feed_item)
        _sharpen(policy)
        placements = policy.sample(6, _seed(1))[0].numpy()
        self.assertAllClose(
            policy.log_prob(tf.constant(placements))[0],
            _reference_log_probs(policy, legal, placements, feed_item),
            rtol=1e-4,
            atol=1e-4,
        )

    def test_samples_come_with_their_log_probabilities(self):
        policy = _policy(np.ones([5, 3], np.bool_))
        _sharpen(policy)
        placements, log_probs = policy.sample(4, _seed(2))
        self.assertEqual((placements.dtype, placements.shape), (tf.int32, (4, 5)))
        self.assertAllClose(log_probs, policy.log_prob(placements)[0], atol=1e-5)
        self.assertAllEqual(policy(placements), policy.log_prob(placements)[0])

    def test_samples_have_the_distribution_of_the_policy(self):
        legal = np.array([[1, 1], [1, 0], [1, 1]], np.bool_)
        policy = _policy(legal)
        _sharpen(policy, seed=4)
        placements = np.array([[a, 0, b] for a in (0, 1) for b in (0, 1)], np.int32)
        expected = np.exp(policy.log_prob(tf.constant(placements))[0].numpy())
        samples = policy.sample(4000, _seed(0))[0].numpy()
        self.assertAllEqual(samples[:, 1], np.zeros(4000))
        counts = np.bincount(2 * samples[:, 0] + samples[:, 2], minlength=4)
        # Five standard deviations of a binomial count with 4000 draws are below 160.
        self.assertAllClose(counts, 4000 * expected, atol=160)

    def test_no_logits_make_an_illegal_device_win(self):
        legal = np.array([[1, 0], [0, 1], [1, 1]], np.bool_)
        policy = _policy(legal)
        kernel, _ = policy._logits.get_weights()
        policy._logits.set_weights([kernel, np.array([1e12, -1e12])])
        samples, log_probs = policy.sample(64, _seed(0))
        self.assertAllEqual(samples[:, :2], np.tile([0, 1], [64, 1]))
        self.assertAllClose(log_probs, np.zeros(64))
        self.assertAllEqual(np.isfinite(policy.log_prob(samples)[1]), np.ones(64))

    def test_a_sample_depends_on_its_own_seed_alone(self):
        policy = _policy(np.ones([9, 2], np.bool_))
        first = policy.sample(4, _seed(7))[0]
        self.assertAllEqual(policy.sample(4, _seed(7))[0], first)
        self.assertAllEqual(policy.sample(2, _seed(7, 2))[0], first[2:])
        self.assertNotAllEqual(policy.sample(4, _seed(8))[0], first)
        self.assertLen(np.unique(first, axis=0), 4)

    def test_initial_weights_depend_on_the_seed_alone(self):
        legal = np.ones([4, 2], np.bool_)
        first, again, other = (_policy(legal, seed).get_weights() for seed in (1, 1, 2))
        for left, right in zip(first, again, strict=True):
            self.assertAllEqual(left, right)
        self.assertTrue(
            any((left != right).any() for left, right in zip(first, other, strict=True))
        )

    def test_both_directions_of_the_encoder_start_with_weights_of_their_own(self):
        policy = _policy(np.ones([4, 2], np.bool_))
        forward, backward = policy._forward_encoder, policy._backward_encoder
        for left, right in zip(forward.get_weights()[:2], backward.get_weights()[:2], strict=True):
            self.assertNotAllClose(left, right)

    def test_first_samples_are_spread(self):
        policy = _policy(np.ones([8, 3], np.bool_), hidden_units=512)
        _, entropies = policy.log_prob(policy.sample(4, _seed(0))[0])
        self.assertAllGreater(entropies / (8 * np.log(3)), 0.9)

    def test_refuses_an_odd_number_of_hidden_units(self):
        with self.assertRaisesRegex(ValueError, "hidden_units must be even, not 7"):
            _policy(np.ones([4, 2], np.bool_), hidden_units=7)


class AdditiveScoresTest(tf.test.TestCase):
    def test_value_and_gradient_equal_those_of_the_plain_formula(self):
        rng = np.random.default_rng(0)
        arguments = [
            tf.constant(rng.normal(size=shape), tf.float32) for shape in ([3, 5], [4, 5], [5, 1])
        ]
        upstream = tf.constant(rng.normal(size=[3, 4]), tf.float32)

        def plain(query, keys, scorer):
            return tf.squeeze(tf.tanh(query[:, None] + keys[None]) @ scorer, -1)

        results = []
        for scores in (_additive_scores, plain):
            with tf.GradientTape() as tape:
                tape.watch(arguments)
                value = scores(*arguments)
                total = tf.reduce_sum(value * upstream)
            results.append([value, *tape.gradient(total, arguments)])
        self.assertAllClose(*results, rtol=1e-5)


if __name__ == "__main__":
    tf.test.main()
