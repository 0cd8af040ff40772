"""Puts the parts of a learned placer together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import merge_group_graph
from tf_placer.placers.composition import Composition
from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm
from tf_placer.placers.learned.algorithms.clipped_ppo import ClippedPPO
from tf_placer.placers.learned.algorithms.cross_entropy import CrossEntropy
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm
from tf_placer.placers.learned.algorithms.gradient_cross_entropy import GradientCrossEntropy
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.algorithms.penalised_ppo import PenalisedPPO
from tf_placer.placers.learned.algorithms.reinforce import Reinforce
from tf_placer.placers.learned.algorithms.with_cross_entropy import WithCrossEntropy
from tf_placer.placers.learned.embedding import EmbeddingConfig, fixed_inputs, legal_inputs
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.gcn import GCNPolicy
from tf_placer.placers.learned.graph_features import GraphFeatures
from tf_placer.placers.learned.graph_neural import GraphNeuralNetwork, GraphNeuralPolicy
from tf_placer.placers.learned.groupers.bridge import Bridge
from tf_placer.placers.learned.groupers.feed_forward import FeedForwardConfig, FeedForwardGrouper
from tf_placer.placers.learned.groupers.fixed import fixed_groups
from tf_placer.placers.learned.learned_groups import LearnedGroupsAgent
from tf_placer.placers.learned.learned_placer import LearnedPlacer
from tf_placer.placers.learned.legality import group_legal
from tf_placer.placers.learned.policy import Policy
from tf_placer.placers.learned.seq2seq import Seq2SeqPolicy
from tf_placer.placers.learned.signal import Signal
from tf_placer.placers.learned.softmax_policy import SoftmaxPolicy
from tf_placer.placers.placer import check_legal
from tf_placer.problem.edge_costs import edge_secs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs

__all__ = ["compose"]


def compose(
    name: str,
    composition: Composition,
    units: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    problem: PlacementProblem | None = None,
) -> LearnedPlacer:
    """Makes a learned placer.

    Args:
        name: what the log calls it.
        composition: its parts and their settings.
        units: what placements are made of.
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.
        seed: of everything random; the parts derive their own from it.
        problem: what the units cost on these devices; None if that is not known. Only policy
            graph_neural reads it.

    Raises:
        ValueError: the parts do not go together, or an argument does not fit.
    """
    check_legal(units, legal)
    parts, configs = composition.parts, composition.configs
    # Keras' weights and METIS take no larger ones.
    grouper_seed, policy_seed, bridge_seed = (
        int(word) for word in np.random.SeedSequence(seed).generate_state(3) >> 1
    )
    agent: Agent
    if parts["grouper"] == "feed_forward":
        agent = _learned_groups(
            parts, configs, units, legal, (grouper_seed, policy_seed, bridge_seed)
        )
    else:
        membership = fixed_groups(configs.get(parts["grouper"]), units, seed=grouper_seed)
        groups = merge_group_graph(units, membership)
        legal_groups = group_legal(legal, membership, groups.num_groups)
        if parts["policy"] == "graph_neural":
            unit_secs = sending_secs = None
            if problem is not None:
                unit_secs, sending_secs = device_secs(problem), edge_secs(problem, units)
                if groups.num_groups < units.num_groups:
                    unit_secs, sending_secs = _merged_secs(
                        units, membership, groups, unit_secs, sending_secs
                    )
            policy: Policy = GraphNeuralPolicy(
                GraphNeuralNetwork(configs["graph_neural"], policy_seed),
                GraphFeatures.from_groups(
                    groups, legal_groups, device_secs=unit_secs, edge_secs=sending_secs
                ),
            )
        elif parts["policy"] == "softmax":
            policy = SoftmaxPolicy(legal_groups)
        else:
            policy = _network(
                parts["policy"],
                configs,
                groups.num_groups,
                legal.shape[1],
                units.type_counts.shape[1],
                configs["embedding"].num_features,
                policy_seed,
            )
        # The others read nothing; the neighbours of thousands of groups would take a gigabyte.
        inputs = (
            fixed_inputs(groups, legal_groups, configs["embedding"])
            if "embedding" in configs
            else legal_inputs(legal_groups)
        )
        agent = FixedGroupsAgent(policy, inputs, membership, legal)
    algorithm = _algorithm(parts["algorithm"], configs, agent)
    return LearnedPlacer(name, units, legal, agent, algorithm, Signal(configs["signal"]), seed=seed)


def _learned_groups(
    parts: Mapping[str, str],
    configs: Mapping[str, Any],
    units: GroupGraph,
    legal: np.ndarray,
    seeds: tuple[int, int, int],
) -> LearnedGroupsAgent:
    if parts["policy"] not in ("seq2seq", "gcn"):
        raise ValueError(
            f"policy {parts['policy']} is for groups that stay as they are, and grouper "
            "feed_forward makes new ones for every placement; use policy seq2seq or gcn"
        )
    config: FeedForwardConfig = configs["feed_forward"]
    embedding: EmbeddingConfig = configs["embedding"]
    grouper = FeedForwardGrouper(units, config, embedding, seed=seeds[0])
    policy = _network(
        parts["policy"],
        configs,
        grouper.num_groups,
        legal.shape[1],
        units.type_counts.shape[1],
        config.num_features(embedding),
        seeds[1],
    )
    bridge = None if config.bridge == "none" else Bridge(grouper, config, seed=seeds[2])
    return LearnedGroupsAgent(grouper, policy, units, legal, embedding, bridge=bridge)


def _network(
    name: str,
    configs: Mapping[str, Any],
    num_groups: int,
    num_devices: int,
    num_types: int,
    num_features: int,
    seed: int,
) -> Policy:
    """A network that reads groups."""
    network = Seq2SeqPolicy if name == "seq2seq" else GCNPolicy
    policy: Policy = network(num_groups, num_devices, num_types, num_features, configs[name], seed)
    return policy


def _merged_secs(
    units: GroupGraph,
    membership: np.ndarray,
    groups: GroupGraph,
    unit_secs: np.ndarray,
    sending_secs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What groups of units take on each device, and the edges between them."""
    count = groups.num_groups
    merged = np.zeros([count, unit_secs.shape[1]])
    # A unit that may not go where its group goes takes the time of where it goes instead.
    fallback = np.where(np.isfinite(unit_secs), unit_secs, 0.0).max(axis=1, keepdims=True)
    np.add.at(merged, membership, np.where(np.isfinite(unit_secs), unit_secs, fallback))
    ends = membership[units.edges].astype(np.int64)
    crosses = ends[:, 0] != ends[:, 1]
    keys = ends[crosses] @ np.array([count, 1])
    merged_keys = groups.edges.astype(np.int64) @ np.array([count, 1])
    sending_secs = np.bincount(
        np.searchsorted(merged_keys, keys), sending_secs[crosses], len(merged_keys)
    )
    return merged, sending_secs


def _algorithm(name: str, configs: Mapping[str, Any], agent: Agent) -> Algorithm:
    """One algorithm, or one with cross-entropy minimisation every so many samples."""
    first, _, second = name.partition("+")
    # Post and EAGLE keep one optimiser for all that they do by gradient.
    optimizer = Optimizer(agent, configs["optimizer"]) if "optimizer" in configs else None
    if not second:
        return _single(first, configs, agent, optimizer)
    cross_entropy = _single(second, configs, agent, optimizer)
    assert isinstance(cross_entropy, EliteAlgorithm)
    return WithCrossEntropy(
        _single(first, configs, agent, optimizer), cross_entropy, instead=second == "ce"
    )


def _single(
    name: str, configs: Mapping[str, Any], agent: Agent, optimizer: Optimizer | None
) -> Algorithm:
    config = configs[name]
    if name == "ce":
        return CrossEntropy(agent, config)
    assert optimizer is not None
    algorithms = {"reinforce": Reinforce, "ppo": ClippedPPO, "ppo_kl": PenalisedPPO}
    if name == "ce_gradient":
        return GradientCrossEntropy(agent, optimizer, config)
    return algorithms[name](agent, optimizer, config)
