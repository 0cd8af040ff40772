"""The training of one graph-neural network on many problems, for use on other problems.

References:
    Zhou et al., GDP: Generalized Device Placement for Dataflow Graphs, 2019, for
    training on a batch of graphs with one set of weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Samples
from tf_placer.placers.learned.algorithms.clipped_ppo import ClippedPPO, ClippedPPOConfig
from tf_placer.placers.learned.algorithms.optimizer import Optimizer, OptimizerConfig
from tf_placer.placers.learned.embedding import build_legal_inputs
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.graph_features import GraphFeatures
from tf_placer.placers.learned.graph_neural import GraphNeuralNetwork, GraphNeuralPolicy
from tf_placer.placers.learned.reward import RewardConfig, RewardFunction
from tf_placer.problem.edge_costs import edge_secs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_fill, device_secs, group_graph, legal_devices

__all__ = ["PretrainedProblem", "PretrainingConfig", "build_graph_neural_agent", "pretrain"]


@dataclasses.dataclass(frozen=True)
class PretrainingConfig:
    """Settings of pre-training; none is from a paper."""

    batch_size: Annotated[int, "placements per update, all of one problem"] = 20
    learning_rate: Annotated[float, "of Adam"] = 1e-3
    entropy_coefficient: Annotated[float, "weight of the mean entropy of a decision"] = 0.01


@dataclasses.dataclass(frozen=True)
class PretrainedProblem:
    """The results of training on one problem.

    Attributes:
        updates: number of updates with placements of the problem.
        first_mean_secs: mean simulated step time of the first batch of placements, infinite if none
            of them fitted into memory.
        last_mean_secs: mean of the last batch.
        best_secs: fastest step of all batches; infinite if no placement fitted.
    """

    updates: int = 0
    first_mean_secs: float = np.inf
    last_mean_secs: float = np.inf
    best_secs: float = np.inf


def build_graph_neural_agent(network: GraphNeuralNetwork, problem: PlacementProblem) -> Agent:
    """Applies a network to the groups of a problem.

    Args:
        network: the weights, which agents for several problems may share.
        problem: the groups to place.
    """
    groups, legal = group_graph(problem), legal_devices(problem)
    features = GraphFeatures.from_groups(
        groups,
        legal,
        device_secs=device_secs(problem),
        edge_secs=edge_secs(problem, groups),
        device_fill=device_fill(problem),
    )
    membership = np.arange(problem.num_groups, dtype=np.int32)
    return FixedGroupsAgent(
        GraphNeuralPolicy(network, features), build_legal_inputs(legal), membership, legal
    )


def pretrain(
    network: GraphNeuralNetwork,
    problems: Sequence[PlacementProblem],
    *,
    updates: int,
    seed: int = 0,
    config: PretrainingConfig | None = None,
    report: Callable[[int, Sequence[PretrainedProblem]], None] | None = None,
) -> list[PretrainedProblem]:
    """Trains a network on problems in turn, one batch of simulated placements at a time.

    Rewards are negative roots of step times. Their advantages over the mean of their batch are
    divided by its deviation, so that fast and slow problems have equal influence. A placement that
    does not fit into memory counts as a long step, longer with more excess memory. An interrupt
    from the keyboard ends the training and keeps its result.

    Args:
        network: the network, trained in place.
        problems: the problems to train on.
        updates: number of updates over all problems.
        seed: of the sampled placements; not negative.
        config: settings; the defaults if None.
        report: called after each update with the number of updates so far and the results on each
            problem.

    Returns:
        The results on each problem.

    Raises:
        KeyboardInterrupt: the training was interrupted in its first update.
        ValueError: there is no problem, or `updates` is not positive.
    """
    if not problems:
        raise ValueError("there is no problem to train on")
    if updates < 1:
        raise ValueError(f"updates must be positive, not {updates}")
    config = config or PretrainingConfig()
    trainings: list[_ProblemTraining] = []
    results = [PretrainedProblem()] * len(problems)
    try:
        optimizer: Optimizer | None = None
        for update in range(updates):
            index = update % len(problems)
            if index == len(trainings):
                agent = build_graph_neural_agent(network, problems[index])
                # All problems train the same weights, so they share the optimizer.
                optimizer = optimizer or Optimizer(
                    agent, OptimizerConfig(learning_rate=config.learning_rate)
                )
                trainings.append(_ProblemTraining(problems[index], agent, optimizer, config))
            secs = trainings[index].update(
                tf.constant([seed, update * config.batch_size], tf.int64)
            )
            results[index] = _add_batch(results[index], secs)
            if report is not None:
                report(update + 1, results)
    except KeyboardInterrupt:
        if not results[0].updates:
            raise
    return results


class _ProblemTraining:
    """The training on one problem."""

    def __init__(
        self,
        problem: PlacementProblem,
        agent: Agent,
        optimizer: Optimizer,
        config: PretrainingConfig,
    ) -> None:
        self._batch_size = config.batch_size
        self._agent = agent
        self._algorithm = ClippedPPO(
            agent,
            optimizer,
            ClippedPPOConfig(
                batch_size=config.batch_size, entropy_coefficient=config.entropy_coefficient
            ),
        )
        self._environment = SimulatedEnvironment(problem)
        self._memory_bytes = np.array([device.memory_bytes for device in problem.devices])
        # A placement that does not fit counts as slower than any that runs: at least as slow as
        # all operations on all devices, one after the other.
        secs = problem.compute_secs[np.isfinite(problem.compute_secs)]
        self._failing_secs = float(secs.sum()) or 1.0
        # No failure is slower than this: `_add_memory_penalty` at most doubles the step time.
        self._reward_function = RewardFunction(
            RewardConfig(baseline="batch", normalize=True, failure_secs=2.0 * self._failing_secs)
        )

    def update(self, seed: tf.Tensor) -> np.ndarray:
        """Performs one update; returns the step times of its placements, infinite for a failure."""
        actions = self._agent.sample(self._batch_size, seed)
        measurements = self._environment.measure(self._agent.placements(actions))
        batch = self._reward_function.advantages(
            [self._add_memory_penalty(each) for each in measurements]
        )
        if batch is not None and batch.advantages.any():
            self._algorithm.learn(
                Samples(
                    actions=tuple(np.asarray(action) for action in actions),
                    advantages=batch.advantages,
                    counted=batch.counted,
                    step_secs=batch.step_secs,
                )
            )
        return np.array([each.median_secs or np.inf for each in measurements])

    def _add_memory_penalty(self, measurement: Measurement) -> Measurement:
        """Replaces a failure by a long step, longer with more excess memory."""
        if measurement.failure is None:
            return measurement
        peak_bytes = np.array(measurement.peak_bytes)
        excess = np.maximum(peak_bytes - self._memory_bytes, 0).sum()
        return Measurement((self._failing_secs * (1.0 + float(excess / peak_bytes.sum())),))


def _add_batch(before: PretrainedProblem, step_secs: np.ndarray) -> PretrainedProblem:
    """Computes the results after one more batch."""
    ran = step_secs[np.isfinite(step_secs)]
    mean_secs = float(ran.mean()) if ran.size else np.inf
    return PretrainedProblem(
        updates=before.updates + 1,
        first_mean_secs=mean_secs if before.updates == 0 else before.first_mean_secs,
        last_mean_secs=mean_secs,
        best_secs=min(before.best_secs, float(step_secs.min())),
    )
