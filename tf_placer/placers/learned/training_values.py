"""What processes that train one placer send each other; free of TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.placers.update_record import UpdateRecord

__all__ = ["Learned", "Parameters", "Steps"]


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """What is trained.

    Attributes:
        weights: an array per weight of the agent.
        optimizer: what the optimizer remembers; empty without one.
    """

    weights: tuple[np.ndarray, ...]
    optimizer: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """What one batch changes of the weights.

    Attributes:
        gradients: of the steps of the optimizer in order, each an array per weight.
        weights: what the weights become in the end, where an algorithm sets them without a
            gradient; else None.
    """

    gradients: tuple[Sequence[np.ndarray], ...]
    weights: tuple[np.ndarray, ...] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from a batch.

    Attributes:
        records: of each update; `update` and `samples` are 0, and `best_step_secs` is that of the
            batch.
        state: of the algorithm and the signal from now on.
        counts: whether the batch counts as an update of the weights.
    """

    records: tuple[UpdateRecord, ...]
    state: Mapping[str, np.ndarray]
    counts: bool
