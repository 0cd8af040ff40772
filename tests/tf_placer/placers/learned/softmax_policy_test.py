import numpy as np
import tensorflow as tf

from tests.tf_placer.placers.learned import policy_conformance
from tests.tf_placer.placers.learned.policy_conformance import LEGAL, PolicyConformance
from tf_placer.placers.learned.softmax_policy import SoftmaxPolicy


class SoftmaxPolicyTest(PolicyConformance, tf.test.TestCase):
    reads_inputs = False
    reads_prior = False

    def make(self, legal, num_types, num_features, seed=0):
        return SoftmaxPolicy(legal)

    def test_starts_uniform_over_the_legal_devices(self):
        policy = SoftmaxPolicy(LEGAL)
        expected = [[1 / 3] * 3, [0.5, 0, 0.5], [0.5, 0.5, 0]]
        self.assertAllClose(policy.probabilities(), expected)
        log_dists = policy.log_dists(policy_conformance.inputs(LEGAL), tf.zeros([4, 3], tf.int32))
        self.assertEqual(log_dists.shape, [1, 3, 3])
        self.assertAllClose(np.exp(log_dists[0]), expected)

    def test_has_the_probabilities_that_it_is_assigned(self):
        policy = SoftmaxPolicy(LEGAL)
        given = np.array([[0.6333, 0.1833, 0.1834], [0.25, 0, 0.75], [0.5, 0.5, 0]])
        policy.assign(given)
        self.assertAllClose(policy.probabilities(), given)
        log_dists = policy.log_dists(policy_conformance.inputs(LEGAL), tf.zeros([1, 3], tf.int32))
        self.assertAllClose(np.exp(log_dists[0]), given)

    def test_what_illegal_devices_are_assigned_goes_to_the_others(self):
        policy = SoftmaxPolicy(LEGAL)
        policy.assign(np.array([[1, 1, 2], [0.2, 0.6, 0.2], [0.3, 0.1, 0.6]]))
        expected = [[0.25, 0.25, 0.5], [0.5, 0, 0.5], [0.75, 0.25, 0]]
        self.assertAllClose(policy.probabilities(), expected)

    def test_no_legal_device_becomes_impossible(self):
        policy = SoftmaxPolicy(LEGAL)
        policy.assign(np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]]))
        found = policy.probabilities()
        self.assertAllClose(found[0], [1, 1e-8, 1e-8], rtol=1e-4)
        self.assertEqual((found[1, 1], found[2, 2]), (0, 0))

    def test_refuses_what_are_no_probabilities(self):
        policy = SoftmaxPolicy(LEGAL)
        for probabilities, message in (
            (np.ones([3, 2]), r"must be \[3, 3\], not \[3, 2\]"),
            (np.full([3, 3], np.nan), "finite and not negative"),
            (np.full([3, 3], -1.0), "finite and not negative"),
            (np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]]), "group 1 has probability 0"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                policy.assign(probabilities)
        self.assertAllClose(policy.probabilities()[0], [1 / 3] * 3)


if __name__ == "__main__":
    tf.test.main()
