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
from tf_placer.placers.learned.algorithms.gradient_cross_entropy import (
    GradientCrossEntropy,
    GradientCrossEntropyConfig,
)

setUpModule = leave_graphs_as_traced

_RNG = np.random.default_rng(3)
_TABLES = (_RNG.normal(size=[3, 2]), _RNG.normal(size=[4, 3]))
_ACTIONS = (_RNG.integers(0, 2, [6, 3]), _RNG.integers(0, 3, [6, 4]))


def _loss(tables, elites):
    """The negative mean log-probability of the elites, groups included."""
    total = 0.0
    for sample in elites:
        for table, actions in zip(tables, _ACTIONS, strict=True):
            total += log_softmax(table)[np.arange(len(table)), actions[sample]].sum()
    return -total / len(elites)


def _algorithm(agent, **options):
    config = GradientCrossEntropyConfig(**{"ce_samples": 3, "elites": 2, "ce_steps": 2} | options)
    return GradientCrossEntropy(agent, plain_steps(agent, 0.5), config)


def _learn(algorithm, rows, step_secs):
    return algorithm.learn(new_samples(*(each[rows] for each in _ACTIONS), step_secs=step_secs))


class GradientCrossEntropyTest(tf.test.TestCase, parameterized.TestCase):
    def assert_moved_towards(self, agent, before, elites, num_steps=2):
        for _ in range(num_steps):
            gradients = finite_differences(lambda tables: _loss(tables, elites), before)
            before = [table - 0.5 * each for table, each in zip(before, gradients, strict=True)]
        for found, expected in zip(agent.tables(), before, strict=True):
            self.assertAllClose(found, expected, rtol=1e-4, atol=1e-5)

    def test_every_step_follows_finite_differences_with_elites_of_all_samples(self):
        agent = TableAgent(*_TABLES)
        algorithm = _algorithm(agent)
        before = agent.tables()
        (update,) = _learn(algorithm, slice(0, 3), [3.0, 1.0, 2.0])
        self.assertEqual(update.kind, "ce")
        self.assertAllClose(update.loss, _loss(before, [1, 2]), rtol=1e-5)
        self.assert_moved_towards(agent, before, [1, 2])

        before = agent.tables()
        _learn(algorithm, slice(3, 6), [4.0, 1.5, 5.0])
        self.assert_moved_towards(agent, before, [1, 4])

    def test_keeps_the_earlier_of_equals(self):
        agent = TableAgent(*_TABLES)
        algorithm = _algorithm(agent)
        before = agent.tables()
        _learn(algorithm, slice(0, 3), [1.0, 1.0, 1.0])
        self.assert_moved_towards(agent, before, [0, 1])
        before = agent.tables()
        _learn(algorithm, slice(3, 6), [1.0, 1.0, 1.0])
        self.assert_moved_towards(agent, before, [0, 1])

    def test_failures_are_no_elites_however_few_ran(self):
        agent = TableAgent(*_TABLES)
        algorithm = _algorithm(agent)
        before = agent.tables()
        self.assertEqual(_learn(algorithm, slice(0, 3), [np.inf] * 3), [])
        for old, new in zip(before, agent.tables(), strict=True):
            self.assertAllEqual(old, new)
        _learn(algorithm, slice(3, 6), [np.inf, 2.0, np.inf])
        self.assert_moved_towards(agent, before, [4])
        self.assertEqual(algorithm._steps._step.experimental_get_tracing_count(), 1)

    def test_waits_until_there_are_enough_samples(self):
        agent = TableAgent(*_TABLES)
        algorithm = _algorithm(agent)
        self.assertEqual(_learn(algorithm, slice(0, 2), [1.0, 2.0]), [])
        before = agent.tables()
        self.assertLen(_learn(algorithm, slice(2, 3), [3.0]), 1)
        self.assert_moved_towards(agent, before, [0, 1])

    @parameterized.parameters({"ce_samples": 0}, {"elites": 0}, {"ce_steps": 0})
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            GradientCrossEntropyConfig(**options)


if __name__ == "__main__":
    tf.test.main()
