"""The processes of a search with several controllers: those that learn, and the parameter server.

The server has little to do: measured at commit 3f2f361, whose processes kept the weights, it was
busy all the time from about 200 controllers of eight workers on, with trials of 30 s.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.3.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.placers.learned.learned_placer import WEIGHTS_FILE, LearnedPlacer
from tf_placer.placers.learned.training import Training
from tf_placer.placers.learned.training_values import Learned, Parameters, Steps
from tf_placer.scratch import scratch_directory
from tf_placer.search.distributed.placer_setup import PlacerSetup

__all__ = ["Controller", "ParameterServer"]


class _Learner:
    """A process that trains and keeps nothing from call to call: another can take its place."""

    def __init__(self, setup: PlacerSetup) -> None:
        """Makes the placer.

        Args:
            setup: which placer.
        """
        placer = setup.make_placer()
        if not isinstance(placer, LearnedPlacer):
            raise ValueError(f"placer {setup.name!r} does not learn")
        self._training = Training(placer)

    def ping(self) -> int:
        """Answers with the id of its process, also while something else runs."""
        return os.getpid()


class Controller(_Learner):
    """Samples placements, and computes gradients from what they were measured to be."""

    def sample(
        self, parameters: Parameters, controller: int, batch: int
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Samples a batch; see `Training.sample`."""
        return self._training.sample(parameters, controller, batch)

    def learn(
        self,
        parameters: Parameters,
        state: Mapping[str, np.ndarray],
        num_updates: int,
        actions: tuple[np.ndarray, ...],
        measurements: Sequence[Measurement],
    ) -> tuple[Learned, Steps]:
        """Computes what a batch changes; see `Training.learn`."""
        return self._training.learn(parameters, state, num_updates, actions, measurements)


class ParameterServer(_Learner):
    """Applies to the weights what controllers have learned."""

    def initial(self, parameters: Parameters | None) -> Parameters:
        """Gives the weights to begin with.

        Args:
            parameters: those of an earlier search; None for initial ones.

        Raises:
            ValueError: they are those of another agent.
        """
        if parameters is not None:
            self._training.restore(parameters)
        return self._training.parameters()

    def apply(self, parameters: Parameters, learned: tuple[Learned, Steps]) -> Parameters:
        """Changes weights by what `Controller.learn` has computed; see `Training.apply`."""
        self._training.restore(parameters)
        self._training.apply(learned[1])
        return self._training.parameters()

    def policy(self, parameters: Parameters) -> Mapping[str, bytes]:
        """Makes the files that `Placer.save` writes, by name."""
        self._training.restore(parameters)
        with scratch_directory() as directory:
            self._training.save(directory)
            return {WEIGHTS_FILE: pathlib.Path(directory, WEIGHTS_FILE).read_bytes()}
