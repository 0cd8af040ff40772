"""Former names of options and placers, which scripts, command lines and logs may still use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = [
    "FORMER_NAMES",
    "FORMER_PLACERS",
    "FORMER_VALUES",
    "rename_former",
    "restore_former",
]

V = TypeVar("V")

# Former name: today's name.
FORMER_NAMES = {
    "again_temperatures": "reheating_temperatures",
    "failing_signal": "failure_reward",
    "kick_share": "perturbation_share",
    "meetings": "synchronization_points",
    "neighbours": "neighbors",
    "normalise": "normalize",
    "penalty_secs": "failure_secs",
    "race_share": "halving_share",
    "racing_starts": "halving_starts",
    "signal": "reward",
}

# Former name: today's name. None of these has a setting that a paper prints.
FORMER_PLACERS = {
    f"{name}:published": f"{name}:variant"
    for name in ("hierarchical", "policy_gradient", "spotlight")
}

# Settings of learned placers that logs of earlier versions lack, with the values that mean what a
# search did then.
FORMER_VALUES: Mapping[str, object] = {
    "baseline_failures": True,
    "failure_factor": None,
    "grouper_start_rate": 0.0,
}


def rename_former(options: Mapping[str, V], *, owner: str) -> dict[str, V]:
    """Replaces the former names of options by today's.

    Args:
        options: values by option name.
        owner: the owner of the options, for messages.

    Raises:
        ValueError: an option is given by its former name and by today's.
    """
    for former, name in FORMER_NAMES.items():
        if former in options and name in options:
            raise ValueError(
                f"{owner} has options {former!r} and {name!r}, which are the same option; "
                f"give {name!r} only"
            )
    return {FORMER_NAMES.get(name, name): value for name, value in options.items()}


def restore_former(options: Mapping[str, V]) -> dict[str, V]:
    """Replaces today's names of options by their former names, for digests of stored requests.

    Args:
        options: values by option name, without former names.
    """
    former_names = {name: former for former, name in FORMER_NAMES.items()}
    return {former_names.get(name, name): value for name, value in options.items()}
