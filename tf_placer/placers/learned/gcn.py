"""A graph-convolutional policy: all groups at once, each seeing its neighbors.

References:
    Kipf, Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017,
    equation 2.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models, for
    the two layers and their use as a placer; width, normalization and head are ours.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tensorflow as tf

from tf_placer.placers.learned import weights
from tf_placer.placers.learned.masking import add_prior, choose, compute_masked_log_softmax
from tf_placer.placers.learned.policy import GroupInputs, Policy

__all__ = ["GCNConfig", "GCNPolicy"]


@dataclasses.dataclass(frozen=True)
class GCNConfig:
    """Settings of the graph-convolutional policy, each with its line of help.

    Raises:
        ValueError: a number is outside its range.
    """

    graph_units: Annotated[int, "width of both graph convolutions"] = 512

    def __post_init__(self) -> None:
        if self.graph_units < 1:
            raise ValueError(f"graph_units must be positive, not {self.graph_units}")


class GCNPolicy(Policy):
    """Two graph convolutions with ReLU, then a softmax over the devices of each group.

    Groups read types and features of the groups within two edges, whichever way tensors go. Given
    these, their devices are independent of each other.
    """

    def __init__(
        self,
        num_groups: int,
        num_devices: int,
        num_types: int,
        num_features: int,
        config: GCNConfig | None = None,
        seed: int = 0,
    ) -> None:
        """Makes the network with its initial weights.

        Args:
            num_groups: see `Policy`.
            num_devices: see `Policy`.
            num_types: see `GroupInputs`.
            num_features: see `GroupInputs`.
            config: settings; the defaults if None.
            seed: of the initial weights.
        """
        super().__init__(name="gcn")
        units = (config or GCNConfig()).graph_units
        self.num_groups, self.num_devices = num_groups, num_devices
        seeds = weights.seeds(seed)
        self._first, self._second, self._logits = (
            tf.keras.layers.Dense(
                size, activation=activation, kernel_initializer=weights.glorot(seeds)
            )
            for size, activation in ((units, "relu"), (units, "relu"), (num_devices, None))
        )
        self._first.build((None, num_types + num_features))
        self._second.build((None, units))
        self._logits.build((None, units))
        self.built = True

    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Chooses devices; see `Policy.sample`."""
        return choose(self._compute_logits(inputs), inputs.legal, noise)

    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes the distributions; see `Policy.log_dists`.

        Their shape is [1, ...] where the inputs are the same for all placements.
        """
        del devices  # No group's device depends on another's.
        return compute_masked_log_softmax(self._compute_logits(inputs), inputs.legal)

    def _compute_logits(self, inputs: GroupInputs) -> tf.Tensor:
        """Computes the logits, float32 [n, num_groups, num_devices]."""
        spread = _normalize(inputs.adjacency)
        items = tf.concat([inputs.types, inputs.features], axis=2)
        hidden = self._first(tf.matmul(spread, items))
        logits = self._logits(self._second(tf.matmul(spread, hidden)))
        return add_prior(logits, inputs.prior)


def _normalize(adjacency: tf.Tensor) -> tf.Tensor:
    """Computes D^-1/2 (A + 1) D^-1/2 of undirected edges A, D the row sums of A + 1."""
    undirected = tf.maximum(adjacency, tf.linalg.matrix_transpose(adjacency))
    loops = undirected + tf.eye(adjacency.shape[-1])
    scale = tf.math.rsqrt(tf.reduce_sum(loops, axis=2))
    return loops * scale[:, :, tf.newaxis] * scale[:, tf.newaxis, :]
