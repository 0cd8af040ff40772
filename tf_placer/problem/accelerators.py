"""The devices of a problem that should do the work of a step."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["find_accelerators"]


def find_accelerators(problem: PlacementProblem) -> np.ndarray:
    """Finds the GPUs of a problem; all devices if it has none.

    Returns:
        int64 [num_accelerators], indices of devices.
    """
    is_gpu = np.array([device.is_asynchronous for device in problem.devices])
    return np.flatnonzero(is_gpu if is_gpu.any() else ~is_gpu)
