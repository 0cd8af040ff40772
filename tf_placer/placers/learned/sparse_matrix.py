"""Constant sparse matrices with deterministic products and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

__all__ = ["SparseMatrix"]


class SparseMatrix:
    """A square matrix of constants: `matrix @ tensor`.

    Products and gradients sum entries in a fixed order; TensorFlow's gradient of a gather would add
    in any order.
    """

    def __init__(
        self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: int
    ) -> None:
        """Sorts the entries.

        Args:
            rows: int32 [num_entries].
            columns: int32 [num_entries].
            values: float32 [num_entries]; entries of the same place add up.
            size: number of rows and of columns.
        """
        self._size = size
        self._entries = _sort_by_row(rows, columns, values, size)
        self._transposed = _sort_by_row(columns, rows, values, size)
        counts = np.bincount(rows, minlength=size)
        self._starts = tf.constant(np.concatenate([[0], np.cumsum(counts)]), tf.int32)

    def __matmul__(self, dense: tf.Tensor) -> tf.Tensor:
        """Multiplies with float32 [size, n]."""

        @tf.custom_gradient
        def product(dense: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self._multiply(self._entries, dense), lambda upstream: self._multiply(
                self._transposed, upstream
            )

        return product(dense)

    def row(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads the columns int32 [n] and the values float32 [n] of the entries of one row."""
        _, columns, values = self._entries
        first, last = self._starts[index], self._starts[index + 1]
        return columns[first:last], values[first:last]

    def _multiply(
        self, entries: tuple[tf.Tensor, tf.Tensor, tf.Tensor], dense: tf.Tensor
    ) -> tf.Tensor:
        rows, columns, values = entries
        products = tf.gather(dense, columns) * values[:, tf.newaxis]
        sums = tf.math.segment_sum(products, rows)
        return tf.ensure_shape(sums, [self._size, dense.shape[1]])


def _sort_by_row(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sorts entries by row and appends a zero in the last row, which segment_sum needs."""
    order = np.lexsort([columns, rows])
    return (
        tf.constant(np.append(rows[order], size - 1), tf.int32),
        tf.constant(np.append(columns[order], 0), tf.int32),
        tf.constant(np.append(values[order], 0.0), tf.float32),
    )
