import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers.learned.algorithms.table_agent import (
    TableAgent,
    finite_differences,
    log_softmax,
    new_samples,
    plain_steps,
)
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tf_placer.placers.learned.algorithms.algorithm import Update
from tf_placer.placers.learned.algorithms.penalized_ppo import PenalizedPPO, PenalizedPPOConfig

setUpModule = leave_graphs_as_traced

_RNG = np.random.default_rng(2)
_TABLE = _RNG.normal(size=[3, 4])
_ACTIONS = _RNG.integers(0, 4, [6, 3])
_ADVANTAGES = np.array([0.5, -0.5, 0.25, 0.75, -0.25, 0.1])
_COUNTED = np.array([True, True, True, False, True, True])


def _loss(table, old_table, beta):
    """The negative of Post's equation 11, term by term."""
    new, old = log_softmax(table), log_softmax(old_table)
    total = 0.0
    for sample in np.flatnonzero(_COUNTED):
        for group, device in enumerate(_ACTIONS[sample]):
            ratio = np.exp(new[group, device] - old[group, device])
            divergence = (np.exp(old[group]) * (old[group] - new[group])).sum()
            total += ratio * _ADVANTAGES[sample] - beta * divergence
    return -total / np.count_nonzero(_COUNTED)


def _compute_gradient(table, old_table, beta):
    """Computes the gradient of equation 11 by the preferences of a softmax, in closed form."""
    new, old = np.exp(log_softmax(table)), np.exp(log_softmax(old_table))
    gradient = np.zeros_like(table)
    groups = np.arange(len(table))
    for sample in np.flatnonzero(_COUNTED):
        devices = _ACTIONS[sample]
        ratios = (new / old)[groups, devices][:, np.newaxis]
        gradient += ratios * _ADVANTAGES[sample] * (np.eye(4)[devices] - new) - beta * (new - old)
    return gradient / np.count_nonzero(_COUNTED)


def _learn(num_steps, beta, repeats=False):
    """Starts from `_TABLE` and takes some steps."""
    agent = TableAgent(_TABLE, repeats=repeats)
    config = PenalizedPPOConfig(batch_size=6, ascent_steps=num_steps, divergence_weight=beta)
    algorithm = PenalizedPPO(agent, plain_steps(agent), config)
    old = agent.tables()[0]
    samples = new_samples(_ACTIONS, advantages=_ADVANTAGES, counted=_COUNTED)
    (update,) = algorithm.learn(samples)
    return old, agent.tables()[0], update


class PenalizedPPOTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(beta=[0.25, 1.0], repeats=[False, True])
    def test_every_step_follows_finite_differences(self, beta, repeats):
        old, new, update = _learn(10, beta, repeats)
        expected = old
        for _ in range(10):
            expected = (
                expected - finite_differences(lambda t: _loss(t[0], old, beta), [expected])[0]
            )
        self.assertAllClose(new, expected, rtol=1e-4, atol=1e-5)
        self.assertAllClose(update.loss, _loss(old, old, beta), rtol=1e-5)

    def test_every_step_follows_the_gradient_in_closed_form(self):
        old, new, _ = _learn(10, 1.0)
        expected = old
        for _ in range(10):
            expected = expected + _compute_gradient(expected, old, 1.0)
        self.assertAllClose(new, expected, rtol=1e-4, atol=1e-5)

    @parameterized.parameters(
        (0.019, 0.5), (0.0201, 1.0), (0.03, 1.0), (0.0449, 1.0), (0.046, 2.0), (9.0, 2.0)
    )
    def test_beta_follows_the_divergence(self, divergence, beta):
        agent = TableAgent(_TABLE)
        algorithm = PenalizedPPO(agent, plain_steps(agent), PenalizedPPOConfig())
        algorithm._steps.run = lambda *_: Update("ppo_kl", 0.0, 0.0, 0.0, divergence)
        algorithm.learn(new_samples(_ACTIONS))
        self.assertEqual(algorithm.beta, beta)

    @parameterized.parameters((0.0, 1 / 1024), (1.0, 1024.0))
    def test_beta_can_come_back_from_wherever_it_went(self, divergence, beta):
        agent = TableAgent(_TABLE)
        algorithm = PenalizedPPO(agent, plain_steps(agent), PenalizedPPOConfig())
        algorithm._steps.run = lambda *_: Update("ppo_kl", 0.0, 0.0, 0.0, divergence)
        for _ in range(200):
            algorithm.learn(new_samples(_ACTIONS))
        self.assertEqual(algorithm.beta, beta)

    def test_the_next_update_uses_the_new_beta_without_being_compiled_again(self):
        agent = TableAgent(_TABLE)
        config = PenalizedPPOConfig(batch_size=6, ascent_steps=2)
        algorithm = PenalizedPPO(agent, plain_steps(agent), config)
        samples = new_samples(_ACTIONS, advantages=_ADVANTAGES, counted=_COUNTED)
        for beta in (0.125, 2.0):
            agent.assign([_TABLE])
            algorithm.beta = beta
            algorithm.learn(samples)
            _, expected, _ = _learn(2, beta)
            self.assertAllClose(agent.tables()[0], expected)
        # The first step, which has nothing to compare with, and the other one.
        self.assertEqual(algorithm._steps._step.experimental_get_tracing_count(), 2)

    def test_nothing_counted_changes_nothing(self):
        agent = TableAgent(_TABLE)
        algorithm = PenalizedPPO(agent, plain_steps(agent), PenalizedPPOConfig(batch_size=6))
        self.assertEqual(algorithm.learn(new_samples(_ACTIONS, counted=[False] * 6)), [])
        self.assertEqual(algorithm.beta, 1.0)

    @parameterized.parameters(
        {"batch_size": 0},
        {"ascent_steps": 0},
        {"divergence_weight": 0.0},
        {"divergence_target": float("inf")},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            PenalizedPPOConfig(**options)

    def test_defaults_are_the_published_settings(self):
        config = PenalizedPPOConfig()
        self.assertEqual((config.batch_size, config.ascent_steps), (12, 10))
        self.assertEqual((config.divergence_weight, config.divergence_target), (1.0, 0.03))


if __name__ == "__main__":
    tf.test.main()
