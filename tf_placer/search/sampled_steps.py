"""Down-sampled step times of a simulated search, for plotting."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from graph_passes.util.json_records import read_value

__all__ = ["Sample", "SampledSteps"]

# A picture is about half as many pixels wide.
_MAX_SAMPLES = 4000


@dataclasses.dataclass(frozen=True)
class Sample:
    """A simulated placement, or the best one so far.

    Attributes:
        number: the number of placements simulated until then, including this one.
        elapsed_secs: time spent searching until then.
        step_secs: the simulated step time; None if the placement does not fit or is not legal.
    """

    number: int
    elapsed_secs: float
    step_secs: float | None

    def to_json(self) -> list[Any]:
        """Makes the JSON form: the fields in order."""
        return [self.number, self.elapsed_secs, self.step_secs]

    @classmethod
    def from_json(cls, value: object) -> Sample:
        """Makes a sample from its JSON form.

        Raises:
            ValueError: the value is no sample.
        """
        return cls(*read_value(tuple[int, float, float | None], value, "a sample"))


class SampledSteps:
    """The samples of a search, and every improvement of the best one.

    If there are more than a few thousand samples, only every second, fourth, eighth … is kept.
    Improvements are all kept.

    Attributes:
        num_failed: the number of placements so far that do not fit or are not legal.
    """

    def __init__(self) -> None:
        """Starts the clock; see `start`."""
        self.start()
        self._every = 1
        self._count = 0
        self._samples: list[Sample] = []
        self._best: list[Sample] = []
        self.num_failed = 0

    def start(self) -> None:
        """Starts the clock of the search, before the first sample."""
        self._start_secs = time.monotonic()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples in order."""
        return tuple(self._samples)

    @property
    def best(self) -> tuple[Sample, ...]:
        """The improvements of the best sample, in order."""
        return tuple(self._best)

    def add(self, step_secs: np.ndarray, feasible: np.ndarray) -> None:
        """Adds a batch that was just simulated.

        Args:
            step_secs: float64 [num_placements], simulated step times.
            feasible: bool [num_placements], whether each placement is feasible.
        """
        elapsed_secs = self._measure_elapsed()
        self.num_failed += int(np.count_nonzero(~feasible))
        for secs, fits in zip(step_secs.tolist(), feasible.tolist(), strict=True):
            self._count += 1
            sample = Sample(self._count, elapsed_secs, secs if fits else None)
            if self._count % self._every == 0:
                self._samples.append(sample)
            if fits:
                self._add_best(sample)
        while len(self._samples) > _MAX_SAMPLES:
            self._every *= 2
            self._samples = [each for each in self._samples if each.number % self._every == 0]

    def add_best(self, number: int, step_secs: float) -> None:
        """Adds the best placement so far of a search that reports no others.

        Args:
            number: the number of placements simulated so far.
            step_secs: the step time of the best of them, which is feasible.
        """
        self._add_best(Sample(number, self._measure_elapsed(), step_secs))

    def _add_best(self, sample: Sample) -> None:
        assert sample.step_secs is not None
        best_secs = self._best[-1].step_secs if self._best else None
        if best_secs is None or sample.step_secs < best_secs:
            self._best.append(sample)

    def _measure_elapsed(self) -> float:
        return round(time.monotonic() - self._start_secs, 3)
