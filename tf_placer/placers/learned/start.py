"""A placement that a policy starts from: its first samples are mostly close to it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np

from tf_placer.placers.validators import check_fields

__all__ = ["Start", "StartConfig"]

# Samples near a start show where it can be improved: this share of random devices suffices, but in
# small graphs at least two units per placement, up to a maximum share.
_UNIFORM_SHARE, _MIN_RANDOM_UNITS, _MAX_UNIFORM_SHARE = 0.03, 2.0, 0.3


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
        """Computes the share of units that get random devices in the first samples."""
        if self.start_uniform is not None:
            return self.start_uniform
        return max(_UNIFORM_SHARE, min(_MIN_RANDOM_UNITS / num_units, _MAX_UNIFORM_SHARE))


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """A placement of units to start from.

    Attributes:
        devices: int32 [num_units], the device of each unit.
        uniform: share of random devices in the first samples.
        num_devices: number of devices.
    """

    devices: np.ndarray
    uniform: float
    num_devices: int

    def compute_group_probabilities(self, membership: np.ndarray, num_groups: int) -> np.ndarray:
        """Computes the initial probabilities of the devices of groups.

        Args:
            membership: int32 [num_units], the group of each unit.
            num_groups: number of groups.

        Returns:
            float64 [num_groups, num_devices], positive rows that sum to 1.
        """
        places = membership.astype(np.int64) * self.num_devices + self.devices
        placed = np.bincount(places, minlength=num_groups * self.num_devices)
        placed = placed.reshape(num_groups, self.num_devices).astype(np.float64)
        members = placed.sum(axis=1, keepdims=True)
        return np.asarray(self.probabilities(placed, members))

    def probabilities(self, placed: Any, members: Any) -> Any:
        """Computes initial probabilities of devices; takes arrays or tensors.

        Args:
            placed: float [..., num_devices], the number of the group's units on each device.
            members: float [..., 1], the number of units of the group; may be 0.

        Returns:
            float [..., num_devices], positive.
        """
        # The small terms give an empty group equal probabilities.
        shares = (placed + 1e-6 / self.num_devices) / (members + 1e-6)
        return (1 - self.uniform) * shares + self.uniform / self.num_devices
