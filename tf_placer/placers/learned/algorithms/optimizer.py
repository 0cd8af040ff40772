"""The optimizer of an agent's weights, shared by all gradient-based algorithms.

References:
    Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.validators import check_fields

__all__ = ["Optimizer", "OptimizerConfig"]

T = TypeVar("T")


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
    """The optimizer of an agent's weights.

    Attributes:
        recorded: the gradients of the steps since it was set to a list, each an array per weight of
            the agent, for another process to apply. None, the default, records no gradients.
    """

    def __init__(self, agent: Agent, config: OptimizerConfig) -> None:
        """Creates the optimizer of an agent.

        Args:
            agent: the agent to train; all its weights exist.
            config: settings.
        """
        self.recorded: list[list[np.ndarray]] | None = None
        self._variables = list(agent.trainable_variables)
        plain = {id(variable): rate for variable, rate in agent.plain_steps}
        self._plain_rates = [plain.get(id(variable)) for variable in self._variables]
        self._clip_norm = config.clip_norm
        rate: Any = config.learning_rate
        if config.decay_rate < 1:
            rate = _StepDecay(config)
        optimizers = tf.keras.optimizers
        self._optimizer = (optimizers.Adam if config.optimizer == "adam" else optimizers.SGD)(rate)
        self._optimizer.build(self._select_others(self._variables))

    def minimize(self, loss: tf.Tensor, tape: tf.GradientTape) -> tf.Tensor:
        """Performs a step, unless the gradient is not finite; traceable.

        Through hundreds of recurrent steps a gradient can overflow float32. One such step would
        make all weights NaN.

        Args:
            loss: float32 [], a function of the agent's weights.
            tape: the tape that recorded the loss.

        Returns:
            The global norm of the gradient before clipping, float32 []; where it is not finite,
            weights and optimizer are unchanged.
        """
        # TensorFlow returns None for a weight without influence on the loss: its gradient is 0.
        gradients = [
            tf.zeros(variable.shape) if gradient is None else gradient
            for variable, gradient in zip(
                self._variables, tape.gradient(loss, self._variables), strict=True
            )
        ]
        norm = _global_norm(self._select_others(gradients))
        is_finite = tf.math.is_finite(_global_norm(gradients))
        if self._clip_norm is not None:
            clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
            gradients = [
                each if rate is None else gradient
                for each, gradient, rate in zip(clipped, gradients, self._plain_rates, strict=True)
            ]

        def step() -> tf.Tensor:
            if self.recorded is not None:
                tf.numpy_function(self._record, gradients, [])
            self._apply(gradients)
            return tf.constant(True)

        tf.cond(is_finite, step, lambda: tf.constant(False))
        return norm

    @property
    def state(self) -> list[tf.Variable]:
        """The variables of the optimizer, such as its moments."""
        return list(self._optimizer.variables)

    def apply(self, gradients: Sequence[np.ndarray]) -> None:
        """Applies the gradients of a step of another process.

        Args:
            gradients: an element of `recorded` of that process.
        """
        self._apply([tf.constant(gradient) for gradient in gradients])

    def _apply(self, gradients: Sequence[tf.Tensor]) -> None:
        pairs = list(zip(gradients, self._variables, strict=True))
        self._optimizer.apply_gradients(self._select_others(pairs))
        for rate, (gradient, variable) in zip(self._plain_rates, pairs, strict=True):
            if rate is not None:
                variable.assign_sub(rate * gradient)

    def _select_others(self, each: Sequence[T]) -> list[T]:
        """Selects what belongs to weights without plain steps, of one item per weight."""
        return [item for item, rate in zip(each, self._plain_rates, strict=True) if rate is None]

    def _record(self, *gradients: np.ndarray) -> None:
        assert self.recorded is not None
        self.recorded.append([np.array(gradient) for gradient in gradients])


def _global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Computes the global norm, float32 [], even if the squares overflow float32."""
    norm = tf.linalg.global_norm(gradients)

    def compute_scaled() -> tf.Tensor:
        largest = tf.reduce_max([tf.reduce_max(tf.abs(gradient)) for gradient in gradients])
        return largest * tf.linalg.global_norm([gradient / largest for gradient in gradients])

    return tf.cond(tf.math.is_finite(norm), lambda: norm, compute_scaled)


class _StepDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that decays by a factor at regular intervals, after a delay."""

    def __init__(self, config: OptimizerConfig) -> None:
        super().__init__()
        self._config = config

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        config = self._config
        decaying_steps = tf.maximum(tf.cast(step, tf.float32) - config.decay_start, 0.0)
        num_decays = tf.floor(decaying_steps / config.decay_updates)
        return config.learning_rate * tf.pow(config.decay_rate, num_decays)

    def get_config(self) -> dict[str, Any]:
        return {"config": self._config}
