"""Measurements of placements alone in a session, as the papers measure them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import SessionEnvironment

__all__ = ["AloneEnvironment"]


class AloneEnvironment:
    """Measures placements, and the original, each alone in a session by the protocol of sessions.

    Nothing tells a slow phase of the machine from a slow placement, so `Measurement.drift` is 1.

    Attributes:
        reference_secs: seconds of a step of the original; None before it is measured, and if it
            does not run.
    """

    def __init__(
        self,
        sessions: SessionEnvironment,
        assign: Callable[[np.ndarray], Mapping[str, str]],
    ) -> None:
        """Prepares the environment without opening a session.

        Args:
            sessions: the environment that runs the steps.
            assign: turns a placement, int32 [num_groups], into device names by operation name.
        """
        self._sessions = sessions
        self._assign = assign
        self.reference_secs: float | None = None

    def measure_original(self) -> Measurement:
        """Measures the original.

        Raises:
            WorkerStartError: the processes do not start.
        """
        measurement = self._sessions.measure_assignment({})
        self.reference_secs = measurement.median_secs
        return measurement

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other; see `PairedEnvironment.measure`."""
        return [self.measure_assignment(self._assign(placement)) for placement in placements]

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        """Measures the graph with the given devices; see `PairedEnvironment.measure_assignment`."""
        return self._sessions.measure_assignment(assignment)
