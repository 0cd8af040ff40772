"""Operations that send tensors from a device to another while both compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

__all__ = ["build_tensor_stream", "make_factor", "make_values", "send"]

tf1 = tf.compat.v1

# A product takes about as long as sending a small tensor.
_FACTOR_SIZE = 256


def make_factor(name: str, device: str) -> tf.Variable:
    """Makes a variable with a square matrix whose powers are all equal."""
    with tf.device(device):
        return tf1.get_variable(
            name,
            [_FACTOR_SIZE, _FACTOR_SIZE],
            initializer=tf1.constant_initializer(1.0 / _FACTOR_SIZE),
            use_resource=True,
        )


def make_values(name: str, device: str, size_bytes: int) -> tf.Variable:
    """Makes the variable that the sent tensors are computed from: float32 [size_bytes / 4]."""
    with tf.device(device):
        return tf1.get_variable(
            name, [size_bytes // 4], initializer=tf1.ones_initializer(), use_resource=True
        )


def send(values: tf.Variable, source: str, destination: str) -> tf.Operation:
    """Makes a tensor on one device and reads it on another.

    Args:
        values: float32 [n], on the source.
        source: name of the device that makes the tensor.
        destination: name of the device that reads it.

    Returns:
        The operation that reads it.
    """
    with tf.device(source):
        made = tf.abs(values.read_value())
    with tf.device(destination):
        # Read a single element: an operation that needs only the shape of the tensor would be
        # folded into a constant.
        return made[:1].op


def build_tensor_stream(
    values: tf.Variable,
    factors: Mapping[str, tf.Variable],
    source: str,
    destination: str,
    *,
    is_sent: bool,
    num_products: int,
    made_after: Sequence[int],
) -> tf.Operation:
    """Makes tensors while two devices multiply matrices.

    Args:
        values: float32 [n], on the source.
        factors: by device, a matrix from `make_factor`.
        source: name of the device that makes the tensors.
        destination: name of the other device.
        is_sent: whether the destination reads the tensors, or the source itself.
        num_products: number of products that each device computes, one after the other.
        made_after: for each tensor, the number of products on the source that precede it: at least
            one.

    Returns:
        An operation that waits for all of them.
    """
    products = {
        device: _multiply(factors[device], device, num_products) for device in (source, destination)
    }
    ends = [products[source][-1], products[destination][-1]]
    for count in made_after:
        with tf.control_dependencies([products[source][count - 1]]):
            ends.append(send(values, source, destination if is_sent else source))
    with tf.device(source), tf.control_dependencies(ends):
        return tf.no_op()


def _multiply(factor: tf.Variable, device: str, count: int) -> list[tf.Operation]:
    """Multiplies matrices, one after the other."""
    products = []
    with tf.device(device):
        product = first = factor.read_value()
        for _ in range(count):
            product = tf.matmul(product, first)
            products.append(product.op)
    return products
