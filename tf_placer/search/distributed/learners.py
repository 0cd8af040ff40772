"""The actors of a search with several controllers: the controllers and the parameter server.

One server is enough: at commit 3f2f361, whose processes stored the weights, it became fully busy
only with about 200 controllers of eight workers each and trials of 30 s.

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
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.temporary_directory import temporary_directory

__all__ = ["Controller", "ParameterServer"]


class _Learner:
    """A stateless actor that trains: between two calls another process can replace it."""

    def __init__(self, setup: PlacerSetup) -> None:
        """Makes the placer.

        Args:
            setup: arguments of the placer.
        """
        placer = setup.make_placer()
        if not isinstance(placer, LearnedPlacer):
            raise ValueError(f"placer {setup.name!r} does not learn")
        self._training = Training(placer)

    def ping(self) -> int:
        """Returns the id of the process, even while another method runs."""
        return os.getpid()


class Controller(_Learner):
    """Samples placements, and computes gradients from their measurements."""

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
        """Computes the gradients of a batch; see `Training.learn`."""
        return self._training.learn(parameters, state, num_updates, actions, measurements)


class ParameterServer(_Learner):
    """Applies the gradients of controllers to the weights."""

    def initial(self, parameters: Parameters | None) -> Parameters:
        """Returns the first weights of a search.

        Args:
            parameters: weights from a checkpoint; None to initialize new ones.

        Raises:
            ValueError: the weights are those of another agent.
        """
        if parameters is not None:
            self._training.restore(parameters)
        return self._training.parameters()

    def apply(self, parameters: Parameters, learned: tuple[Learned, Steps]) -> Parameters:
        """Applies the result of `Controller.learn` to weights; see `Training.apply`."""
        self._training.restore(parameters)
        self._training.apply(learned[1])
        return self._training.parameters()

    def policy(self, parameters: Parameters) -> Mapping[str, bytes]:
        """Makes the files of `Placer.save`, by name."""
        self._training.restore(parameters)
        with temporary_directory() as directory:
            self._training.save(directory)
            return {WEIGHTS_FILE: pathlib.Path(directory, WEIGHTS_FILE).read_bytes()}
