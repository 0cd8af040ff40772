"""Deterministic placers and environments, and a small search for a child process.

`python doubles.py LOG MEASURED MAX_TRIALS` runs `run_search`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.budget import Budget
from tf_placer.search.driver import SearchStage, drive
from tf_placer.search.runner import Runner, SequentialRunner
from tf_placer.search.trial_log import Trial, TrialLog

NUM_GROUPS = 6
NUM_DEVICES = 3
ORIGINAL_MEASUREMENT = Measurement((0.09, 0.1, 0.11), setup_secs=0.5)
HEADER = {"graph_fingerprint": "g1", "seed": 0}


def group_graph() -> GroupGraph:
    return GroupGraph(
        names=tuple(f"group{i}" for i in range(NUM_GROUPS)),
        kinds=("operations",) * NUM_GROUPS,
        type_names=("MatMul",),
        type_counts=np.ones((NUM_GROUPS, 1), np.int32),
        output_shapes=(((2, 3),),) * NUM_GROUPS,
        edges=np.array([[i, i + 1] for i in range(NUM_GROUPS - 1)], np.int32),
        edge_bytes=np.full(NUM_GROUPS - 1, 24, np.int64),
        work=np.ones(NUM_GROUPS),
        layers=np.arange(NUM_GROUPS, dtype=np.int32),
    )


def measurement_of(assignment: Sequence[int]) -> Measurement:
    """Makes a measurement that depends on the assignment alone; some are failures."""
    digest = hashlib.sha256(json.dumps([int(device) for device in assignment]).encode()).digest()
    if digest[0] < 40:
        kind = list(FailureKind)[digest[1] % len(FailureKind)]
        return Measurement(failure=Failure(kind, f"{kind.value} of {digest[2]}"), setup_secs=0.1)
    secs = 0.01 + digest[3] / 1000
    return Measurement((secs, secs * 1.1, secs * 0.9), setup_secs=0.2)


class RecordingPlacer(Placer):
    """A placer that records its observations; subclasses define the proposals."""

    def __init__(self, name: str, batch_size: int) -> None:
        super().__init__(group_graph(), np.ones((NUM_GROUPS, NUM_DEVICES), bool))
        self.name = name
        self.batch_size = batch_size
        self.observed: list[tuple[list[list[int]], list[Measurement]]] = []

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        assert placements.dtype == np.int32 and len(placements) == len(measurements)
        self.observed.append((placements.tolist(), list(measurements)))


class ScriptedPlacer(RecordingPlacer):
    """Proposes the given batches, then nothing."""

    def __init__(self, name: str, batches: Sequence[Sequence[Sequence[int]]]) -> None:
        super().__init__(name, max([1, *map(len, batches)]))
        self._batches = batches

    def propose(self, count: int) -> np.ndarray:
        if len(self.observed) >= len(self._batches):
            return np.empty((0, NUM_GROUPS), np.int32)
        return np.array(self._batches[len(self.observed)], np.int32)[:count]


class AdaptivePlacer(RecordingPlacer):
    """Proposes forever; each proposal depends on all observations."""

    def propose(self, count: int) -> np.ndarray:
        observed = [(rows, [m.to_json() for m in ms]) for rows, ms in self.observed]
        digest = hashlib.sha256(json.dumps([self.name, observed]).encode()).digest()
        rng = np.random.default_rng(list(digest))
        return rng.integers(NUM_DEVICES, size=(count, NUM_GROUPS), dtype=np.int32)


class LearningPlacer(Placer):
    """Proposes at random and pretends to learn; its policy is the number of updates."""

    batch_size = 3

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, name: str = "learning"
    ) -> None:
        super().__init__(groups, legal, seed=seed)
        self.name = name
        self._updates: list[UpdateRecord] = []
        self._secs: list[float] = []

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        return self._updates

    def propose(self, count: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, len(self._updates)])
        scores = np.where(self.legal, rng.random([count, *self.legal.shape]), -1)
        return scores.argmax(axis=2).astype(np.int32)

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        ran = [m.median_secs for m in measurements if m.median_secs is not None]
        self._secs += ran
        number = len(self._updates)
        samples = (self._updates[-1].samples if number else 0) + len(measurements)
        self._updates.append(
            update_record(
                number,
                samples=samples,
                best_step_secs=min(self._secs, default=None),
                mean_step_secs=sum(ran) / len(ran) if ran else None,
                failures=len(measurements) - len(ran),
                batch_size=len(measurements),
            )
        )

    def save(self, directory: str | os.PathLike[str]) -> None:
        pathlib.Path(directory, "policy.weights.h5").write_text(str(len(self._updates)))


def update_record(update: int, **changes: object) -> UpdateRecord:
    """Makes an update whose values follow from its number."""
    values: dict[str, object] = {
        "update": update,
        "samples": 10 * (update + 1),
        "kind": "ppo",
        "mean_reward": -1.0 / (update + 1),
        "baseline": -1.5,
        "entropy": 0.5,
        "divergence": 0.01,
        "loss": 0.25,
        "gradient_norm": 2.0,
        "best_step_secs": 0.1,
        "mean_step_secs": 0.2,
        "failures": 1,
        "batch_size": 10,
    }
    return UpdateRecord(**(values | changes))  # type: ignore[arg-type]


class FakeEnvironment:
    """Returns `measurement_of` immediately, and records the requests."""

    def __init__(self, sleep_secs: float = 0.0, measured_path: str | None = None) -> None:
        self.asked: list[tuple[int, ...]] = []
        self._sleep_secs = sleep_secs
        self._measured_path = measured_path

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        assert placements.dtype == np.int32 and placements.ndim == 2
        self.asked += [tuple(row) for row in placements.tolist()]
        if self._measured_path is not None:
            with open(self._measured_path, "a") as file:
                file.write(json.dumps(placements.tolist()) + "\n")
        time.sleep(self._sleep_secs)
        return [measurement_of(row) for row in placements]


class DriftingEnvironment:
    """An environment whose step times follow a "speed", a drift per round and noise per session.

    An assignment has its speed and the rounds (counted from 1) in which it fails:
    {"speed": "1.15", "fails": "2,3", "kind": "timeout"}. A round ends with a restart.
    """

    def __init__(self, seed: int, noise: float = 0.0, sessions_that_fit: int = 99) -> None:
        self._rng = np.random.default_rng(seed)
        self._noise = noise
        self._sessions_that_fit = sessions_that_fit
        self._drift = math.nan  # NaN exposes steps that run before the first restart.
        self._secs: dict[str, float] = {}
        self.round = 0
        self.now_secs = 0.0
        #: "restart", "stop" and the labels that ran steps, in order.
        self.asked: list[str] = []
        #: The labels of each round in the order in which they were opened.
        self.opened: list[list[str]] = []

    def clock(self) -> float:
        return self.now_secs

    def restart(self) -> None:
        self.round += 1
        self.now_secs += 10.0
        self._drift = float(self._rng.uniform(1, 2))
        self._secs = {}
        self.asked.append("restart")
        self.opened.append([])

    def stop(self) -> None:
        self.asked.append("stop")

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        self.opened[-1].append(label)
        if str(self.round) in assignment.get("fails", "").split(","):
            kind = FailureKind(assignment.get("kind", "runtime_error"))
            return Failure(kind, "it failed")
        if len(self._secs) >= self._sessions_that_fit:
            return Failure(FailureKind.OUT_OF_MEMORY, "too much at once")
        noise = math.exp(self._rng.normal(0, self._noise)) if self._noise else 1.0
        self._secs[label] = 0.1 * self._drift * noise / float(assignment.get("speed", "1"))
        return 0.0

    def run_steps(self, label: str, count: int) -> tuple[float, ...] | Failure:
        self.asked.append(label)
        return (self._secs[label],) * count


def drive_placers(
    placers: Sequence[Any],
    runner: Runner,
    log: TrialLog,
    budget: Budget,
    original: Callable[[], Measurement] = lambda: ORIGINAL_MEASUREMENT,
    **options: Any,
) -> list[Trial]:
    """Searches with a stage for each placer, and returns the trials of the log."""
    stages = [SearchStage.of(placer) for placer in placers]
    drive(stages, runner, log, budget, original=original, **options)
    return list(log.trials)


def run_search(log_path: str, measured_path: str, max_trials: int) -> list[Trial]:
    """Runs two short stages and an endless one; each trial takes a few milliseconds."""
    placers = [
        ScriptedPlacer("first", [[[0] * NUM_GROUPS], [[1] * NUM_GROUPS], [[2] * NUM_GROUPS]]),
        ScriptedPlacer("second", [[[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [1] * NUM_GROUPS]]),
        AdaptivePlacer("third", 5),
    ]
    environment = FakeEnvironment(0.003, measured_path)
    with TrialLog(log_path, HEADER) as log:
        budget = Budget(max_trials, 3600.0)
        return drive_placers(placers, SequentialRunner(environment), log, budget)


if __name__ == "__main__":
    run_search(sys.argv[1], sys.argv[2], int(sys.argv[3]))
