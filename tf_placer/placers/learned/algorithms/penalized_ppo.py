"""Proximal policy optimization with a penalty on divergence from the policy that sampled.

References:
    Schulman et al., Proximal Policy Optimization Algorithms, 2017, equation 8 and the rule below
    it.
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, NeurIPS 2018, equation 11.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update
from tf_placer.placers.learned.algorithms.gradient_steps import Decisions, GradientSteps
from tf_placer.placers.learned.algorithms.objectives import (
    mean_over_placements,
    probability_ratios,
)
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.decisions import divergences, select_log_probs
from tf_placer.placers.validators import check_fields

__all__ = ["PenalizedPPO", "PenalizedPPOConfig"]

# The limit of beta's change in either direction. Without a limit, a converged policy halves beta
# hundreds of times, and an oscillating one doubles it as often.
_MAX_BETA_FACTOR = 1024.0

# Beta is adapted where the divergence differs from its target by more than this factor.
_DIVERGENCE_TOLERANCE = 1.5


@dataclasses.dataclass(frozen=True)
class PenalizedPPOConfig:
    """Settings of penalized PPO, each with its line of help; the defaults are Post's.

    Raises:
        ValueError: a number is outside its range.
    """

    batch_size: Annotated[int, "placements per update"] = 12
    ascent_steps: Annotated[int, "steps per update, each on all placements of the batch"] = 10
    divergence_weight: Annotated[float, "weight of the penalty at first"] = 1.0
    divergence_target: Annotated[
        float, "mean divergence of a decision, in nats, that the weight is adapted to"
    ] = 0.03

    def __post_init__(self) -> None:
        names = ("batch_size", "ascent_steps", "divergence_weight", "divergence_target")
        check_fields(self, names, lambda value: 0 < value < math.inf, "positive")


class PenalizedPPO(Algorithm):
    """An algorithm of several steps per batch, with a penalty on divergence.

    Maximizes, summed over the decisions of a placement and averaged over placements,
    r * advantage - beta * D(before || now), where r is the probability of a decision divided by its
    probability before the update. After each update beta is halved if the mean divergence of a
    decision was below the target by a factor of 1.5, and doubled if it was above it by that factor,
    up to a factor of 1024 from its initial value.

    Attributes:
        beta: the weight of the penalty in the next update.
    """

    def __init__(self, agent: Agent, optimizer: Optimizer, config: PenalizedPPOConfig) -> None:
        """Creates an algorithm for an agent.

        Args:
            agent: the agent to train.
            optimizer: the optimizer of that agent.
            config: settings.
        """
        self.batch_size = config.batch_size
        self.beta = config.divergence_weight
        self._target = config.divergence_target
        self._min_beta = config.divergence_weight / _MAX_BETA_FACTOR
        self._max_beta = config.divergence_weight * _MAX_BETA_FACTOR
        # A variable, because a compiled step would treat a Python number as a constant.
        self._weight = tf.Variable(self.beta, trainable=False, dtype=tf.float32)
        self._steps = GradientSteps(
            "ppo_kl", agent, optimizer, self._loss, num_steps=config.ascent_steps, compares=True
        )

    def learn(self, samples: Samples) -> list[Update]:
        """Performs the steps of one update and adapts `beta`; see `Algorithm.learn`."""
        self._weight.assign(self.beta)
        update = self._steps.run(samples.actions, samples.advantages, samples.counted)
        if update is None:
            return []
        if update.divergence < self._target / _DIVERGENCE_TOLERANCE:
            self.beta = max(self.beta / 2, self._min_beta)
        elif update.divergence > self._target * _DIVERGENCE_TOLERANCE:
            self.beta = min(self.beta * 2, self._max_beta)
        return [update]

    def state(self) -> dict[str, np.ndarray]:
        """Returns the weight of the penalty; see `Algorithm.state`."""
        return {"beta": np.array(self.beta)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets the weight of the penalty; see `Algorithm.restore`."""
        self.beta = float(state["beta"])

    def _loss(
        self, now: Decisions, before: Decisions, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        gains = []
        for new, old in zip(now, before, strict=True):
            ratios = probability_ratios(select_log_probs(new) - select_log_probs(old))
            weighted = tf.reduce_sum(ratios * new.counted, axis=1) * advantages
            penalties = tf.reduce_sum(divergences(old.log_dists, new), axis=1)
            gains.append(weighted - self._weight * penalties)
        return -mean_over_placements(tf.add_n(gains), weights)
