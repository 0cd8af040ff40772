"""Tests that every policy must pass; the test of each policy inherits them."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import IMPOSSIBLE
from tf_placer.placers.learned.policy import GroupInputs, Policy

__all__ = ["LEGAL", "OTHER_LEGAL", "PolicyConformance", "every_placement", "inputs", "sharpen"]

LEGAL = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], np.bool_)
OTHER_LEGAL = np.array([[0, 1, 0], [1, 1, 1], [1, 1, 1]], np.bool_)
_NUM_TYPES, _NUM_FEATURES = 2, 3


def inputs(*legal: np.ndarray, seed: int = 0) -> GroupInputs:
    """Groups with random types, features and edges; row n has the n-th legality."""
    rng = np.random.default_rng(seed)
    size, num_groups = len(legal), len(legal[0])
    return GroupInputs(
        types=tf.constant(rng.dirichlet(np.ones(_NUM_TYPES), [size, num_groups]), tf.float32),
        features=tf.constant(rng.normal(size=[size, num_groups, _NUM_FEATURES]), tf.float32),
        adjacency=tf.constant(rng.integers(2, size=[size, num_groups, num_groups]), tf.float32),
        legal=tf.constant(np.stack(legal)),
        counted=tf.ones([size, num_groups]),
    )


def row(given: GroupInputs, *indices: int) -> GroupInputs:
    """The inputs of some placements."""
    return GroupInputs(*(None if field is None else tf.gather(field, indices) for field in given))


def every_placement(legal: np.ndarray) -> np.ndarray:
    """All legal placements, int32 [count, num_groups]."""
    everything = itertools.product(*(np.flatnonzero(choices) for choices in legal))
    return np.array(list(everything), np.int32)


def sharpen(policy: Policy, seed: int = 0, scale: float = 0.7) -> None:
    """Moves all weights far from where they start, so that no two placements are alike."""
    rng = np.random.default_rng(seed)
    policy.set_weights(
        [weights + rng.normal(0, scale, weights.shape) for weights in policy.get_weights()]
    )


def log_probs(policy: Policy, given: GroupInputs, placements: np.ndarray) -> np.ndarray:
    """Log-probabilities of placements, float64 [count]."""
    log_dists = policy.log_dists(given, tf.constant(placements)).numpy().astype(np.float64)
    chosen = np.eye(policy.num_devices)[placements]
    return np.where(chosen > 0, log_dists, 0).sum(axis=(1, 2))


def gumbel(shape: list[int], seed: int = 0) -> tf.Tensor:
    """Noise that makes `Policy.sample` draw samples."""
    return tf.constant(np.random.default_rng(seed).gumbel(size=shape), tf.float32)


class PolicyConformance:
    """Tests of a policy; a subclass is a `tf.test.TestCase` that says how to make one."""

    #: True if the distribution depends on features of the groups.
    reads_inputs = True
    #: True if a prior is added to the scores of the policy.
    reads_prior = True

    def make(self, legal: np.ndarray, num_types: int, num_features: int, seed: int = 0) -> Policy:
        """A small policy."""
        raise NotImplementedError

    def _policy(self: Any, legal: np.ndarray = LEGAL, seed: int = 0) -> Policy:
        policy = self.make(legal, _NUM_TYPES, _NUM_FEATURES, seed)
        sharpen(policy)
        return policy

    def test_probabilities_of_all_placements_sum_to_one(self: Any) -> None:
        policy, placements = self._policy(), every_placement(LEGAL)
        self.assertLen(placements, 12)
        probabilities = np.exp(log_probs(policy, inputs(LEGAL), placements))
        self.assertAllClose(probabilities.sum(), 1.0, atol=1e-5)
        self.assertGreater(probabilities.std(), 0.01)

    def test_they_do_when_every_placement_has_groups_of_its_own(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL, OTHER_LEGAL)
        placements = [every_placement(LEGAL), every_placement(OTHER_LEGAL)]
        sizes = [len(rows) for rows in placements]
        self.assertEqual(sizes, [12, 9])
        many = row(given, *np.repeat([0, 1], sizes))
        together = log_probs(policy, many, np.concatenate(placements))
        self.assertAllClose(np.exp(together[:12]).sum(), 1.0, atol=1e-5)
        self.assertAllClose(np.exp(together[12:]).sum(), 1.0, atol=1e-5)
        for index, part in enumerate(np.split(together, [12])):
            alone = log_probs(policy, row(given, index), placements[index])
            self.assertAllClose(part, alone, atol=1e-5)
        if self.reads_inputs:
            both = every_placement(LEGAL & OTHER_LEGAL)
            odds = [log_probs(policy, row(given, index), both) for index in (0, 1)]
            self.assertNotAllClose(np.diff(odds[0]), np.diff(odds[1]), atol=0.01)

    def test_a_prior_is_added_to_the_scores(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL)
        placements = tf.constant(every_placement(LEGAL))
        prior = np.random.default_rng(1).normal(size=[1, 3, 3]).astype(np.float32)
        with_prior = given._replace(prior=tf.constant(prior))
        scores = policy.log_dists(given, placements).numpy()
        if self.reads_prior:
            scores += prior
        expected = np.where(LEGAL, scores, -np.inf)
        expected -= np.log(np.exp(expected).sum(axis=-1, keepdims=True))
        found = policy.log_dists(with_prior, placements).numpy()
        self.assertAllClose(np.exp(found), np.exp(expected), atol=1e-5)
        if self.reads_prior:
            strong = given._replace(prior=tf.constant(1000 * np.eye(3)[[[2, 0, 1]]], tf.float32))
            samples = policy.sample(strong, gumbel([20, 3, 3]))
            self.assertAllEqual(samples, np.tile([2, 0, 1], [20, 1]))

    def test_samples_have_the_distribution_of_the_policy(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL)
        placements = every_placement(LEGAL)
        samples = policy.sample(given, gumbel([4000, 3, 3])).numpy()
        self.assertEqual((samples.dtype, samples.shape), (np.int32, (4000, 3)))
        self._check_frequencies(samples, placements, log_probs(policy, given, placements))

    def test_they_have_it_when_every_placement_has_groups_of_its_own(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL, OTHER_LEGAL)
        which = np.tile([0, 1], 4000)
        samples = policy.sample(row(given, *which), gumbel([8000, 3, 3])).numpy()
        for index, legal in enumerate((LEGAL, OTHER_LEGAL)):
            placements = every_placement(legal)
            expected = log_probs(policy, row(given, index), placements)
            self._check_frequencies(samples[which == index], placements, expected)

    def _check_frequencies(
        self: Any, samples: np.ndarray, placements: np.ndarray, expected: np.ndarray
    ) -> None:
        counts = [(samples == placement).all(axis=1).sum() for placement in placements]
        self.assertEqual(sum(counts), len(samples))
        # Five standard deviations of a binomial count with 4000 draws are below 160.
        self.assertAllClose(counts, len(samples) * np.exp(expected), atol=160)

    def test_without_noise_chooses_the_most_probable_device_given_those_before(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL)
        sample = policy.sample(given, tf.zeros([2, 3, 3]))
        self.assertAllEqual(sample[0], sample[1])
        log_dists = policy.log_dists(given, sample)
        self.assertAllEqual(np.argmax(log_dists[0], axis=1), sample[0])

    def test_illegal_devices_are_impossible_whatever_the_noise(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL)
        noise = np.where(LEGAL, 0, 1e12)[np.newaxis]
        sample = policy.sample(given, tf.constant(noise, tf.float32))
        self.assertTrue(LEGAL[np.arange(3), sample[0]].all())
        log_dists = policy.log_dists(given, sample).numpy()[0]
        self.assertAllEqual(log_dists[~LEGAL], np.full(2, IMPOSSIBLE))
        self.assertAllGreater(log_dists[LEGAL], -100)

    def test_every_weight_has_a_finite_gradient_that_is_the_same_twice(self: Any) -> None:
        policy, given = self._policy(), inputs(LEGAL)
        placements = tf.constant(every_placement(LEGAL)[[1, 4, 7, 7]])

        def gradients() -> list[np.ndarray]:
            with tf.GradientTape() as tape:
                log_dists = policy.log_dists(given, placements)
                loss = tf.reduce_sum(tf.one_hot(placements, 3) * log_dists)
                loss += tf.reduce_sum(tf.exp(log_dists) * log_dists)
            found = tape.gradient(loss, policy.trainable_variables)
            return [tf.convert_to_tensor(gradient).numpy() for gradient in found]

        first, again = gradients(), gradients()
        self.assertNotEmpty(first)
        for left, right in zip(first, again, strict=True):
            self.assertAllEqual(left, right)
            self.assertTrue(np.isfinite(left).all())
            self.assertGreater(np.abs(left).max(), 0)

    def test_initial_weights_depend_on_the_seed_alone(self: Any) -> None:
        first, again, other = (
            self.make(LEGAL, _NUM_TYPES, _NUM_FEATURES, seed).get_weights() for seed in (1, 1, 2)
        )
        for left, right in zip(first, again, strict=True):
            self.assertAllEqual(left, right)
        if self.reads_inputs:
            self.assertTrue(
                any((left != right).any() for left, right in zip(first, other, strict=True))
            )

    def test_first_distributions_are_spread(self: Any) -> None:
        legal = np.ones([8, 3], np.bool_)
        policy, given = self.make(legal, _NUM_TYPES, _NUM_FEATURES), inputs(legal)
        log_dists = policy.log_dists(given, policy.sample(given, gumbel([4, 8, 3]))).numpy()
        entropies = -(np.exp(log_dists) * log_dists).sum(axis=2)
        self.assertGreater(entropies.mean() / np.log(3), 0.7)

    def test_weights_come_back_from_a_file(self: Any) -> None:
        policy, given, placements = self._policy(), inputs(LEGAL), every_placement(LEGAL)
        other = self.make(LEGAL, _NUM_TYPES, _NUM_FEATURES, 5)
        expected = log_probs(policy, given, placements)
        self.assertNotAllClose(log_probs(other, given, placements), expected)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "policy.weights.h5")
            policy.save_weights(path)
            other.load_weights(path)
        self.assertAllEqual(log_probs(other, given, placements), expected)
