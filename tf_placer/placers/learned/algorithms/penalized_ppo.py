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
from tf_placer.placers.learned.decisions import chosen_log_probs, divergences
from tf_placer.placers.validators import check_fields

__all__ = ["PenalizedPPO", "PenalizedPPOConfig"]

# Beta stays within this factor of where it started. Without a limit, a policy that is settled
# halves it hundreds of times, and one that jumps to and fro doubles it as often.
_LARGEST_CHANGE = 1024.0


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
    """Several steps per batch, which pay for every nat of divergence.

    Maximizes, summed over the decisions of a placement and averaged over placements,
    r * advantage - beta * D(before || now), where r is the probability of a decision divided by
    what it was before the update. After each update beta is halved where the mean divergence of a
    decision was below the target by a factor of 1.5, and doubled where it was as much above, up to
    a factor of 1024 from where it started.

    Attributes:
        beta: the weight of the penalty in the next update.
    """

    def __init__(self, agent: Agent, optimizer: Optimizer, config: PenalizedPPOConfig) -> None:
        """Makes the algorithm of an agent.

        Args:
            agent: what is trained.
            optimizer: of that agent.
            config: settings.
        """
        self.batch_size = config.batch_size
        self.beta = config.divergence_weight
        self._target = config.divergence_target
        self._least = config.divergence_weight / _LARGEST_CHANGE
        self._largest = config.divergence_weight * _LARGEST_CHANGE
        # A variable, because the compiled steps would keep a number as it was.
        self._weight = tf.Variable(self.beta, trainable=False, dtype=tf.float32)
        self._steps = GradientSteps(
            "ppo_kl", agent, optimizer, self._loss, num_steps=config.ascent_steps, compares=True
        )

    def learn(self, samples: Samples) -> list[Update]:
        """Takes the steps and adapts `beta`; see `Algorithm.learn`."""
        self._weight.assign(self.beta)
        update = self._steps.run(samples.actions, samples.advantages, samples.counted)
        if update is None:
            return []
        if update.divergence < self._target / 1.5:
            self.beta = max(self.beta / 2, self._least)
        elif update.divergence > self._target * 1.5:
            self.beta = min(self.beta * 2, self._largest)
        return [update]

    def state(self) -> dict[str, np.ndarray]:
        """Gives the weight of the penalty; see `Algorithm.state`."""
        return {"beta": np.array(self.beta)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes the weight of the penalty; see `Algorithm.restore`."""
        self.beta = float(state["beta"])

    def _loss(
        self, now: Decisions, before: Decisions, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        gains = []
        for new, old in zip(now, before, strict=True):
            ratios = probability_ratios(chosen_log_probs(new) - chosen_log_probs(old))
            weighted = tf.reduce_sum(ratios * new.counted, axis=1) * advantages
            penalties = tf.reduce_sum(divergences(old.log_dists, new), axis=1)
            gains.append(weighted - self._weight * penalties)
        return -mean_over_placements(tf.add_n(gains), weights)
