"""From measurements to what a policy learns from: signal, baseline, and which samples count.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.1.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import numpy as np
from absl import logging

from tf_placer.environments.environment import Measurement

__all__ = [
    "MovingAverage",
    "StepAverage",
    "counted_samples",
    "failing_signal_of",
    "square_root_signal",
]

StepAverage = Literal["mean", "median"]


def square_root_signal(
    measurements: Sequence[Measurement], *, failing_signal: float, average: StepAverage = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """The square root of each step time; a failure gives the failing signal instead.

    Warns when a placement that ran has a signal above the failing one, because failing would then
    look better than running.

    Args:
        measurements: what the placements gave.
        failing_signal: signal of a failure, in square roots of seconds.
        average: how the counted steps of a measurement become one step time.

    Returns:
        The signals, float64 [num_measurements], smaller is better, and which placements ran, bool
        [num_measurements].

    Raises:
        ValueError: a step time is negative or not finite.
    """
    signals = np.full(len(measurements), failing_signal, np.float64)
    executed = np.zeros(len(measurements), np.bool_)
    for index, measurement in enumerate(measurements):
        if measurement.step_secs is None:
            continue
        if not all(math.isfinite(secs) and secs >= 0 for secs in measurement.step_secs):
            raise ValueError(f"not step times: {measurement.step_secs}")
        averaged = statistics.fmean if average == "mean" else statistics.median
        signals[index] = math.sqrt(averaged(measurement.step_secs))
        executed[index] = True
    worst = signals.max(initial=0.0)
    if worst > failing_signal:
        logging.warning(
            "A placement that runs has the signal sqrt(%.4g s) = %.4g, above the failing signal "
            "%.4g: failing looks better to the placer. Raise failing_signal.",
            worst**2,
            worst,
            failing_signal,
        )
    return signals, executed


def failing_signal_of(
    measurements: Sequence[Measurement], average: StepAverage = "mean"
) -> float | None:
    """A failing signal for graphs of any step time: twice the worst signal of what ran.

    Args:
        measurements: what placements gave.
        average: how the counted steps of a measurement become one step time.

    Returns:
        In square roots of seconds; None if no placement ran.

    Raises:
        ValueError: a step time is negative or not finite.
    """
    ran = [measurement for measurement in measurements if measurement.step_secs is not None]
    if not ran:
        return None
    signals, _ = square_root_signal(ran, failing_signal=math.inf, average=average)
    return 2.0 * float(signals.max())


@dataclasses.dataclass(frozen=True)
class MovingAverage:
    """An exponential moving average.

    Attributes:
        value: where it is.
        decay: weight of the old value in the new one.
    """

    value: float
    decay: float

    def updated(self, value: float) -> MovingAverage:
        """The average after one more value."""
        return dataclasses.replace(self, value=self.decay * self.value + (1 - self.decay) * value)


def counted_samples(
    executed: np.ndarray, *, num_updates: int, ignore_failures_after: int
) -> np.ndarray:
    """Which samples of a batch contribute to the update and to the baseline.

    All of them at first, so that failing is unlearnt; later only those that ran, because a failure
    that has nothing to do with the placement would throw a trained policy off.

    Args:
        executed: bool [num_samples], which placements ran.
        num_updates: updates applied so far.
        ignore_failures_after: the number of updates from which failures are ignored.

    Returns:
        bool [num_samples].
    """
    return executed if num_updates >= ignore_failures_after else np.ones_like(executed)
