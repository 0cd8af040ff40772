"""Builds what sends tensors from a device to another while both compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

__all__ = ["make_factor", "make_values", "send", "tensor_stream"]

tf1 = tf.compat.v1

# A product takes about as long as sending a small tensor.
_FACTOR_SIZE = 256


def make_factor(name: str, device: str) -> tf.Variable:
    """Makes a square matrix whose products with itself are all alike, as a variable."""
    with tf.device(device):
        return tf1.get_variable(
            name,
            [_FACTOR_SIZE, _FACTOR_SIZE],
            initializer=tf1.constant_initializer(1.0 / _FACTOR_SIZE),
            use_resource=True,
        )


def make_values(name: str, device: str, size_bytes: int) -> tf.Variable:
    """Makes what tensors of so many bytes are made of, a variable: float32 [size_bytes / 4]."""
    with tf.device(device):
        return tf1.get_variable(
            name, [size_bytes // 4], initializer=tf1.ones_initializer(), use_resource=True
        )


def send(values: tf.Variable, source: str, destination: str) -> tf.Operation:
    """Makes a tensor on one device and looks at it on another.

    Args:
        values: float32 [n], on the source.
        source: name of the device that makes it.
        destination: name of the device that looks at it.

    Returns:
        The operation that looks.
    """
    with tf.device(source):
        made = tf.abs(values.read_value())
    with tf.device(destination):
        # Looks at next to nothing of the tensor, but not at nothing: what only needs its shape
        # would be folded into a constant.
        return made[:1].op


def tensor_stream(
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
        factors: of each device, from `make_factor`.
        source: name of the device that makes the tensors.
        destination: name of the other one.
        is_sent: whether the destination looks at the tensors, or the source itself.
        num_products: how many products each device computes, one after the other.
        made_after: for each tensor, after how many products of the source it is made: at least one.

    Returns:
        The operation that all of it leads to.
    """
    products = {
        device: _products(factors[device], device, num_products) for device in (source, destination)
    }
    ends = [products[source][-1], products[destination][-1]]
    for count in made_after:
        with tf.control_dependencies([products[source][count - 1]]):
            ends.append(send(values, source, destination if is_sent else source))
    with tf.device(source), tf.control_dependencies(ends):
        return tf.no_op()


def _products(factor: tf.Variable, device: str, count: int) -> list[tf.Operation]:
    """Multiplies matrices, one after the other."""
    products = []
    with tf.device(device):
        product = first = factor.read_value()
        for _ in range(count):
            product = tf.matmul(product, first)
            products.append(product.op)
    return products
