"""The memory of placements: of those that do not fit, and beside an original that does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes

__all__ = ["describe_memory_use", "find_unfitting"]

# The order of operations varies, and the peak with it: a device that is less full may have room.
_SURE_SHARE = 1.1


def describe_memory_use(
    problem: PlacementProblem, placement: Sequence[int], original: Sequence[int] | None
) -> str:
    """Describes the peak memory of a placement on the GPUs, or on all devices if there are none.

    Args:
        problem: the problem.
        placement: the device index of each group.
        original: the same of the original; None if it is unknown.

    Returns:
        A clause, with the fullest device of the original.
    """
    labels = device_labels([device.name for device in problem.devices])
    shown = find_accelerators(problem).tolist()
    rows = [placement] if original is None else [placement, original]
    peaks = Simulator(problem).simulate(np.array(rows, np.int32)).peak_bytes.tolist()
    devices = [(d, labels[problem.devices[d].name], problem.devices[d].memory_bytes) for d in shown]
    used = ", ".join(
        f"{format_bytes(peaks[0][d])} of {format_bytes(memory_bytes)} on {label}"
        for d, label, memory_bytes in devices
    )
    text = f"by simulation it takes {used}"
    if original is None:
        return text
    fullest, label, _ = max(devices, key=lambda each: peaks[1][each[0]] / max(each[2], 1))
    return f"{text}, and the original {format_bytes(peaks[1][fullest])} on {label}"


def find_unfitting(problem: PlacementProblem, placements: np.ndarray) -> np.ndarray:
    """Finds placements that certainly exceed the memory of a device.

    Args:
        problem: the problem.
        placements: int [num_placements, num_groups].

    Returns:
        bool [num_placements]; false for those that exceed it by a few percent only.
    """
    peaks = Simulator(problem).simulate(placements.astype(np.int32)).peak_bytes
    limits = _SURE_SHARE * np.array([device.memory_bytes for device in problem.devices])
    return np.asarray((peaks > limits).any(axis=1))
