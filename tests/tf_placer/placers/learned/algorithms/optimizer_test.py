import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers.learned.algorithms.table_agent import TableAgent
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tf_placer.placers.learned.algorithms.optimizer import Optimizer, OptimizerConfig

setUpModule = leave_graphs_as_traced


def _moves(config, gradients):
    """Computes the change by each step if the loss has the given gradients."""
    agent = TableAgent(np.zeros([1, 2]), np.zeros([1, 2]))
    optimizer = Optimizer(agent, config)

    @tf.function
    def step(gradient):
        with tf.GradientTape() as tape:
            # The second table has no part in the loss.
            loss = tf.reduce_sum(tf.convert_to_tensor(agent.trainable_variables[0]) * gradient)
        return optimizer.minimize(loss, tape)

    moves, norms = [], []
    for gradient in gradients:
        before = agent.tables()
        norms.append(float(step(tf.constant([gradient], tf.float32))))
        after = agent.tables()
        np.testing.assert_array_equal(before[1], after[1])
        moves.append((after[0] - before[0])[0])
    return np.array(moves), norms


class OptimizerTest(tf.test.TestCase, parameterized.TestCase):
    def test_takes_plain_steps_and_shortens_long_gradients(self):
        config = OptimizerConfig(optimizer="sgd", learning_rate=0.5, clip_norm=1.0)
        moves, norms = _moves(config, [[3.0, 4.0], [0.3, 0.4]])
        self.assertAllClose(norms, [5.0, 0.5])
        self.assertAllClose(moves, [[-0.3, -0.4], [-0.15, -0.2]])

    def test_shortens_gradients_whose_squares_no_number_holds(self):
        config = OptimizerConfig(optimizer="sgd", learning_rate=0.5, clip_norm=1.0)
        moves, norms = _moves(config, [[3e30, 4e30]])
        self.assertAllClose(norms, [5e30])
        self.assertAllClose(moves, [[-0.3, -0.4]])

    def test_does_not_shorten_without_a_limit(self):
        config = OptimizerConfig(optimizer="sgd", learning_rate=1.0, clip_norm=None)
        self.assertAllClose(_moves(config, [[30.0, 40.0]])[0], [[-30, -40]])

    @parameterized.parameters("adam", "sgd")
    def test_some_weights_change_by_plain_steps_beside_those_of_any_optimizer(self, optimizer):
        class HalfPlainAgent(TableAgent):
            @property
            def plain_steps(self):
                return ((self.trainable_variables[1], 2.0),)

        agents = [kind(np.zeros([1, 2]), np.zeros([1, 2])) for kind in (TableAgent, HalfPlainAgent)]
        config = OptimizerConfig(optimizer=optimizer, learning_rate=0.5, clip_norm=1.0)
        for agent, factor in zip(agents, (0.0, 30.0), strict=True):
            optimized = Optimizer(agent, config)
            optimized.recorded = []
            for _ in range(2):
                with tf.GradientTape() as tape:
                    first, second = map(tf.convert_to_tensor, agent.trainable_variables)
                    loss = tf.reduce_sum(first * [[3.0, 4.0]] + factor * second * [[1.0, 0.0]])
                # The gradient of the plain weights neither counts in the norm nor is shortened.
                self.assertAllClose(optimized.minimize(loss, tape), 5.0)
        self.assertAllClose(agents[1].tables()[0], agents[0].tables()[0])
        self.assertAllClose(agents[1].tables()[1], [[-120.0, 0.0]])
        # Another process applies the same steps.
        other = HalfPlainAgent(np.zeros([1, 2]), np.zeros([1, 2]))
        applied = Optimizer(other, config)
        for gradients in optimized.recorded:
            applied.apply(gradients)
        self.assertAllClose(other.tables(), agents[1].tables())

    def test_first_adam_step_is_the_learning_rate(self):
        moves, _ = _moves(OptimizerConfig(learning_rate=0.01), [[0.3, -0.2]])
        self.assertAllClose(moves, [[-0.01, 0.01]], rtol=1e-4)

    @parameterized.parameters("adam", "sgd")
    def test_no_step_along_a_gradient_that_is_not_finite(self, optimizer):
        config = OptimizerConfig(optimizer=optimizer)
        plain, _ = _moves(config, [[0.3, -0.2], [0.1, 0.5]])
        for bad in ([np.inf, 0.0], [np.nan, 1.0]):
            moves, norms = _moves(config, [[0.3, -0.2], bad, [0.1, 0.5]])
            self.assertAllEqual(np.isfinite(norms), [True, False, True])
            self.assertAllEqual(moves, [plain[0], [0.0, 0.0], plain[1]])

    def test_learning_rate_falls_after_intervals_from_the_start_on(self):
        config = OptimizerConfig(
            optimizer="sgd",
            learning_rate=1.0,
            decay_rate=0.5,
            decay_updates=2,
            decay_start=3,
        )
        moves, _ = _moves(config, [[-0.5, 0.0]] * 9)
        # Full steps 0 to 2, then two steps at each rate.
        expected = [1, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]
        self.assertAllClose(moves[:, 0], np.array(expected) * 0.5)

    @parameterized.parameters(
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"clip_norm": -1.0},
        {"decay_rate": 1.5},
        {"decay_rate": 0.0},
        {"decay_updates": 0},
        {"decay_start": -1},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            OptimizerConfig(**options)


if __name__ == "__main__":
    tf.test.main()
