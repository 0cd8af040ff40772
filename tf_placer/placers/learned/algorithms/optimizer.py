"""The optimizer of an agent's weights, shared by all algorithms that follow gradients.

References:
    Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.validators import check_fields

__all__ = ["Optimizer", "OptimizerConfig"]


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Settings of the optimizer, each with its line of help.

    The defaults are EAGLE's.

    Raises:
        ValueError: a number is outside its range.
    """

    optimizer: Annotated[Literal["adam", "sgd"], "Adam, or plain steps along the gradient"] = "adam"
    learning_rate: Annotated[float, "of the optimizer"] = 0.01
    clip_norm: Annotated[float | None, "largest global norm of a gradient; none for no limit"] = 1.0
    decay_rate: Annotated[float, "factor of learning_rate at each decay; 1 for no decay"] = 1.0
    decay_updates: Annotated[int, "steps of the optimizer between two decays"] = 50
    decay_start: Annotated[int, "steps of the optimizer before the first such interval"] = 0

    def __post_init__(self) -> None:
        names = ("learning_rate", "clip_norm", "decay_updates")
        check_fields(self, names, lambda value: 0 < value < math.inf, "positive")
        check_fields(self, ("decay_rate",), lambda value: 0 < value <= 1, "above 0 and at most 1")
        check_fields(self, ("decay_start",), lambda value: value >= 0, "at least 0")


class Optimizer:
    """Takes steps that make a loss smaller.

    Attributes:
        taken: the gradients of the steps so far, each an array per weight of the agent, for another
            process to take; None, as long as nobody sets it to a list, for no such thing.
    """

    def __init__(self, agent: Agent, config: OptimizerConfig) -> None:
        """Makes the optimizer of an agent.

        Args:
            agent: what is trained; all its weights exist.
            config: settings.
        """
        self.taken: list[list[np.ndarray]] | None = None
        self._variables = list(agent.trainable_variables)
        self._clip_norm = config.clip_norm
        rate: Any = config.learning_rate
        if config.decay_rate < 1:
            rate = _Decay(config)
        optimizers = tf.keras.optimizers
        self._optimizer = (optimizers.Adam if config.optimizer == "adam" else optimizers.SGD)(rate)
        self._optimizer.build(self._variables)

    def minimize(self, loss: tf.Tensor, tape: tf.GradientTape) -> tf.Tensor:
        """Takes a step, unless the gradient is not finite; traceable.

        Back through hundreds of recurrent steps a gradient can grow beyond what float32 holds. One
        such step would make every weight useless for good.

        Args:
            loss: float32 [], of the agent's weights.
            tape: recorded it.

        Returns:
            The global norm of the gradient before clipping, float32 []; where it is not finite,
            weights and optimizer are as before.
        """
        # No gradient, where the loss does not depend on a weight, is one of 0.
        gradients = [
            tf.zeros(variable.shape) if gradient is None else gradient
            for variable, gradient in zip(
                self._variables, tape.gradient(loss, self._variables), strict=True
            )
        ]
        norm = _global_norm(gradients)
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)

        def step() -> tf.Tensor:
            if self.taken is not None:
                tf.numpy_function(self._keep, gradients, [])
            self._optimizer.apply_gradients(zip(gradients, self._variables, strict=True))
            return tf.constant(True)

        tf.cond(tf.math.is_finite(norm), step, lambda: tf.constant(False))
        return norm

    @property
    def state(self) -> list[tf.Variable]:
        """What it remembers from step to step."""
        return list(self._optimizer.variables)

    def apply(self, gradients: Sequence[np.ndarray]) -> None:
        """Takes a step that another process has found.

        Args:
            gradients: one of its `taken`.
        """
        self._optimizer.apply_gradients(
            (tf.constant(gradient), variable)
            for gradient, variable in zip(gradients, self._variables, strict=True)
        )

    def _keep(self, *gradients: np.ndarray) -> None:
        assert self.taken is not None
        self.taken.append([np.array(gradient) for gradient in gradients])


def _global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Computes the norm of all numbers, float32 []; their squares may be too large for float32."""
    norm = tf.linalg.global_norm(gradients)

    def scaled() -> tf.Tensor:
        largest = tf.reduce_max([tf.reduce_max(tf.abs(gradient)) for gradient in gradients])
        return largest * tf.linalg.global_norm([gradient / largest for gradient in gradients])

    return tf.cond(tf.math.is_finite(norm), lambda: norm, scaled)


class _Decay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate falls by a factor after every so many steps, from some step on."""

    def __init__(self, config: OptimizerConfig) -> None:
        super().__init__()
        self._config = config

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        config = self._config
        since = tf.maximum(tf.cast(step, tf.float32) - config.decay_start, 0.0)
        num_decays = tf.floor(since / config.decay_updates)
        return config.learning_rate * tf.pow(config.decay_rate, num_decays)

    def get_config(self) -> dict[str, Any]:
        return {"config": self._config}
