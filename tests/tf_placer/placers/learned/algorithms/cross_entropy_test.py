import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers.learned.algorithms.table_agent import TableAgent, new_samples
from tf_placer.placers.learned.algorithms.cross_entropy import (
    CrossEntropy,
    CrossEntropyConfig,
    compute_elite_frequencies,
)
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.policy import GroupInputs
from tf_placer.placers.learned.softmax_policy import SoftmaxPolicy


def _agent(legal):
    """An agent with a softmax policy over groups that are units."""
    num_groups = len(legal)
    inputs = GroupInputs(
        types=tf.zeros([1, num_groups, 1]),
        features=tf.zeros([1, num_groups, 1]),
        adjacency=tf.zeros([1, num_groups, num_groups]),
        legal=tf.constant(legal[np.newaxis]),
        counted=tf.ones([1, num_groups]),
    )
    membership = np.arange(num_groups, dtype=np.int32)
    return FixedGroupsAgent(SoftmaxPolicy(legal), inputs, membership, legal)


def _learn(algorithm, devices, step_secs):
    return algorithm.learn(new_samples(devices, step_secs=step_secs))


class EliteFrequenciesTest(tf.test.TestCase):
    def test_are_shares_of_the_elites(self):
        frequencies = compute_elite_frequencies(np.array([[0], [0], [1], [0], [2], [0]]), 3)
        self.assertAllClose(frequencies, [[4 / 6, 1 / 6, 1 / 6]])

    def test_minimize_equation_9(self):
        rng = np.random.default_rng(0)
        devices = rng.integers(0, 3, [7, 4])
        frequencies = compute_elite_frequencies(devices, 3)

        def loss(probabilities):
            log_probs = np.log(np.maximum(probabilities, 1e-300))
            return -log_probs[np.arange(4), devices].sum() / 7

        least = loss(frequencies)
        for _ in range(200):
            others = frequencies * np.exp(rng.normal(scale=0.1, size=frequencies.shape))
            others /= others.sum(axis=1, keepdims=True)
            self.assertGreaterEqual(loss(others), least)


