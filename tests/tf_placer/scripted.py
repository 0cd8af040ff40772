"""Trials, confirmations and an environment with results that a test defines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.confirmation.confirmation import Confirmation, confirm
from tf_placer.confirmation.outcome import Outcome
from tf_placer.confirmation.round_statistics import MOST_ROUNDS
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.inputs.workload import Workload
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.search.config import SearchConfig
from tf_placer.search.trial_log import ORIGINAL, Trial

ORIGINAL_SECS = 0.1


def measurement(secs: float | None) -> Measurement:
    """Makes a measurement of two steps of this time; None makes a failure."""
    if secs is None:
        return Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "it is too large"))
    return Measurement((secs, secs))


def trial(
    index: int,
    assignment: Sequence[int] | None,
    secs: float | None = ORIGINAL_SECS,
    placer: str = "random",
    repeats: int | None = None,
) -> Trial:
    return Trial(
        index=index,
        placer=ORIGINAL if assignment is None else placer,
        batch=0,
        assignment=None if assignment is None else tuple(assignment),
        measurement=measurement(secs),
        repeats=repeats,
        elapsed_secs=float(index),
        time="2024-01-01T00:00:00+00:00",
    )


def confirmation(
    speedups: Mapping[str, float | None],
    noise: float = 0.001,
    original: float | None = 1.0,
    max_secs: float = math.inf,
    most_rounds: int = MOST_ROUNDS,
) -> Confirmation:
    """Simulates a confirmation of candidates with given speed-ups.

    Args:
        speedups: speed-ups by label; None for a candidate that fails.
        noise: relative spread of a candidate's times.
        original: the speed of the original; None if it fails.
        max_secs: time limit in seconds.
        most_rounds: the maximum number of rounds.
    """
    speeds = {ORIGINAL: original, **speedups}
    candidates = {label: {"": str(speed)} for label, speed in speeds.items()}
    return confirm(
        *(_Confirmed(noise), candidates, ORIGINAL), max_secs=max_secs, most_rounds=most_rounds
    )


def run_result(
    outcome: Outcome,
    *,
    confirmed: Confirmation | None = None,
    winner: str | None = None,
    note: str | None = None,
    num_trials: int = 2,
) -> RunResult:
    """Makes the result of a search whose finalists are its first trials."""
    labels = [ORIGINAL] if confirmed is None else [ORIGINAL, *confirmed.comparisons]
    return RunResult(
        outcome=outcome,
        num_trials=num_trials,
        max_trials=100,
        max_secs=60.0,
        winner=winner,
        note=note,
        confirmation=confirmed,
        finalists={label: index for index, label in enumerate(labels)},
        is_complete=True,
    )


def request_directory(
    path: str, workload: Workload, *, config: tf.compat.v1.ConfigProto | None = None, **changes: Any
) -> RunDirectory:
    """Writes a request for a short search on "local:2" with changes of its configuration."""
    directory = RunDirectory(path)
    directory.write_request(workload, search_config(session_config=config, **changes))
    return directory


def search_config(
    *, session_config: tf.compat.v1.ConfigProto | None = None, **changes: Any
) -> SearchConfig:
    """Makes the configuration of a short search on "local:2" whose machine was looked up."""
    values = {
        "machine": find_machine("local:2"),
        "placer": "random",
        "max_trials": 12,
        "max_secs": 60.0,
        "session_config": session_config or tf.compat.v1.ConfigProto(),
    }
    return SearchConfig(**{**values, **changes})


class _Confirmed:
    def __init__(self, noise: float) -> None:
        self._noise = noise
        self._sign = 1
        self._secs: dict[str, float] = {}

    def restart(self) -> None:
        self._sign = -self._sign
        self._secs = {}

    def stop(self) -> None:
        self.restart()

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        if assignment[""] == "None":
            return Failure(FailureKind.OUT_OF_MEMORY, "it is too large")
        noise = 0.0 if label == ORIGINAL else self._sign * self._noise
        self._secs[label] = ORIGINAL_SECS / float(assignment[""]) * (1 + noise)
        return 0.0

    def run_steps(self, label: str, count: int) -> tuple[float, ...] | Failure:
        return (self._secs[label],) * count


@dataclasses.dataclass
class Script:
    """The behavior of a `ScriptedEnvironment`.

    Attributes:
        secs: step time of an assignment by operation; None fails. {} is the original.
        values: the values that an assignment computes.
        measured: the assignment of each session that the search opened.
        confirmed: the assignment of each session that the confirmation opened.
        made: the arguments of every environment, but that of one process on all cores.
        one_process_secs: step time of the original in one process on all cores; None fails.
        timeouts: the time limit when each session of the search was opened, in seconds.
    """

    secs: Callable[[Mapping[str, str]], float | None] = lambda assignment: ORIGINAL_SECS
    values: Callable[[Mapping[str, str]], Any] = lambda assignment: {"loss:0@1": np.float32([1])}
    measured: list[Mapping[str, str]] = dataclasses.field(default_factory=list)
    confirmed: list[Mapping[str, str]] = dataclasses.field(default_factory=list)
    made: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    timeouts: list[float] = dataclasses.field(default_factory=list)
    one_process_secs: float | None = None

    @property
    def placed(self) -> list[Mapping[str, str]]:
        """The placements that the search measured besides the original."""
        return [assignment for assignment in self.measured if assignment]

    def environment(self, graph_path: Any, step: Any, machine: Any, assign: Any, **settings: Any):
        """Replaces the class SessionEnvironment."""
        if machine is not None and machine.spec == "local:1":
            one_process = Script(secs=lambda assignment: self.one_process_secs)
            return _ScriptedEnvironment(one_process, assign, settings["meta_optimizer"])
        self.made.append({"graph_path": graph_path, "step": step, "machine": machine, **settings})
        environment = _ScriptedEnvironment(self, assign, settings["meta_optimizer"])
        environment.timeout_secs = settings.get("timeout_secs", 120.0)
        return environment


class _ScriptedEnvironment:
    timeout_secs: float

    def __init__(self, script: Script, assign: Any, confirms: bool) -> None:
        self._script = script
        self._assign = assign
        self._measured = script.confirmed if confirms else script.measured
        self._open: dict[str, float] = {}

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        return [self.measure_assignment(self._assign(row)) for row in placements]

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        opened = self.open_session("alone", assignment)
        if isinstance(opened, Failure):
            return Measurement(failure=opened)
        return Measurement(self.run_steps("alone", 2))

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        self._measured.append(assignment)
        if self._measured is self._script.measured:
            self._script.timeouts.append(self.timeout_secs)
        secs = self._script.secs(assignment)
        if secs is None:
            return Failure(FailureKind.OUT_OF_MEMORY, "it is too large")
        self._open[label] = secs
        return 0.0

    def has_session(self, label: str) -> bool:
        return label in self._open

    def run_steps(
        self, label: str, count: int, *, timeout_secs: float | None = None
    ) -> tuple[float, ...]:
        return (self._open[label],) * count

    def close_session(self, label: str) -> None:
        self._open.pop(label, None)

    def fetch_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = (), alone: bool = False
    ) -> Any:
        return self._script.values({} if alone else assignment)

    def restart(self) -> None:
        self._open.clear()

    def stop(self) -> None:
        self._open.clear()

    def __enter__(self) -> _ScriptedEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def uses_two_devices(assignment: Mapping[str, str]) -> bool:
    return len(set(assignment.values())) > 1
