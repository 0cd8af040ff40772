"""The parts that learned placers are composed of, by kind and name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["PARTS", "SHARED_PARTS", "Part"]

_LEARNED = "tf_placer.placers.learned"


@dataclasses.dataclass(frozen=True)
class Part:
    """A part and its settings; the module is imported only when they are asked for.

    Attributes:
        summary: one line of help.
        config: where the dataclass of its settings is, as "module:class"; None without settings.
        shares: names of `SHARED_PARTS` whose settings it uses, too.
    """

    summary: str
    config: str | None = None
    shares: tuple[str, ...] = ()

    def config_type(self) -> type[Any] | None:
        """The dataclass of its settings, or None."""
        if self.config is None:
            return None
        module, _, name = self.config.partition(":")
        config_type: type[Any] = getattr(importlib.import_module(module), name)
        return config_type


_EMBEDDING = ("embedding",)
_OPTIMIZER = ("optimizer",)
_ALGORITHMS = f"{_LEARNED}.algorithms"

PARTS: Mapping[str, Mapping[str, Part]] = {
    "grouper": {
        "heuristic": Part("the groups of the model rules and of the single-consumer merge"),
        "per_operation": Part("one group per colocation group"),
        "metis": Part(
            "a partition of the operations by METIS, few bytes between parts",
            f"{_LEARNED}.groupers.fixed:MetisConfig",
        ),
        "fluid": Part(
            "asynchronous fluid communities of the operations",
            f"{_LEARNED}.groupers.fixed:FluidConfig",
        ),
        "feed_forward": Part(
            "a network that learns which group each operation joins",
            f"{_LEARNED}.groupers.feed_forward:FeedForwardConfig",
        ),
    },
    "policy": {
        "seq2seq": Part(
            "LSTM encoder and decoder with attention",
            f"{_LEARNED}.seq2seq:Seq2SeqConfig",
            _EMBEDDING,
        ),
        "gcn": Part("two graph convolutions", f"{_LEARNED}.gcn:GCNConfig", _EMBEDDING),
        "softmax": Part("an independent softmax per group"),
        "graph_neural": Part(
            "a graph network for graphs and machines of any size",
            f"{_LEARNED}.graph_neural:GraphNeuralConfig",
        ),
    },
    "algorithm": {
        "reinforce": Part(
            "policy gradient", f"{_ALGORITHMS}.reinforce:ReinforceConfig", _OPTIMIZER
        ),
        "ppo": Part("clipped PPO", f"{_ALGORITHMS}.clipped_ppo:ClippedPPOConfig", _OPTIMIZER),
        "ppo_kl": Part(
            "PPO with a penalty on divergence",
            f"{_ALGORITHMS}.penalised_ppo:PenalisedPPOConfig",
            _OPTIMIZER,
        ),
        "ce": Part(
            "cross-entropy minimisation in closed form, for the softmax policy",
            f"{_ALGORITHMS}.cross_entropy:CrossEntropyConfig",
        ),
        "ce_gradient": Part(
            "cross-entropy minimisation by gradient, for networks",
            f"{_ALGORITHMS}.gradient_cross_entropy:GradientCrossEntropyConfig",
            _OPTIMIZER,
        ),
    },
}
"""Kind, name, part. Every learned placer has one of each kind, or two algorithms."""

SHARED_PARTS: Mapping[str, Part] = {
    "embedding": Part("what policies read of groups", f"{_LEARNED}.embedding:EmbeddingConfig"),
    "optimizer": Part("of all gradients", f"{_ALGORITHMS}.optimizer:OptimizerConfig"),
    "signal": Part("from step times to rewards", f"{_LEARNED}.signal:SignalConfig"),
}
"""What several parts use; `signal` belongs to every learned placer."""
