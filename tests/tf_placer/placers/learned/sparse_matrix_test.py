import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.sparse_matrix import SparseMatrix


def _random(seed, size=7, num_entries=20):
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, size, [2, num_entries])
    values = rng.normal(size=num_entries).astype(np.float32)
    dense = np.zeros([size, size])
    np.add.at(dense, (rows, columns), values)
    return SparseMatrix(rows, columns, values, size), dense


class SparseMatrixTest(tf.test.TestCase):
    def test_multiplies_like_a_dense_matrix(self):
        for seed in range(10):
            matrix, dense = _random(seed)
            tensor = np.random.default_rng(seed).normal(size=[7, 3]).astype(np.float32)
            self.assertAllClose(matrix @ tf.constant(tensor), dense @ tensor, atol=1e-5)

    def test_its_gradient_is_the_product_with_the_transposed_matrix(self):
        matrix, dense = _random(3)
        tensor, upstream = tf.random.stateless_normal([2, 7, 3], [1, 2])
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = matrix @ tensor
        gradient = tape.gradient(result, tensor, output_gradients=upstream)
        self.assertAllClose(gradient, dense.T @ upstream.numpy(), atol=1e-5)

    def test_a_row_has_its_columns_in_order(self):
        matrix = SparseMatrix(
            np.array([2, 0, 2]), np.array([1, 2, 0]), np.array([3.0, 4.0, 5.0], np.float32), 3
        )
        rows = [matrix.row(tf.constant(index)) for index in range(3)]
        self.assertAllEqual([columns.numpy().tolist() for columns, _ in rows], [[2], [], [0, 1]])
        self.assertAllEqual([values.numpy().tolist() for _, values in rows], [[4], [], [5, 3]])

    def test_a_matrix_without_entries_is_zero(self):
        nothing = np.zeros([0], np.int32)
        matrix = SparseMatrix(nothing, nothing, nothing.astype(np.float32), 4)
        self.assertAllEqual(matrix @ tf.ones([4, 2]), np.zeros([4, 2]))

    def test_shapes_are_known_when_a_function_is_traced(self):
        matrix, _ = _random(0)

        @tf.function
        def product(tensor):
            result = matrix @ tensor
            self.assertEqual(result.shape, [7, 3])
            return result

        product(tf.ones([7, 3]))


if __name__ == "__main__":
    tf.test.main()
