import numpy as np
import tensorflow as tf

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.embedding import EmbeddingConfig
from tf_placer.placers.learned.groupers.bridge import Bridge
from tf_placer.placers.learned.groupers.feed_forward import FeedForwardConfig, FeedForwardGrouper

_FEATURES = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def _parts(kind, seed=0):
    config = FeedForwardConfig(
        num_groups=4, grouper_units=6, neighbors=2, bridge=kind, bridge_units=5
    )
    grouper = FeedForwardGrouper(graphs.chain(9), config, EmbeddingConfig())
    return grouper, Bridge(grouper, config, seed=seed)


def _sigmoid(values):
    return 1 / (1 + np.exp(-values))


def _compute_output(bridge, columns):
    """Computes the output of the network by the equations of an LSTM in numpy."""
    kernel, recurrent, bias = bridge.get_weights()
    hidden, cell, written = np.zeros(5), np.zeros(5), []
    for column in columns:
        gates = np.split(column @ kernel + hidden @ recurrent + bias, 4)
        cell = _sigmoid(gates[1]) * cell + _sigmoid(gates[0]) * np.tanh(gates[2])
        hidden = _sigmoid(gates[3]) * np.tanh(cell)
        written.append(hidden)
    return np.array(written)


class BridgeTest(tf.test.TestCase):
    def test_adds_what_an_lstm_writes_about_the_columns_of_the_grouper(self):
        grouper, bridge = _parts("concat")
        result = bridge.join(tf.constant(_FEATURES), grouper.columns())
        self.assertAllEqual(result[:, :, :3], _FEATURES)
        expected = _compute_output(bridge, grouper.columns().numpy())
        for row in range(2):
            self.assertAllClose(result[row, :, 3:], expected, atol=1e-5)

    def test_can_replace_the_features(self):
        grouper, bridge = _parts("replace")
        result = bridge.join(tf.constant(_FEATURES), grouper.columns())
        expected = _compute_output(bridge, grouper.columns().numpy())
        self.assertAllClose(result, np.stack([expected, expected]), atol=1e-5)

    def test_gradient_reaches_the_last_layer_of_the_grouper(self):
        grouper, bridge = _parts("concat")
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(bridge.join(tf.constant(_FEATURES), grouper.columns()))
        gradients = tape.gradient(total, grouper.trainable_variables)
        self.assertEqual([gradient is None for gradient in gradients], [True, True, False, False])
        self.assertNotAllClose(gradients[2], tf.zeros([6, 4]))

    def test_initial_weights_depend_on_the_seed_alone(self):
        first, again, other = (_parts("concat", seed)[1].get_weights()[0] for seed in (1, 1, 2))
        self.assertAllEqual(first, again)
        self.assertNotAllClose(first, other)


if __name__ == "__main__":
    tf.test.main()
