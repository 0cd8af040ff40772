"""What is known of one of several controllers, whichever process has its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.placers.learned.training_values import Learned
from tf_placer.search.batches import SampledBatch
from tf_placer.search.distributed.kept_weights import KeptBatch
from tf_placer.search.distributed.lasting_actor import LastingActor

__all__ = ["ControllerPlace"]


@dataclasses.dataclass(eq=False)
class ControllerPlace:
    """A controller.

    Attributes:
        number: from 1.
        actor: its process.
        state: what it remembers of its earlier batches.
        next_batch: number of the batch that it samples next.
        batch: what it has sampled and not learned yet.
        kept: the same with its actions.
        parameters: what that was sampled under, for the processes.
        asked: the version of the weights that it samples under now.
        measurements: of its batch; None before all have ended.
        learned: what came of them, and has not been applied yet.
    """

    number: int
    actor: LastingActor
    state: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    next_batch: int = 0
    batch: SampledBatch | None = None
    kept: KeptBatch | None = None
    parameters: Any = None
    asked: int = 0
    measurements: Sequence[Measurement] | None = None
    learned: Learned | None = None
