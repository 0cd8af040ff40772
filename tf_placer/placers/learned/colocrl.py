"""ColocRL: a sequence-to-sequence policy trained by REINFORCE on the root of the step time.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.learned.embedding import GroupFeatures, ShapeLayout
from tf_placer.placers.learned.reinforce import Reinforce
from tf_placer.placers.learned.seq2seq import Seq2SeqPolicy
from tf_placer.placers.learned.signal import (
    MovingAverage,
    StepAverage,
    counted_samples,
    failing_signal_of,
    square_root_signal,
)
from tf_placer.placers.placer import Placer

__all__ = ["ColocRL", "ColocRLConfig", "Update"]


@dataclasses.dataclass(frozen=True)
class ColocRLConfig:
    """Settings of ColocRL, each with its line of help.

    The defaults are the paper's, or ours where it gives none.

    Raises:
        ValueError: a number is outside its range.
    """

    batch_size: Annotated[int, "placements per update (the paper: 4 or 8)"] = 8
    # Ten times as much makes the policy settle on one of the first placements it samples.
    learning_rate: Annotated[float, "of Adam"] = 1e-4
    clip_norm: Annotated[float, "largest global norm of a gradient"] = 1.0
    failing_signal: Annotated[
        float | None,
        "signal of a failure, in square roots of seconds (the paper: by hand per graph); none for "
        "twice the worst of the first batch in which a placement ran",
    ] = None
    baseline_decay: Annotated[float, "of the moving average from failing_signal"] = 0.9
    ignore_failures_after: Annotated[int, "updates; then failures contribute nothing"] = 5000
    step_average: Annotated[StepAverage, "of counted steps: mean (the paper) or median"] = "mean"
    type_units: Annotated[int, "size of the vector learned for an operation type"] = 64
    hidden_units: Annotated[int, "of the decoder, and of both encoder directions together"] = 512
    attention_units: Annotated[int, "size of the attention's hidden layer"] = 512
    device_units: Annotated[int, "size of the vector learned for a device"] = 64
    feed_item: Annotated[bool, "whether the decoder reads the encoding of its group, too"] = False
    shape_dims: Annotated[int, "dimensions kept of an output shape"] = 5
    shape_outputs: Annotated[int, "output shapes kept of a group"] = 5
    shape_layout: Annotated[ShapeLayout, "slots of shape_dims, or terminated by a zero"] = "slots"
    raw_shapes: Annotated[bool, "whether sizes stay instead of becoming log(1 + size)"] = False
    merged_adjacency: Annotated[bool, "whether inputs and outputs share a block"] = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            may_be_zero = field.name in ("ignore_failures_after", "baseline_decay")
            if is_number and not (value > 0 or (may_be_zero and value == 0)):
                raise ValueError(f"{field.name} must be positive, not {value}")
        if self.baseline_decay >= 1:
            raise ValueError(f"baseline_decay must be below 1, not {self.baseline_decay}")


@dataclasses.dataclass(frozen=True)
class Update:
    """What one update saw and did.

    Attributes:
        mean_signal: mean signal of the samples that counted, in square roots of seconds.
        baseline: what they were compared with.
        entropy: mean entropy of a group's device, in nats, before the update.
        loss: the policy-gradient loss before the update.
        gradient_norm: global norm of the gradient before clipping.
    """

    mean_signal: float
    baseline: float
    entropy: float
    loss: float
    gradient_norm: float


class ColocRL(Placer):
    """Samples placements from a learned policy and makes better ones more probable.

    Measured placements are collected until there are `batch_size` of them; then the policy takes
    one step. Placement n (counted from 0 over the whole search) is always sampled with random
    numbers of its own, seeded by (seed, n), as row n % batch_size of a batch. So neither the
    proposals nor the learning depend on how the measurements are cut into calls of `observe`.

    Attributes:
        config: its settings.
        last_update: what the last update saw and did; None before the first.
    """

    name = "colocrl"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        config: ColocRLConfig | None = None,
    ) -> None:
        """Makes an untrained policy.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            config: settings; the defaults if None.

        Raises:
            ValueError: see `Placer`.
        """
        super().__init__(groups, legal, seed=seed)
        self.config = config = config or ColocRLConfig()
        self.batch_size = config.batch_size
        self.last_update: Update | None = None
        features = GroupFeatures.from_groups(
            groups,
            shape_dims=config.shape_dims,
            shape_outputs=config.shape_outputs,
            shape_layout=config.shape_layout,
            raw_shapes=config.raw_shapes,
            merged_adjacency=config.merged_adjacency,
        )
        self._policy = Seq2SeqPolicy(
            features,
            legal,
            type_units=config.type_units,
            hidden_units=config.hidden_units,
            attention_units=config.attention_units,
            device_units=config.device_units,
            feed_item=config.feed_item,
            seed=seed,
        )
        self._reinforce = Reinforce(
            self._policy, learning_rate=config.learning_rate, clip_norm=config.clip_norm
        )
        self._failing_signal = config.failing_signal
        self._baseline: MovingAverage | None = None
        self._num_observed = 0
        self._num_updates = 0
        self._waiting: list[tuple[np.ndarray, Measurement]] = []

    def propose(self, count: int) -> np.ndarray:
        """Samples from the policy; see `Placer.propose`. Never has nothing more to propose."""
        done = self._num_observed % self.batch_size
        first = self._num_observed - done
        batches = [np.zeros([0, self.groups.num_groups], np.int32)]
        for row in range(first, self._num_observed + count, self.batch_size):
            seed = tf.constant([self.seed, row], tf.int64)
            batches.append(self._policy.sample(self.batch_size, seed)[0].numpy())
        return np.concatenate(batches)[done : done + count]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Learns from measured placements; see `Placer.observe`.

        Raises:
            ValueError: there is not one measurement per placement, or a placement is not legal.
        """
        shape = (len(measurements), self.groups.num_groups)
        if placements.shape != shape:
            raise ValueError(f"placements must be {list(shape)}, not {list(placements.shape)}")
        inside = (placements >= 0) & (placements < self.num_devices)
        groups = np.arange(self.groups.num_groups)
        if not (inside.all() and self.legal[groups, placements].all()):
            raise ValueError("a measured placement puts a group on a device that is not legal")
        self._num_observed += len(measurements)
        self._waiting.extend(zip(placements.astype(np.int32), measurements, strict=True))
        while len(self._waiting) >= self.batch_size:
            self._update(self._waiting[: self.batch_size])
            del self._waiting[: self.batch_size]

    def _update(self, batch: Sequence[tuple[np.ndarray, Measurement]]) -> None:
        """One step on one full batch, unless none of its samples counts."""
        measurements = [measurement for _, measurement in batch]
        if self._failing_signal is None:
            # Until a placement has run there is nothing to compare with, and nothing to learn.
            self._failing_signal = failing_signal_of(measurements, self.config.step_average)
        if self._failing_signal is None:
            return
        signals, executed = square_root_signal(
            measurements,
            failing_signal=self._failing_signal,
            average=self.config.step_average,
        )
        counted = counted_samples(
            executed,
            num_updates=self._num_updates,
            ignore_failures_after=self.config.ignore_failures_after,
        )
        if not counted.any():
            return
        if self._baseline is None:
            self._baseline = MovingAverage(self._failing_signal, self.config.baseline_decay)
        baseline = self._baseline.value
        weights = np.where(counted, signals - baseline, 0.0) / counted.sum()
        loss, norm, entropy = self._reinforce.update(
            np.stack([placement for placement, _ in batch]), weights
        )
        mean_signal = float(signals[counted].mean())
        self.last_update = Update(mean_signal, baseline, entropy, loss, norm)
        self._baseline = self._baseline.updated(mean_signal)
        self._num_updates += 1
