"""The training of a learned placer, divided among processes.

One process holds the weights and applies gradients to them. Controllers sample placements with a
copy of the weights, and compute gradients from the measurements.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.environments.environment import Measurement
from tf_placer.placers.learned.algorithms.algorithm import Samples
from tf_placer.placers.learned.learned_placer import LearnedPlacer, build_update_record
from tf_placer.placers.learned.training_values import Learned, Parameters, Steps, select_state

__all__ = ["Training"]

# Keeps the random numbers of controllers disjoint: no search samples as many placements.
_SEEDS_PER_CONTROLLER = 2**40


class Training:
    """The parts of training a placer: sampling, learning, and applying gradients.

    No state stays here from batch to batch; the caller passes it.
    """

    def __init__(self, placer: LearnedPlacer) -> None:
        """Prepares the training of a placer.

        Args:
            placer: without observations, and without other users.
        """
        self._placer = placer
        self._weights: list[Any] = list(placer.agent.trainable_variables)
        self._initial = self._state()

    @property
    def batch_size(self) -> int:
        """The number of samples per batch."""
        return self._placer.batch_size

    def parameters(self) -> Parameters:
        """Copies the weights and the state of the optimizer."""
        optimizer = self._placer.optimizer
        state = [] if optimizer is None else optimizer.state
        return Parameters(_read(self._weights), _read(state))

    def restore(self, parameters: Parameters) -> None:
        """Sets the weights and the state of the optimizer.

        Raises:
            ValueError: the parameters belong to another agent.
        """
        _assign(self._weights, parameters.weights)
        if self._placer.optimizer is not None:
            _assign(self._placer.optimizer.state, parameters.optimizer)

    def sample(
        self, parameters: Parameters, controller: int, batch: int
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Samples a batch. The first controller samples the same placements as the placer itself.

        Args:
            parameters: weights to sample with.
            controller: number of the controller, from 1.
            batch: number of the batch, from 0 for each controller.

        Returns:
            The decisions, int32 [batch_size, num_decisions] for each set of decisions, and the
            placements, int32 [batch_size, num_units].
        """
        self.restore(parameters)
        first = (controller - 1) * _SEEDS_PER_CONTROLLER + batch * self.batch_size
        seed = tf.constant([self._placer.seed, first], tf.int64)
        agent = self._placer.agent
        actions = tuple(action.numpy() for action in agent.sample(self.batch_size, seed))
        return actions, agent.placements(actions)

    def learn(
        self,
        parameters: Parameters,
        state: Mapping[str, np.ndarray],
        num_updates: int,
        actions: tuple[np.ndarray, ...],
        measurements: Sequence[Measurement],
    ) -> tuple[Learned, Steps]:
        """Computes the gradients of a batch and the next state of its controller.

        Args:
            parameters: the weights with which the batch was sampled.
            state: `state` of the controller's previous batch; empty before its first one.
            num_updates: number of updates of the weights so far.
            actions: the decisions, from `sample`.
            measurements: of the placements from `sample`.
        """
        self.restore(parameters)
        placer, state = self._placer, state or self._initial
        placer.reward_function.restore(select_state("signal/", state), num_updates)
        placer.algorithm.restore(select_state("algorithm/", state))
        batch = placer.reward_function.advantages(measurements)
        if batch is None:
            return Learned((), self._state(), False), Steps((), None)
        optimizer = placer.optimizer
        if optimizer is not None:
            optimizer.recorded = []
        samples = Samples(actions, batch.advantages, batch.counted, batch.step_secs)
        updates = placer.algorithm.learn(samples)
        is_set = any(update.gradient_norm is None for update in updates)
        steps = Steps(
            tuple(optimizer.recorded or ()) if optimizer is not None else (),
            _read(self._weights) if is_set else None,
        )
        records = tuple(build_update_record(update, batch, 0, 0) for update in updates)
        return Learned(records, self._state(), bool(batch.counted.any())), steps

    def apply(self, steps: Steps) -> None:
        """Applies the gradients or weights that any process learned from a batch."""
        for gradients in steps.gradients:
            assert self._placer.optimizer is not None
            self._placer.optimizer.apply(gradients)
        if steps.weights is not None:
            _assign(self._weights, steps.weights)

    def save(self, directory: str) -> None:
        """Writes the policy; see `Placer.save`."""
        self._placer.save(directory)

    def _state(self) -> dict[str, np.ndarray]:
        rewards, algorithm = self._placer.reward_function.state(), self._placer.algorithm.state()
        state = {f"signal/{name}": value for name, value in rewards.items()}
        return state | {f"algorithm/{name}": value for name, value in algorithm.items()}


def _read(variables: Sequence[Any]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(variable.numpy()) for variable in variables)


def _assign(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
