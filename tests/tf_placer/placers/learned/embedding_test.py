import doctest

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned import embedding
from tf_placer.placers.learned.embedding import (
    EmbeddingConfig,
    adjacency_matrix,
    build_fixed_inputs,
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


class EmbeddingConfigTest(parameterized.TestCase):
    def test_tells_how_many_features_there_are(self):
        self.assertEqual(EmbeddingConfig().num_features, 25)
        self.assertEqual(EmbeddingConfig(shape_dims=4, shape_outputs=2).num_features, 8)

    @parameterized.parameters(
        ({"shape_dims": 0}, "shape_dims must be positive, not 0"),
        ({"shape_outputs": -1}, "shape_outputs must be positive, not -1"),
        ({"shape_layout": "grid"}, "no shape layout 'grid'"),
        ({"adjacency": "words"}, "adjacency must be binary or bytes, not 'words'"),
    )
    def test_refuses_what_is_outside_its_range(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            EmbeddingConfig(**options)


class AdjacencyMatrixTest(absltest.TestCase):
    def test_tells_what_sends_to_what(self):
        groups = graphs.group_graph(3, [(0, 1), (0, 2), (1, 2)])
        np.testing.assert_array_equal(
            adjacency_matrix(groups, "binary"), [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
        )

    def test_can_weigh_edges_by_bytes_relative_to_the_largest_of_the_producer(self):
        groups = graphs.group_graph(4, [(0, 1), (0, 2), (1, 2), (2, 3)])
        groups.edge_bytes[:] = [7, 63, 100, 0]
        np.testing.assert_allclose(
            adjacency_matrix(groups, "bytes"),
            [[0, 0.5, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        )

    def test_a_graph_without_edges_sends_nothing(self):
        for kind in ("binary", "bytes"):
            self.assertEqual(adjacency_matrix(graphs.group_graph(2), kind).tolist(), [[0, 0]] * 2)


class FixedInputsTest(absltest.TestCase):
    def test_of_a_hand_made_graph(self):
        groups = graphs.group_graph(
            2,
            [(0, 1)],
            type_counts=np.array([[1, 1], [0, 4]]),
            output_shapes=[[[8, 3]], [[]]],
        )
        legal = np.array([[True, False], [True, True]])
        config = EmbeddingConfig(shape_dims=2, shape_outputs=1, raw_shapes=True)
        inputs = build_fixed_inputs(groups, legal, config)
        for block, expected in (
            (inputs.types, [[[0.5, 0.5], [0, 1]]]),
            (inputs.features, [[[8, 3], [0, 0]]]),
            (inputs.adjacency, [[[0, 1], [0, 0]]]),
            (inputs.legal, [legal]),
            (inputs.counted, [[1, 1]]),
        ):
            np.testing.assert_array_equal(block, expected)
            self.assertEqual(block.dtype, np.bool_ if block is inputs.legal else np.float32)

    def test_has_the_published_width_by_default(self):
        inputs = build_fixed_inputs(graphs.chain(7), np.ones([7, 2], np.bool_), EmbeddingConfig())
        self.assertEqual(inputs.features.shape, [1, 7, 25])
        self.assertEqual(inputs.adjacency.shape, [1, 7, 7])

    def test_types_are_weighted_by_their_counts(self):
        weights = type_weights(np.array([[3, 1], [0, 2], [0, 0]], np.int32))
        np.testing.assert_array_equal(weights, [[0.75, 0.25], [0, 1], [0, 0]])


if __name__ == "__main__":
    absltest.main()
