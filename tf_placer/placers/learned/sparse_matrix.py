"""Constant sparse matrices whose products are the same on every run, and so are their gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

__all__ = ["SparseMatrix"]


class SparseMatrix:
    """A square matrix of constants: `matrix @ tensor`.

    Sums go over rows in their order, in the gradient too, where TensorFlow's own gradient of a
    gather would add in any order.
    """

    def __init__(
        self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: int
    ) -> None:
        """Sorts the entries.

        Args:
            rows: int32 [num_entries].
            columns: int32 [num_entries].
            values: float32 [num_entries]; those of one place add up.
            size: how many rows and columns there are.
        """
        self._size = size
        self._entries = _by_row(rows, columns, values, size)
        self._transposed = _by_row(columns, rows, values, size)
        counts = np.bincount(rows, minlength=size)
        self._starts = tf.constant(np.concatenate([[0], np.cumsum(counts)]), tf.int32)

    def __matmul__(self, dense: tf.Tensor) -> tf.Tensor:
        """The product with float32 [size, n]."""

        @tf.custom_gradient
        def product(dense: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self._sums(self._entries, dense), lambda upstream: self._sums(
                self._transposed, upstream
            )

        return product(dense)

    def row(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads the columns int32 [n] and the values float32 [n] of the entries of one row."""
        _, columns, values = self._entries
        first, last = self._starts[index], self._starts[index + 1]
        return columns[first:last], values[first:last]

    def _sums(self, entries: tuple[tf.Tensor, tf.Tensor, tf.Tensor], dense: tf.Tensor) -> tf.Tensor:
        rows, columns, values = entries
        products = tf.gather(dense, columns) * values[:, tf.newaxis]
        sums = tf.math.segment_sum(products, rows)
        return tf.ensure_shape(sums, [self._size, dense.shape[1]])


def _by_row(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Entries sorted by row, and one without effect that makes the last row exist."""
    order = np.lexsort([columns, rows])
    return (
        tf.constant(np.append(rows[order], size - 1), tf.int32),
        tf.constant(np.append(columns[order], 0), tf.int32),
        tf.constant(np.append(values[order], 0.0), tf.float32),
    )
