"""A machine as noisy as real ones, in simulated time: to try a verdict ten thousand times.

Every step takes what its graph takes, times what the processes are worth, times how slow the
machine is at that moment, times a little noise of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

__all__ = ["NOISE_MODELS", "NoiseModel", "NoisyMachine"]

# The speed of the machine changes in ticks, and stays as it is after the horizon.
_TICK_SECS, _HORIZON_SECS = 0.05, 400.0
# Opening a session includes its warm-up.
_START_SECS, _OPEN_SECS = 2.0, 0.6
# A drift forgets its earlier value with this time constant.
_DRIFT_SECS = 30.0
# Mean lengths of slow phases and of those between them, which are exponentially distributed.
_SLOW_SECS, _FAST_SECS = 3.0, 9.0
# Processes are fresh for this time.
_FIRST_SECS = 1.0


@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """A model of the disturbances of a machine's steps.

    Attributes:
        process_deviation: of the logarithm of what a session in fresh processes is worth; the ratio
            of two sessions has 1.41 times as much.
        step_deviation: of the logarithm of single steps.
        drift_deviation: of the logarithm of the machine's speed, which wanders.
        slow_factor: how many times as slow the machine is in a slow phase.
        spike_share: which share of the steps is hit by something.
        first_factor: how many times as long a step takes in fresh processes, and the first step of
            a session after another one's turn half as much more.
    """

    process_deviation: float = 0.03
    step_deviation: float = 0.03
    drift_deviation: float = 0.0
    slow_factor: float = 1.0
    spike_share: float = 0.0
    first_factor: float = 1.0


_QUIET = NoiseModel()
_DRIFT = {"drift_deviation": 0.3}
_SLOW = {"slow_factor": 2.0}
_HEAVY = {"spike_share": 0.1}
_FIRST = {"first_factor": 1.1}

NOISE_MODELS: Mapping[str, NoiseModel] = {
    "quiet": _QUIET,
    "drift": NoiseModel(**_DRIFT),
    "slow phases": NoiseModel(**_SLOW),
    "heavy tails": NoiseModel(**_HEAVY),
    "penalty for being first": NoiseModel(**_FIRST),
    "all together": NoiseModel(**_DRIFT, **_SLOW, **_HEAVY, **_FIRST),
}
"""What the tables are made for. Fresh processes differ by 4 % (ratios of two sessions), as was
measured on `local:2` with a language model."""


class NoisyMachine:
    """Runs sessions as `SessionEnvironment` does, in simulated time.

    Attributes:
        now_secs: the time.
    """

    def __init__(self, model: NoiseModel, seed: int, *, step_secs: float = 0.15) -> None:
        """Begins at time 0.

        Args:
            model: what disturbs it.
            seed: of the noise.
            step_secs: what a step of a graph of speed 1 takes.
        """
        self.now_secs = 0.0
        self._model, self._step_secs = model, step_secs
        self._rng = np.random.default_rng(seed)
        self._slowness = self._make_slowness(int(_HORIZON_SECS / _TICK_SECS))
        # Drawing one by one would take most of the time.
        self._normal = self._rng.standard_normal(1 << 12)
        self._uniform = self._rng.random(1 << 12)
        self._drawn = 0
        self._process: dict[str, float] = {}
        self._speed: dict[str, float] = {}
        self._began_secs = 0.0
        self._last: str | None = None

    @property
    def open_labels(self) -> tuple[str, ...]:
        """The labels of the sessions that are open."""
        return tuple(self._process)

    def clock(self) -> float:
        """Tells the time in seconds."""
        return self.now_secs

    def restart(self) -> None:
        """Starts fresh processes."""
        self.now_secs += _START_SECS
        self._process, self._last = {}, None
        self._began_secs = math.inf

    def stop(self) -> None:
        """Ends the processes; no run here is ever canceled."""

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float:
        """Opens a session of a graph whose assignment names how fast it is: {"speed": "1.1"}."""
        self.now_secs += _OPEN_SECS
        self._speed[label] = float(assignment.get("speed", "1"))
        deviation = self._model.process_deviation
        self._process[label] = math.exp(deviation * self._rng.standard_normal())
        return _OPEN_SECS

    def run_steps(self, label: str, count: int) -> tuple[float, ...]:
        """Runs steps of a session, in seconds each."""
        model = self._model
        usual_secs = self._step_secs / self._speed[label] * self._process[label]
        self._began_secs = min(self._began_secs, self.now_secs)
        steps = []
        for number in range(count):
            self._drawn = (self._drawn + 1) % len(self._normal)
            secs = usual_secs * math.exp(model.step_deviation * self._normal[self._drawn])
            secs *= self._slowness[min(int(self.now_secs / _TICK_SECS), len(self._slowness) - 1)]
            if self.now_secs - self._began_secs < _FIRST_SECS:
                secs *= model.first_factor
            if number == 0 and label != self._last:
                secs *= 1.0 + (model.first_factor - 1.0) / 2.0
            uniform = self._uniform[self._drawn]
            if uniform < model.spike_share:
                # Exponentially distributed, as long as a step on average.
                secs *= 1.0 - math.log(max(uniform / model.spike_share, 1e-12))
            steps.append(secs)
            self.now_secs += secs
        self._last = label
        return tuple(steps)

    def _make_slowness(self, ticks: int) -> np.ndarray:
        """Draws how many times as slow the machine is at each tick."""
        model = self._model
        logs = np.zeros(ticks)
        if model.drift_deviation:
            # An Ornstein-Uhlenbeck process, followed in seconds and interpolated.
            per_tick = max(1, round(1.0 / _TICK_SECS))
            keep = math.exp(-1.0 / _DRIFT_SECS)
            noise = self._rng.standard_normal(ticks // per_tick + 2) * model.drift_deviation
            points = [noise[0]]
            for value in noise[1:].tolist():
                points.append(keep * points[-1] + math.sqrt(1.0 - keep * keep) * value)
            logs += np.interp(np.arange(ticks) / per_tick, np.arange(len(points)), points)
        if model.slow_factor != 1.0:
            share = _SLOW_SECS / (_SLOW_SECS + _FAST_SECS)
            is_slow, begin_secs = bool(self._rng.random() < share), 0.0
            while begin_secs < ticks * _TICK_SECS:
                mean_secs = _SLOW_SECS if is_slow else _FAST_SECS
                end_secs = begin_secs + self._rng.exponential(mean_secs)
                if is_slow:
                    span = slice(int(begin_secs / _TICK_SECS), int(end_secs / _TICK_SECS))
                    logs[span] += math.log(model.slow_factor)
                is_slow, begin_secs = not is_slow, end_secs
        return np.exp(logs)
