"""The systems of the papers, each as a composition of parts with its settings.

Settings that a system does not name are the defaults of its parts. What a paper leaves open is
ours; the parts say where. Where a paper to the letter does not work here, a system has a reading of
it that does, and a variant such as "eagle:published" has the letter.

References:
    ColocRL: Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML
    2017. Hierarchical Planner: Mirhoseini et al., A Hierarchical Model for Device Placement, ICLR
    2018, as the two later papers describe it and as TensorFlow's HierarchicalController has it.
    Spotlight: Gao, Chen, Li, Spotlight: Optimizing Device Placement for Training Deep Neural
    Networks, ICML 2018, as the two later papers describe it. Post: Gao, Chen, Li, Post: Device
    Placement with Cross-Entropy Minimization and Proximal Policy Optimization, NeurIPS 2018. EAGLE:
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["PUBLISHED", "SYSTEMS", "System"]


@dataclasses.dataclass(frozen=True)
class System:
    """A learned placer.

    Attributes:
        summary: one line of help.
        reference: where it is from.
        grouper: what the policy decides about; one of `parts.PARTS["grouper"]`.
        policy: the network; one of `parts.PARTS["policy"]`.
        algorithm: how it learns; one of `parts.PARTS["algorithm"]`, or two joined by "+".
        settings: what differs from the defaults of the parts.
    """

    summary: str
    reference: str
    grouper: str
    policy: str
    algorithm: str
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)


# A failure counts as a step of 100 s; the square root of that where the signal is a root.
_PENALTY = {"failure_secs": 100.0}
_COLOCRL_REWARD = {"reward": "sqrt", "baseline": "ema", "baseline_start": "failing"}
_EAGLE_REWARD = {"reward": "sqrt", "baseline": "ema", "baseline_start": "first_batch"} | _PENALTY
_POST_REWARD = {"reward": "seconds", "baseline": "mean"} | _PENALTY
_EAGLE_OPTIMIZER = {"optimizer": "adam", "learning_rate": 0.01, "clip_norm": 1.0}
_EAGLE_PPO = {"batch_size": 10, "entropy_coefficient": 0.01} | _EAGLE_OPTIMIZER
_POST_OPTIMIZER = {"optimizer": "sgd", "learning_rate": 1.0, "clip_norm": None}
_EAGLE_PLACER = {"attention": "before", "type_units": 0, "adjacency": "bytes"}

_TO_THE_LETTER: Mapping[str, System] = {
    "colocrl": System(
        "sequence-to-sequence policy trained by REINFORCE",
        "ColocRL 2017",
        "coarse",
        "seq2seq",
        "reinforce",
        {"batch_size": 8, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0, "ignore_failures_after": 5000}
        | _COLOCRL_REWARD,
    ),
    "policy_gradient": System(
        "ColocRL's policy as Post runs it: batches of 12",
        "Post 2018, baseline",
        "coarse",
        "seq2seq",
        "reinforce",
        {"batch_size": 12, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0}
        | _COLOCRL_REWARD,
    ),
    # The paper's 256 groups, where its public code takes 20 per device at most. Nor is that code's
    # noise in the scores of the first 750 steps here: the policy explores by sampling.
    "hierarchical": System(
        "learned groups, then a sequence-to-sequence policy, trained together by REINFORCE",
        "Hierarchical Planner 2018",
        "feed_forward",
        "seq2seq",
        "reinforce",
        {"attention": "after", "type_units": 0, "tanh_limit": 1.0, "bridge": "none"}
        | {"batch_size": 10, "entropy_coefficient": 0.0, "ignore_failures_after": 1000}
        | {"decay_rate": 0.95, "decay_updates": 50, "decay_start": 400}
        | _EAGLE_OPTIMIZER
        | _COLOCRL_REWARD
        | _PENALTY,
    ),
    "spotlight": System(
        "ColocRL's policy trained by PPO with a penalty on divergence",
        "Spotlight 2018",
        "coarse",
        "seq2seq",
        "ppo_kl",
        {"batch_size": 12, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | _COLOCRL_REWARD,
    ),
    "post": System(
        "a softmax per group, trained by PPO and cross-entropy minimization",
        "Post 2018",
        "coarse",
        "softmax",
        "ppo_kl+ce",
        _POST_OPTIMIZER | _POST_REWARD,
    ),
    "post_ppo": System(
        "Post without cross-entropy minimization",
        "Post 2018, figure 2",
        "coarse",
        "softmax",
        "ppo_kl",
        _POST_OPTIMIZER | _POST_REWARD,
    ),
    "post_ce": System(
        "Post with cross-entropy minimization only",
        "Post 2018, figure 2",
        "coarse",
        "softmax",
        "ce",
        _POST_REWARD,
    ),
    "eagle": System(
        "learned groups, a bridge to a sequence-to-sequence policy, clipped PPO",
        "EAGLE",
        "feed_forward",
        "seq2seq",
        "ppo",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_ppo_ce": System(
        "EAGLE, drawn to the best placements of all every 50 samples",
        "EAGLE",
        "feed_forward",
        "seq2seq",
        "ppo+ce_gradient",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_reinforce": System(
        "EAGLE trained by REINFORCE",
        "EAGLE, table III",
        "feed_forward",
        "seq2seq",
        "reinforce",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_metis": System(
        "EAGLE's policy on the groups of METIS",
        "EAGLE, table I",
        "metis",
        "seq2seq",
        "ppo",
        _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_fluid": System(
        "EAGLE's policy on fluid communities",
        "EAGLE, table I",
        "fluid",
        "seq2seq",
        "ppo",
        _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_gcn": System(
        "a graph-convolutional policy on the groups of METIS",
        "EAGLE, table II",
        "metis",
        "gcn",
        "ppo",
        {"adjacency": "bytes"} | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "warm_softmax": System(
        "a softmax per group that starts at the best simple placement",
        "ours, after Post 2018",
        "coarse",
        "softmax",
        "ppo",
        {"batch_size": 10, "optimizer": "adam", "learning_rate": 0.1, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0, "start": "best"}
        | {"reward": "sqrt", "baseline": "batch", "normalize": True},
    ),
    "graph_neural": System(
        "a graph network that was trained on other graphs and machines, and learns on",
        "ours, after Placeto and GDP 2019",
        "coarse",
        "graph_neural",
        "ppo",
        {"batch_size": 16, "optimizer": "adam", "learning_rate": 3e-3, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.01, "initial_weights": "shipped"}
        | {"reward": "sqrt", "baseline": "batch", "normalize": True},
    ),
}

_Settings = dict[str, object]
# EAGLE, III-C: what the decoder reads at a step is the output of the attention "and the embedding";
# only that says which group it is about to place. The older papers do not say that it reads it.
_TOLD: _Settings = {"feed_item": True}
# EAGLE, equation 4: the average moves with the placement "sampled at time step t". Moved once per
# batch, from a failing signal, it is hundreds of samples behind.
_PER_SAMPLE: _Settings = {"baseline_moves": "sample"}
# No paper says where learned groups start. Of thousands of units in any groups, the policy has
# settled on one device before its groups mean something.
_METIS_FIRST: _Settings = {"grouper_start": "metis"}
# EAGLE's entropy has weight 0.01 beside the gain, whose mean over 256 decisions drowns in it.
# Public code, TensorFlow's HierarchicalController say, adds the decisions up.
_ADDED_UP: _Settings = {"gain": "sum"}
# ColocRL and the planner do not say how fast they learn. EAGLE says 0.01, with which its policies
# agree on one device after a few updates, be it one that all do not fit on. What a step of Adam
# changes grows with the width of a layer: at 512 units 0.001 still does that.
_RATE: _Settings = {"learning_rate": 1e-4}
_GCN_RATE: _Settings = {"learning_rate": 1e-3}
# Nor do they say where the average starts. From the signal of a failure, all that is sampled in the
# first batches seems good, and is learned.
_AVERAGE_KNOWN: _Settings = {"baseline_start": "first_batch"}
# EAGLE has 256 groups, the planner's public code 20 per device. Of 256 groups placed at random,
# nearly every sample is slower than one device, on which the policy then puts everything; 64 are
# slower or faster by what is on them, and the policy sees splits that are better.
_FEW_GROUPS: _Settings = {"num_groups": 64}
# Post's "moving average of the execution times of all sampled placements", if that is the mean of
# all, lags behind a policy that gets better.
_RECENT: _Settings = {"baseline": "ema", "baseline_decay": 0.5, "baseline_start": "first_batch"}

_LEARNED_GROUPS = _TOLD | _PER_SAMPLE | _METIS_FIRST | _RATE | _FEW_GROUPS

# What each system has instead. `benchmarks.comparison.readings` shows what that is worth to one of
# each paper; the others follow it.
_READINGS: Mapping[str, _Settings] = {
    "colocrl": _TOLD | _PER_SAMPLE | _AVERAGE_KNOWN,
    "policy_gradient": _TOLD | _PER_SAMPLE | _AVERAGE_KNOWN,
    "hierarchical": _LEARNED_GROUPS | _AVERAGE_KNOWN,
    "spotlight": _TOLD | _PER_SAMPLE,
    "post": _RECENT,
    "post_ppo": _RECENT,
    "eagle": _LEARNED_GROUPS | _ADDED_UP,
    "eagle_ppo_ce": _LEARNED_GROUPS | _ADDED_UP,
    "eagle_reinforce": _LEARNED_GROUPS,
    "eagle_metis": _TOLD | _PER_SAMPLE | _ADDED_UP | _RATE | _FEW_GROUPS,
    "eagle_fluid": _TOLD | _PER_SAMPLE | _ADDED_UP | _RATE | _FEW_GROUPS,
    "eagle_gcn": _PER_SAMPLE | _ADDED_UP | _GCN_RATE | _FEW_GROUPS,
}

SYSTEMS: Mapping[str, System] = {
    name: dataclasses.replace(system, settings={**system.settings, **_READINGS.get(name, {})})
    for name, system in _TO_THE_LETTER.items()
}

PUBLISHED: Mapping[str, System] = {
    f"{name}:published": dataclasses.replace(
        _TO_THE_LETTER[name], summary=f"{name} as its paper has it to the letter"
    )
    for name in _READINGS
}
"""The variants of `SYSTEMS` that have no reading of ours, by name."""
