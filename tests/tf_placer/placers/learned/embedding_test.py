import doctest

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned import embedding
from tf_placer.placers.learned.embedding import (
    GroupFeatures,
    adjacency,
    output_shapes,
    type_weights,
)

_PUBLISHED = [[[20, 40, 20, 30], [20, 30]]]


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(embedding))
    return tests


class OutputShapesTest(absltest.TestCase):
    def test_terminated_layout_of_the_published_example(self):
        features = output_shapes(
            _PUBLISHED, num_dims=4, num_outputs=2, layout="terminated", raw=True
        )
        self.assertEqual(features.tolist(), [[20, 40, 20, 30, 0, 20, 30, 0]])

    def test_slots_of_the_published_example_start_with_it(self):
        features = output_shapes(_PUBLISHED, raw=True)
        self.assertEqual(features.shape, (1, 25))
        self.assertEqual(features[0, :8].tolist(), [20, 40, 20, 30, 0, 20, 30, 0])
        self.assertEqual(features[0, 8:].tolist(), [0] * 17)

    def test_excess_dimensions_and_outputs_are_dropped(self):
        shapes = [[[1, 2, 3], [4], [5, 6]]]
        slots = output_shapes(shapes, num_dims=2, num_outputs=2, raw=True)
        self.assertEqual(slots.tolist(), [[1, 2, 4, 0]])
        terminated = output_shapes(shapes, num_dims=3, num_outputs=2, layout="terminated", raw=True)
        self.assertEqual(terminated.tolist(), [[1, 2, 3, 0, 4, 0]])

    def test_unknown_dimensions_scalars_and_missing_outputs_are_zeros(self):
        shapes = [[[-1, 7], [], [2]], []]
        slots = output_shapes(shapes, num_dims=2, num_outputs=3, raw=True)
        self.assertEqual(slots.tolist(), [[0, 7, 0, 0, 2, 0], [0] * 6])
        terminated = output_shapes(shapes, num_dims=2, num_outputs=3, layout="terminated", raw=True)
        self.assertEqual(terminated.tolist(), [[0, 7, 0, 0, 2, 0], [0] * 6])

    def test_sizes_become_logarithms_unless_raw(self):
        features = output_shapes([[[1, 127, -1]]], num_dims=3, num_outputs=1)
        np.testing.assert_allclose(features, [[np.log(2), np.log(128), 0]], rtol=1e-6)

    def test_refuses_an_unknown_layout(self):
        with self.assertRaisesRegex(ValueError, "'grid'"):
            output_shapes(_PUBLISHED, layout="grid")


class GroupFeaturesTest(absltest.TestCase):
    def test_types_are_weighted_by_their_counts(self):
        weights = type_weights(np.array([[3, 1], [0, 2], [0, 0]], np.int32))
        np.testing.assert_array_equal(weights, [[0.75, 0.25], [0, 1], [0, 0]])

    def test_adjacency_tells_inputs_from_outputs(self):
        edges = np.array([[0, 1], [0, 2], [1, 2]], np.int32)
        np.testing.assert_array_equal(
            adjacency(edges, 3),
            [[0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0]],
        )

    def test_merged_adjacency_tells_neighbours_only(self):
        edges = np.array([[0, 1], [2, 1]], np.int32)
        np.testing.assert_array_equal(
            adjacency(edges, 3, merged=True), [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
        )

    def test_a_graph_without_edges_has_no_neighbours(self):
        self.assertEqual(adjacency(graphs.group_graph(2).edges, 2).sum(), 0)

    def test_concatenates_shapes_and_adjacency(self):
        groups = graphs.group_graph(
            2,
            [(0, 1)],
            type_counts=np.array([[1, 1], [0, 4]]),
            output_shapes=[[[8, 3]], [[]]],
        )
        features = GroupFeatures.from_groups(groups, shape_dims=2, shape_outputs=1, raw_shapes=True)
        self.assertEqual(features.num_groups, 2)
        np.testing.assert_array_equal(features.type_weights, [[0.5, 0.5], [0, 1]])
        np.testing.assert_array_equal(features.fixed, [[8, 3, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]])

    def test_has_the_published_width_by_default(self):
        features = GroupFeatures.from_groups(graphs.chain(7))
        self.assertEqual(features.fixed.shape, (7, 25 + 2 * 7))
        self.assertEqual(features.fixed.dtype, np.float32)
        merged = GroupFeatures.from_groups(graphs.chain(7), merged_adjacency=True)
        self.assertEqual(merged.fixed.shape, (7, 25 + 7))


if __name__ == "__main__":
    absltest.main()
