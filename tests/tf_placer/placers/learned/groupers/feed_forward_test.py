import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.embedding import EmbeddingConfig
from tf_placer.placers.learned.groupers.feed_forward import (
    FeedForwardConfig,
    FeedForwardGrouper,
    compute_neighbor_positions,
)

_EMBEDDING = EmbeddingConfig(shape_dims=2, shape_outputs=1, raw_shapes=True)


def _units():
    return graphs.group_graph(
        3,
        [(0, 1), (0, 2), (1, 2)],
        type_counts=np.array([[1, 0], [1, 3], [0, 2]]),
        output_shapes=[[[8, 3]], [[20]], []],
    )


def _grouper(seed=0, num_groups=2, **options):
    config = FeedForwardConfig(num_groups=num_groups, grouper_units=5, neighbors=2, **options)
    return FeedForwardGrouper(_units(), config, _EMBEDDING, seed=seed)


class FeedForwardConfigTest(parameterized.TestCase):
    def test_defaults_are_the_published_settings(self):
        config = FeedForwardConfig()
        self.assertEqual((config.num_groups, config.grouper_units), (256, 64))

    @parameterized.parameters(
        {"num_groups": 0},
        {"grouper_units": -1},
        {"grouper_layers": 0},
        {"neighbors": 0},
        {"bridge_units": 0},
        {"bridge": "wooden"},
        {"grouper_start": "stone"},
        {"grouper_uniform": 0.0},
        {"grouper_uniform": 1.5},
        {"grouper_start_rate": -1.0},
    )
    def test_refuses_what_is_outside_its_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            FeedForwardConfig(**options)

    def test_tells_how_many_features_a_policy_reads(self):
        for bridge, expected in (("none", 2), ("concat", 2 + 7), ("replace", 7)):
            config = FeedForwardConfig(bridge=bridge, bridge_units=7)
            self.assertEqual(config.num_features(_EMBEDDING), expected)


class NeighborPositionsTest(tf.test.TestCase):
    def test_of_a_hand_made_graph(self):
        self.assertAllClose(
            compute_neighbor_positions(_units(), 4),
            [[0, 0, 2 / 3, 3 / 3], [1 / 3, 0, 3 / 3, 0], [1 / 3, 2 / 3, 0, 0]],
        )

    def test_keeps_the_neighbors_with_most_bytes_and_one_more_consumer(self):
        units = graphs.group_graph(4, [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)])
        units.edge_bytes[:] = [5, 7, 7, 1, 9]
        self.assertAllClose(
            compute_neighbor_positions(units, 3),
            [[0, 3 / 4, 4 / 4], [1 / 4, 4 / 4, 0], [1 / 4, 4 / 4, 0], [3 / 4, 0, 0]],
        )

    def test_of_a_graph_without_edges_are_zeros(self):
        self.assertAllEqual(compute_neighbor_positions(graphs.group_graph(2), 3), np.zeros([2, 3]))


