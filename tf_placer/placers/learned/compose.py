"""Builds a learned placer from its components."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import merge_group_graph
from tf_placer.placers.components import COMPONENTS
from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.algorithms.with_cross_entropy import WithCrossEntropy
from tf_placer.placers.learned.embedding import (
    EmbeddingConfig,
    build_fixed_inputs,
    build_legal_inputs,
)
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.groupers.bridge import Bridge
from tf_placer.placers.learned.groupers.feed_forward import FeedForwardConfig, FeedForwardGrouper
from tf_placer.placers.learned.learned_groups import LearnedGroupsAgent
from tf_placer.placers.learned.learned_placer import LearnedPlacer
from tf_placer.placers.learned.legality import find_legal_devices
from tf_placer.placers.learned.policy import FixedGroups, Policy, PolicySizes
from tf_placer.placers.learned.reward import RewardFunction
from tf_placer.placers.learned.start import Start
from tf_placer.placers.placer import check_legal
from tf_placer.placers.resolved_config import ResolvedConfig
from tf_placer.problem.edge_costs import edge_secs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_fill, device_secs

__all__ = ["compose"]


def compose(
    name: str,
    resolved: ResolvedConfig,
    units: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    problem: PlacementProblem | None = None,
    start: np.ndarray | None = None,
) -> LearnedPlacer:
    """Builds a learned placer from its components.

    Args:
        name: the name of the placer in the log.
        resolved: the components and their settings.
        units: the units that placements assign to devices.
        legal: bool [num_units, num_devices], true where a unit may go; every row has one.
        seed: seeds all random numbers; each component derives its own seed from it.
        problem: the costs of the units on these devices; None if they are unknown. Only
            policy graph_neural reads it.
        start: int32 [num_units], a placement to start from; None for none.

    Raises:
        ValueError: the components are incompatible, or an argument does not fit.
    """
    check_legal(units, legal)
    parts, configs = resolved.components, resolved.configs
    # Keras initializers and METIS accept seeds below 2**31 only.
    seeds = _Seeds(*(int(word) for word in np.random.SeedSequence(seed).generate_state(3) >> 1))
    policy_type: type[Policy] = COMPONENTS["policy"][parts["policy"]].import_factory()
    group = COMPONENTS["grouper"][parts["grouper"]].import_factory()
    initial = None
    if start is not None:
        initial = Start(start, configs["start"].uniform(len(start)), legal.shape[1])
    agent: Agent
    if isinstance(group, type):
        if policy_type.needs_fixed_groups:
            raise ValueError(
                f"policy {parts['policy']} is for groups that stay as they are, and grouper "
                f"{parts['grouper']} makes new ones for every placement; use policy seq2seq or gcn"
            )
        agent = _build_learned_groups_agent(
            group, policy_type, parts, configs, units, legal, seeds, initial
        )
    else:
        if group is None:
            membership = np.arange(units.num_groups, dtype=np.int32)
        else:
            membership = group(configs[parts["grouper"]], units, seeds.grouper)
        agent = _build_fixed_groups_agent(
            policy_type, parts, configs, units, legal, membership, seeds, problem, initial
        )
    # Post and EAGLE share one optimizer among all their gradient steps.
    optimizer = Optimizer(agent, configs["optimizer"]) if "optimizer" in configs else None
    algorithm = _build_algorithm(parts["algorithm"], configs, agent, optimizer)
    reward_function = RewardFunction(configs["reward"])
    return LearnedPlacer(
        name, units, legal, agent, algorithm, reward_function, optimizer=optimizer, seed=seed
    )


class _Seeds(NamedTuple):
    grouper: int
    policy: int
    bridge: int


def _build_learned_groups_agent(
    grouper_type: type[FeedForwardGrouper],
    policy_type: type[Policy],
    parts: Mapping[str, str],
    configs: Mapping[str, Any],
    units: GroupGraph,
    legal: np.ndarray,
    seeds: _Seeds,
    start: Start | None,
) -> LearnedGroupsAgent:
    config: FeedForwardConfig = configs[parts["grouper"]]
    embedding: EmbeddingConfig = configs["embedding"]
    start_groups = None
    if config.grouper_start != "none":
        heuristic = COMPONENTS["grouper"][config.grouper_start]
        group, config_type = heuristic.import_factory(), heuristic.config_type()
        assert config_type is not None
        start_groups = group(config_type(num_groups=config.num_groups), units, seeds.grouper)
    grouper = grouper_type(units, config, embedding, start=start_groups, seed=seeds.grouper)
    sizes = PolicySizes(
        grouper.num_groups,
        legal.shape[1],
        units.type_counts.shape[1],
        config.num_features(embedding),
    )
    policy = policy_type.make(sizes, None, configs.get(parts["policy"]), seeds.policy)
    bridge = None if config.bridge == "none" else Bridge(grouper, config, seed=seeds.bridge)
    return LearnedGroupsAgent(grouper, policy, units, legal, embedding, bridge=bridge, start=start)


def _build_fixed_groups_agent(
    policy_type: type[Policy],
    parts: Mapping[str, str],
    configs: Mapping[str, Any],
    units: GroupGraph,
    legal: np.ndarray,
    membership: np.ndarray,
    seeds: _Seeds,
    problem: PlacementProblem | None,
    start: Start | None,
) -> FixedGroupsAgent:
    groups = merge_group_graph(units, membership)
    legal_groups = find_legal_devices(legal, membership, groups.num_groups)
    start_probabilities = (
        None if start is None else start.compute_group_probabilities(membership, groups.num_groups)
    )
    fixed = FixedGroups(groups, legal_groups, start=start_probabilities)
    if problem is not None and policy_type.reads_costs:
        unit_secs, sending_secs = device_secs(problem), edge_secs(problem, units)
        if groups.num_groups < units.num_groups:
            unit_secs, sending_secs = _sum_secs(units, membership, groups, unit_secs, sending_secs)
        fill = np.zeros([*legal_groups.shape, 2])
        np.add.at(fill, membership, device_fill(problem))
        fixed = dataclasses.replace(
            fixed, device_secs=unit_secs, edge_secs=sending_secs, device_fill=fill
        )
    embedding: EmbeddingConfig | None = configs.get("embedding")
    sizes = PolicySizes(
        groups.num_groups,
        legal.shape[1],
        units.type_counts.shape[1],
        0 if embedding is None else embedding.num_features,
    )
    policy = policy_type.make(sizes, fixed, configs.get(parts["policy"]), seeds.policy)
    # Skip inputs that the policy does not read: an adjacency matrix of thousands of groups takes a
    # gigabyte.
    if embedding is None:
        inputs = build_legal_inputs(legal_groups)
    else:
        inputs = build_fixed_inputs(groups, legal_groups, embedding)
    if start_probabilities is not None:
        prior = tf.constant(np.log(start_probabilities)[np.newaxis], tf.float32)
        inputs = inputs._replace(prior=prior)
    return FixedGroupsAgent(policy, inputs, membership, legal)


def _sum_secs(
    units: GroupGraph,
    membership: np.ndarray,
    groups: GroupGraph,
    unit_secs: np.ndarray,
    sending_secs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums the seconds of units and edges over groups, for each device."""
    count = groups.num_groups
    merged = np.zeros([count, unit_secs.shape[1]])
    # A unit that may not run on its group's device runs on another one: count its slowest time.
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


def _build_algorithm(
    name: str, configs: Mapping[str, Any], agent: Agent, optimizer: Optimizer | None
) -> Algorithm:
    """Builds an algorithm, or a pair "first+second" that adds cross-entropy minimization."""
    first, _, second = name.partition("+")
    if not second:
        return _build_single_algorithm(first, configs, agent, optimizer)
    cross_entropy = _build_single_algorithm(second, configs, agent, optimizer)
    assert isinstance(cross_entropy, EliteAlgorithm)
    return WithCrossEntropy(
        _build_single_algorithm(first, configs, agent, optimizer),
        cross_entropy,
        instead=second == "ce",
    )


def _build_single_algorithm(
    name: str, configs: Mapping[str, Any], agent: Agent, optimizer: Optimizer | None
) -> Algorithm:
    part = COMPONENTS["algorithm"][name]
    uses = (optimizer,) if "optimizer" in part.shares else ()
    algorithm: Algorithm = part.import_factory()(agent, *uses, configs[name])
    return algorithm
