"""The training of a learned placer in parts, which different processes may do.

One process holds the weights and applies gradients to them; others sample placements under a copy
of the weights, and compute gradients from what those were measured to be.

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
from tf_placer.placers.learned.learned_placer import LearnedPlacer, record_of
from tf_placer.placers.learned.training_values import Learned, Parameters, Steps

__all__ = ["Training"]

# Random numbers of different controllers are so far apart.
_SEEDS_PER_CONTROLLER = 2**40


class Training:
    """Samples, learns and applies what was learned; keeps nothing from batch to batch."""

    def __init__(self, placer: LearnedPlacer) -> None:
        """Makes the training of a placer.

        Args:
            placer: one that has observed nothing; used for nothing else.
        """
        self._placer = placer
        self._weights: list[Any] = list(placer.agent.trainable_variables)
        self._initial = self._state()

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        return self._placer.batch_size

    def parameters(self) -> Parameters:
        """Copies the weights and the state of the optimizer."""
        optimizer = self._placer.optimizer
        state = [] if optimizer is None else optimizer.state
        return Parameters(_values(self._weights), _values(state))

    def restore(self, parameters: Parameters) -> None:
        """Takes weights and the state of the optimizer.

        Raises:
            ValueError: they are those of another agent.
        """
        _assign(self._weights, parameters.weights)
        if self._placer.optimizer is not None:
            _assign(self._placer.optimizer.state, parameters.optimizer)

    def sample(
        self, parameters: Parameters, controller: int, batch: int
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Samples a batch; the first controller samples what the placer itself would.

        Args:
            parameters: to sample under.
            controller: its number, from 1.
            batch: number of the batch, from 0 for each controller.

        Returns:
            What was decided, int32 [batch_size, num_decisions] for each set of decisions, and the
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
        """Computes what a batch changes.

        Args:
            parameters: that it was sampled under.
            state: of the controller, from its batch before; empty before its first.
            num_updates: how many updates the weights have had.
            actions: what was decided, as `sample` gave it.
            measurements: of its placements.
        """
        self.restore(parameters)
        placer, state = self._placer, state or self._initial
        placer.signal.restore(_below("signal/", state), num_updates)
        placer.algorithm.restore(_below("algorithm/", state))
        batch = placer.signal.advantages(measurements)
        if batch is None:
            return Learned((), self._state(), False), Steps((), None)
        optimizer = placer.optimizer
        if optimizer is not None:
            optimizer.taken = []
        samples = Samples(actions, batch.advantages, batch.counted, batch.step_secs)
        updates = placer.algorithm.learn(samples)
        is_set = any(update.gradient_norm is None for update in updates)
        steps = Steps(
            tuple(optimizer.taken or ()) if optimizer is not None else (),
            _values(self._weights) if is_set else None,
        )
        records = tuple(record_of(update, batch, 0, 0) for update in updates)
        return Learned(records, self._state(), bool(batch.counted.any())), steps

    def apply(self, steps: Steps) -> None:
        """Changes the weights by what was learned from a batch, wherever that was."""
        for gradients in steps.gradients:
            assert self._placer.optimizer is not None
            self._placer.optimizer.apply(gradients)
        if steps.weights is not None:
            _assign(self._weights, steps.weights)

    def save(self, directory: str) -> None:
        """Writes the policy as the placer does; see `Placer.save`."""
        self._placer.save(directory)

    def _state(self) -> dict[str, np.ndarray]:
        signal, algorithm = self._placer.signal.state(), self._placer.algorithm.state()
        state = {f"signal/{name}": value for name, value in signal.items()}
        return state | {f"algorithm/{name}": value for name, value in algorithm.items()}


def _below(start: str, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(start): value for name, value in state.items() if name.startswith(start)
    }


def _values(variables: Sequence[Any]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(variable.numpy()) for variable in variables)


def _assign(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