class FeedForwardGrouperTest(tf.test.TestCase):
    def test_reads_types_shapes_and_neighbors(self):
        self.assertAllClose(
            _grouper()._features,
            [
                [1, 0, 8, 3, 0, 2 / 3],
                [1 / 4, 3 / 4, 20, 0, 1 / 3, 3 / 3],
                [0, 1, 0, 0, 1 / 3, 0],
            ],
        )

    def test_distributions_equal_those_of_the_equations_in_numpy(self):
        for layers in (1, 2):
            grouper = _grouper(grouper_layers=layers)
            rng = np.random.default_rng(0)
            grouper.set_weights([rng.normal(size=w.shape) for w in grouper.get_weights()])
            weights = [weight.astype(np.float64) for weight in grouper.get_weights()]
            self.assertLen(weights, 2 * layers + 2)
            hidden = grouper._features.numpy().astype(np.float64)
            for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
                hidden = np.maximum(hidden @ kernel + bias, 0)
            logits = hidden @ weights[-2] + weights[-1]
            logits -= logits.max(axis=1, keepdims=True)
            expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            self.assertAllClose(grouper.log_dists(), expected, rtol=1e-4, atol=1e-4)

    def test_starts_at_given_groups_but_for_a_share_of_the_units(self):
        start = np.array([1, 0, 1], np.int32)
        without = _grouper(num_groups=3)
        config = FeedForwardConfig(num_groups=3, grouper_units=5, neighbors=2, grouper_uniform=0.06)
        grouper = FeedForwardGrouper(_units(), config, _EMBEDDING, start=start)
        # A network that says nothing samples the groups given, but for 6 % of the units.
        grouper.set_weights([np.zeros_like(weight) for weight in grouper.get_weights()])
        self.assertAllClose(
            np.exp(grouper.log_dists()),
            [[0.02, 0.96, 0.02], [0.96, 0.02, 0.02], [0.02, 0.96, 0.02]],
        )
        # The output of the network counts as it does without a start.
        grouper.set_weights(without.get_weights())
        expected = np.exp(without.log_dists()) * np.where(np.eye(3)[start], 0.96, 0.02)
        self.assertAllClose(
            np.exp(grouper.log_dists()), expected / expected.sum(axis=1, keepdims=True)
        )

    def test_a_start_may_be_weights_that_change_by_plain_steps(self):
        start, rate = np.array([1, 0, 1], np.int32), 50.0
        config = FeedForwardConfig(num_groups=3, grouper_units=5, neighbors=2, grouper_uniform=0.06)
        trained = dataclasses.replace(config, grouper_start_rate=rate)
        fixed = FeedForwardGrouper(_units(), config, _EMBEDDING, start=start)
        grouper = FeedForwardGrouper(_units(), trained, _EMBEDDING, start=start)
        self.assertLen(grouper.trainable_variables, len(fixed.trainable_variables) + 1)
        self.assertAllClose(grouper.log_dists(), fixed.log_dists())
        self.assertEmpty(fixed.plain_steps)
        [(weights, found_rate)] = grouper.plain_steps
        self.assertEqual(found_rate, rate)
        moved = weights.numpy() + np.array([[5, 0, 0], [0, 0, 0], [0, 0, 0]], np.float32)
        before = grouper.log_dists().numpy()
        with tf.GradientTape() as tape:
            log_prob = grouper.log_dists()[0, 0]
        # The gradient is that of the scores: 1 - p, and -p elsewhere.
        gradient = tape.gradient(log_prob, weights.value).numpy()
        self.assertAllClose(gradient[0], [1, 0, 0] - np.exp(before[0]), atol=1e-5)
        weights.assign(moved)
        after = grouper.log_dists().numpy()
        self.assertAllClose(after[0, 0] - after[0, 1], before[0, 0] - before[0, 1] + 5, atol=1e-4)
        self.assertAllClose(after[1:], before[1:])

    def test_columns_are_the_last_weights_and_biases_of_each_group(self):
        grouper = _grouper()
        kernel, bias = grouper.get_weights()[-2:]
        columns = grouper.columns().numpy()
        self.assertEqual(columns.shape, (2, grouper.column_size))
        for group in range(2):
            self.assertAllEqual(columns[group], [*kernel[:, group], bias[group]])

    def test_has_one_group_per_unit_at_most_and_says_so(self):
        with self.assertLogs(level="INFO") as logs:
            grouper = _grouper(num_groups=256)
        self.assertIn("3 groups instead of 256", logs.output[0])
        self.assertEqual(grouper.num_groups, 3)
        self.assertEqual(grouper.log_dists().shape, [3, 3])
        with self.assertNoLogs(level="INFO"):
            _grouper(num_groups=3)

    def test_initial_weights_depend_on_the_seed_alone(self):
        first, again, other = (_grouper(seed).get_weights() for seed in (1, 1, 2))
        for left, right in zip(first, again, strict=True):
            self.assertAllEqual(left, right)
        self.assertNotAllClose(first[0], other[0])


if __name__ == "__main__":
    tf.test.main()
