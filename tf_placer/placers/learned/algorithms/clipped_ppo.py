"""Proximal policy optimization with a clipped ratio.

References:
    Schulman et al., Proximal Policy Optimization Algorithms, 2017, equation 7.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    equation 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Literal

import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update
from tf_placer.placers.learned.algorithms.gradient_steps import Decisions, GradientSteps
from tf_placer.placers.learned.algorithms.objectives import (
    joint_log_probs,
    mean_entropy,
    mean_over_decisions,
    mean_over_placements,
    probability_ratios,
)
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.decisions import DecisionSet, chosen_log_probs
from tf_placer.placers.ranges import check_fields

__all__ = ["ClippedPPO", "ClippedPPOConfig"]


@dataclasses.dataclass(frozen=True)
class ClippedPPOConfig:
    """Settings of clipped PPO, each with its line of help; the defaults are EAGLE's.

    Raises:
        ValueError: a number is outside its range.
    """

    batch_size: Annotated[int, "placements per update"] = 10
    epochs: Annotated[int, "steps per update, each on all placements of the batch"] = 4
    ratio_clip: Annotated[float, "distance from 1 beyond which a ratio gains nothing"] = 0.3
    # The ratio of thousands of decisions leaves the clip range at the first step.
    joint_ratio: Annotated[bool, "one ratio per placement instead of one per decision"] = False
    gain: Annotated[
        Literal["mean", "sum"],
        "how the gains of decisions become that of a placement, where each decision has its ratio",
    ] = "mean"
    entropy_coefficient: Annotated[float, "weight of the mean entropy of a decision"] = 0.01

    def __post_init__(self) -> None:
        check_fields(self, ("batch_size", "epochs"), lambda value: value > 0, "positive")
        check_fields(self, ("ratio_clip",), lambda value: 0 < value < 1, "between 0 and 1")
        check_fields(
            self, ("entropy_coefficient",), lambda value: 0 <= value < math.inf, "at least 0"
        )


class ClippedPPO(Algorithm):
    """An algorithm of several steps per batch, with no gain from large changes of a probability.

    Maximizes min(r * advantage, clip(r) * advantage) over the decisions of a placement, where r is
    the probability of a decision divided by its probability before the update. `gain` "mean" takes
    the mean over the decisions of a set, and the sum over the sets, so that thousands of decisions
    about groups do not outweigh those about devices; "sum" takes the sum over all decisions.
    """

    def __init__(self, agent: Agent, optimizer: Optimizer, config: ClippedPPOConfig) -> None:
        """Creates an algorithm for an agent.

        Args:
            agent: the agent to train.
            optimizer: the optimizer of that agent.
            config: settings.
        """
        self.batch_size = config.batch_size
        self._config = config
        self._steps = GradientSteps(
            "ppo", agent, optimizer, self._loss, num_steps=config.epochs, compares=True
        )

    def learn(self, samples: Samples) -> list[Update]:
        """Performs the steps of one update; see `Algorithm.learn`."""
        update = self._steps.run(samples.actions, samples.advantages, samples.counted)
        return [] if update is None else [update]

    def _loss(
        self, now: Decisions, before: Decisions, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        if self._config.joint_ratio:
            log_ratios = joint_log_probs(now) - joint_log_probs(before)
            gains = self._compute_gains(log_ratios, advantages)
        else:
            gains = tf.add_n(
                [
                    self._sum_gains(new, old, advantages)
                    for new, old in zip(now, before, strict=True)
                ]
            )
        loss = -mean_over_placements(gains, weights)
        if self._config.entropy_coefficient:
            loss -= self._config.entropy_coefficient * mean_entropy(now, weights)
        return loss

    def _sum_gains(self, new: DecisionSet, old: DecisionSet, advantages: tf.Tensor) -> tf.Tensor:
        """Computes the gains of placements by the decisions of one set, float32 [count]."""
        log_ratios = chosen_log_probs(new) - chosen_log_probs(old)
        gains = self._compute_gains(log_ratios, advantages[:, tf.newaxis])
        if self._config.gain == "sum":
            return tf.reduce_sum(gains * new.counted, axis=1)
        return mean_over_decisions(gains, new.counted)

    def _compute_gains(self, log_ratios: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
        ratios = probability_ratios(log_ratios)
        clip = self._config.ratio_clip
        clipped = tf.clip_by_value(ratios, 1 - clip, 1 + clip)
        return tf.minimum(ratios * advantages, clipped * advantages)
