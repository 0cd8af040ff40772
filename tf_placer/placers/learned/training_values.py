"""The state of a placer, and messages between processes that train it; free of TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.placers.update_record import UpdateRecord

__all__ = ["Learned", "Parameters", "Steps", "select_state"]


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """The weights of an agent and the state of its optimizer.

    Attributes:
        weights: an array per weight of the agent.
        optimizer: an array per variable of the optimizer; empty without an optimizer.
    """

    weights: tuple[np.ndarray, ...]
    optimizer: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """The changes of the weights by one batch.

    Attributes:
        gradients: of the steps of the optimizer in order, each an array per weight.
        weights: the final weights, where an algorithm sets them without a gradient; else None.
    """

    gradients: tuple[Sequence[np.ndarray], ...]
    weights: tuple[np.ndarray, ...] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """The records of one batch, and the state after it.

    Attributes:
        records: one per update; `update` and `samples` are 0, and `best_step_secs` is that of the
            batch.
        state: of the algorithm and the reward function after the batch.
        counts: whether the batch counts as an update of the weights.
    """

    records: tuple[UpdateRecord, ...]
    state: Mapping[str, np.ndarray]
    counts: bool


def select_state(prefix: str, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Selects the part of a state whose names begin with a prefix, and leaves the prefix out."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
