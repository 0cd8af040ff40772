import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.graph_features import (
    NUM_DEVICE_FEATURES,
    NUM_GROUP_FEATURES,
    GraphFeatures,
    compute_shares,
    measure_longest_paths,
    order_groups,
)


def _anywhere(num_groups, num_devices=2):
    return np.ones([num_groups, num_devices], np.bool_)


def _random_edges(rng, num_groups, num_edges):
    pairs = list(itertools.permutations(range(num_groups), 2))
    return np.array(sorted(pairs[k] for k in rng.choice(len(pairs), num_edges, replace=False)))


class PlacingOrderTest(absltest.TestCase):
    def test_producers_come_before_their_consumers(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            # Edges of any direction that agree with a hidden order, so that there is no circle.
            ranks = rng.permutation(9)
            edges = _random_edges(rng, 9, 15)
            edges = edges[ranks[edges[:, 0]] < ranks[edges[:, 1]]]
            order = order_groups(edges, rng.integers(0, 4, 9)).tolist()
            self.assertCountEqual(order, range(9))
            for producer, consumer in edges:
                self.assertLess(order.index(producer), order.index(consumer))

    def test_groups_of_one_layer_come_together(self):
        order = order_groups(graphs.two_chains(3).edges, graphs.two_chains(3).layers)
        self.assertEqual(order.tolist(), [0, 3, 1, 4, 2, 5])

    def test_a_circle_is_cut_at_its_lowest_layer(self):
        edges = np.array([[0, 1], [1, 2], [2, 0]])
        self.assertEqual(order_groups(edges, np.array([2, 1, 0])).tolist(), [2, 0, 1])

    def test_circles_leave_no_group_out(self):
        rng = np.random.default_rng(1)
        for _ in range(20):
            order = order_groups(_random_edges(rng, 8, 30), rng.integers(0, 8, 8))
            self.assertCountEqual(order.tolist(), range(8))


class LongestPathsTest(absltest.TestCase):
    def test_agree_with_all_paths(self):
        rng = np.random.default_rng(0)
        edges = _random_edges(rng, 6, 14)
        secs = rng.uniform(1, 2, 6)
        feeds = {(a, b) for a, b in edges.tolist() if a < b}
        paths = [
            path
            for size in range(1, 7)
            for path in itertools.combinations(range(6), size)
            if all(pair in feeds for pair in itertools.pairwise(path))
        ]
        before, after = measure_longest_paths(edges, secs)
        for group in range(6):
            self.assertAlmostEqual(
                after[group], max(secs[list(p)].sum() for p in paths if p[0] == group)
            )
            self.assertAlmostEqual(
                before[group], max(secs[list(p[:-1])].sum() for p in paths if p[-1] == group)
            )


class GraphFeaturesTest(absltest.TestCase):
    def test_shares_of_a_row_add_up_to_one(self):
        self.assertEqual(
            compute_shares(np.array([0, 2, 2]), np.array([5.0, 1.0, 3.0]), 3).tolist(),
            [1.0, 0.25, 0.75],
        )

    def test_a_chain_worked_out_by_hand(self):
        groups = dataclasses.replace(graphs.chain(2), edge_bytes=np.array([99]))
        features = GraphFeatures.from_groups(
            groups,
            np.array([[True, False], [True, True]]),
            device_secs=np.array([[1.0, np.inf], [6.0, 3.0]]),
            edge_secs=np.array([4.0]),
        )
        # Seconds are counted in the mean of 1 and 3.
        np.testing.assert_allclose(features.device_secs, [[0.5, 0.0], [3.0, 1.5]])
        np.testing.assert_allclose(features.edge_secs, [2.0])
        np.testing.assert_allclose(features.edge_bytes, [1.0])
        log1p = np.log1p
        np.testing.assert_allclose(
            features.group_features,
            np.array(
                [
                    [log1p(0.5), log1p(1.5)],  # seconds
                    [log1p(1.0), log1p(1.0)],  # operations
                    [0.0, log1p(1.0)],  # inputs and outputs: number, bytes, seconds
                    [log1p(1.0), 0.0],
                    [0.0, log1p(1.0)],
                    [log1p(1.0), 0.0],
                    [0.0, log1p(2.0)],
                    [log1p(2.0), 0.0],
                    [0.0, 0.5],  # place in the order and among the layers
                    [0.0, 0.5],
                    [0.0, 0.25],  # longest path before and after
                    [1.0, 0.75],
                    [log1p(1.0)] * 2,  # work and transfers of the graph, shared by two devices
                    [0.5] * 2,
                    [log1p(1.0)] * 2,
                    [0.5] * 2,
                ]
            ).T,
            rtol=1e-6,
        )
        np.testing.assert_allclose(
            features.device_features,
            [
                [[1, 0, log1p(0.5), np.log(2) / 2, 1], [0, 0, 0, 0, 0.5]],
                [[1, np.log(2), log1p(3), np.log(2) / 2, 1], [1, 0, log1p(1.5), 0, 0.5]],
            ],
            rtol=1e-6,
        )

    def test_units_of_time_and_size_do_not_matter(self):
        groups = graphs.two_chains(4)
        secs = np.random.default_rng(0).uniform(1, 2, [8, 2])
        edge_secs = np.arange(1.0, 7.0)
        one = GraphFeatures.from_groups(groups, _anywhere(8), device_secs=secs, edge_secs=edge_secs)
        other = GraphFeatures.from_groups(
            groups, _anywhere(8), device_secs=1e-3 * secs, edge_secs=1e-3 * edge_secs
        )
        for field in dataclasses.fields(GraphFeatures):
            np.testing.assert_allclose(
                getattr(one, field.name), getattr(other, field.name), rtol=1e-5
            )

    def test_without_measured_times_work_counts_on_all_devices_alike(self):
        groups = graphs.group_graph(3, work=[1.0, 2.0, 3.0])
        features = GraphFeatures.from_groups(groups, _anywhere(3))
        np.testing.assert_allclose(features.device_secs, [[0.5] * 2, [1.0] * 2, [1.5] * 2])
        np.testing.assert_array_equal(features.edge_secs, [])

    def test_a_graph_in_which_nothing_takes_time_has_finite_features(self):
        groups = graphs.group_graph(3, work=[0.0] * 3)
        features = GraphFeatures.from_groups(groups, _anywhere(3))
        self.assertEqual(features.group_features.shape, (3, NUM_GROUP_FEATURES))
        self.assertEqual(features.device_features.shape, (3, 2, NUM_DEVICE_FEATURES))
        self.assertTrue(np.isfinite(features.group_features).all())
        self.assertTrue(np.isfinite(features.device_features).all())

    def test_arrays_that_do_not_fit_are_refused(self):
        for name, arguments in (
            ("legal", {"legal": _anywhere(4)}),
            ("device_secs", {"device_secs": np.ones([3, 3])}),
            ("edge_secs", {"edge_secs": np.ones(3)}),
            ("device_secs", {"device_secs": np.full([3, 2], np.nan)}),
            ("device_secs", {"device_secs": np.full([3, 2], np.inf)}),
            ("edge_secs", {"edge_secs": np.full(2, -1.0)}),
        ):
            with self.assertRaisesRegex(ValueError, f"^{name} must be"):
                GraphFeatures.from_groups(graphs.chain(3), **{"legal": _anywhere(3)} | arguments)


if __name__ == "__main__":
    absltest.main()
