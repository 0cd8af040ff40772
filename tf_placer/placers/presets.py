"""Presets of learned placers: a combination of components and settings for each paper.

Settings that a preset does not name have the defaults of its components. Where a paper does not
work here as it is printed, its preset is a variant that works, and a paper preset, such as
"eagle:published", has all that the paper prints (`Preset.printed`); the rest of its settings is the
nearest reading of the paper, a variant, too. A paper preset whose paper prints no setting is
":variant" instead.

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

__all__ = ["PAPER_PRESETS", "PRESETS", "Preset", "name_paper_preset"]


@dataclasses.dataclass(frozen=True)
class Preset:
    """The components and settings of a learned placer.

    Attributes:
        summary: one line of help.
        reference: the paper that the placer is from.
        grouper: the component that makes the groups; a key of `COMPONENTS["grouper"]`.
        policy: the network; a key of `COMPONENTS["policy"]`.
        algorithm: the learning algorithm; a key of `COMPONENTS["algorithm"]`, or two joined by "+".
        settings: the settings that differ from the defaults of the components.
        printed: names of the settings, defaults included, whose values the paper prints.
    """

    summary: str
    reference: str
    grouper: str
    policy: str
    algorithm: str
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    printed: tuple[str, ...] = ()


_FAILURE = {"failure_secs": 100.0}
_COLOCRL_REWARD = {"reward": "sqrt", "baseline": "ema", "baseline_start": "failing"}
_EAGLE_REWARD = {"reward": "sqrt", "baseline": "ema", "baseline_start": "first_batch"} | _FAILURE
_POST_REWARD = {"reward": "seconds", "baseline": "mean"} | _FAILURE
_POST_SAMPLES = {"total_samples": 2400}
_EAGLE_OPTIMIZER = {"optimizer": "adam", "learning_rate": 0.01, "clip_norm": 1.0}
_EAGLE_PPO = {"batch_size": 10, "entropy_coefficient": 0.01} | _EAGLE_OPTIMIZER
_POST_OPTIMIZER = {"optimizer": "sgd", "learning_rate": 1.0, "clip_norm": None}
_EAGLE_PLACER = {"attention": "before", "type_units": 0, "adjacency": "bytes"}

_FIRST_READINGS: Mapping[str, Preset] = {
    "colocrl": Preset(
        "sequence-to-sequence policy trained by REINFORCE",
        "ColocRL 2017",
        "coarse",
        "seq2seq",
        "reinforce",
        {"batch_size": 8, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0, "ignore_failures_after": 5000}
        | _COLOCRL_REWARD,
    ),
    "policy_gradient": Preset(
        "ColocRL's policy as Post runs it: batches of 12",
        "Post 2018, baseline",
        "coarse",
        "seq2seq",
        "reinforce",
        {"batch_size": 12, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0}
        | _COLOCRL_REWARD,
    ),
    # The paper has 256 groups; its public code takes at most 20 per device. The noise that the code
    # adds to the scores of the first 750 steps is left out: the policy explores by sampling.
    "hierarchical": Preset(
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
        | _FAILURE,
    ),
    "spotlight": Preset(
        "ColocRL's policy trained by PPO with a penalty on divergence",
        "Spotlight 2018",
        "coarse",
        "seq2seq",
        "ppo_kl",
        {"batch_size": 12, "optimizer": "adam", "learning_rate": 1e-4, "clip_norm": 1.0}
        | _COLOCRL_REWARD,
    ),
    "post": Preset(
        "a softmax per group, trained by PPO and cross-entropy minimization",
        "Post 2018",
        "coarse",
        "softmax",
        "ppo_kl+ce",
        _POST_OPTIMIZER | _POST_REWARD | _POST_SAMPLES,
    ),
    "post_ppo": Preset(
        "Post without cross-entropy minimization",
        "Post 2018, figure 2",
        "coarse",
        "softmax",
        "ppo_kl",
        _POST_OPTIMIZER | _POST_REWARD,
    ),
    "post_ce": Preset(
        "Post with cross-entropy minimization only",
        "Post 2018, figure 2",
        "coarse",
        "softmax",
        "ce",
        _POST_REWARD,
    ),
    "eagle": Preset(
        "learned groups, a bridge to a sequence-to-sequence policy, clipped PPO",
        "EAGLE",
        "feed_forward",
        "seq2seq",
        "ppo",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_ppo_ce": Preset(
        "EAGLE, drawn to the best placements of all every 50 samples",
        "EAGLE",
        "feed_forward",
        "seq2seq",
        "ppo+ce_gradient",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_reinforce": Preset(
        "EAGLE trained by REINFORCE",
        "EAGLE, table III",
        "feed_forward",
        "seq2seq",
        "reinforce",
        {"bridge": "concat"} | _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_metis": Preset(
        "EAGLE's policy on the groups of METIS",
        "EAGLE, table I",
        "metis",
        "seq2seq",
        "ppo",
        _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_fluid": Preset(
        "EAGLE's policy on fluid communities",
        "EAGLE, table I",
        "fluid",
        "seq2seq",
        "ppo",
        _EAGLE_PLACER | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "eagle_gcn": Preset(
        "a graph-convolutional policy on the groups of METIS",
        "EAGLE, table II",
        "metis",
        "gcn",
        "ppo",
        {"adjacency": "bytes"} | _EAGLE_PPO | _EAGLE_REWARD,
    ),
    "warm_softmax": Preset(
        "a softmax per group that starts at the best simple placement",
        "ours, after Post 2018",
        "coarse",
        "softmax",
        "ppo",
        {"batch_size": 10, "optimizer": "adam", "learning_rate": 0.1, "clip_norm": 1.0}
        | {"entropy_coefficient": 0.0, "start": "best"}
        | {"reward": "sqrt", "baseline": "batch", "normalize": True},
    ),
    "graph_neural": Preset(
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
# EAGLE, III-C: the decoder reads the output of the attention "and the embedding" at each step. Only
# the embedding identifies the group to place. The older papers do not say that decoders read it.
_FEED_ITEM: _Settings = {"feed_item": True}
# EAGLE, equation 4: the average moves with the placement "sampled at time step t". An average that
# moves once per batch, from the reward of a failure, lags by hundreds of samples.
_BASELINE_PER_SAMPLE: _Settings = {"baseline_moves": "sample"}
# No paper says where learned groups start. With thousands of units in random groups, the policy
# settles on one device before its groups are meaningful.
_METIS_START: _Settings = {"grouper_start": "metis"}
# EAGLE's entropy has weight 0.01 beside the gain, and outweighs the mean gain of 256 decisions.
# Public code, such as TensorFlow's HierarchicalController, sums the decisions.
_SUMMED_GAIN: _Settings = {"gain": "sum"}
# ColocRL and the planner give no learning rate. EAGLE gives 0.01, with which its policies collapse
# to one device after a few updates, even if the model does not fit on that device. The change by a
# step of Adam grows with the width of a layer: with 512 units, policies collapse at 0.001, too.
_LEARNING_RATE: _Settings = {"learning_rate": 1e-4}
# ColocRL and the planner do not say where the average starts. If it starts at the reward of a
# failure, all samples of the first batches look good, and the policy learns them.
_BASELINE_START: _Settings = {"baseline_start": "first_batch"}
# EAGLE has 256 groups, the planner's public code 20 per device. With 256 groups placed at random,
# nearly every sample is slower than one device, so the policy puts everything on one device. With
# 64 groups the samples differ enough for the policy to see splits that are better.
_FEW_GROUPS: _Settings = {"num_groups": 64}
# Post has a "moving average of the execution times of all sampled placements". The mean of all
# samples lags behind a policy that improves.
_RECENT_BASELINE: _Settings = {
    "baseline": "ema",
    "baseline_decay": 0.5,
    "baseline_start": "first_batch",
}
# Within the bound of the planner's public code no device of five is more probable than 65 %, so the
# policy cannot cease to sample what fails.
_UNBOUNDED_SCORES: _Settings = {"tanh_limit": None}
# The gain is in seconds and the learning rate is 1. With steps of 13 s instead of one, the policy
# settles within a few batches, on whatever they had.
_CLIPPED_GAIN: _Settings = {"advantage_clip": 1.0}
# No paper counts a failure relative to what runs. Of a step of some seconds, a failure of 100 s is
# nearly the whole variance: the policy learns to avoid failures and nothing else, and beside an
# average with failures even slow placements are praised. Where nearly all samples fail, only the
# memory that they lack tells them apart.
_RELATIVE_FAILURES: _Settings = {"failure_factor": 2.0, "baseline_failures": False}
# At a factor of 2, ColocRL's policy returns to failures on the large NMT whenever it finds faster
# placements near the limit of the memory.
_DEARER_FAILURES: _Settings = {"failure_factor": 3.0}
# With 1 % of the units in random groups, the groups of METIS are 5 to 13 % slower than they are.
_SMALL_START_NOISE: _Settings = {"grouper_uniform": 0.001}
# Post samples each network 2,400 times. With another number of samples its exploration would end
# in the middle of the search, or not at all.
_OWN_SAMPLES: _Settings = {"total_samples": None}

_LEARNED_GROUPS = _FEED_ITEM | _BASELINE_PER_SAMPLE | _METIS_START | _LEARNING_RATE | _FEW_GROUPS
_LEARNED_GROUPS |= _SMALL_START_NOISE | _RELATIVE_FAILURES
_FIXED_GROUPS = _BASELINE_PER_SAMPLE | _SUMMED_GAIN | _LEARNING_RATE | _FEW_GROUPS
_FIXED_GROUPS |= _RELATIVE_FAILURES
_COLOCRL = _FEED_ITEM | _BASELINE_PER_SAMPLE | _RELATIVE_FAILURES | _DEARER_FAILURES

# The changes that make the variants work. `benchmarks.comparison.readings` measures their effects
# for one placer of each paper; the other placers of the paper have the same changes.
_CHANGES: Mapping[str, _Settings] = {
    "colocrl": _COLOCRL | _BASELINE_START,
    "policy_gradient": _COLOCRL | _BASELINE_START,
    "hierarchical": _LEARNED_GROUPS | _BASELINE_START | _UNBOUNDED_SCORES,
    "spotlight": _COLOCRL,
    "post": _RECENT_BASELINE | _CLIPPED_GAIN | _RELATIVE_FAILURES | _OWN_SAMPLES,
    "post_ppo": _RECENT_BASELINE | _CLIPPED_GAIN | _RELATIVE_FAILURES,
    "eagle": _LEARNED_GROUPS | _SUMMED_GAIN,
    "eagle_ppo_ce": _LEARNED_GROUPS | _SUMMED_GAIN,
    "eagle_reinforce": _LEARNED_GROUPS,
    "eagle_metis": _FIXED_GROUPS | _FEED_ITEM,
    "eagle_fluid": _FIXED_GROUPS | _FEED_ITEM,
    "eagle_gcn": _FIXED_GROUPS,
}

_COLOCRL_PRINTS = ("batch_size", "optimizer", "ignore_failures_after", "reward", "baseline_start")
_POST_PRINTS = ("reward", "failure_secs")
_POST_PPO_PRINTS = (
    *("optimizer", "learning_rate", "batch_size", "ascent_steps"),
    *("divergence_weight", "divergence_target"),
)
_POST_CE_PRINTS = ("ce_samples", "elite_fraction", "exploration", "total_samples")
_EAGLE_PRINTS = ("reward", "baseline")
_EAGLE_PPO_PRINTS = (
    *("batch_size", "epochs", "ratio_clip", "entropy_coefficient"),
    *("optimizer", "learning_rate", "clip_norm"),
)
_EAGLE_PLACER_PRINTS = ("hidden_units", "attention")
_EAGLE_GROUPER_PRINTS = ("num_groups", "grouper_units", "grouper_layers")

# The texts of the Hierarchical Planner and of Spotlight are not available, and Post prints nothing
# of the policy gradient that it compares itself with.
_PRINTED: Mapping[str, tuple[str, ...]] = {
    "colocrl": _COLOCRL_PRINTS,
    "post": _POST_PRINTS + _POST_PPO_PRINTS + _POST_CE_PRINTS,
    "post_ppo": _POST_PRINTS + _POST_PPO_PRINTS,
    "eagle": _EAGLE_PRINTS + _EAGLE_PPO_PRINTS + _EAGLE_PLACER_PRINTS + _EAGLE_GROUPER_PRINTS,
    "eagle_ppo_ce": (
        *(*_EAGLE_PRINTS, *_EAGLE_PPO_PRINTS, *_EAGLE_PLACER_PRINTS, *_EAGLE_GROUPER_PRINTS),
        *("ce_samples", "elites"),
    ),
    "eagle_reinforce": _EAGLE_PRINTS + _EAGLE_PLACER_PRINTS + _EAGLE_GROUPER_PRINTS,
    "eagle_metis": _EAGLE_PRINTS + _EAGLE_PPO_PRINTS + _EAGLE_PLACER_PRINTS,
    "eagle_fluid": _EAGLE_PRINTS + _EAGLE_PPO_PRINTS + _EAGLE_PLACER_PRINTS,
    "eagle_gcn": _EAGLE_PRINTS + _EAGLE_PPO_PRINTS,
}

PRESETS: Mapping[str, Preset] = {
    name: dataclasses.replace(preset, settings={**preset.settings, **_CHANGES.get(name, {})})
    for name, preset in _FIRST_READINGS.items()
}


def name_paper_preset(name: str) -> str:
    """Names the paper preset of a preset: "eagle:published", or "spotlight:variant"."""
    return f"{name}:{'published' if name in _PRINTED else 'variant'}"


def _make_paper_preset(name: str) -> Preset:
    summary = f"{name} with all that its paper prints"
    if name not in _PRINTED:
        summary = f"{name} in its first reading; no text at hand prints its settings"
    printed = _PRINTED.get(name, ())
    return dataclasses.replace(_FIRST_READINGS[name], summary=summary, printed=printed)


PAPER_PRESETS: Mapping[str, Preset] = {
    name_paper_preset(name): _make_paper_preset(name) for name in _CHANGES
}
"""The paper presets by name: without the changes in `PRESETS`."""