class CrossEntropyTest(tf.test.TestCase, parameterized.TestCase):
    def test_mixes_the_worked_frequencies_with_the_uniform_distribution(self):
        agent = _agent(np.ones([1, 3], np.bool_))
        config = CrossEntropyConfig(ce_samples=60, total_samples=10**9)
        algorithm = CrossEntropy(agent, config)
        # The best six of sixty are 0, 0, 1, 0, 2, 0; all others are on device 2.
        devices, step_secs = np.full([60, 1], 2), np.full(60, 5.0)
        devices[[3, 10, 20, 30, 40, 59], 0] = [0, 0, 1, 0, 2, 0]
        step_secs[[3, 10, 20, 30, 40, 59]] = 1.0
        _learn(algorithm, devices, step_secs)
        expected = [[0.63333, 0.18333, 0.18333]]
        self.assertAllClose(agent.policy.probabilities(), expected, atol=2e-5)

    def test_exploration_falls_linearly_to_nothing(self):
        agent = _agent(np.ones([1, 2], np.bool_))
        config = CrossEntropyConfig(ce_samples=2, elite_fraction=0.5, total_samples=8)
        algorithm = CrossEntropy(agent, config)
        found = []
        for _ in range(6):
            _learn(algorithm, [[0], [1]], [1.0, 2.0])
            found.append(agent.policy.probabilities()[0, 1])
        # Half of 0.1 * (1 - n / 8) at n = 2, 4, 6, 8, and then it stays 0.
        self.assertAllClose(found, [0.0375, 0.025, 0.0125, 0, 0, 0], atol=1e-7)

    def test_exploration_lasts_for_the_samples_of_the_paper_where_no_number_is_given(self):
        agent = _agent(np.ones([1, 2], np.bool_))
        algorithm = CrossEntropy(agent, CrossEntropyConfig(ce_samples=2, elite_fraction=0.5))
        for _ in range(600):
            _learn(algorithm, [[0], [1]], [1.0, 2.0])
        # Half of 0.1 * (1 - 1200 / 2400).
        self.assertAllClose(agent.policy.probabilities()[0, 1], 0.025, atol=1e-7)

    def test_takes_the_earlier_of_equals_and_never_a_failure(self):
        agent = _agent(np.ones([1, 4], np.bool_))
        config = CrossEntropyConfig(ce_samples=5, elite_fraction=0.4, exploration=0.0)
        devices = [[0], [1], [2], [3], [3]]
        _learn(CrossEntropy(agent, config), devices, [np.inf, 2.0, 1.0, 2.0, 2.0])
        self.assertAllClose(agent.policy.probabilities(), [[0, 0.5, 0.5, 0]], atol=1e-7)
        _learn(CrossEntropy(agent, config), devices, [np.inf, np.inf, np.inf, np.inf, 1.0])
        self.assertAllClose(agent.policy.probabilities(), [[0, 0, 0, 1]], atol=1e-7)

    def test_does_nothing_where_all_failed(self):
        agent = _agent(np.ones([2, 2], np.bool_))
        config = CrossEntropyConfig(ce_samples=2)
        self.assertEqual(_learn(CrossEntropy(agent, config), [[0, 0], [1, 1]], [np.inf] * 2), [])
        self.assertAllEqual(agent.policy.probabilities(), np.full([2, 2], 0.5))

    def test_rounds_the_number_of_elites_up_but_not_for_a_rounding_error(self):
        for fraction, num_samples, expected in ((0.07, 100, 7), (0.1, 60, 6), (0.1, 61, 7)):
            agent = _agent(np.ones([1, 101], np.bool_))
            config = CrossEntropyConfig(
                ce_samples=num_samples, elite_fraction=fraction, exploration=0.0
            )
            devices = np.arange(num_samples)[:, np.newaxis]
            _learn(CrossEntropy(agent, config), devices, np.arange(1.0, num_samples + 1))
            probable = np.count_nonzero(agent.policy.probabilities() > 1e-3)
            self.assertEqual(probable, expected)

    def test_explores_legal_devices_only(self):
        legal = np.array([[True, False, True], [False, True, False]])
        agent = _agent(legal)
        config = CrossEntropyConfig(ce_samples=1, total_samples=10**9)
        _learn(CrossEntropy(agent, config), [[2, 1]], [1.0])
        self.assertAllClose(agent.policy.probabilities(), [[0.05, 0, 0.95], [0, 1, 0]], atol=1e-6)

    def test_learns_from_the_last_samples_alone(self):
        agent = _agent(np.ones([1, 2], np.bool_))
        config = CrossEntropyConfig(ce_samples=2, elite_fraction=0.5, exploration=0.0)
        algorithm = CrossEntropy(agent, config)
        _learn(algorithm, [[0], [0]], [0.1, 0.1])
        _learn(algorithm, [[1], [1]], [9.0, 9.0])
        self.assertAllClose(agent.policy.probabilities(), [[0, 1]], atol=1e-7)

    def test_reports_the_loss_before_and_the_divergence(self):
        agent = _agent(np.ones([1, 2], np.bool_))
        config = CrossEntropyConfig(ce_samples=4, elite_fraction=0.5, total_samples=10**9)
        algorithm = CrossEntropy(agent, config)
        (update,) = _learn(algorithm, [[0], [0], [1], [1]], [1.0, 2.0, 3.0, 4.0])
        self.assertEqual((update.kind, update.gradient_norm), ("ce", None))
        self.assertAllClose(update.loss, 2 * np.log(2) / 4)
        self.assertAllClose(update.entropy, np.log(2))
        expected = 0.5 * np.log(0.5 / 0.95) + 0.5 * np.log(0.5 / 0.05)
        self.assertAllClose(update.divergence, expected, rtol=1e-5)

    def test_finds_the_best_of_a_separable_problem(self):
        agent = _agent(np.ones([8, 3], np.bool_))
        algorithm = CrossEntropy(agent, CrossEntropyConfig())
        best = np.array([0, 1, 2, 0, 1, 2, 0, 1])
        for first in range(0, 2400, 60):
            (devices,) = agent.sample(60, tf.constant([0, first], tf.int64))
            algorithm.learn(
                new_samples(devices.numpy(), step_secs=1 + (devices.numpy() != best).sum(axis=1))
            )
        self.assertAllEqual(agent.policy.probabilities().argmax(axis=1), best)

    def test_refuses_a_network(self):
        with self.assertRaisesRegex(ValueError, "algorithm ce needs policy softmax"):
            CrossEntropy(TableAgent(np.zeros([2, 2])), CrossEntropyConfig())

    @parameterized.parameters(
        {"ce_samples": 0},
        {"elite_fraction": 0.0},
        {"elite_fraction": 1.1},
        {"exploration": -0.1},
        {"total_samples": 0},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            CrossEntropyConfig(**options)


if __name__ == "__main__":
    tf.test.main()
