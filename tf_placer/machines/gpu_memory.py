"""The part of a GPU's memory that TensorFlow uses for tensors."""

from __future__ import annotations

import numpy as np

__all__ = ["compute_plan_bytes", "compute_usable_bytes"]

_MIB = 2**20
# TensorFlow runs ready operations in no fixed order, so the peak memory of a step varies around the
# simulated one.
_SAFE_SHARE = 0.97


def compute_plan_bytes(managed_bytes: int) -> int:
    """Computes the bytes that a plan may use, of those that TensorFlow's allocator manages."""
    return int(_SAFE_SHARE * managed_bytes)


def compute_usable_bytes(memory_bytes: int) -> int:
    """Computes the bytes of a GPU that TensorFlow's allocator manages by default.

    References:
        `MinSystemMemory` of TensorFlow's pluggable_device_factory.cc.
    """
    if memory_bytes <= 255 * _MIB:
        # TensorFlow reserves nothing where its reserve would be all.
        return memory_bytes
    if memory_bytes < 2 << 30:
        return memory_bytes - 255 * _MIB
    # Use float32 as TensorFlow does, to get the same bytes.
    return memory_bytes - max(300 * _MIB, int(np.float32(memory_bytes) * np.float32(0.06)))
