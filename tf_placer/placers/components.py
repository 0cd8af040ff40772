"""The components of learned placers by kind and name, an entry each.

The module of a policy, a grouper or an algorithm has its class and the dataclass of its settings.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["COMPONENTS", "SHARED_COMPONENTS", "Component"]

_LEARNED = "tf_placer.placers.learned"


@dataclasses.dataclass(frozen=True)
class Component:
    """A component of learned placers; its module is imported lazily.

    Attributes:
        summary: one line of help.
        module: the name of its module; None for a grouper that keeps the groups.
        config: name of the dataclass of its settings; None without settings.
        factory: name of its factory in the module: a subclass of `Policy` or of `Algorithm`; for a
            grouper, a function of its settings, the groups and a seed, or the class of a network
            that learns to group.
        shares: names of the `SHARED_COMPONENTS` whose settings it uses, too.
    """

    summary: str
    module: str | None = None
    config: str | None = None
    factory: str | None = None
    shares: tuple[str, ...] = ()

    def config_type(self) -> type[Any] | None:
        """Imports the dataclass of its settings; returns None if it has no settings."""
        return self._import_member(self.config)

    def import_factory(self) -> Any:
        """Imports its factory; returns None if it has no factory."""
        return self._import_member(self.factory)

    def _import_member(self, name: str | None) -> Any:
        if self.module is None or name is None:
            return None
        return getattr(importlib.import_module(self.module), name)


_EMBEDDING = ("embedding",)
_OPTIMIZER = ("optimizer",)
_ALGORITHMS = f"{_LEARNED}.algorithms"
_GROUPERS = f"{_LEARNED}.groupers"

COMPONENTS: Mapping[str, Mapping[str, Component]] = {
    "grouper": {
        "coarse": Component("the groups of the model rules and of the single-consumer merge"),
        "fine": Component("one group per colocation group"),
        "metis": Component(
            "a partition of the operations by METIS, few bytes between parts",
            f"{_GROUPERS}.metis",
            "MetisConfig",
            "group_by_metis",
        ),
        "fluid": Component(
            "asynchronous fluid communities of the operations",
            f"{_GROUPERS}.fluid",
            "FluidConfig",
            "group_by_communities",
        ),
        "feed_forward": Component(
            "a network that learns which group each operation joins",
            f"{_GROUPERS}.feed_forward",
            "FeedForwardConfig",
            "FeedForwardGrouper",
        ),
    },
    "policy": {
        "seq2seq": Component(
            "LSTM encoder and decoder with attention",
            f"{_LEARNED}.seq2seq",
            "Seq2SeqConfig",
            "Seq2SeqPolicy",
            _EMBEDDING,
        ),
        "gcn": Component(
            "two graph convolutions", f"{_LEARNED}.gcn", "GCNConfig", "GCNPolicy", _EMBEDDING
        ),
        "softmax": Component(
            "an independent softmax per group",
            f"{_LEARNED}.softmax_policy",
            None,
            "SoftmaxPolicy",
        ),
        "graph_neural": Component(
            "a graph network for graphs and machines of any size",
            f"{_LEARNED}.graph_neural",
            "GraphNeuralConfig",
            "GraphNeuralPolicy",
        ),
    },
    "algorithm": {
        "reinforce": Component(
            "policy gradient",
            f"{_ALGORITHMS}.reinforce",
            "ReinforceConfig",
            "Reinforce",
            _OPTIMIZER,
        ),
        "ppo": Component(
            "clipped PPO",
            f"{_ALGORITHMS}.clipped_ppo",
            "ClippedPPOConfig",
            "ClippedPPO",
            _OPTIMIZER,
        ),
        "ppo_kl": Component(
            "PPO with a penalty on divergence",
            f"{_ALGORITHMS}.penalized_ppo",
            "PenalizedPPOConfig",
            "PenalizedPPO",
            _OPTIMIZER,
        ),
        "ce": Component(
            "cross-entropy minimization in closed form, for the softmax policy",
            f"{_ALGORITHMS}.cross_entropy",
            "CrossEntropyConfig",
            "CrossEntropy",
        ),
        "ce_gradient": Component(
            "cross-entropy minimization by gradient, for networks",
            f"{_ALGORITHMS}.gradient_cross_entropy",
            "GradientCrossEntropyConfig",
            "GradientCrossEntropy",
            _OPTIMIZER,
        ),
    },
}
"""Components by kind and name. A learned placer has one of each kind, or two algorithms."""

SHARED_COMPONENTS: Mapping[str, Component] = {
    "embedding": Component(
        "the features of groups that policies read", f"{_LEARNED}.embedding", "EmbeddingConfig"
    ),
    "optimizer": Component(
        "the optimizer of all gradients", f"{_ALGORITHMS}.optimizer", "OptimizerConfig"
    ),
    "start": Component(
        "the placements that are sampled at first", f"{_LEARNED}.start", "StartConfig"
    ),
    "reward": Component("from step times to rewards", f"{_LEARNED}.reward", "RewardConfig"),
}
"""Settings that components share; every learned placer has `start` and `reward`."""
