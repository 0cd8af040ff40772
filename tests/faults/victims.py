"""Searches that are killed and disturbed, and what must be true of them when they have ended."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.faults.fault import NODES, PAUSES, SIGNALS, Fault, faults_of
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.search.simulated_search import SIMULATED_TRIALS
from tf_placer.search.training_log import read_training_log
from tf_placer.search.trial_log import Trial, read_log
from tf_placer.simulation.simulator import Simulator

__all__ = ["VICTIMS", "Victim"]

Command = Callable[[pathlib.Path, int], list[str]]

# Values that differ between two runs of one search.
_TIMES = ("elapsed_secs", "time", "step_secs_mean", "command", "interrupted")
_NUM_GROUPS, _LIVE_TRIALS, _CONTROLLED_TRIALS = 12, 10, 150
# A wait of a minute where nothing happens; the confirmation has many rounds.
_STALLED = re.compile(r"still (?!confirming).*: [^;]*\d min[^;]* so far")
# Keeps a log and does nothing else. A program that is to be killed says nothing of it.
_LOGGED = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
from tests.tf_placer import doubles
doubles.run_search(*sys.argv[1:], 60)
"""


@dataclasses.dataclass(frozen=True)
class Victim:
    """A search that can be killed and started again.

    Attributes:
        name: what it is called.
        share: how often it is chosen, in relation to others.
        command: by a directory that is its own, and a number, the arguments of Python.
        usual_secs: about how long it takes where nobody kills it.
        problem: finds out what is wrong when it has ended, by directory, number and output; "" if
            nothing is.
        faults: what may be done to it.
        by_ray: whether it needs Ray.
        on_nodes: whether it needs a cluster of several nodes.
    """

    name: str
    share: float
    command: Command
    usual_secs: float
    problem: Callable[[pathlib.Path, int, str], str]
    faults: Sequence[Fault] = SIGNALS
    by_ray: bool = False
    on_nodes: bool = False

    @property
    def is_here(self) -> bool:
        """True if the packages it needs are installed."""
        return not self.by_ray or importlib.util.find_spec("ray") is not None

    @property
    def orphan_secs(self) -> float:
        """The time its processes may need to end after it: some of Ray's wait for a minute."""
        return 100.0 if self.by_ray else 20.0


def _log_command(directory: pathlib.Path, number: int) -> list[str]:
    del number
    return ["-c", _LOGGED, f"{directory}/run/trials.jsonl", f"{directory}/measured"]


def _problem(number: int) -> PlacementProblem:
    return build_layered_problem(_NUM_GROUPS, 3, number)


def _search(*options: str) -> Command:
    """Makes the command `search` of a problem that hangs on the number."""

    def command(directory: pathlib.Path, number: int) -> list[str]:
        path = directory / "problem.json"
        if not path.exists():
            write_problem(_problem(number), path)
        return [
            *("-m", "tf_placer", "search", f"--problem={path}", f"--output={directory}/out.json"),
            *(f"--log_dir={directory}/run", *options),
        ]

    return command


def _optimize(*options: str) -> Command:
    """Makes the command `optimize` of a small graph."""

    def command(directory: pathlib.Path, number: int) -> list[str]:
        path = directory / "graph.pb"
        if not path.exists():
            path.write_bytes(_graph())
        return [
            *("-m", "tf_placer", "optimize", f"--input_graph={path}", "--fetches=result"),
            *(f"--output_graph={directory}/placed.pb", f"--log_dir={directory}/run"),
            *("--machine=local:2", "--placer=hill_climbing", f"--seed={number}"),
            *(f"--max_trials={_LIVE_TRIALS}", *options),
        ]

    return command


@functools.cache
def _graph() -> bytes:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.constant(np.ones([16, 16], np.float32) / 16.0)
        left, right = x, 0.5 * x
        for _ in range(4):
            left, right = tf.matmul(left, x), tf.tanh(tf.matmul(right, x))
        tf.reduce_sum(left + right, name="result")
    content: bytes = graph.as_graph_def().SerializeToString()
    return content


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_times(each) for key, each in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    return value


def _read_written(directory: pathlib.Path) -> dict[str, Any]:
    """Reads what a search in simulation has written, without what differs from run to run."""
    names = ("out.json", "run/result.json", "run/trials.jsonl", "run/training.jsonl")
    found: dict[str, Any] = {}
    for path in (directory / name for name in names):
        if path.exists():
            # A header says when and by which command it was written.
            lines = path.read_text().splitlines()[1 if path.suffix == ".jsonl" else 0 :]
            texts = lines if path.suffix == ".jsonl" else ["\n".join(lines)]
            found[path.name] = [_without_times(json.loads(text)) for text in texts]
    return found


@functools.cache
def _unbroken(command: Command, number: int) -> dict[str, Any]:
    """Runs a search that nobody kills, and returns what it wrote."""
    with tempfile.TemporaryDirectory() as outside:
        called = [sys.executable, *command(pathlib.Path(outside), number)]
        subprocess.run(called, check=True, capture_output=True)
        return _read_written(pathlib.Path(outside))


def _deterministic(
    name: str, share: float, command: Command, usual_secs: float, **more: Any
) -> Victim:
    """Makes a search that has the same end however often it is killed."""

    def problem(directory: pathlib.Path, number: int, output: str) -> str:
        del output
        expected, written = _unbroken(command, number), _read_written(directory)
        names = expected.keys() | written.keys()
        wrong = sorted(each for each in names if expected.get(each) != written.get(each))
        return f"{wrong[0]} is not that of an unbroken search" if wrong else ""

    return Victim(name, share, command, usual_secs, problem, **more)


