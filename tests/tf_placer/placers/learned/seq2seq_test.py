from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests.tf_placer.placers.learned import policy_conformance
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced, run_eagerly
from tests.tf_placer.placers.learned.policy_conformance import LEGAL, OTHER_LEGAL, PolicyConformance
from tf_placer.placers.learned import seq2seq
from tf_placer.placers.learned.seq2seq import Seq2SeqConfig, Seq2SeqPolicy

setUpModule = leave_graphs_as_traced

_SIZES = {"type_units": 4, "hidden_units": 8, "attention_units": 6, "device_units": 4}
_VARIANTS = (
    {},
    {"feed_item": True, "merged_adjacency": True},
    # Few units: the context is averaged before it is told to the gates.
    {"hidden_units": 2},
    {"attention": "after", "type_units": 0, "tanh_limit": 1.0},
    {"attention": "after", "feed_item": True, "read_adjacency": False},
)


def _reference_log_prob(policy, weights, given, placement):
    """The log-probability of the first inputs' placement in plain numpy, a step at a time."""
    config, weights = policy._config, iter(weights)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def lstm(kernel, recurrent, bias, inputs, hidden, cell):
        i, f, c, o = np.split(inputs @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(cell), cell

    items, features, sent, legal = (field[0].numpy() for field in given[:4])
    if config.type_units:
        items = items @ next(weights)
    items = [items, features]
    if config.read_adjacency:
        items += [np.maximum(sent, sent.T)] if config.merged_adjacency else [sent.T, sent]
    items = np.concatenate(items, axis=1)
    device_vectors, query_kernel, scorer = (next(weights) for _ in range(3))
    states, finals = [], []
    for order in (1, -1):
        layer = [next(weights) for _ in range(3)]
        hidden, cell, outputs = *np.zeros([2, config.hidden_units // 2]), []
        for item in items[::order]:
            hidden, cell = lstm(*layer, item, hidden, cell)
            outputs.append(hidden)
        states.append(np.array(outputs)[::order])
        finals.append((hidden, cell))
    encoded = np.concatenate(states, axis=1)
    decoder = [next(weights) for _ in range(3)]
    key_kernel, key_bias, logit_kernel, logit_bias = weights

    def context(query):
        hidden = np.tanh(encoded @ key_kernel + key_bias + query @ query_kernel)
        shares = np.exp(hidden @ scorer[:, 0])
        return shares / shares.sum() @ encoded

    hidden, cell = (np.concatenate(pair) for pair in zip(*finals, strict=True))
    previous, total = len(device_vectors) - 1, 0.0
    for group, device in enumerate(placement):
        read = [device_vectors[previous]]
        if config.attention == "before":
            read.append(context(hidden))
        if config.feed_item:
            read.append(encoded[group])
        hidden, cell = lstm(*decoder, np.concatenate(read), hidden, cell)
        output = hidden
        if config.attention == "after":
            output = np.concatenate([hidden, context(hidden)])
        logits = output @ logit_kernel + logit_bias
        if config.tanh_limit is not None:
            logits = config.tanh_limit * np.tanh(logits / config.tanh_limit)
        total += logits[device] - np.log(np.exp(logits[legal[group]]).sum())
        previous = device
    return total


def _variables(policy):
    """The weights of a policy in the order of `_reference_log_prob`."""
    cells = (policy._forward_encoder, policy._backward_encoder, policy._decoder)
    return [
        *([policy._type_vectors] if policy._config.type_units else []),
        *(policy._device_vectors, policy._query, policy._scorer),
        *(weight for cell in cells for weight in (cell.kernel, cell.recurrent_kernel, cell.bias)),
        *(policy._keys.kernel, policy._keys.bias, policy._logits.kernel, policy._logits.bias),
    ]


def _make(legal, num_types, num_features, seed=0, **options):
    config = Seq2SeqConfig(**_SIZES | options)
    return Seq2SeqPolicy(*legal.shape, num_types, num_features, config, seed)


class _Conformance(PolicyConformance):
    def setUp(self):
        super().setUp()
        run_eagerly(self)


class AttentionBeforeTest(_Conformance, tf.test.TestCase):
    def make(self, legal, num_types, num_features, seed=0):
        return _make(legal, num_types, num_features, seed)


class AttentionAfterTest(_Conformance, tf.test.TestCase):
    def make(self, legal, num_types, num_features, seed=0):
        options = {"attention": "after", "feed_item": True, "type_units": 0}
        return _make(legal, num_types, num_features, seed, **options)


class Seq2SeqPolicyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_VARIANTS)
    def test_log_probabilities_and_gradients_equal_those_of_the_equations_in_numpy(self, **options):
        run_eagerly(self)
        policy = _make(LEGAL, 2, 3, **options)
        policy_conformance.sharpen(policy)
        both = policy_conformance.inputs(LEGAL, OTHER_LEGAL)
        placements = [np.array([0, 2, 1], np.int32), np.array([1, 1, 2], np.int32)]
        variables = _variables(policy)
        self.assertLen(variables, len(policy.trainable_variables))
        weights = [tf.convert_to_tensor(weight).numpy().astype(np.float64) for weight in variables]

        def reference(weights):
            rows = [policy_conformance.row(both, index) for index in (0, 1)]
            return [
                _reference_log_prob(policy, weights, *pair)
                for pair in zip(rows, placements, strict=True)
            ]

        for given, chosen, factors in (
            # Twice the same groups, then groups of each placement's own.
            (policy_conformance.row(both, 0), [placements[0]] * 2, [0.5, 0.5]),
            (both, placements, [1.0, -2.0]),
        ):
            one_hot = tf.one_hot(tf.constant(np.stack(chosen)), 3)
            with tf.GradientTape() as tape:
                log_dists = policy.log_dists(given, tf.constant(np.stack(chosen)))
                log_probs = tf.reduce_sum(one_hot * log_dists, axis=[1, 2])
                loss = tf.reduce_sum(log_probs * factors)
            gradients = tape.gradient(loss, variables)
            gradients = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
            expected = np.array(reference(weights))
            if given is both:
                self.assertAllClose(log_probs, expected, atol=1e-4)
            else:
                self.assertAllClose(log_probs, expected[[0, 0]], atol=1e-4)
                factors = [1.0, 0.0]

            rng = np.random.default_rng(1)
            for index, gradient in enumerate(gradients):
                # Half random, half along the gradient, so that the slope is not lost in rounding.
                direction = rng.normal(size=gradient.shape)
                direction /= np.linalg.norm(direction)
                direction += gradient / np.linalg.norm(gradient)
                losses = []
                for distance in (1e-5, -1e-5):
                    moved = list(weights)
                    moved[index] = weights[index] + distance * direction
                    losses.append(np.dot(reference(moved), factors))
                slope = (losses[0] - losses[1]) / 2e-5
                self.assertAllClose((gradient * direction).sum(), slope, rtol=1e-3, atol=1e-5)

    def test_later_devices_depend_on_earlier_ones_and_not_the_other_way_round(self):
        policy = _make(LEGAL, 2, 3)
        policy_conformance.sharpen(policy)
        placements = tf.constant([[0, 0, 0], [2, 0, 0], [0, 0, 1]])
        log_dists = policy.log_dists(policy_conformance.inputs(LEGAL), placements).numpy()
        self.assertAllClose(log_dists[0], log_dists[2], rtol=1e-5)
        self.assertAllClose(log_dists[0, 0], log_dists[1, 0], rtol=1e-5)
        for group in (1, 2):
            self.assertNotAllClose(log_dists[0, group], log_dists[1, group], atol=1e-3)

    def test_the_limit_keeps_every_device_possible(self):
        policy = _make(LEGAL, 2, 3, tanh_limit=1.0)
        policy_conformance.sharpen(policy, scale=50)
        log_dists = policy.log_dists(policy_conformance.inputs(LEGAL), tf.zeros([1, 3], tf.int32))
        # Logits are in [-1, 1], so no device is e^2 times more probable than another.
        self.assertAllGreater(np.exp(log_dists)[0, LEGAL], 1 / (1 + 2 * np.e**2) - 1e-6)

    def test_does_not_read_adjacency_if_told_so(self):
        given = policy_conformance.inputs(LEGAL)
        without = given._replace(adjacency=tf.zeros_like(given.adjacency))
        devices = tf.zeros([1, 3], tf.int32)
        for read_adjacency in (True, False):
            policy = _make(LEGAL, 2, 3, read_adjacency=read_adjacency)
            policy_conformance.sharpen(policy)
            same = np.array_equal(
                policy.log_dists(given, devices), policy.log_dists(without, devices)
            )
            self.assertEqual(same, not read_adjacency)

    def test_both_directions_of_the_encoder_start_with_weights_of_their_own(self):
        policy = _make(LEGAL, 2, 3)
        forward, backward = policy._forward_encoder, policy._backward_encoder
        for left, right in zip(forward.get_weights()[:2], backward.get_weights()[:2], strict=True):
            self.assertNotAllClose(left, right)

    @parameterized.parameters("before", "after")
    def test_compiled_or_not_computes_the_same(self, attention):
        given = policy_conformance.inputs(LEGAL, OTHER_LEGAL)
        results = []
        for least in (1, 10**9):
            with mock.patch.object(seq2seq, "_MIN_COMPILED_SIZE", least):
                policy = _make(LEGAL, 2, 3, attention=attention)
            policy_conformance.sharpen(policy)

            @tf.function(autograph=False)
            def run(noise, policy=policy):
                devices = policy.sample(given, noise)
                with tf.GradientTape() as tape:
                    log_dists = policy.log_dists(given, devices)
                    loss = tf.reduce_sum(tf.one_hot(devices, 3) * log_dists * [[[1.0]], [[-2.0]]])
                return devices, log_dists, tape.gradient(loss, policy.trainable_variables)

            for seed in range(3):
                found = run(policy_conformance.gumbel([2, 3, 3], seed))
            self.assertEqual(run.experimental_get_tracing_count(), 1)
            for function in (policy._sample, policy._log_dists):
                self.assertEqual(function.experimental_get_tracing_count(), 1)
            results.append(found)
        self.assertAllEqual(results[0][0], results[1][0])
        self.assertAllClose(results[0][1], results[1][1], rtol=1e-4, atol=1e-5)
        for left, right in zip(results[0][2], results[1][2], strict=True):
            self.assertAllClose(left, right, rtol=1e-4, atol=1e-5)


class Seq2SeqConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"hidden_units": 7}, "hidden_units must be even, not 7"),
        ({"hidden_units": 0}, "hidden_units must be positive, not 0"),
        ({"type_units": -1}, "type_units must not be negative, not -1"),
        ({"tanh_limit": 0.0}, "tanh_limit must be positive, not 0"),
        ({"attention": "around"}, "attention must be before or after, not 'around'"),
    )
    def test_refuses(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            Seq2SeqConfig(**options)


if __name__ == "__main__":
    absltest.main()
