"""The processes of a search with several controllers: those that sample, and the one with weights.

An update of ColocRL's networks (3.6 million weights) took the server 0.18 s on two cores, and a
controller 0.23 s for sampling and learning (commit 3f2f361): with trials of 30 s and controllers of
eight workers the server is busy all the time from about 200 controllers on.

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
    """What both kinds of processes have."""

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
    """Samples placements, and computes gradients from what they were measured to be.

    It keeps nothing from call to call but the last steps, so another one can take its place.
    """

    def __init__(self, setup: PlacerSetup) -> None:
        """Makes the placer; see `_Learner`."""
        super().__init__(setup)
        self._steps: Steps | None = None

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
    ) -> Learned:
        """Computes what a batch changes, which `steps` gives; see `Training.learn`."""
        learned, self._steps = self._training.learn(
            parameters, state, num_updates, actions, measurements
        )
        return learned

    def steps(self) -> Steps:
        """Gives what `learn` computed, for the parameter server: it is large.

        Raises:
            RuntimeError: nothing was learned.
        """
        if self._steps is None:
            raise RuntimeError("the controller has learned nothing")
        return self._steps


class ParameterServer(_Learner):
    """Holds the weights of the controllers, and nothing else."""

    def restore(self, parameters: Parameters | None) -> int:
        """Takes the weights of another parameter server; None for the initial ones.

        Returns:
            The id of its process.
        """
        if parameters is not None:
            self._training.restore(parameters)
        return self.ping()

    def apply(self, steps: Steps) -> None:
        """Applies what a controller has computed; see `Training.apply`."""
        self._training.apply(steps)

    def parameters(self) -> Parameters:
        """Copies the weights."""
        return self._training.parameters()

    def policy(self) -> Mapping[str, bytes]:
        """Gives the files that `Placer.save` writes, by name."""
        with scratch_directory() as directory:
            self._training.save(directory)
            return {WEIGHTS_FILE: pathlib.Path(directory, WEIGHTS_FILE).read_bytes()}
