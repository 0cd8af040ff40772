"""What a search in simulation sampled when: few enough of it to draw."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from graph_passes.util.json_records import read_value

__all__ = ["Sample", "SampledSteps"]

# Twice as many as a picture is wide.
_MOST = 4000


@dataclasses.dataclass(frozen=True)
class Sample:
    """A placement that was simulated, or the best so far after that many were.

    Attributes:
        number: how many were simulated when this one was, itself included.
        elapsed_secs: time spent searching until then.
        step_secs: its simulated step; None if it does not fit or may not run.
    """

    number: int
    elapsed_secs: float
    step_secs: float | None

    def to_json(self) -> list[Any]:
        """Makes the JSON form: the fields in order."""
        return [self.number, self.elapsed_secs, self.step_secs]

    @classmethod
    def from_json(cls, value: object) -> Sample:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the value is no sample.
        """
        return cls(*read_value(tuple[int, float, float | None], value, "a sample"))


class SampledSteps:
    """The samples of a search, and the best so far each time that there is a better one.

    Of more than some thousand samples every second, fourth, eighth … is kept; of what is better
    than all before, everything is.
    """

    def __init__(self) -> None:
        """Begins to count time."""
        self._start_secs = time.monotonic()
        self._every = 1
        self._count = 0
        self._samples: list[Sample] = []
        self._best: list[Sample] = []

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Samples in order."""
        return tuple(self._samples)

    @property
    def best(self) -> tuple[Sample, ...]:
        """The best so far, whenever it became better."""
        return tuple(self._best)

    def add(self, step_secs: np.ndarray, feasible: np.ndarray) -> None:
        """Adds a batch that was simulated just now.

        Args:
            step_secs: float64 [num_placements], simulated steps.
            feasible: bool [num_placements], whether each may run.
        """
        elapsed_secs = self._elapsed_secs()
        for secs, fits in zip(step_secs.tolist(), feasible.tolist(), strict=True):
            self._count += 1
            sample = Sample(self._count, elapsed_secs, secs if fits else None)
            if self._count % self._every == 0:
                self._samples.append(sample)
            if fits:
                self._add_best(sample)
        while len(self._samples) > _MOST:
            self._every *= 2
            self._samples = [each for each in self._samples if each.number % self._every == 0]

    def add_best(self, number: int, step_secs: float) -> None:
        """Adds the best so far of a search that shows no more than that.

        Args:
            number: placements that were simulated.
            step_secs: the step of the best of them, which fits.
        """
        self._add_best(Sample(number, self._elapsed_secs(), step_secs))

    def _add_best(self, sample: Sample) -> None:
        assert sample.step_secs is not None
        best_secs = self._best[-1].step_secs if self._best else None
        if best_secs is None or sample.step_secs < best_secs:
            self._best.append(sample)

    def _elapsed_secs(self) -> float:
        return round(time.monotonic() - self._start_secs, 3)
