"""Compiled optimizer steps on one batch of samples, with the statistics of the update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Actions, Agent
from tf_placer.placers.learned.algorithms.algorithm import Update
from tf_placer.placers.learned.algorithms.objectives import (
    mean_entropy,
    mean_over_decisions,
    mean_over_placements,
)
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.decisions import DecisionSet, divergences

__all__ = ["Decisions", "GradientSteps", "Loss"]

#: The decisions of a batch of placements; one set of each kind.
Decisions = tuple[DecisionSet, ...]

#: Computes the loss, float32 [], from the present decisions, the decisions before the update (empty
#: for a loss that does not compare them), and the advantages and weights of the placements, float32
#: [count]. The weights are 0 for ignored placements, and sum to 1.
Loss = Callable[[Decisions, Decisions, tf.Tensor, tf.Tensor], tf.Tensor]


class GradientSteps:
    """Optimizer steps that minimize the loss of a batch."""

    def __init__(
        self,
        kind: str,
        agent: Agent,
        optimizer: Optimizer,
        loss: Loss,
        *,
        num_steps: int = 1,
        compares: bool = False,
    ) -> None:
        """Creates the steps of one algorithm.

        Args:
            kind: `Update.kind` of the updates.
            agent: the agent to train.
            optimizer: the optimizer of that agent.
            loss: traceable.
            num_steps: number of steps per update, each on the whole batch.
            compares: whether the loss compares the decisions with those before the update.
        """
        self._kind = kind
        self._agent = agent
        self._optimizer = optimizer
        self._loss = loss
        self._num_steps = num_steps
        self._compares = compares

    def run(
        self, actions: Sequence[np.ndarray], advantages: np.ndarray, counted: np.ndarray
    ) -> Update | None:
        """Performs one update.

        A step is compiled once per number of placements; a first step that compares is compiled
        separately.

        Args:
            actions: int32 [count, num_decisions] for each set of decisions.
            advantages: float [count].
            counted: bool [count], the placements to learn from.

        Returns:
            Statistics of the update; None if no placement counts. A step whose gradient is not
            finite is skipped, and so are the later ones: they would have the same gradient.
        """
        if not counted.any():
            return None
        chosen = tuple(tf.constant(each, tf.int32) for each in actions)
        # Replace ignored advantages, because 0 times an infinite one is NaN.
        finite_advantages = tf.constant(np.where(counted, advantages, 0.0), tf.float32)
        weights = tf.constant(counted / np.count_nonzero(counted), tf.float32)
        first_loss = reported_norm = math.nan
        before: Decisions = ()
        for step in range(self._num_steps):
            reference = before if self._compares else ()
            loss, norm, decisions = self._step(chosen, reference, finite_advantages, weights)
            if step == 0:
                first_loss, reported_norm, before = float(loss), float(norm), decisions
            if not math.isfinite(float(norm)):
                reported_norm = float(norm)
                break
        after = self._compute_decisions(chosen)
        entropy, divergence = self._compute_statistics(before, after, weights)
        return Update(self._kind, first_loss, reported_norm, float(entropy), float(divergence))

    @tf.function(autograph=False)
    def _step(
        self, actions: Actions, reference: Decisions, advantages: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Decisions]:
        """Performs one step; returns the loss, gradient norm and decisions before the step."""
        with tf.GradientTape() as tape:
            decisions = self._agent.decisions(actions)
            if self._compares and not reference:
                # At the first step, the present decisions are the decisions before the update.
                reference = tf.nest.map_structure(tf.stop_gradient, decisions)
            loss = self._loss(decisions, reference, advantages, weights)
        norm = self._optimizer.minimize(loss, tape)
        return loss, norm, decisions

    @tf.function(autograph=False)
    def _compute_decisions(self, actions: Actions) -> Decisions:
        return self._agent.decisions(actions)

    @tf.function(autograph=False)
    def _compute_statistics(
        self, before: Decisions, after: Decisions, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Averages entropy and divergence over counted decisions; sets have the same weight."""
        divergence = tf.add_n(
            [
                mean_over_placements(
                    mean_over_decisions(divergences(old.log_dists, new), new.counted), weights
                )
                for old, new in zip(before, after, strict=True)
            ]
        )
        return mean_entropy(before, weights) / len(before), divergence / len(before)
