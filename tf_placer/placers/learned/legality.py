"""Legal devices of groups, and a fallback for units that may not run there."""

from __future__ import annotations

import numpy as np

__all__ = ["check_legal", "find_legal_devices", "legalize_placements"]


def check_legal(legal: np.ndarray, num_units: int) -> None:
    """Checks that every unit may go somewhere.

    Args:
        legal: bool [num_units, num_devices], true where a unit may go.
        num_units: the expected number of units.

    Raises:
        ValueError: `legal` is of another kind or shape, or a unit has no legal device.
    """
    if legal.dtype != np.bool_ or legal.ndim != 2 or legal.shape[0] != num_units:
        raise ValueError(
            f"legal must be bool [{num_units}, devices], not {legal.dtype} {list(legal.shape)}"
        )
    nowhere = np.flatnonzero(~legal.any(axis=1))
    if nowhere.size:
        raise ValueError(f"unit {nowhere[0]} has no legal device")


def find_legal_devices(legal: np.ndarray, membership: np.ndarray, num_groups: int) -> np.ndarray:
    """Finds the legal devices of groups: those of all their units, or else of at least one.

    Args:
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.
        membership: int32 [num_units], the group of each unit.
        num_groups: number of groups.

    Returns:
        bool [num_groups, num_devices]; every row has a true entry, the row of an empty group is
        all true.
    """
    members = np.bincount(membership, minlength=num_groups)
    allowed = np.stack(
        [np.bincount(membership[column], minlength=num_groups) for column in legal.T], axis=1
    )
    everyone = allowed == members[:, np.newaxis]
    return np.where(everyone.any(axis=1, keepdims=True), everyone, allowed > 0)


def legalize_placements(devices: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Moves each unit whose group is on an illegal device for it to its first legal device.

    Args:
        devices: int32 [count, num_units], the devices of the units' groups.
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.

    Returns:
        int32 [count, num_units], legal.
    """
    allowed = legal[np.arange(len(legal)), devices]
    return np.where(allowed, devices, legal.argmax(axis=1)).astype(np.int32)
