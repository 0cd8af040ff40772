"""Where groups of units may go, and what becomes of a unit that may not go there."""

from __future__ import annotations

import numpy as np

__all__ = ["check_legal", "group_legal", "legal_placements"]


def check_legal(legal: np.ndarray, num_units: int) -> None:
    """Checks that every unit may go somewhere.

    Args:
        legal: bool [num_units, num_devices], true where a unit may go.
        num_units: how many units there should be.

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


def group_legal(legal: np.ndarray, membership: np.ndarray, num_groups: int) -> np.ndarray:
    """Says where groups may go: where all their units may, or else where at least one may.

    Args:
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.
        membership: int32 [num_units], the group of each unit.
        num_groups: how many groups there are.

    Returns:
        bool [num_groups, num_devices]; every row has a true entry, that of an empty group has
        only such.
    """
    members = np.bincount(membership, minlength=num_groups)
    allowed = np.stack(
        [np.bincount(membership[column], minlength=num_groups) for column in legal.T], axis=1
    )
    everyone = allowed == members[:, np.newaxis]
    return np.where(everyone.any(axis=1, keepdims=True), everyone, allowed > 0)


def legal_placements(devices: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Moves each unit that may not go where its group goes to the first device where it may.

    Args:
        devices: int32 [count, num_units], the devices of the units' groups.
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.

    Returns:
        int32 [count, num_units], legal.
    """
    allowed = legal[np.arange(len(legal)), devices]
    return np.where(allowed, devices, legal.argmax(axis=1)).astype(np.int32)
