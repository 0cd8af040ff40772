"""Searches that a campaign kills, and what must be true of them when they have ended."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.search_quality.random_steps import random_step
from tf_placer.problem.problem_file import write_problem
from tf_placer.search.distributed.controlled_search import SIMULATED_TRIALS
from tf_placer.search.training_log import read_training_log
from tf_placer.search.trial_log import Trial, read_log

__all__ = ["VICTIMS", "Victim"]

# What differs between two runs of one search.
_TIMES = ("elapsed_secs", "time", "step_secs_mean", "command", "interrupted")
_LIVE_TRIALS = 10
_LEARNED_TRIALS = 40
_LOOP_TRIALS = 60
_CONTROLLED_TRIALS = 150
# A training script that knows nothing of placements, with as little to compute as can be.
_SCRIPT = """\
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [8, 16], name="x")
w, v = tf.get_variable("w", [16, 16]), tf.get_variable("v", [16, 16])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + tf.tanh(tf.matmul(x, v))))
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(20):
        value, _ = session.run([loss, train], {x: np.ones([8, 16], np.float32)})
print("trained", bool(np.isfinite(value)))
"""


@dataclasses.dataclass(frozen=True)
class Victim:
    """A search that can be killed and started again.

    Attributes:
        name: what it is called.
        share: of the kills.
        command: by a directory that is its own, and a number, the arguments of Python.
        usual_secs: about how long it takes where nobody kills it.
        lines: about how many lines it prints while it searches.
        problem: finds out what is wrong when it has ended, by directory, number and output; "" if
            nothing is.
        needs: a package that must be there.
        orphan_secs: how long its processes may take to end after it was killed: some of Ray's wait
            for others of Ray for a minute before they look whether anybody is there.
        is_script: whether it is a script of somebody, whose errors are shown as Python shows them.
        parts: names of its processes, as a regular expression, that are killed, too, while it goes
            on; "" for none.
    """

    name: str
    share: float
    command: Callable[[pathlib.Path, int], list[str]]
    usual_secs: float
    lines: int
    problem: Callable[[pathlib.Path, int, str], str]
    needs: str = "numpy"
    is_script: bool = False
    orphan_secs: float = 20.0
    parts: str = ""

    @property
    def is_here(self) -> bool:
        """Whether what it needs is installed."""
        return importlib.util.find_spec(self.needs) is not None


def _problem_file(directory: pathlib.Path, number: int) -> pathlib.Path:
    path = directory / "problem.json"
    if not path.exists():
        write_problem(random_step(np.random.default_rng(number), 12, 3), path)
    return path


def _loop(directory: pathlib.Path, number: int) -> list[str]:
    return [
        *("-m", "benchmarks.campaigns.simulated_trials", f"--log_dir={directory}/run"),
        *(f"--problem={_problem_file(directory, number)}", f"--max_trials={_LOOP_TRIALS}"),
    ]


def _search_with(*options: str) -> Callable[[pathlib.Path, int], list[str]]:
    def search(directory: pathlib.Path, number: int) -> list[str]:
        return [
            *("-m", "tf_placer", "search", f"--problem={_problem_file(directory, number)}"),
            *(f"--output={directory}/out.json", f"--log_dir={directory}/run", *options),
        ]

    return search


def _optimize(directory: pathlib.Path, number: int, *options: str) -> list[str]:
    path = directory / "graph.pb"
    if not path.exists():
        path.write_bytes(_graph())
    return [
        *("-m", "tf_placer", "optimize", f"--input_graph={path}", "--fetches=result"),
        *(f"--output_graph={directory}/placed.pb", f"--log_dir={directory}/run"),
        *("--machine=local:2", "--placer=hill_climbing", f"--seed={number}"),
        *(f"--max_trials={_LIVE_TRIALS}", *options),
    ]


def _optimize_by_ray(directory: pathlib.Path, number: int) -> list[str]:
    return _optimize(directory, number, "--workers=ray", "--num_workers=1")


def _run(directory: pathlib.Path, number: int) -> list[str]:
    del number
    path = directory / "train.py"
    if not path.exists():
        path.write_text(_SCRIPT)
    return [
        *("-m", "tf_placer", "run", "--machine=local:2", "--search_secs=25"),
        *(f"--log_dir={directory}/run", str(path)),
    ]


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


def _lines(path: pathlib.Path) -> list[Any]:
    return [_without_times(json.loads(line)) for line in path.read_text().splitlines()[1:]]


@functools.cache
def _unbroken(command: Callable[[pathlib.Path, int], list[str]], number: int) -> dict[str, Any]:
    """Runs a search that nobody kills, and returns what it wrote."""
    with tempfile.TemporaryDirectory() as outside:
        directory = pathlib.Path(outside)
        called = [sys.executable, *command(directory, number)]
        subprocess.run(called, check=True, capture_output=True)
        return _written(directory)


def _written(directory: pathlib.Path) -> dict[str, Any]:
    """Reads what a search in simulation has written, without what differs from run to run."""
    found: dict[str, Any] = {}
    for name in ("out.json", "run/result.json"):
        if (directory / name).exists():
            found[name] = _without_times(json.loads((directory / name).read_text()))
    for name in ("run/trials.jsonl", "run/training.jsonl"):
        if (directory / name).exists():
            found[name] = _lines(directory / name)
    return found


def _as_unbroken(
    command: Callable[[pathlib.Path, int], list[str]],
    directory: pathlib.Path,
    number: int,
    output: str,
) -> str:
    """Compares what a search has written with what one wrote that nobody killed."""
    del output
    expected, written = _unbroken(command, number), _written(directory)
    for name in expected.keys() | written.keys():
        if expected.get(name) != written.get(name):
            return f"{name} is not that of an unbroken search"
    return ""


def _measured(trials: tuple[Trial, ...]) -> str:
    """Says which placement was measured twice; "" for none."""
    seen: dict[Any, int] = {}
    for trial in trials:
        if trial.repeats is None and trial.assignment in seen:
            return f"trial {trial.index} measures what trial {seen[trial.assignment]} had measured"
        seen.setdefault(trial.assignment, trial.index)
    return ""


def _optimized(directory: pathlib.Path, number: int, output: str) -> str:
    del number
    _, trials = read_log(directory / "run/trials.jsonl")
    result = json.loads((directory / "run/result.json").read_text())
    if len(trials) != _LIVE_TRIALS or result["num_trials"] != _LIVE_TRIALS:
        return f"{len(trials)} trials, {result['num_trials']} in the result"
    if not result["is_complete"]:
        return "the result is not complete"
    if result["outcome"] not in ("faster", "not_faster", "not_confirmed"):
        return f"outcome {result['outcome']}"
    if (result["outcome"] == "faster") != (directory / "run/placement.json").exists():
        return "placement.json is not what the result says"
    if "placed - " not in output and "unchanged - " not in output:
        return "no verdict is printed"
    if not (directory / "placed.pb").exists():
        return "there is no output graph"
    return _measured(trials)


def _controlled(directory: pathlib.Path, number: int, output: str) -> str:
    """Looks at a search by controllers, which differs from run to run."""
    del number, output
    _, trials = read_log(directory / "run" / SIMULATED_TRIALS)
    result = json.loads((directory / "out.json").read_text())
    if len(trials) != _CONTROLLED_TRIALS or result["trials"] != len(trials):
        return f"{len(trials)} trials, {result['trials']} in the result"
    best_secs = min(t.measurement.median_secs or np.inf for t in trials)
    if result["step_secs"] != best_secs:
        return f"the result is {result['step_secs']} s, the best trial {best_secs} s"
    places = [(trial.controller, trial.batch, trial.position) for trial in trials[1:]]
    if len(places) != len(set(places)):
        return "two trials have one place in one batch of one controller"
    _, updates = read_training_log(directory / "run")
    if not updates or updates[-1].samples >= len(trials):
        return f"{len(updates)} updates, from more samples than there are trials"
    return _measured(trials[1:])


def _trained(directory: pathlib.Path, number: int, output: str) -> str:
    del number
    if "trained True" not in output:
        return "the script did not train"
    log = directory / "run/trials.jsonl"
    if not log.exists():
        return "there is no log"
    return _measured(read_log(log)[1])


def _deterministic(
    name: str,
    share: float,
    command: Callable[[pathlib.Path, int], list[str]],
    usual_secs: float,
    lines: int = 0,
    **more: Any,
) -> Victim:
    """Makes a search that has the same end however often it is killed."""
    problem = functools.partial(_as_unbroken, command)
    return Victim(name, share, command, usual_secs, lines, problem, **more)


_LEARNED = ("--placer=colocrl", f"--max_trials={_LEARNED_TRIALS}")
_CLIMBING = ("--placer=hill_climbing", "--max_trials=5000")
_AUTO = ("--placer=auto", "--max_trials=3000")
_CONTROLLED = ("--placer=post", "--placer_option=batch_size=4", "--placer_option=ce_samples=8")
_OF_RAY: dict[str, Any] = {"needs": "ray", "orphan_secs": 100.0}
_BY_RAY = ("--workers=ray", "--num_workers=2")

#: What is killed.
VICTIMS: tuple[Victim, ...] = (
    _deterministic("simulated trials with a log", 0.5, _loop, 0.5, _LOOP_TRIALS),
    _deterministic("search by hill climbing", 0.16, _search_with(*_CLIMBING), 0.8),
    _deterministic("search by auto", 0.14, _search_with(*_AUTO), 1.5),
    _deterministic("search by a policy that learns", 0.04, _search_with(*_LEARNED), 6.0),
    Victim("optimize on local:2", 0.1, _optimize, 20.0, 18, _optimized),
    Victim("run on local:2", 0.02, _run, 30.0, 18, _trained, is_script=True),
    Victim("optimize by workers of Ray", 0.01, _optimize_by_ray, 25.0, 18, _optimized, **_OF_RAY),
    _deterministic(
        "search by workers of Ray", 0.02, _search_with(*_AUTO, *_BY_RAY), 8.0, **_OF_RAY
    ),
    Victim(
        "search by controllers",
        0.01,
        _search_with(
            *(*_CONTROLLED, "--workers=ray", "--controllers=2"),
            f"--max_trials={_CONTROLLED_TRIALS}",
        ),
        15.0,
        0,
        _controlled,
        **_OF_RAY,
        parts="ray::(Controller|ParameterServer)",
    ),
)
