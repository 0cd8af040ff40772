"""A learned placer: an agent, an algorithm and a reward function."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update
from tf_placer.placers.learned.algorithms.optimizer import Optimizer
from tf_placer.placers.learned.reward import RewardBatch, RewardFunction
from tf_placer.placers.learned.training_values import select_state
from tf_placer.placers.learned.weights_file import compute_max_bytes, write_weights
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord

__all__ = ["WEIGHTS_FILE", "LearnedPlacer", "build_update_record"]

WEIGHTS_FILE = "policy.weights.h5"

# Reset a pretrained policy after this many batches without a placement that runs.
_MAX_FAILED_BATCHES = 4


class LearnedPlacer(Placer):
    """Samples placements from an agent and lets an algorithm make better ones more probable.

    Measured placements are collected until there are `batch_size` of them; then the algorithm
    learns from them. Placement n (counted from 0 over the whole search) is always sampled with
    random numbers of its own, seeded by (seed, n), as row n % batch_size of a batch. So neither the
    proposals nor the learning depend on how the measurements are cut into calls of `observe`.

    Attributes:
        agent: the agent to train.
        algorithm: trains it.
        reward_function: converts measurements to rewards and advantages.
        optimizer: the optimizer of the algorithm; None for an algorithm without gradients.
    """

    def __init__(
        self,
        name: str,
        groups: GroupGraph,
        legal: np.ndarray,
        agent: Agent,
        algorithm: Algorithm,
        reward_function: RewardFunction,
        *,
        optimizer: Optimizer | None = None,
        seed: int = 0,
    ) -> None:
        """Combines the components.

        Args:
            name: the name of the placer in the log.
            groups: see `Placer`.
            legal: see `Placer`.
            agent: an agent for these groups and devices, untrained or pretrained.
            algorithm: trains that agent.
            reward_function: a reward function without a baseline.
            optimizer: the optimizer of the algorithm; None without.
            seed: see `Placer`.

        Raises:
            ValueError: see `Placer`.
        """
        super().__init__(groups, legal, seed=seed)
        self.name = name
        self.agent = agent
        self.batch_size = algorithm.batch_size
        self.algorithm = algorithm
        self.reward_function = reward_function
        self.optimizer = optimizer
        self._num_observed = 0
        self._records: list[UpdateRecord] = []
        self._num_failed_batches = 0
        self._best_secs = np.inf
        self._measurements: list[Measurement] = []
        # The batch that is being measured; sampled on first use.
        self._sampled: tuple[tuple[np.ndarray, ...], np.ndarray] | None = None

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """The updates so far."""
        return self._records

    def propose(self, count: int) -> np.ndarray:
        """Samples from the agent; see `Placer.propose`.

        Proposes at most the rest of a batch, because the next batch depends on the update by this
        one. Never runs out of proposals.
        """
        done = len(self._measurements)
        return self._batch()[1][done : done + count].copy()

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Learns from measured placements; see `Placer.observe`.

        Raises:
            ValueError: there is not one measurement per placement, or a placement is not the one
                that was proposed, so that its decisions are unknown.
        """
        shape = (len(measurements), self.groups.num_groups)
        if placements.shape != shape:
            raise ValueError(f"placements must be {list(shape)}, not {list(placements.shape)}")
        for placement, measurement in zip(placements, measurements, strict=True):
            row = len(self._measurements)
            actions, proposed = self._batch()
            if not np.array_equal(placement, proposed[row]):
                raise ValueError(
                    f"placement {self._num_observed} is not the one that placer {self.name!r} "
                    "proposes there, and it learns from its own only; with other versions of the "
                    "packages it may sample others"
                )
            self._measurements.append(measurement)
            self._num_observed += 1
            if len(self._measurements) == self.batch_size:
                self._learn(actions, self._measurements)
                self._measurements = []
                self._sampled = None

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the weights of the agent, whole or not at all; see `Placer.save`."""
        path = os.path.join(directory, WEIGHTS_FILE)
        write_weights(self.agent.save_weights, path, compute_max_bytes(self.agent.weights))

    def state(self) -> dict[str, np.ndarray]:
        """Copies everything that the observations have changed, except the records of updates.

        Raises:
            ValueError: a part of a batch is observed; its samples are of earlier weights.
        """
        if self._measurements:
            raise ValueError("a placer has a state only between two batches")
        state = {
            "num_observed": np.array(self._num_observed),
            "num_batches": np.array(self.reward_function.num_batches),
            "num_failed_batches": np.array(self._num_failed_batches),
            "best_secs": np.array(self._best_secs),
        }
        state |= {f"reward/{name}": each for name, each in self.reward_function.state().items()}
        state |= {f"algorithm/{name}": each for name, each in self.algorithm.state().items()}
        variables = enumerate(self._variables())
        return state | {f"variable/{number}": np.array(each) for number, each in variables}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets the state, so that the placer goes on as the one that had it.

        Args:
            state: from `state` of a placer that was made in the same way.
        """
        self._num_observed = int(state["num_observed"])
        self._num_failed_batches = int(state["num_failed_batches"])
        self._best_secs = float(state["best_secs"])
        self.reward_function.restore(select_state("reward/", state), int(state["num_batches"]))
        self.algorithm.restore(select_state("algorithm/", state))
        for number, variable in enumerate(self._variables()):
            variable.assign(state[f"variable/{number}"])
        self._measurements, self._sampled = [], None

    def _variables(self) -> list[Any]:
        """Lists the weights and the variables of the optimizer."""
        optimizer = [] if self.optimizer is None else self.optimizer.state
        return [*self.agent.trainable_variables, *optimizer]

    def _batch(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Returns the decisions and the placements of the batch that is being measured."""
        if self._sampled is None:
            first = self._num_observed - len(self._measurements)
            seed = tf.constant([self.seed, first], tf.int64)
            actions = tuple(action.numpy() for action in self.agent.sample(self.batch_size, seed))
            self._sampled = actions, self.agent.placements(actions)
        return self._sampled

    def _learn(self, actions: tuple[np.ndarray, ...], measurements: Sequence[Measurement]) -> None:
        """Learns from one full batch, unless the reward function has no baseline yet."""
        batch = self.reward_function.advantages(measurements)
        if batch is None:
            self._num_failed_batches += 1
            if self._num_failed_batches == _MAX_FAILED_BATCHES:
                self.agent.forget()
            return
        self._best_secs = min(self._best_secs, float(batch.step_secs.min()))
        samples = Samples(actions, batch.advantages, batch.counted, batch.step_secs)
        for update in self.algorithm.learn(samples):
            record = build_update_record(update, batch, len(self._records), self._num_observed)
            best_secs = self._best_secs if np.isfinite(self._best_secs) else None
            self._records.append(dataclasses.replace(record, best_step_secs=best_secs))


def build_update_record(
    update: Update, batch: RewardBatch, number: int, samples: int
) -> UpdateRecord:
    """Builds the record of an update.

    Args:
        update: the results of the algorithm.
        batch: the batch that it learned from.
        number: number of the update, from 0.
        samples: number of placements observed so far.

    Returns:
        The record, whose `best_step_secs` is that of the batch.
    """
    ran = np.isfinite(batch.step_secs)
    return UpdateRecord(
        update=number,
        samples=samples,
        kind=update.kind,
        mean_reward=float(batch.rewards.mean()),
        baseline=float(batch.baseline[-1]),
        entropy=update.entropy,
        divergence=update.divergence,
        loss=update.loss,
        gradient_norm=update.gradient_norm,
        best_step_secs=float(batch.step_secs[ran].min()) if ran.any() else None,
        mean_step_secs=float(batch.step_secs[ran].mean()) if ran.any() else None,
        failures=int(np.count_nonzero(~ran)),
        batch_size=len(ran),
    )
