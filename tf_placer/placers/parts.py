"""The parts that learned placers are composed of, by kind and name: each with one line here.

A policy, a grouper or an algorithm is a file with its class and the dataclass of its settings.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["PARTS", "SHARED_PARTS", "Part"]

_LEARNED = "tf_placer.placers.learned"


@dataclasses.dataclass(frozen=True)
class Part:
    """A part and its settings; its module is imported only when it is asked for.

    Attributes:
        summary: one line of help.
        module: where it is; None of a grouper that leaves groups as they are.
        config: name of the dataclass of its settings; None without settings.
        factory: name of what makes it: of a policy a subclass of `Policy`, of an algorithm one of
            `Algorithm`, of a grouper a function of its settings, the groups and a seed, or the
            class of a network that learns to group.
        shares: names of `SHARED_PARTS` whose settings it uses, too.
    """

    summary: str
    module: str | None = None
    config: str | None = None
    factory: str | None = None
    shares: tuple[str, ...] = ()

    def config_type(self) -> type[Any] | None:
        """Imports the dataclass of its settings; returns None if there is none."""
        return self._member(self.config)

    def made_by(self) -> Any:
        """Imports what makes it; returns None if there is nothing."""
        return self._member(self.factory)

    def _member(self, name: str | None) -> Any:
        if self.module is None or name is None:
            return None
        return getattr(importlib.import_module(self.module), name)


_EMBEDDING = ("embedding",)
_OPTIMIZER = ("optimizer",)
_ALGORITHMS = f"{_LEARNED}.algorithms"
_GROUPERS = f"{_LEARNED}.groupers"

PARTS: Mapping[str, Mapping[str, Part]] = {
    "grouper": {
        "coarse": Part("the groups of the model rules and of the single-consumer merge"),
        "fine": Part("one group per colocation group"),
        "metis": Part(
            "a partition of the operations by METIS, few bytes between parts",
            f"{_GROUPERS}.metis",
            "MetisConfig",
            "group_by_metis",
        ),
        "fluid": Part(
            "asynchronous fluid communities of the operations",
            f"{_GROUPERS}.fluid",
            "FluidConfig",
            "group_by_communities",
        ),
        "feed_forward": Part(
            "a network that learns which group each operation joins",
            f"{_GROUPERS}.feed_forward",
            "FeedForwardConfig",
            "FeedForwardGrouper",
        ),
    },
    "policy": {
        "seq2seq": Part(
            "LSTM encoder and decoder with attention",
            f"{_LEARNED}.seq2seq",
            "Seq2SeqConfig",
            "Seq2SeqPolicy",
            _EMBEDDING,
        ),
        "gcn": Part(
            "two graph convolutions", f"{_LEARNED}.gcn", "GCNConfig", "GCNPolicy", _EMBEDDING
        ),
        "softmax": Part(
            "an independent softmax per group",
            f"{_LEARNED}.softmax_policy",
            None,
            "SoftmaxPolicy",
        ),
        "graph_neural": Part(
            "a graph network for graphs and machines of any size",
            f"{_LEARNED}.graph_neural",
            "GraphNeuralConfig",
            "GraphNeuralPolicy",
        ),
    },
    "algorithm": {
        "reinforce": Part(
            "policy gradient",
            f"{_ALGORITHMS}.reinforce",
            "ReinforceConfig",
            "Reinforce",
            _OPTIMIZER,
        ),
        "ppo": Part(
            "clipped PPO",
            f"{_ALGORITHMS}.clipped_ppo",
            "ClippedPPOConfig",
            "ClippedPPO",
            _OPTIMIZER,
        ),
        "ppo_kl": Part(
            "PPO with a penalty on divergence",
            f"{_ALGORITHMS}.penalized_ppo",
            "PenalizedPPOConfig",
            "PenalizedPPO",
            _OPTIMIZER,
        ),
        "ce": Part(
            "cross-entropy minimization in closed form, for the softmax policy",
            f"{_ALGORITHMS}.cross_entropy",
            "CrossEntropyConfig",
            "CrossEntropy",
        ),
        "ce_gradient": Part(
            "cross-entropy minimization by gradient, for networks",
            f"{_ALGORITHMS}.gradient_cross_entropy",
            "GradientCrossEntropyConfig",
            "GradientCrossEntropy",
            _OPTIMIZER,
        ),
    },
}
"""Kind, name, part. Every learned placer has one of each kind, or two algorithms."""

SHARED_PARTS: Mapping[str, Part] = {
    "embedding": Part("what policies read of groups", f"{_LEARNED}.embedding", "EmbeddingConfig"),
    "optimizer": Part("of all gradients", f"{_ALGORITHMS}.optimizer", "OptimizerConfig"),
    "start": Part("what is sampled at first", f"{_LEARNED}.start", "StartConfig"),
    "reward": Part("from step times to rewards", f"{_LEARNED}.signal", "SignalConfig"),
}
"""What several parts use; `start` and `reward` belong to every learned placer."""
