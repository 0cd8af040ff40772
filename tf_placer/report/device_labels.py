"""Short names of devices and operations for tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.util.messages import plain_text
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["device_labels", "label_single_device", "shorten_middle"]

_WIDTH = 20


def device_labels(names: Sequence[str]) -> dict[str, str]:
    """Shortens names of devices: "task:1/GPU:0" if all are "/job:a/replica:0/task:…/device:…"."""
    num_common = 0
    for parts in zip(*(name.split("/")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        num_common += 1
    short = {name: "/".join(name.split("/")[num_common:]) for name in names}
    return {
        name: shorten_middle(text.replace("device:", ""), _WIDTH) for name, text in short.items()
    }


def label_single_device(problem: PlacementProblem, placement: np.ndarray) -> str | None:
    """Finds the only GPU, or else device, that has all groups that may go there; shortens its name.

    Args:
        problem: the problem.
        placement: int32 [num_groups].

    Returns:
        The label of the device; None if there is no such device.
    """
    legal = legal_devices(problem)
    labels = device_labels([device.name for device in problem.devices])
    used_gpus = np.intersect1d(placement, find_accelerators(problem))
    for index, device in enumerate(problem.devices):
        is_alone = len(np.setdiff1d(used_gpus, [index])) == 0
        if is_alone and legal[:, index].any() and (placement[legal[:, index]] == index).all():
            return labels[device.name]
    return None


def shorten_middle(text: str, width: int) -> str:
    """Puts a text on one line and replaces its middle if it is too long."""
    text = plain_text(" ".join(text.split()))
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
