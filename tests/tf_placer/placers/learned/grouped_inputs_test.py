import numpy as np
import tensorflow as tf

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.embedding import EmbeddingConfig, output_shapes
from tf_placer.placers.learned.grouped_inputs import GroupedInputs
from tf_placer.placers.learned.legality import find_legal_devices

_EDGES = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]


def _units():
    return graphs.group_graph(
        4,
        _EDGES,
        type_counts=np.array([[1, 0], [2, 1], [0, 1], [0, 3]]),
        output_shapes=[[[8, 3]], [[20], [2]], [], [[5, 5]]],
    )


class GroupedInputsTest(tf.test.TestCase):
    def test_of_a_hand_made_graph(self):
        config = EmbeddingConfig(shape_dims=2, shape_outputs=1, raw_shapes=True)
        inputs = GroupedInputs(_units(), np.ones([4, 2], np.bool_), 3, config)
        # Units 0 and 1 are group 2, units 2 and 3 are group 0; group 1 is empty.
        result = inputs(tf.constant([[2, 2, 0, 0]]))
        self.assertAllClose(result.types, [[[0, 4 / 5], [0, 0], [3 / 4, 1 / 4]]])
        self.assertAllClose(result.features, [[[5 / 6, 5 / 6], [0, 0], [28 / 29, 3 / 29]]])
        # The edges 0-2, 1-3 and 0-3 lead from group 2 to group 0; the other two stay inside.
        self.assertAllClose(result.adjacency, [[[0, 0, 0], [0, 0, 0], [3 / 4, 0, 0]]])
        self.assertAllEqual(result.counted, [[1, 0, 1]])

    def test_edges_can_be_logarithms_of_bytes(self):
        config = EmbeddingConfig(adjacency="bytes")
        inputs = GroupedInputs(_units(), np.ones([4, 2], np.bool_), 2, config)
        one, three = np.log1p(512), np.log1p(3 * 512)
        for grouping, expected in (
            ([0, 0, 1, 0], [[0, one / (one + 1)], [one / (one + 1), 0]]),
            ([0, 0, 0, 1], [[0, three / (three + 1)], [0, 0]]),
        ):
            self.assertAllClose(inputs(tf.constant([grouping])).adjacency, [expected])

    def test_equals_sums_over_units_for_each_placement(self):
        rng = np.random.default_rng(0)
        num_units, num_groups, count = 12, 5, 6
        edges = [(a, b) for a in range(num_units) for b in range(a + 1, num_units)]
        edges = [edge for edge in edges if rng.random() < 0.3]
        units = graphs.group_graph(
            num_units,
            edges,
            type_counts=rng.integers(4, size=(num_units, 3)),
            output_shapes=[[rng.integers(1, 9, size=2)] for _ in range(num_units)],
        )
        legal = rng.random([num_units, 3]) < 0.6
        legal[:, 0] |= ~legal.any(axis=1)
        grouping = rng.integers(num_groups, size=(count, num_units)).astype(np.int32)
        result = GroupedInputs(units, legal, num_groups, EmbeddingConfig())(tf.constant(grouping))
        shapes = output_shapes(units.output_shapes)
        for row, membership in enumerate(grouping):
            types, sizes = np.zeros([num_groups, 3]), np.zeros([num_groups, 25])
            adjacency = np.zeros([num_groups, num_groups])
            for unit, group in enumerate(membership):
                types[group] += units.type_counts[unit]
                sizes[group] += shapes[unit]
            for producer, consumer in membership[np.array(edges)]:
                adjacency[producer, consumer] += producer != consumer
            for sums, block in ((types, 0), (sizes, 1), (adjacency, 2)):
                expected = sums / (sums.max(axis=1, keepdims=True) + 1)
                self.assertAllClose(result[block][row], expected, rtol=1e-5)
            self.assertAllEqual(
                result.legal[row], find_legal_devices(legal, membership, num_groups)
            )
            self.assertAllEqual(result.counted[row], np.isin(range(num_groups), membership))

    def test_of_a_graph_without_edges(self):
        inputs = GroupedInputs(
            graphs.group_graph(2), np.ones([2, 1], np.bool_), 1, EmbeddingConfig()
        )
        self.assertAllEqual(inputs(tf.zeros([3, 2], tf.int32)).adjacency, np.zeros([3, 1, 1]))


if __name__ == "__main__":
    tf.test.main()
