"""REINFORCE: policy gradients weighted by the advantages of placements.

References:
    Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
    Learning, 1992.
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    equation 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update
from tf_placer.placers.learned.algorithms.gradient_steps import Decisions, GradientSteps
from tf_placer.placers.learned.algorithms.objectives import (
    joint_log_probs,
    mean_entropy,
    mean_over_placements,
)
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.validators import check_fields

__all__ = ["Reinforce", "ReinforceConfig"]


@dataclasses.dataclass(frozen=True)
class ReinforceConfig:
    """Settings of REINFORCE, each with its line of help.

    Raises:
        ValueError: a number is outside its range.
    """

    batch_size: Annotated[int, "placements per update (ColocRL: 4 or 8)"] = 8
    entropy_coefficient: Annotated[float, "weight of the mean entropy of a decision"] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, ("batch_size",), lambda value: value > 0, "positive")
        check_fields(
            self, ("entropy_coefficient",), lambda value: 0 <= value < math.inf, "at least 0"
        )


class Reinforce(Algorithm):
    """An algorithm of one step per batch, with a bonus for entropy.

    Minimizes -mean(advantage * log p(placement)) - coefficient * mean entropy, where p is the joint
    probability of all decisions for a placement. The entropy is the mean over the decisions of a
    set, summed over the sets.
    """

    def __init__(self, agent: Agent, optimizer: Optimizer, config: ReinforceConfig) -> None:
        """Creates an algorithm for an agent.

        Args:
            agent: the agent to train.
            optimizer: the optimizer of that agent.
            config: settings.
        """
        self.batch_size = config.batch_size
        self._entropy_coefficient = config.entropy_coefficient
        self._steps = GradientSteps("reinforce", agent, optimizer, self._loss)

    def learn(self, samples: Samples) -> list[Update]:
        """Performs one step; see `Algorithm.learn`."""
        update = self._steps.run(samples.actions, samples.advantages, samples.counted)
        return [] if update is None else [update]

    def _loss(
        self, now: Decisions, before: Decisions, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        loss = -mean_over_placements(advantages * joint_log_probs(now), weights)
        if self._entropy_coefficient:
            loss -= self._entropy_coefficient * mean_entropy(now, weights)
        return loss
