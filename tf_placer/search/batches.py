"""The batches that the driver gets from one placer, or from several controllers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tf_placer.environments.environment import Measurement

__all__ = ["Batches", "SampledBatch"]


@dataclasses.dataclass(frozen=True, eq=False)
class SampledBatch:
    """Placements that are to be measured, and then observed together.

    Attributes:
        controller: number of the controller that proposed them, from 1; 0 of a placer without.
        batch: number of the batch, from 0 for each controller.
        version: how many updates the weights had that a controller sampled it under.
        placements: int32 [num_placements, num_groups].
    """

    controller: int
    batch: int
    version: int
    placements: np.ndarray


class Batches(Protocol):
    """The batches of one stage: what comes next, and what came of it.

    Attributes:
        look_secs: how long to wait for measurements, before asking for further batches.
    """

    look_secs: float

    def sample(self, is_busy: bool) -> list[SampledBatch] | None:
        """Gives the batches that can be measured now.

        Args:
            is_busy: whether placements are being measured, so that nobody waits for a batch.

        Returns:
            The batches since the last call; None if no more will come.
        """
        ...

    def known(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Says what the log has of a batch, by the place in it."""
        ...

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Takes in what came of a batch, one measurement per placement."""
        ...

    def settle(self) -> None:
        """Waits until everything has been learned that was observed."""
        ...
