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
from tf_placer.placers.learned.algorithms.clipped_ppo import ClippedPPO, ClippedPPOConfig

setUpModule = leave_graphs_as_traced

_RNG = np.random.default_rng(1)
_TABLES = (_RNG.normal(size=[3, 2]), _RNG.normal(size=[4, 3]))
_ACTIONS = (_RNG.integers(0, 2, [5, 3]), _RNG.integers(0, 3, [5, 4]))
_ADVANTAGES = np.array([0.5, -1.5, 0.25, 2.0, -0.75])
_COUNTED = np.array([True, True, True, False, True])
_MASKS = (np.ones([1, 3]), np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0]])[[0, 1, 2, 1, 0]])
_SAMPLES = new_samples(*_ACTIONS, advantages=_ADVANTAGES, counted=_COUNTED)


def _log_ratios(tables, old_tables, sample):
    """Per set, the difference of the log-probabilities of what was chosen."""
    return [
        np.array(
            [
                log_softmax(table)[decision, choice] - log_softmax(old)[decision, choice]
                for decision, choice in enumerate(actions[sample])
            ]
        )
        for table, old, actions in zip(tables, old_tables, _ACTIONS, strict=True)
    ]


def _loss(tables, old_tables, config):
    """EAGLE's equation 3, sample by sample."""
    total = 0.0
    for sample in np.flatnonzero(_COUNTED):
        masks = [mask[sample % len(mask)] for mask in _MASKS]
        log_ratios = _log_ratios(tables, old_tables, sample)
        if config.joint_ratio:
            ratios = [np.exp([sum((r * m).sum() for r, m in zip(log_ratios, masks, strict=True))])]
            weights = [np.ones(1)]
        else:
            ratios = [np.exp(log_ratio) for log_ratio in log_ratios]
            summed = config.gain == "sum"
            weights = [mask if summed else mask / mask.sum() for mask in masks]
        for ratio, weight in zip(ratios, weights, strict=True):
            clipped = np.clip(ratio, 1 - config.ratio_clip, 1 + config.ratio_clip)
            gain = np.minimum(ratio * _ADVANTAGES[sample], clipped * _ADVANTAGES[sample])
            total += (weight * gain).sum()
        for table, mask in zip(tables, masks, strict=True):
            log_probs = log_softmax(table)
            entropies = -(np.exp(log_probs) * log_probs).sum(axis=1)
            total += config.entropy_coefficient * (entropies * mask).sum() / mask.sum()
    return -total / np.count_nonzero(_COUNTED)


class ClippedPPOTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters({}, {"gain": "sum"}, {"joint_ratio": True})
    def test_every_step_follows_finite_differences(self, **ratios):
        # Long steps, so that ratios leave the clip range.
        learning_rate = 0.8 if "gain" in ratios else 2.5
        agent = TableAgent(*_TABLES, counted=_MASKS)
        old = agent.tables()
        config = ClippedPPOConfig(batch_size=5, epochs=3, **ratios)
        (update,) = ClippedPPO(agent, plain_steps(agent, learning_rate), config).learn(_SAMPLES)
        self.assertAllClose(update.loss, _loss(old, old, config), rtol=1e-5)
        tables = old
        for _ in range(3):
            gradients = finite_differences(lambda moved: _loss(moved, old, config), tables)
            tables = [
                table - learning_rate * gradient
                for table, gradient in zip(tables, gradients, strict=True)
            ]
        for found, expected in zip(agent.tables(), tables, strict=True):
            self.assertAllClose(found, expected, rtol=1e-4, atol=1e-5)
        log_ratios = np.concatenate([np.concatenate(_log_ratios(tables, old, s)) for s in range(5)])
        outside = np.abs(np.exp(log_ratios) - 1) > config.ratio_clip
        self.assertTrue(outside.any() and not outside.all())

    def test_reports_entropy_before_and_divergence_of_the_update(self):
        agent = TableAgent(_TABLES[0])
        old = log_softmax(agent.tables()[0])
        config = ClippedPPOConfig(batch_size=5)
        samples = new_samples(_ACTIONS[0], advantages=_ADVANTAGES)
        (update,) = ClippedPPO(agent, plain_steps(agent), config).learn(samples)
        new = log_softmax(agent.tables()[0])
        self.assertAllClose(update.entropy, -(np.exp(old) * old).sum(axis=1).mean(), rtol=1e-5)
        divergence = (np.exp(old) * (old - new)).sum(axis=1).mean()
        self.assertAllClose(update.divergence, divergence, rtol=1e-3)
        self.assertGreater(divergence, 0.0)

    def test_ratios_too_large_for_a_number_leave_the_weights_finite(self):
        agent = TableAgent(np.array([[60.0, -60.0]] * 3))
        config = ClippedPPOConfig(batch_size=2, joint_ratio=True, entropy_coefficient=0.0)
        algorithm = ClippedPPO(agent, plain_steps(agent, 1e3), config)
        algorithm.learn(new_samples([[1, 1, 1], [1, 1, 1]], advantages=[1.0, -1.0]))
        self.assertTrue(np.isfinite(agent.tables()[0]).all())

    def test_is_not_traced_again_and_learns_nothing_where_nothing_counts(self):
        agent = TableAgent(_TABLES[0])
        algorithm = ClippedPPO(agent, plain_steps(agent), ClippedPPOConfig(batch_size=5))
        for scale in (1.0, 2.0, 3.0):
            algorithm.learn(new_samples(_ACTIONS[0], advantages=scale * _ADVANTAGES))
        uncounted = new_samples(_ACTIONS[0], advantages=_ADVANTAGES, counted=[False] * 5)
        self.assertEqual(algorithm.learn(uncounted), [])
        steps = algorithm._steps
        # The first step, which has nothing to compare with, and the others.
        for function, traces in (
            (steps._step, 2),
            (steps._compute_decisions, 1),
            (steps._compute_statistics, 1),
        ):
            self.assertEqual(function.experimental_get_tracing_count(), traces)

    @parameterized.parameters(
        {"batch_size": 0},
        {"epochs": 0},
        {"ratio_clip": 0.0},
        {"ratio_clip": 1.0},
        {"entropy_coefficient": -1.0},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            ClippedPPOConfig(**options)

    def test_defaults_are_the_published_settings(self):
        config = ClippedPPOConfig()
        self.assertEqual((config.batch_size, config.epochs), (10, 4))
        self.assertEqual((config.ratio_clip, config.entropy_coefficient), (0.3, 0.01))


if __name__ == "__main__":
    tf.test.main()
