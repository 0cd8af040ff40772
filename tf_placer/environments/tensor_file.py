"""Named tensors in a file, of every type that TensorFlow can store, strings included.

The file is a sequence of TensorFlow's NamedTensorProto messages, each behind its length in bytes
as a little-endian 64-bit integer. NumPy's own format needs pickles for strings and loses bfloat16.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

import numpy as np

__all__ = ["check_tensors", "read_tensors", "write_tensors"]

_LENGTH = struct.Struct("<Q")


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors.

    Args:
        path: the file to write.
        tensors: arrays, or values that NumPy converts to arrays, by name.

    Raises:
        OSError: the file cannot be written; the error names it.
        ValueError: a value is not a tensor or larger than 2 GiB; the message names it.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import named_tensor_pb2

    # Without a buffer, closing the file writes nothing and so cannot fail.
    with open(path, "wb", buffering=0) as file:
        for name, value in tensors.items():
            try:
                proto = named_tensor_pb2.NamedTensorProto(
                    name=name, tensor=tf.make_tensor_proto(np.asarray(value))
                )
                data = proto.SerializeToString()
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name!r} cannot be stored as a tensor: {error}") from None
            rest = memoryview(_LENGTH.pack(len(data)) + data)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError as error:
                # The error of a full disk names no file.
                raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads a file of tensors.

    Returns:
        Arrays by name; strings are arrays of dtype object with `bytes` in them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a file of tensors.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import named_tensor_pb2

    tensors = {}
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while head := file.read(_LENGTH.size):
                (length,) = _LENGTH.unpack(head)
                if length > size:
                    raise ValueError("a tensor in it ends behind its end")
                proto = named_tensor_pb2.NamedTensorProto.FromString(file.read(length))
                tensors[proto.name] = tf.make_ndarray(proto.tensor)
    except (DecodeError, TypeError, ValueError, struct.error) as error:
        raise ValueError(f"{os.fspath(path)} is no file of tensors: {error}") from None
    return tensors


def check_tensors(path: str | os.PathLike[str]) -> None:
    """Checks the format of a file of tensors without reading the tensors.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a file of tensors.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() < size:
            head = file.read(_LENGTH.size)
            if len(head) < _LENGTH.size or _LENGTH.unpack(head)[0] > size - file.tell():
                raise ValueError(f"{os.fspath(path)} is no file of tensors: one ends behind it")
            file.seek(_LENGTH.unpack(head)[0], os.SEEK_CUR)
