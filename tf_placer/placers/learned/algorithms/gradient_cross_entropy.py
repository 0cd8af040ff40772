"""Cross-entropy minimization by gradient, for policies that are networks.

References:
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models, PPO
    and cross-entropy minimization. The paper gives neither loss nor number of steps; the loss is
    equation 9 of Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal
    Policy Optimization, NeurIPS 2018.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Samples, Update
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm, Sample
from tf_placer.placers.learned.algorithms.gradient_steps import Decisions, GradientSteps
from tf_placer.placers.learned.algorithms.objectives import joint_log_probs, mean_over_placements
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.validators import check_fields

__all__ = ["GradientCrossEntropy", "GradientCrossEntropyConfig"]


@dataclasses.dataclass(frozen=True)
class GradientCrossEntropyConfig:
    """Settings of cross-entropy minimization by gradient, each with its line of help.

    The defaults are EAGLE's, except `ce_steps`, which the paper does not give.

    Raises:
        ValueError: a number is outside its range.
    """

    ce_samples: Annotated[int, "samples per cross-entropy update"] = 50
    elites: Annotated[int, "best of all samples so far that it learns from"] = 5
    ce_steps: Annotated[int, "steps of the optimizer per cross-entropy update"] = 4

    def __post_init__(self) -> None:
        names = ("ce_samples", "elites", "ce_steps")
        check_fields(self, names, lambda value: value > 0, "positive")


class GradientCrossEntropy(EliteAlgorithm):
    """An algorithm that maximizes the mean log-probability of the elites of all samples so far.

    The elites are the fastest samples, the earlier of equals, without failures. All their decisions
    are stored, those about groups included.
    """

    def __init__(
        self, agent: Agent, optimizer: Optimizer, config: GradientCrossEntropyConfig
    ) -> None:
        """Creates an algorithm for an agent.

        Args:
            agent: the agent to train.
            optimizer: the optimizer of that agent.
            config: settings.
        """
        super().__init__(config.ce_samples)
        self._num_elites = config.elites
        self._elites: list[tuple[float, tuple[np.ndarray, ...]]] = []
        self._steps = GradientSteps("ce", agent, optimizer, _loss, num_steps=config.ce_steps)

    def update(self) -> list[Update]:
        """Performs the steps of one update; see `EliteAlgorithm.update`."""
        if not self._elites:
            return []
        # Copies that do not count pad the batch: each batch size would be compiled anew.
        missing = self._num_elites - len(self._elites)
        padded = [actions for _, actions in self._elites + self._elites[:1] * missing]
        batch = [np.stack(rows) for rows in zip(*padded, strict=True)]
        counted = np.arange(self._num_elites) < len(self._elites)
        update = self._steps.run(batch, np.ones(self._num_elites), counted)
        return [] if update is None else [update]

    def _add(self, samples: Samples) -> None:
        for index in np.flatnonzero(np.isfinite(samples.step_secs)):
            rows = tuple(actions[index].copy() for actions in samples.actions)
            self._elites.append((float(samples.step_secs[index]), rows))
        self._elites = sorted(self._elites, key=lambda elite: elite[0])[: self._num_elites]

    def _list_samples(self) -> list[Sample]:
        return self._elites

    def _set_samples(self, samples: list[Sample]) -> None:
        self._elites = list(samples)


def _loss(
    now: Decisions, before: Decisions, advantages: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    return -mean_over_placements(joint_log_probs(now), weights)
