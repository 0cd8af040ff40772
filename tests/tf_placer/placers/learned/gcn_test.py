import numpy as np
import tensorflow as tf

from tests.tf_placer.placers.learned import policy_conformance
from tests.tf_placer.placers.learned.policy_conformance import LEGAL, PolicyConformance
from tf_placer.placers.learned.gcn import GCNConfig, GCNPolicy


def _reference(policy, given):
    """Probabilities of the first placement's groups, in plain numpy."""
    types, features, adjacency, legal = (field[0].numpy() for field in given[:4])
    edges = np.maximum(adjacency, adjacency.T) + np.eye(len(adjacency))
    degrees = edges.sum(axis=1)
    spread = edges / np.sqrt(degrees[:, np.newaxis] * degrees)
    hidden = np.concatenate([types, features], axis=1)
    for layer in (policy._first, policy._second):
        kernel, bias = layer.get_weights()
        hidden = np.maximum(spread @ hidden @ kernel + bias, 0)
    kernel, bias = policy._logits.get_weights()
    odds = np.exp(hidden @ kernel + bias) * legal
    return odds / odds.sum(axis=1, keepdims=True)


class GCNPolicyTest(PolicyConformance, tf.test.TestCase):
    def make(self, legal, num_types, num_features, seed=0):
        return GCNPolicy(*legal.shape, num_types, num_features, GCNConfig(graph_units=6), seed)

    def test_probabilities_equal_those_of_the_equations_in_numpy(self):
        policy, given = self._policy(), policy_conformance.inputs(LEGAL, seed=3)
        log_dists = policy.log_dists(given, tf.zeros([5, 3], tf.int32))
        self.assertEqual(log_dists.shape, [1, 3, 3])
        self.assertAllClose(np.exp(log_dists[0]), _reference(policy, given), atol=1e-5)

    def test_a_group_sees_two_edges_far_whichever_way_they_go(self):
        legal = np.ones([5, 2], np.bool_)
        policy = self.make(legal, 2, 3)
        policy_conformance.sharpen(policy)
        given = policy_conformance.inputs(legal)
        chain = np.zeros([1, 5, 5], np.float32)
        # 0 -> 1 <- 2 -> 3 -> 4
        chain[0, [0, 2, 2, 3], [1, 1, 3, 4]] = 0.5
        given = given._replace(adjacency=tf.constant(chain))

        def probabilities(features):
            changed = given._replace(features=tf.constant(features))
            return policy.log_dists(changed, tf.zeros([1, 5], tf.int32)).numpy()[0]

        features = given.features.numpy()
        before = probabilities(features)
        features[0, 0] += 10
        changed = np.abs(probabilities(features) - before).max(axis=1) > 1e-6
        self.assertAllEqual(changed, [True, True, True, False, False])

    def test_refuses_a_width_of_none(self):
        with self.assertRaisesRegex(ValueError, "graph_units must be positive, not 0"):
            GCNConfig(graph_units=0)


if __name__ == "__main__":
    tf.test.main()