def _first(*checks: tuple[bool, str]) -> str:
    """Gives the words of the first thing that is wrong; "" for none."""
    return next((words for is_wrong, words in checks if is_wrong), "")


def _find_repeated(trials: Sequence[Trial]) -> tuple[bool, str]:
    """Says whether a placement was measured twice."""
    measured = collections.Counter(each.assignment for each in trials if each.repeats is None)
    twice = [assignment for assignment, count in measured.items() if count > 1]
    return bool(twice), f"measured twice: {twice}"


def _check_optimized(directory: pathlib.Path, number: int, output: str) -> str:
    del number
    _, trials = read_log(directory / "run/trials.jsonl")
    result = json.loads((directory / "run/result.json").read_text())
    outcome, is_placed = result["outcome"], (directory / "run/placement.json").exists()
    return _first(
        (len(trials) != _LIVE_TRIALS, f"{len(trials)} trials in the log"),
        (result["num_trials"] != _LIVE_TRIALS, f"{result['num_trials']} trials in the result"),
        (any(each.measurement.failure for each in trials), "a trial failed"),
        (not result["is_complete"], "the result is not complete"),
        (outcome not in ("faster", "not_faster", "not_confirmed"), f"outcome {outcome}"),
        ((outcome == "faster") != is_placed, "placement.json is not what the result says"),
        (not re.search("placed - |unchanged - |no verdict - ", output), "no verdict is printed"),
        (not (directory / "placed.pb").exists(), "there is no output graph"),
        _find_repeated(trials),
    )


def _check_optimized_here(directory: pathlib.Path, number: int, output: str) -> str:
    stalled = _STALLED.search(output)
    return f"it waited: {stalled[0]}" if stalled else _check_optimized(directory, number, output)


def _check_controlled(directory: pathlib.Path, number: int, output: str) -> str:
    """Looks at a search by controllers, which differs from run to run."""
    del output
    _, trials = read_log(directory / "run" / SIMULATED_TRIALS)
    result = json.loads((directory / "out.json").read_text())
    rows = np.array([trial.assignment or [0] * _NUM_GROUPS for trial in trials], np.int32)
    secs = Simulator(_problem(number)).simulate(rows).step_secs.tolist()
    places = [(trial.controller, trial.batch, trial.position) for trial in trials[1:]]
    _, updates = read_training_log(directory / "run")
    # An algorithm may update twice after a batch.
    samples = {update.samples: update.batch_size for update in updates}
    ages = [-1 if update.staleness is None else update.staleness for update in updates]
    return _first(
        (len(trials) != _CONTROLLED_TRIALS, f"{len(trials)} trials in the log"),
        (result["trials"] != _CONTROLLED_TRIALS, f"{result['trials']} trials in the result"),
        ([each.measurement.median_secs for each in trials] != secs, "a trial has a wrong time"),
        (result["step_secs"] != min(secs), "the result is not the best trial"),
        (len(places) != len(set(places)), "two trials have one place in a batch of a controller"),
        (not 0 < max(samples, default=0) < len(trials), "updates are of other samples than trials"),
        (sum(samples.values()) != max(samples, default=0), "updates are missing, or there twice"),
        (min(ages, default=0) < 0, "an update was of weights that were not there yet"),
        _find_repeated(trials[1:]),
    )


_AUTO = ("--placer=auto", "--max_trials=3000")
_CONTROLLED = (
    *("--placer=post", "--placer_option=batch_size=4", "--placer_option=ce_samples=8"),
    *("--workers=ray", "--controllers=2", f"--max_trials={_CONTROLLED_TRIALS}"),
)
# Processes of a live search; those that are made of a template have its command line.
_LIVE = r"tf_placer\.(fork_server|environments\.worker|machines\.local_server)"

#: The searches that are disturbed.
VICTIMS: tuple[Victim, ...] = (
    _deterministic("log of trials", 0.5, _log_command, 0.5),
    _deterministic(
        "search by hill climbing", 0.15, _search("--placer=hill_climbing", "--max_trials=5000"), 0.8
    ),
    _deterministic("search by auto", 0.13, _search(*_AUTO), 1.5),
    _deterministic(
        "search by a policy that learns", 0.04, _search("--placer=colocrl", "--max_trials=40"), 6.0
    ),
    Victim(
        "optimize on local:2",
        0.1,
        _optimize(),
        20.0,
        _check_optimized_here,
        faults=(*SIGNALS, *faults_of(_LIVE, "process") * 2),
    ),
    _deterministic(
        "search by workers of Ray",
        0.02,
        _search(*_AUTO, "--workers=ray", "--num_workers=2"),
        8.0,
        faults=(*SIGNALS, *PAUSES, *faults_of("ray::IslandWorker", "worker", is_far=True)),
        by_ray=True,
    ),
    Victim(
        "search by controllers of Ray",
        0.02,
        _search(*_CONTROLLED),
        15.0,
        _check_controlled,
        faults=(
            *SIGNALS,
            *PAUSES,
            *faults_of("ray::Controller", "controller", is_far=True) * 2,
            *faults_of("ray::ParameterServer", "parameter server", is_far=True) * 2,
        ),
        by_ray=True,
    ),
    Victim(
        "optimize on nodes of Ray",
        0.02,
        _optimize("--workers=auto", "--num_workers=1"),
        30.0,
        _check_optimized,
        faults=(
            *SIGNALS,
            *PAUSES,
            *faults_of("ray::MeasuringWorker", "worker", is_far=True) * 2,
            *faults_of(NODES, "node", is_far=True) * 2,
        ),
        by_ray=True,
        on_nodes=True,
    ),
)
