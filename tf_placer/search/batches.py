"""The interface of batches of placements, from one placer or from several controllers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tf_placer.environments.environment import Measurement

__all__ = ["BatchSource", "SampledBatch"]


@dataclasses.dataclass(frozen=True, eq=False)
class SampledBatch:
    """Placements that are measured one by one and then observed together.

    Attributes:
        controller: number of the controller that proposed the batch, from 1; 0 without controllers.
        batch: number of the batch, from 0 for each controller.
        version: version of the weights that the controller sampled the batch under: the number of
            updates before it.
        placements: int32 [num_placements, num_groups].
    """

    controller: int
    batch: int
    version: int
    placements: np.ndarray


class BatchSource(Protocol):
    """A source of batches for one stage, which also observes their measurements.

    Attributes:
        poll_secs: the longest wait for measurements between two calls of `sample`.
    """

    poll_secs: float

    def sample(self, is_busy: bool) -> list[SampledBatch] | None:
        """Returns new batches to measure.

        Args:
            is_busy: whether placements are being measured, so that the call should not wait.

        Returns:
            The batches since the last call; None if no more will come.
        """
        ...

    def find_logged(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Finds the measurements of a batch that the log has, by position in the batch."""
        ...

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Takes the measurements of a batch, one per placement, to learn from them."""
        ...

    def settle(self) -> None:
        """Waits until the placer has learned from all observed batches."""
        ...
