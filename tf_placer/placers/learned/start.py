"""A placement that a policy starts from: at first it is sampled, mostly."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np

from tf_placer.placers.validators import check_fields

__all__ = ["Start", "StartConfig"]

# What is sampled near a start shows where it can be improved. So many devices, and of a graph with
# few of them this share, are enough.
_UNIFORM, _LEAST_ANY, _MOST_UNIFORM = 0.03, 2.0, 0.3


@dataclasses.dataclass(frozen=True)
class StartConfig:
    """Settings of the start, each with its line of help.

    Raises:
        ValueError: a share is not above 0 and at most 1.
    """

    start: Annotated[
        str | None,
        "what the policy samples at first: the best of some simple placements, which are measured "
        "before (best); what a placer that does not learn proposes first, such as expert; the "
        "devices that the graph came with (original; in `optimize`); or a placement in a file "
        "(.json); none to start with any",
    ] = None
    start_uniform: Annotated[
        float | None,
        "share of the devices sampled at first that are any, each as often; none for 3 %, and of a "
        "small graph two devices on average",
    ] = None

    def __post_init__(self) -> None:
        check_fields(self, ("start_uniform",), lambda share: 0 < share <= 1, "above 0, at most 1")

    def uniform(self, num_units: int) -> float:
        """Says which share of the devices is any at first, of so many."""
        if self.start_uniform is not None:
            return self.start_uniform
        return max(_UNIFORM, min(_LEAST_ANY / num_units, _MOST_UNIFORM))


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """A placement of units to start from.

    Attributes:
        devices: int32 [num_units], the device of each.
        uniform: share of the devices sampled at first that are any.
        num_devices: how many devices there are.
    """

    devices: np.ndarray
    uniform: float
    num_devices: int

    def compute_group_probabilities(self, membership: np.ndarray, num_groups: int) -> np.ndarray:
        """Computes how probable the devices of groups are at first.

        Args:
            membership: int32 [num_units], the group of each unit.
            num_groups: how many groups there are.

        Returns:
            float64 [num_groups, num_devices], positive rows that sum to 1.
        """
        places = membership.astype(np.int64) * self.num_devices + self.devices
        placed = np.bincount(places, minlength=num_groups * self.num_devices)
        placed = placed.reshape(num_groups, self.num_devices).astype(np.float64)
        members = placed.sum(axis=1, keepdims=True)
        return np.asarray(self.probabilities(placed, members))

    def probabilities(self, placed: Any, members: Any) -> Any:
        """Computes how probable devices are at first; of arrays or tensors.

        Args:
            placed: float [..., num_devices], how many units of a group each device has.
            members: float [..., 1], how many units a group has; it may have none.

        Returns:
            float [..., num_devices], positive.
        """
        # Of an empty group every device is as probable.
        shares = (placed + 1e-6 / self.num_devices) / (members + 1e-6)
        return (1 - self.uniform) * shares + self.uniform / self.num_devices
