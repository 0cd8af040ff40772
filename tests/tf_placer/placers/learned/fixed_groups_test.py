import itertools
import pathlib

import numpy as np
import tensorflow as tf

from tests.tf_placer.placers import graphs
from tests.tf_placer.placers.learned.linear_policy import LinearPolicy
from tf_placer.placers.learned.decisions import select_log_probs
from tf_placer.placers.learned.embedding import EmbeddingConfig, build_fixed_inputs
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.legality import find_legal_devices

_MEMBERSHIP = np.array([0, 1, 0, 2, 1], np.int32)
_LEGAL = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 1, 0], [0, 1, 0]], np.bool_)


def _agent(seed=0):
    groups = graphs.group_graph(3, [(0, 1), (1, 2)], output_shapes=[[[4]], [[7, 3]], []])
    config = EmbeddingConfig(shape_dims=2, shape_outputs=1)
    legal = find_legal_devices(_LEGAL, _MEMBERSHIP, 3)
    inputs = build_fixed_inputs(groups, legal, config)
    policy = LinearPolicy(3, 3, 1 + config.num_features + 2, seed)
    return FixedGroupsAgent(policy, inputs, _MEMBERSHIP, _LEGAL)


def _seed(first, second=0):
    return tf.constant([first, second], tf.int64)


class FixedGroupsAgentTest(tf.test.TestCase):
    def test_probabilities_of_everything_it_may_decide_sum_to_one_and_are_those_of_samples(self):
        agent = _agent()
        # Group 0 may go where both of its units may, group 1, without such a device, anywhere.
        choices = np.array(list(itertools.product([1, 2], [0, 1, 2], [1])), np.int32)
        (decisions,) = agent.decisions((tf.constant(choices),))
        probabilities = np.exp(select_log_probs(decisions).numpy().sum(axis=1))
        self.assertAllClose(probabilities.sum(), 1.0)
        self.assertGreater(probabilities.std(), 0.05)

        (samples,) = agent.sample(4000, _seed(0))
        counts = [(samples.numpy() == choice).all(axis=1).sum() for choice in choices]
        self.assertEqual(sum(counts), 4000)
        # Five standard deviations of a binomial count with 4000 draws are below 160.
        self.assertAllClose(counts, 4000 * probabilities, atol=160)

    def test_units_go_where_their_groups_go_or_to_their_first_legal_device(self):
        agent = _agent()
        for devices in itertools.product(range(3), repeat=3):
            (placement,) = agent.placements((np.array([devices], np.int32),))
            self.assertEqual(placement.dtype, np.int32)
            for unit, group in enumerate(_MEMBERSHIP):
                wanted = devices[group]
                first = min(np.flatnonzero(_LEGAL[unit]))
                self.assertEqual(placement[unit], wanted if _LEGAL[unit, wanted] else first)

    def test_a_sample_depends_on_its_own_seed_alone(self):
        agent = _agent()
        (first,) = agent.sample(16, _seed(7))
        self.assertEqual((first.dtype, first.shape), (tf.int32, (16, 3)))
        self.assertAllEqual(agent.sample(16, _seed(7))[0], first)
        self.assertAllEqual(agent.sample(5, _seed(7, 11))[0], first[11:])
        self.assertNotAllEqual(agent.sample(16, _seed(8))[0], first)

    def test_is_compiled_once_per_count(self):
        agent = _agent()
        for number in range(4):
            agent.sample(2, _seed(0, number))
            agent.sample(3, _seed(number))
        self.assertEqual(agent.sample.experimental_get_tracing_count(), 2)

    def test_trains_the_policy_alone_and_restores_it(self):
        agent, other = _agent(0), _agent(1)
        self.assertLen(agent.trainable_variables, 1)
        path = pathlib.Path(self.get_temp_dir(), "agent.weights.h5")
        agent.save_weights(path)
        other.load_weights(path)
        self.assertAllEqual(other.policy.get_weights()[0], agent.policy.get_weights()[0])

    def test_refuses_what_does_not_fit(self):
        groups = graphs.chain(3)
        inputs = build_fixed_inputs(groups, np.ones([3, 2], np.bool_), EmbeddingConfig())
        policy = LinearPolicy(3, 2, 28)
        membership = np.arange(3, dtype=np.int32)
        legal = np.ones([3, 2], np.bool_)
        FixedGroupsAgent(policy, inputs, membership, legal)
        for arguments, message in (
            ((LinearPolicy(4, 2, 28), inputs, membership, legal), "4 groups on 2 devices"),
            ((policy, inputs, membership, np.ones([3, 3], np.bool_)), "2 devices, not 3"),
            ((policy, inputs, membership + 1, legal), r"membership must be in \[0, 3\)"),
            ((policy, inputs, membership, np.eye(3, 2, dtype=np.bool_)), "unit 2 has no legal"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                FixedGroupsAgent(*arguments)


if __name__ == "__main__":
    tf.test.main()
