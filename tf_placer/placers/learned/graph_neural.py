"""A policy whose weights fit any graph on any machine: message passing, then a shared scorer.

Every group gathers the states of its neighbors in the graph; then groups are placed one after the
other, and the same small network scores every device for every group by the groups already there.
So weights trained on some problems can be used on others, with or without more training.

References:
    Addanki et al., Placeto: Learning Generalizable Device Placement Algorithms for Distributed
    Machine Learning, NeurIPS 2019, for message passing in both directions of edges.
    Zhou et al., GDP: Generalized Device Placement for Dataflow Graphs, 2019, for pre-training on
    some graphs and fine-tuning on another.
    The features, the scorer and all sizes are ours.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from typing import Annotated

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned import weights
from tf_placer.placers.learned.graph_features import (
    NUM_DEVICE_FEATURES,
    NUM_GROUP_FEATURES,
    GraphFeatures,
)
from tf_placer.placers.learned.graph_tensors import GraphTensors
from tf_placer.placers.learned.masking import add_prior, choose, compute_masked_log_softmax
from tf_placer.placers.learned.policy import FixedGroups, GroupInputs, Policy, PolicySizes
from tf_placer.placers.learned.sparse_matrix import SparseMatrix
from tf_placer.placers.validators import check_fields

__all__ = [
    "SHIPPED",
    "WEIGHTS_SUFFIX",
    "GraphNeuralConfig",
    "GraphNeuralNetwork",
    "GraphNeuralPolicy",
]

#: The value of `initial_weights` for the weights shipped with the package.
SHIPPED = "shipped"

#: The suffix of weight files, which Keras requires.
WEIGHTS_SUFFIX = ".weights.h5"

# Written by `tf_placer pretrain` from the list beside it: problems of models that
# `benchmarks.problems.export` makes, without language models, transformers and NASNet, and steps of
# `random_step` (benchmarks) with seeds 0 to 19. Trained without a family of models, such a policy
# finds in 16 samples 1.44 times the step of 60 s of `auto` there; a split by layer has 1.54 times
# that, and 200 samples of an untrained policy find 1.95 (commit 9b08b96).
_SHIPPED_WEIGHTS = pathlib.Path(__file__).parent / "data" / f"graph_neural{WEIGHTS_SUFFIX}"

# Features of a device at the moment when a group is placed, see `_compute_facts`.
_NUM_FACTS = 7
# Policies need not tell apart devices filled beyond twice their memory.
_MAX_FILL = 2.0
# Bounds the share of groups on random devices, for graphs with few groups.
_MAX_RANDOM_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class GraphNeuralConfig:
    """Settings of the graph-neural policy, each with its line of help.

    Raises:
        ValueError: a number is outside its range.
    """

    state_units: Annotated[int, "size of what is known about a group"] = 64
    message_rounds: Annotated[int, "edges that what is known travels along, in both directions"] = 3
    scorer_units: Annotated[int, "width of the network that scores a device for a group"] = 64
    own_scores: Annotated[
        float,
        "how much faster than the network a group learns scores of its own, which are added; 0 for "
        "no such scores",
    ] = 30.0
    explored: Annotated[
        float, "groups of a placement that go anywhere, on average, so that learning does not end"
    ] = 2.0
    initial_weights: Annotated[
        str | None,
        "weights to start from: those that are shipped (shipped), a file (.weights.h5) as "
        "`pretrain` writes it, or none",
    ] = None

    def __post_init__(self) -> None:
        names = ("state_units", "scorer_units")
        check_fields(self, names, lambda value: value > 0, "positive")
        check_fields(
            self,
            ("message_rounds", "own_scores", "explored"),
            lambda value: 0 <= value < math.inf,
            "at least 0",
        )


class GraphNeuralNetwork(tf.keras.Model):
    """The weights, which depend on no graph and no machine.

    The untrained network gives all devices the same score.
    """

    def __init__(self, config: GraphNeuralConfig | None = None, seed: int = 0) -> None:
        """Makes the network with its initial weights.

        Args:
            config: settings; the defaults if None.
            seed: seeds the initial weights, unless they come from a file.

        Raises:
            ValueError: there is no file `initial_weights`, or it holds other weights.
        """
        super().__init__(name="graph_neural")
        self.config = config = config or GraphNeuralConfig()
        self._seed = seed
        seeds = weights.seeds(seed)

        def kernel(name: str, rows: int, columns: int) -> object:
            return self.add_weight(
                name=name, shape=(rows, columns), initializer=weights.glorot(seeds)
            )

        def bias(name: str, columns: int) -> object:
            return self.add_weight(name=name, shape=(columns,), initializer="zeros")

        units, scorer_units = config.state_units, config.scorer_units
        self._embed_kernel = kernel("embed_kernel", NUM_GROUP_FEATURES, units)
        self._embed_bias = bias("embed_bias", units)
        self._rounds = [
            (kernel(f"round_{index}_kernel", 3 * units, units), bias(f"round_{index}_bias", units))
            for index in range(config.message_rounds)
        ]
        self._group_kernel = kernel("group_kernel", 2 * units, scorer_units)
        self._group_bias = bias("group_bias", scorer_units)
        self._device_kernel = kernel("device_kernel", NUM_DEVICE_FEATURES, scorer_units)
        self._facts_kernel = kernel("facts_kernel", _NUM_FACTS, scorer_units)
        self._scorer = self.add_weight(name="scorer", shape=(scorer_units, 1), initializer="zeros")
        self.built = True
        if config.initial_weights is not None:
            path = config.initial_weights
            self._load(str(_SHIPPED_WEIGHTS) if path == SHIPPED else path, path)

    def describe(self, graph: GraphTensors) -> tf.Tensor:
        """Computes the part of the hidden layer that does not depend on placed groups.

        Args:
            graph: the graph.

        Returns:
            float32 [num_groups, num_devices, scorer_units], a summand of the scorer's hidden layer.
        """
        states = tf.nn.relu(graph.group_features @ self._embed_kernel + self._embed_bias)
        for kernel, bias in self._rounds:
            read = _normalize_rms(states)
            around = [read, graph.received @ read, graph.sent @ read]
            states += tf.nn.relu(tf.concat(around, axis=1) @ kernel + bias)
        states = _normalize_rms(states)
        whole = tf.reduce_mean(states, axis=0, keepdims=True)
        states = tf.concat([states, tf.repeat(whole, graph.num_groups, axis=0)], axis=1)
        by_group = states @ self._group_kernel + self._group_bias
        by_device = tf.tensordot(
            graph.device_features, tf.convert_to_tensor(self._device_kernel), 1
        )
        return by_group[:, tf.newaxis] + by_device

    def scores(self, described: tf.Tensor, facts: tf.Tensor) -> tf.Tensor:
        """Scores devices.

        Args:
            described: float32 [..., num_devices, scorer_units], from `describe`.
            facts: float32 [..., num_devices, 7], the state of the devices; see `_compute_facts`.

        Returns:
            float32 [..., num_devices].
        """
        hidden = described + tf.tensordot(facts, tf.convert_to_tensor(self._facts_kernel), 1)
        return tf.tensordot(tf.nn.relu(hidden), tf.convert_to_tensor(self._scorer)[:, 0], 1)

    def forget(self) -> None:
        """Replaces pretrained weights by random initial weights."""
        if self.config.initial_weights is not None:
            config = dataclasses.replace(self.config, initial_weights=None)
            self.set_weights(GraphNeuralNetwork(config, self._seed).get_weights())

    def _load(self, path: str, name: str) -> None:
        if not path.endswith(WEIGHTS_SUFFIX):
            raise ValueError(
                f"initial_weights must be {SHIPPED}, none, or end in {WEIGHTS_SUFFIX}, unlike "
                f"{name!r}"
            )
        if not os.path.isfile(path):
            raise ValueError(f"initial_weights: there is no file {path!r}")
        try:
            self.load_weights(path)
        except (KeyError, OSError, ValueError) as error:
            # Keras names the tensor that does not fit, but not the settings to change.
            config = self.config
            raise ValueError(
                f"initial_weights: {name!r} does not hold weights for state_units="
                f"{config.state_units}, message_rounds={config.message_rounds}, scorer_units="
                f"{config.scorer_units}; give others, or initial_weights=none"
            ) from error


class GraphNeuralPolicy(Policy):
    """The network applied to one graph on one machine.

    Groups are placed in topological order; a group's distribution depends on the groups before it.
    Of its inputs, the policy reads `legal` and `prior` only.

    Attributes:
        network: the trainable weights; other policies may share them.
        graph: the features of the graph.
        own_scores: variable [num_groups, num_devices], learned scores of each group, added to those
            of the network; None without.
    """

    needs_fixed_groups = True
    reads_costs = True

    @classmethod
    def make(
        cls,
        sizes: PolicySizes,
        fixed: FixedGroups | None,
        config: GraphNeuralConfig,
        seed: int,
    ) -> GraphNeuralPolicy:
        """Builds a policy with a new network; see `Policy.make`."""
        assert fixed is not None
        features = GraphFeatures.from_groups(
            fixed.groups,
            fixed.legal,
            device_secs=fixed.device_secs,
            edge_secs=fixed.edge_secs,
            device_fill=fixed.device_fill,
        )
        network = GraphNeuralNetwork(config, seed)
        return cls(network, features, own_scores=config.own_scores, explored=config.explored)

    def __init__(
        self,
        network: GraphNeuralNetwork,
        graph: GraphFeatures,
        *,
        own_scores: float = 0.0,
        explored: float = 0.0,
    ) -> None:
        """Applies a network to a graph.

        Args:
            network: the weights.
            graph: the graph.
            own_scores: see `GraphNeuralConfig`.
            explored: see `GraphNeuralConfig`.
        """
        super().__init__(name="graph_neural_policy")
        self.num_groups, self.num_devices = graph.device_secs.shape
        self.network = network
        self.graph = GraphTensors(graph)
        self._own_scale = own_scores
        self._random_share = min(explored / self.num_groups, _MAX_RANDOM_SHARE)
        self.own_scores = None
        if own_scores:
            shape = (self.num_groups, self.num_devices)
            self.own_scores = self.add_weight(name="own_scores", shape=shape, initializer="zeros")
        self.built = True

    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Chooses devices; see `Policy.sample`."""
        graph, count, num_devices = self.graph, noise.shape[0], self.num_devices
        described = self.network.describe(graph)
        legal = tf.gather(inputs.legal, graph.order, axis=1)
        noise = tf.gather(noise, graph.order, axis=1)
        prior = self._compute_prior(inputs)

        def step(position, loads, fill, used, chosen):  # type: ignore[no-untyped-def]
            def near(matrix: SparseMatrix) -> tf.Tensor:
                columns, values = matrix.row(position)
                devices = tf.one_hot(chosen.gather(columns), num_devices)
                return tf.tensordot(values, devices, 1)

            secs, allowed = graph.device_secs[position], legal[:, position]
            filled = fill + graph.device_fill[position]
            facts = self._compute_facts(
                secs, allowed, loads, filled, used, near(graph.near_bytes), near(graph.near_secs)
            )
            scores = self.network.scores(described[position], facts)
            scores = add_prior(scores, None if prior is None else prior[:, position])
            if self._random_share:
                scores = self._mix_in_random_devices(scores, allowed)
            devices = choose(scores, allowed, noise[:, position])
            here = tf.one_hot(devices, num_devices)
            return (
                position + 1,
                loads + here * secs,
                tf.where(here[..., tf.newaxis] > 0, filled, fill),
                tf.maximum(used, here),
                chosen.write(position, devices),
            )

        nothing = tf.zeros([count, num_devices])
        chosen = tf.TensorArray(
            tf.int32, size=self.num_groups, element_shape=[count], clear_after_read=False
        )
        *_, chosen = tf.while_loop(
            lambda position, *_: position < self.num_groups,
            step,
            (tf.constant(0), nothing, tf.zeros([count, num_devices, 2]), nothing, chosen),
            maximum_iterations=self.num_groups,
        )
        devices = tf.gather(chosen.stack(), graph.positions)
        return tf.transpose(tf.ensure_shape(devices, [self.num_groups, count]))

    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes the distributions; see `Policy.log_dists`."""
        graph, count = self.graph, devices.shape[0]
        shape = [self.num_groups, count, self.num_devices]
        # Put groups first, so that the sparse products see each as one row.
        chosen = tf.one_hot(tf.gather(tf.transpose(devices), graph.order), self.num_devices)
        flat = tf.reshape(chosen, [self.num_groups, count * self.num_devices])
        before = tf.cumsum(chosen, exclusive=True)
        secs, fill = graph.device_secs[:, tf.newaxis], graph.device_fill[:, tf.newaxis]
        legal = tf.transpose(tf.gather(inputs.legal, graph.order, axis=1), [1, 0, 2])
        facts = self._compute_facts(
            secs,
            legal,
            tf.cumsum(chosen * secs, exclusive=True),
            tf.cumsum(chosen[..., tf.newaxis] * fill, exclusive=True) + fill,
            tf.minimum(before, 1.0),
            tf.reshape(graph.near_bytes @ flat, shape),
            tf.reshape(graph.near_secs @ flat, shape),
        )
        described = self.network.describe(graph)[:, tf.newaxis]
        scores = self.network.scores(described, facts)
        prior = self._compute_prior(inputs)
        if prior is not None:
            scores = add_prior(scores, tf.transpose(prior, [1, 0, 2]))
        if self._random_share:
            scores = self._mix_in_random_devices(scores, legal)
        log_dists = compute_masked_log_softmax(scores, legal)
        return tf.transpose(tf.gather(log_dists, graph.positions), [1, 0, 2])

    def forget(self) -> None:
        """Resets pretrained weights; see `Policy.forget`."""
        self.network.forget()

    def _mix_in_random_devices(self, scores: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
        """Mixes the uniform distribution over legal devices into scores."""
        legal = tf.broadcast_to(legal, tf.shape(scores))
        ways = tf.cast(legal, tf.float32)
        anywhere = self._random_share / tf.reduce_sum(ways, axis=-1, keepdims=True)
        chosen = tf.exp(compute_masked_log_softmax(scores, legal))
        return tf.math.log((1.0 - self._random_share) * chosen + anywhere)

    def _compute_prior(self, inputs: GroupInputs) -> tf.Tensor | None:
        """Adds up the scores that do not come from the network, in the order of placing.

        Returns:
            float32 [n, num_groups, num_devices], to be added to scores; None if there are none.
        """
        parts = [] if inputs.prior is None else [inputs.prior]
        if self.own_scores is not None:
            parts.append(self._own_scale * tf.convert_to_tensor(self.own_scores)[tf.newaxis])
        return tf.gather(tf.add_n(parts), self.graph.order, axis=1) if parts else None

    def _compute_facts(
        self,
        secs: tf.Tensor,
        legal: tf.Tensor,
        loads: tf.Tensor,
        filled: tf.Tensor,
        used: tf.Tensor,
        near_bytes: tf.Tensor,
        near_secs: tf.Tensor,
    ) -> tf.Tensor:
        """Computes features of the devices at the moment when a group is placed.

        Args:
            secs: float32 [..., num_devices], seconds of the group on each device.
            legal: bool [..., num_devices], true where the group may go.
            loads: float32 [..., num_devices], seconds of the groups placed on each device so far.
            filled: float32 [..., num_devices, 2], the used share of the memory of each device
                with the group on it.
            used: float32 [..., num_devices], 1 where there is a group, otherwise 0.
            near_bytes: float32 [..., num_devices], the share of each device in the bytes that pass
                between the group and those placed.
            near_secs: float32 [..., num_devices], seconds to send those bytes.

        Returns:
            float32 [..., num_devices, 7].
        """
        ends = tf.where(legal, loads + secs, np.inf)
        first = tf.reduce_min(ends, axis=-1, keepdims=True)
        total_secs = tf.reduce_sum(near_secs, axis=-1, keepdims=True)
        around = tf.stack(
            [
                # 1 where the device has an equal share of the work of the whole graph.
                loads * (self.num_devices / self.num_groups),
                tf.math.log1p(tf.where(legal, ends - first, 0.0)),
                used,
                near_bytes,
                # Seconds to send from other devices; rounding must not make them negative.
                tf.math.log1p(tf.maximum(total_secs - near_secs, 0.0)),
            ],
            axis=-1,
        )
        return tf.concat([around, tf.minimum(filled, _MAX_FILL)], axis=-1)


def _normalize_rms(states: tf.Tensor) -> tf.Tensor:
    """Scales states to a root mean square of 1, float32 [num_groups, units].

    A score that all devices of a group share changes no distribution, so training does not bound
    it. Without this limit it grows until float32 cannot represent the differences of devices.
    """
    squares = tf.reduce_mean(tf.square(states), axis=1, keepdims=True)
    return states * tf.math.rsqrt(squares + 1e-6)
