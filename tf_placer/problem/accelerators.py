"""The devices of a problem that should do the work of a step."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["find_accelerators", "is_gpu"]


def is_gpu(device: ProblemDevice) -> bool:
    """Tells whether a device is a GPU, of whatever model."""
    return device.is_asynchronous or device.kind == "GPU"


def find_accelerators(problem: PlacementProblem) -> np.ndarray:
    """Finds the GPUs of a problem; all devices if it has none.

    Returns:
        int64 [num_accelerators], indices of devices.
    """
    gpus = [index for index, device in enumerate(problem.devices) if is_gpu(device)]
    return np.array(gpus or range(problem.num_devices), np.int64)
