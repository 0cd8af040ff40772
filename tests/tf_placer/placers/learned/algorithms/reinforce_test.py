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
from tf_placer.placers.learned.algorithms.reinforce import Reinforce, ReinforceConfig

setUpModule = leave_graphs_as_traced

_RNG = np.random.default_rng(0)
_TABLES = (_RNG.normal(size=[3, 2]), _RNG.normal(size=[4, 3]))
_ACTIONS = (_RNG.integers(0, 2, [5, 3]), _RNG.integers(0, 3, [5, 4]))
_ADVANTAGES = np.array([0.5, -1.5, 0.25, 2.0, -0.75])
_COUNTED = np.array([True, True, False, True, True])
# In the second set, some decisions of some placements are without effect.
_MASKS = (
    np.ones([1, 3]),
    np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])[[0, 1, 2, 3, 1]],
)


def _loss(tables, coefficient, masks):
    """Equation 3 with a mean entropy, decision by decision."""
    total = 0.0
    for sample in np.flatnonzero(_COUNTED):
        log_prob = entropy = 0.0
        for table, actions, mask in zip(tables, _ACTIONS, masks, strict=True):
            log_probs = log_softmax(table)
            mask_row = mask[sample % len(mask)]
            entropies = -(np.exp(log_probs) * log_probs).sum(axis=1)
            for decision, choice in enumerate(actions[sample]):
                log_prob += mask_row[decision] * log_probs[decision, choice]
            entropy += (entropies * mask_row).sum() / mask_row.sum()
        total += _ADVANTAGES[sample] * log_prob + coefficient * entropy
    return -total / np.count_nonzero(_COUNTED)


class ReinforceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(coefficient=[0.0, 0.7], repeats=[False, True], masked=[False, True])
    def test_gradient_equals_finite_differences(self, coefficient, repeats, masked):
        masks = _MASKS if masked else [np.ones([1, 3]), np.ones([1, 4])]
        agent = TableAgent(*_TABLES, repeats=repeats, counted=masks)
        config = ReinforceConfig(batch_size=5, entropy_coefficient=coefficient)
        algorithm = Reinforce(agent, plain_steps(agent), config)
        before = agent.tables()
        samples = new_samples(*_ACTIONS, advantages=_ADVANTAGES, counted=_COUNTED)
        (update,) = algorithm.learn(samples)
        moves = [old - new for old, new in zip(before, agent.tables(), strict=True)]
        expected = finite_differences(lambda tables: _loss(tables, coefficient, masks), before)
        for move, gradient in zip(moves, expected, strict=True):
            self.assertAllClose(move, gradient, rtol=1e-4, atol=2e-6)
        self.assertAllClose(update.loss, _loss(before, coefficient, masks), rtol=1e-5)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in expected))
        self.assertAllClose(update.gradient_norm, norm, rtol=1e-4)

    def test_what_does_not_count_contributes_nothing_whatever_its_advantage(self):
        results = []
        for advantage in (0.0, 5.0, np.inf):
            agent = TableAgent(_TABLES[0])
            algorithm = Reinforce(agent, plain_steps(agent), ReinforceConfig(batch_size=2))
            samples = new_samples(
                _ACTIONS[0][:2], advantages=[1.0, advantage], counted=[True, False]
            )
            algorithm.learn(samples)
            results.append(agent.tables()[0])
        self.assertAllEqual(results[0], results[1])
        self.assertAllEqual(results[0], results[2])

    def test_learns_nothing_where_nothing_counts(self):
        agent = TableAgent(_TABLES[0])
        algorithm = Reinforce(agent, plain_steps(agent), ReinforceConfig(batch_size=2))
        before = agent.tables()[0]
        samples = new_samples(_ACTIONS[0][:2], advantages=[1.0, 1.0], counted=[False, False])
        self.assertEqual(algorithm.learn(samples), [])
        self.assertAllEqual(agent.tables()[0], before)

    def test_better_placements_become_more_probable(self):
        agent = TableAgent(np.zeros([2, 2]))
        algorithm = Reinforce(agent, plain_steps(agent, 0.5), ReinforceConfig(batch_size=2))
        for _ in range(20):
            algorithm.learn(new_samples([[0, 1], [1, 0]], advantages=[1.0, -1.0]))
        probabilities = np.exp(log_softmax(agent.tables()[0]))
        self.assertGreater(min(probabilities[0, 0], probabilities[1, 1]), 0.95)

    @parameterized.parameters(
        {"batch_size": 0},
        {"entropy_coefficient": -0.1},
        {"entropy_coefficient": float("nan")},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            ReinforceConfig(**options)


if __name__ == "__main__":
    tf.test.main()
