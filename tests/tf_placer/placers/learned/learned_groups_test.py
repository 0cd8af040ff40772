import itertools
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers import graphs
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tests.tf_placer.placers.learned.linear_policy import LinearPolicy
from tf_placer.placers.learned.decisions import select_log_probs
from tf_placer.placers.learned.embedding import EmbeddingConfig
from tf_placer.placers.learned.groupers.bridge import Bridge
from tf_placer.placers.learned.groupers.feed_forward import FeedForwardConfig, FeedForwardGrouper
from tf_placer.placers.learned.learned_groups import LearnedGroupsAgent

setUpModule = leave_graphs_as_traced

_EMBEDDING = EmbeddingConfig(shape_dims=2, shape_outputs=1)
_LEGAL = np.array([[1, 1], [1, 0], [1, 1]], np.bool_)


def _units(num_units=3):
    return graphs.group_graph(
        num_units,
        [(index, index + 1) for index in range(num_units - 1)],
        type_counts=np.array([[1 + index % 2, index % 3] for index in range(num_units)]),
        output_shapes=[[[1 + index, 4]] for index in range(num_units)],
    )


def _agent(legal=_LEGAL, num_groups=2, bridge="none", seed=0):
    units = _units(len(legal))
    config = FeedForwardConfig(
        num_groups=num_groups, grouper_units=6, neighbors=4, bridge=bridge, bridge_units=5
    )
    grouper = FeedForwardGrouper(units, config, _EMBEDDING, seed=seed)
    num_inputs = 2 + config.num_features(_EMBEDDING) + 2
    policy = LinearPolicy(num_groups, legal.shape[1], num_inputs, seed)
    return LearnedGroupsAgent(
        grouper,
        policy,
        units,
        legal,
        _EMBEDDING,
        bridge=None if bridge == "none" else Bridge(grouper, config, seed=seed),
    )


def _seed(first, second=0):
    return tf.constant([first, second], tf.int64)


class LearnedGroupsAgentTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("none", "concat", "replace")
    def test_probabilities_of_everything_it_may_decide_sum_to_one_and_are_those_of_samples(
        self, bridge
    ):
        agent = _agent(bridge=bridge)
        # The device of an empty group, which has no effect, is written as 0.
        actions = [
            (*grouping, *devices)
            for grouping in itertools.product(range(2), repeat=3)
            for devices in itertools.product(range(2), repeat=2)
            if all(group in grouping or devices[group] == 0 for group in range(2))
        ]
        actions = np.array(actions, np.int32)
        self.assertLen(actions, 6 * 4 + 2 * 2)
        sets = agent.decisions((tf.constant(actions[:, :3]), tf.constant(actions[:, 3:])))
        log_probs = sum(select_log_probs(each).numpy().sum(axis=1) for each in sets)
        probabilities = np.exp(log_probs)
        self.assertAllClose(probabilities.sum(), 1.0)
        self.assertGreater(probabilities.std(), 0.01)

        samples = np.concatenate(agent.sample(4000, _seed(0)), axis=1)
        for group in range(2):
            empty = (samples[:, :3] != group).all(axis=1)
            samples[empty, 3 + group] = 0
        counts = [(samples == action).all(axis=1).sum() for action in actions]
        self.assertEqual(sum(counts), 4000)
        # Five standard deviations of a binomial count with 4000 draws are below 160.
        self.assertAllClose(counts, 4000 * probabilities, atol=160)

    def test_units_go_where_their_groups_go_or_to_their_first_legal_device(self):
        legal = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 1, 1]], np.bool_)
        agent = _agent(legal, num_groups=3)
        actions = agent.sample(64, _seed(1))
        grouping, devices = (action.numpy() for action in actions)
        placements = agent.placements(actions)
        self.assertEqual(placements.dtype, np.int32)
        for row, placement in enumerate(placements):
            for unit in range(5):
                wanted = devices[row, grouping[row, unit]]
                first = min(np.flatnonzero(legal[unit]))
                self.assertEqual(placement[unit], wanted if legal[unit, wanted] else first)
                members = legal[grouping[row] == grouping[row, unit]]
                # A group with a common device is on one.
                if members.all(axis=0).any():
                    self.assertEqual(placement[unit], wanted)

    def test_counts_all_groupings_and_the_devices_of_groups_that_are_not_empty(self):
        agent = _agent()
        grouping = tf.constant([[0, 0, 0], [1, 0, 1]])
        groups, devices = agent.decisions((grouping, tf.zeros([2, 2], tf.int32)))
        self.assertAllEqual(groups.counted, [[1, 1, 1]])
        self.assertAllEqual(devices.counted, [[1, 0], [1, 1]])
        self.assertEqual(groups.log_dists.shape, [1, 3, 2])
        self.assertEqual(devices.log_dists.shape, [2, 2, 2])

    def test_a_sample_depends_on_its_own_seed_alone(self):
        agent = _agent(np.ones([9, 2], np.bool_), num_groups=4, bridge="concat")
        first = agent.sample(16, _seed(7))
        self.assertEqual([action.dtype for action in first], [tf.int32, tf.int32])
        self.assertEqual([action.shape for action in first], [(16, 9), (16, 4)])
        for left, right in zip(agent.sample(16, _seed(7)), first, strict=True):
            self.assertAllEqual(left, right)
        for left, right in zip(agent.sample(5, _seed(7, 11)), first, strict=True):
            self.assertAllEqual(left, right[11:])
        for left, right in zip(agent.sample(16, _seed(8)), first, strict=True):
            self.assertNotAllEqual(left, right)

    def test_is_compiled_once_per_count(self):
        agent = _agent()
        for number in range(4):
            agent.sample(2, _seed(0, number))
            agent.sample(3, _seed(number))
        self.assertEqual(agent.sample.experimental_get_tracing_count(), 2)

    @parameterized.parameters("none", "concat", "replace")
    def test_what_devices_teach_reaches_the_grouper_over_the_bridge_alone(self, bridge):
        agent = _agent(bridge=bridge)
        actions = agent.sample(8, _seed(0))
        with tf.GradientTape() as tape:
            _, devices = agent.decisions(actions)
            total = tf.reduce_sum(select_log_probs(devices))
        gradients = tape.gradient(total, agent.grouper.trainable_variables)
        if bridge == "none":
            self.assertEqual(gradients, [None] * 4)
        else:
            self.assertGreater(np.abs(gradients[2]).max(), 1e-4)

    @parameterized.parameters("none", "concat")
    def test_gradient_equals_finite_differences(self, bridge):
        agent = _agent(bridge=bridge)
        actions = agent.sample(8, _seed(0))

        @tf.function(autograph=False)
        def log_prob():
            sets = agent.decisions(actions)
            return sum(tf.reduce_sum(select_log_probs(each)) for each in sets)

        with tf.GradientTape() as tape:
            total = log_prob()
        variables = agent.trainable_variables
        self.assertLen(variables, 5 if bridge == "none" else 8)
        gradients = tape.gradient(total, variables)
        rng = np.random.default_rng(0)
        for index, gradient in enumerate(gradients):
            weights = agent.get_weights()
            direction = rng.normal(size=weights[index].shape)
            values = []
            for sign in (1, -1):
                moved = list(weights)
                moved[index] = weights[index] + sign * 2e-3 * direction
                agent.set_weights(moved)
                values.append(float(log_prob()))
            agent.set_weights(weights)
            expected = (values[0] - values[1]) / 4e-3
            self.assertAllClose(
                (gradient * direction).numpy().sum(), expected, rtol=0.02, atol=0.02
            )

    def test_restores_its_weights(self):
        agent, other = (_agent(bridge="concat", seed=seed) for seed in (0, 1))
        path = pathlib.Path(self.get_temp_dir(), "agent.weights.h5")
        agent.save_weights(path)
        other.load_weights(path)
        for left, right in zip(agent.sample(8, _seed(0)), other.sample(8, _seed(0)), strict=True):
            self.assertAllEqual(left, right)

    def test_refuses_what_does_not_fit(self):
        agent, policy = _agent(), LinearPolicy(3, 2, 6)
        for arguments, message in (
            ((agent.grouper, policy, _units(), _LEGAL), "3 groups on 2 devices, but there are 2"),
            ((agent.grouper, agent.policy, _units(), _LEGAL[:, :1]), "unit|but there are 2 and 1"),
            ((agent.grouper, agent.policy, _units(), _LEGAL[:2]), r"legal must be bool \[3"),
            (
                (agent.grouper, agent.policy, _units(4), np.ones([4, 2], np.bool_)),
                "for 3 units, not 4",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                LearnedGroupsAgent(*arguments, _EMBEDDING)


if __name__ == "__main__":
    tf.test.main()
