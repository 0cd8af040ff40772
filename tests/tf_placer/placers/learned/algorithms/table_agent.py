"""An agent that is small enough to be worked out by hand, and its mathematics in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Actions, Agent
from tf_placer.placers.learned.algorithms.algorithm import Samples
from tf_placer.placers.learned.algorithms.optimizer import Optimizer, OptimizerConfig
from tf_placer.placers.learned.decisions import DecisionSet
from tf_placer.placers.learned.masking import choose, compute_masked_log_softmax
from tf_placer.placers.learned.noise import gumbel_noise

__all__ = ["TableAgent", "finite_differences", "log_softmax", "new_samples", "plain_steps"]


class TableAgent(Agent):
    """One table of logits per set of decisions; the first set is the placement."""

    def __init__(
        self,
        *tables: np.ndarray,
        legal: np.ndarray | None = None,
        counted: Sequence[np.ndarray] | None = None,
        repeats: bool = False,
    ) -> None:
        """Makes the agent.

        Args:
            *tables: float [num_decisions, num_choices], the logits at first.
            legal: bool, as the first table, where it may choose.
            counted: float [count or 1, num_decisions] per table; all ones if None.
            repeats: whether placements have distributions of their own, all alike.
        """
        super().__init__(name="tables")
        self.num_units, self.num_devices = tables[0].shape
        self._legal = [tf.ones(table.shape, tf.bool) for table in tables]
        if legal is not None:
            self._legal[0] = tf.constant(legal)
        self._counted = [
            tf.constant(each, tf.float32)
            for each in counted or [np.ones([1, len(table)]) for table in tables]
        ]
        self._repeats = repeats
        self._tables = [
            self.add_weight(name=f"table_{i}", shape=table.shape, initializer="zeros")
            for i, table in enumerate(tables)
        ]
        self.built = True
        self.assign(tables)

    def assign(self, tables: Sequence[np.ndarray]) -> None:
        """Sets the logits."""
        for weight, table in zip(self._tables, tables, strict=True):
            weight.assign(tf.constant(table, tf.float32))

    def tables(self) -> list[np.ndarray]:
        """The logits, float64."""
        return [tf.convert_to_tensor(table).numpy().astype(np.float64) for table in self._tables]

    def sample(self, count: int, seed: tf.Tensor) -> Actions:
        actions = []
        for table, legal in zip(self._tables, self._legal, strict=True):
            noise = gumbel_noise(count, seed, table.shape)
            actions.append(choose(tf.convert_to_tensor(table), legal, noise))
        return tuple(actions)

    def decisions(self, actions: Actions) -> tuple[DecisionSet, ...]:
        found = []
        for table, legal, chosen, counted in zip(
            self._tables, self._legal, actions, self._counted, strict=True
        ):
            log_dists = compute_masked_log_softmax(tf.convert_to_tensor(table), legal)[tf.newaxis]
            if self._repeats:
                log_dists = tf.repeat(log_dists, chosen.shape[0], axis=0)
            found.append(DecisionSet(log_dists, chosen, counted))
        return tuple(found)

    def placements(self, actions: Actions) -> np.ndarray:
        return np.asarray(actions[0])


def new_samples(
    *actions: np.ndarray,
    advantages: Sequence[float] | None = None,
    counted: Sequence[bool] | None = None,
    step_secs: Sequence[float] | None = None,
) -> Samples:
    """Samples that count and took a second where nothing else is said."""
    count = len(actions[0])
    return Samples(
        tuple(np.asarray(each, np.int32) for each in actions),
        np.ones(count) if advantages is None else np.asarray(advantages, np.float64),
        np.ones(count, np.bool_) if counted is None else np.asarray(counted),
        np.ones(count) if step_secs is None else np.asarray(step_secs, np.float64),
    )


def plain_steps(agent: Agent, learning_rate: float = 1.0) -> Optimizer:
    """Steps along the gradient, however long."""
    config = OptimizerConfig(optimizer="sgd", learning_rate=learning_rate, clip_norm=None)
    return Optimizer(agent, config)


def log_softmax(table: np.ndarray) -> np.ndarray:
    """float64 [num_decisions, num_choices]."""
    return table - np.log(np.exp(table).sum(axis=1, keepdims=True))


def finite_differences(
    loss: Callable[[list[np.ndarray]], float], tables: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The gradient of a loss by central differences."""
    gradients = [np.zeros_like(table) for table in tables]
    for which, table in enumerate(tables):
        for index in np.ndindex(table.shape):
            losses = []
            for distance in (1e-5, -1e-5):
                moved = [each.copy() for each in tables]
                moved[which][index] += distance
                losses.append(loss(moved))
            gradients[which][index] = (losses[0] - losses[1]) / 2e-5
    return gradients
