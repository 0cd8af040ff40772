"""Gives commands files that are wrong, and counts how they answer.

Each case takes a valid graph, placement, log, machine file, problem, assignment or file of feeds,
changes it as `benchmarks.campaigns.mutations` does, and calls a command with it, in a process that
many cases share. An answer is good if the command works, or fails with one sentence that names the
file in words of the field. All others are listed with their number, by which they can be repeated.
What is done is kept in `--out_dir`, so the campaign goes on where it stopped:

    python -m benchmarks.campaigns.bad_inputs --cases 5000 --out_dir runs/bad_inputs
    python -m benchmarks.campaigns.bad_inputs --show 17
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import operator
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.campaigns.answers import append_answers, read_answers, report_answers
from benchmarks.campaigns.mutations import mutated_bytes, mutated_json, mutated_lines

__all__ = ["GOOD", "Workplace", "answer", "main", "run_cases"]

#: Answers that are as they should be.
GOOD = ("works", "sentence")
_LIMIT_SECS = 60
_LONGEST_SENTENCE = 1500
# Words that mean something to people who write Python.
_PYTHON = re.compile(
    r"NoneType|object has no attribute|not subscriptable|unhashable|unsupported operand|"
    r"\bindices must be|object is not|not iterable|\[Errno|<class |positional argument|"
    r"Traceback|keyword argument|maximum recursion|could not convert|invalid literal|"
    r"'(int|str|float|list|dict|tuple|bool)' object"
)


class _Hang(BaseException):
    """A case takes too long."""


class Workplace:
    """A directory with valid files, and commands that read them.

    Attributes:
        directory: where they are.
        kinds: by kind of file its name, what changes it, and the command.
    """

    def __init__(self, directory: str) -> None:
        """Makes the files."""
        self.directory = pathlib.Path(directory)
        self._contents = _valid_files(self.directory)
        text = {name: functools.partial(_decoded, change) for name, change in _CHANGES.items()}
        self.kinds: Mapping[str, tuple[Callable[[bytes, random.Random], bytes], list[str]]] = {
            name: (text.get(name, mutated_bytes), command) for name, command in _COMMANDS.items()
        }

    def call(self, number: int) -> tuple[str, str, str]:
        """Makes a case; returns the kind of file, how it was answered, and with which words."""
        draw = random.Random(number)
        name = draw.choice(list(self.kinds))
        change, command = self.kinds[name]
        content = change(self._contents[name], draw)
        path = self.directory / name
        path.write_bytes(content)
        before = set(os.listdir(self.directory))
        try:
            how, words = answer([text.format(self.directory) for text in command])
            if path.read_bytes() != content:
                how = "damaged"
            new = set(os.listdir(self.directory)) - before
            if new - _OUTPUTS or (new and how != "works"):
                how, words = "damaged", f"left {sorted(new)}: {words}"
            for each in new:
                (self.directory / each).unlink()
        finally:
            path.write_bytes(self._contents[name])
        if how == "sentence" and name.partition(".")[0] not in words:
            how = "names no file"
        return name, how, words


def answer(command: Sequence[str]) -> tuple[str, str]:
    """Calls a command in this process; returns how it answered, and its last words."""
    from tf_placer.cli.main import main as command_line

    output, errors = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            _time_limit(),
        ):
            command_line(command)
    except SystemExit as end:
        words = end.code if isinstance(end.code, str) else errors.getvalue().strip()
        if end.code in (None, 0):
            return "works", ""
        return _how(words), words
    except _Hang:
        return "hang", f"more than {_LIMIT_SECS} s"
    except BaseException:
        return "traceback", traceback.format_exc()
    return "works", ""


def _how(words: str) -> str:
    if not words.strip():
        return "silent"
    if len(words) > _LONGEST_SENTENCE:
        return "too long"
    if "\n" in words.strip():
        return "several lines"
    try:
        words.encode()
    except UnicodeEncodeError:
        return "cannot be printed"
    return "words of Python" if _PYTHON.search(words) else "sentence"


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_LIMIT_SECS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_OUTPUTS = {"out.pb", "out.json", "page.html"}
_COMMANDS: Mapping[str, list[str]] = {
    "graph.pb": [
        *("apply", "--input_graph={}/graph.pb", "--placement={}/placement.json"),
        "--output_graph={}/out.pb",
    ],
    "graph.pbtxt": [
        *("apply", "--input_graph={}/graph.pbtxt", "--placement={}/placement.json"),
        "--output_graph={}/out.pb",
    ],
    "graph.meta": [
        *("profile", "--input_graph={}/graph.meta", "--fetches=result", "--machine=2xK80"),
        "--output={}/out.json",
    ],
    "placement.json": [
        *("apply", "--input_graph={}/graph.pb", "--placement={}/placement.json"),
        "--output_graph={}/out.pb",
    ],
    "log/trials.jsonl": ["log", "{}/log"],
    "log/training.jsonl": ["log", "{}/log", "--json"],
    "log/result.json": ["log", "{}/log", "--json"],
    "log/request.json": ["report", "{}/log", "--output={}/page.html"],
    "plan/result.json": ["report", "{}/plan", "--output={}/page.html"],
    "plan/search.json": ["report", "{}/plan", "--output={}/page.html"],
    "machine.json": [
        *("profile", "--input_graph={}/graph.pb", "--fetches=result", "--output={}/out.json"),
        "--machine={}/machine.json",
    ],
    "problem.json": [
        *("search", "--problem={}/problem.json", "--placer=single_device", "--output={}/out.json"),
    ],
    "assignment.json": [
        *("simulate", "--problem={}/problem.json", "--assignment={}/assignment.json"),
    ],
    "feeds.npz": [
        *("profile", "--input_graph={}/graph.pb", "--fetches=result", "--machine=2xK80"),
        *("--feeds={}/feeds.npz", "--output={}/out.json"),
    ],
}
_CHANGES = {
    "placement.json": mutated_json,
    "log/trials.jsonl": mutated_lines,
    "log/training.jsonl": mutated_lines,
    "log/result.json": mutated_json,
    "log/request.json": mutated_json,
    "plan/result.json": mutated_json,
    "plan/search.json": mutated_json,
    "machine.json": mutated_json,
    "problem.json": mutated_json,
    "assignment.json": mutated_json,
}


def _decoded(
    change: Callable[[str, random.Random], bytes], data: bytes, draw: random.Random
) -> bytes:
    return change(data.decode(), draw)


def _valid_files(directory: pathlib.Path) -> dict[str, bytes]:
    """Writes valid files of all kinds, and reads what they hold."""
    import numpy as np
    import tensorflow as tf

    from graph_passes.fingerprint import graph_fingerprint
    from graph_passes.placement import Placement, write_placement
    from tf_placer.inputs.graph_files import write_graph

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
        counts = tf.compat.v1.placeholder(tf.int32, [2], name="counts")
        weights = tf.compat.v1.get_variable("w", [3, 3], use_resource=True)
        left, right = tf.linalg.matmul(x, weights), tf.nn.relu(x)
        total = tf.reduce_sum(left) + tf.reduce_sum(right) + tf.cast(counts[0], tf.float32)
        tf.identity(total, name="result")
    graph_def = graph.as_graph_def()
    for ending in ("pb", "pbtxt", "meta"):
        write_graph(directory / f"graph.{ending}", graph_def)
    devices = tuple(f"/job:localhost/replica:0/task:0/device:GPU:{k}" for k in range(2))
    assignment = {node.name: devices[k % 2] for k, node in enumerate(graph_def.node)}
    placement = Placement(graph_fingerprint(graph_def), devices, assignment, {"step_secs": 0.1})
    write_placement(placement, directory / "placement.json")
    np.savez(
        directory / "feeds.npz", x=np.ones([4, 3], np.float32), counts=np.array([1, 2], np.int32)
    )
    _write_log(directory / "log")
    (directory / "machine.json").write_text(json.dumps(_machine(devices)))
    profile = ["profile", f"--input_graph={directory}/graph.pb", "--fetches=result"]
    machine = [f"--machine={directory}/machine.json", f"--output={directory}/problem.json"]
    how, words = answer([*profile, *machine])
    assert how == "works", words
    problem = json.loads((directory / "problem.json").read_text())
    groups = 1 + max(operation["group"] for operation in problem["operations"])
    (directory / "assignment.json").write_text(json.dumps({"assignment": [1] * groups}))
    search = ["search", f"--problem={directory}/problem.json", "--placer=hill_climbing"]
    log = [f"--log_dir={directory}/plan", f"--output={directory}/out.json", "--max_trials=20"]
    how, words = answer([*search, *log])
    assert how == "works", words
    for name, command in _COMMANDS.items():
        how, words = answer([text.format(directory) for text in command])
        assert how == "works", f"{name}: {words}"
    for name in _OUTPUTS:
        (directory / name).unlink()
    return {name: (directory / name).read_bytes() for name in _COMMANDS}


def _write_log(directory: pathlib.Path) -> None:
    """Writes the directory of a live search that has ended."""
    from tf_placer.environments.environment import Measurement
    from tf_placer.inputs.step import Step
    from tf_placer.live.confirmation import Comparison, Confirmation
    from tf_placer.live.run_directory import Request, RunDirectory
    from tf_placer.live.run_result import Outcome, RunResult
    from tf_placer.machines.lookup import find_machine
    from tf_placer.placers.update_record import UpdateRecord
    from tf_placer.search.training_log import TrainingLog

    run = RunDirectory(directory)
    step = Step(("result",))
    run.write_request(
        Request(step, find_machine("local:2"), "single_device", {}, 3, 60.0, 0), b"", b""
    )
    run.trials.write_text("".join(json.dumps(each) + "\n" for each in _LOG))
    names = ("original", "single_device")
    rounds = tuple({name: Measurement((0.2, 0.21), None, 1.0) for name in names} for _ in range(4))
    slower = Comparison(1.0, (0.9, 1.1), False, "no faster")
    run.write_result(
        RunResult(
            outcome=Outcome.NOT_FASTER,
            num_trials=3,
            max_trials=3,
            max_secs=60.0,
            winner=None,
            note="a note",
            confirmation=Confirmation(names[0], (), rounds, {names[1]: slower}, names[1]),
            finalists={name: index for index, name in enumerate(names)},
            original_assignment=(0, 0),
            is_complete=True,
        )
    )
    update = UpdateRecord(0, 12, "ppo", -0.5, -0.4, 0.6, 0.01, 0.3, 1.5, 0.1, 0.2, 1, 12)
    with TrainingLog(directory, {}) as log:
        log.extend([update, dataclasses.replace(update, update=1, samples=24)])


def _machine(devices: Sequence[str]) -> dict[str, Any]:
    cpu = "/job:localhost/replica:0/task:0/device:CPU:0"
    names = [cpu, *devices]
    return {
        "format": 1,
        "name": "box",
        "devices": [
            {"name": cpu, "class": "CPU"},
            *({"name": name, "class": "V100", "memory_bytes": 32e9} for name in devices),
        ],
        "links": [
            {
                "source": source,
                "destination": destination,
                "latency_secs": 25e-6,
                "bandwidth_bytes_per_sec": 11e9,
                "channel": "bus",
            }
            for source in names
            for destination in names
            if source != destination
        ],
    }


_TRIAL = {"placer": "single_device", "batch": 0, "failure": None, "setup_secs": 0.5}
_TIMES = {"repeats": None, "elapsed_secs": 3.0, "time": "2026-01-01T00:00:00+00:00"}
_LOG: Sequence[Mapping[str, Any]] = (
    {
        "format": 2,
        "graph_fingerprint": "0" * 64,
        "machine": {"spec": "local:2", "kind": "local", "devices": [], "links": []},
        "placer": "single_device",
        "seed": 0,
        "versions": {},
    },
    {"index": 0, **_TRIAL, "placer": "original", "assignment": None, "step_secs": [0.1], **_TIMES},
    {"index": 1, **_TRIAL, "assignment": [0, 1], "step_secs": [0.2, 0.1], **_TIMES},
    {
        **{"index": 2, **_TRIAL, "assignment": [1, 1], "step_secs": None, **_TIMES},
        "failure": {"kind": "out_of_memory", "message": "no room"},
    },
)


def run_cases(first: int, end: int, path: str | os.PathLike[str]) -> None:
    """Makes cases in this process, and writes a line of JSON for each."""
    with tempfile.TemporaryDirectory() as directory:
        workplace = Workplace(directory)
        for number in range(first, end):
            name, how, words = workplace.call(number)
            words = words.replace(directory, "DIR")[-2000:]
            line = {"case": number, "file": name, "answer": how, "words": words}
            append_answers(path, [line])


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the cases that are missing, in child processes, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="how many there are to be")
    parser.add_argument("--out_dir", default="runs/bad_inputs", help="what is done is kept there")
    parser.add_argument("--show", type=int, help="make one case, and print its answer")
    args = parser.parse_args(argv)
    if args.show is not None:
        with tempfile.TemporaryDirectory() as directory:
            print(*Workplace(directory).call(args.show), sep="\n")
        return
    path = pathlib.Path(args.out_dir, "answers.jsonl")
    while (done := len(read_answers(path))) < args.cases:
        code = f"from benchmarks.campaigns.bad_inputs import run_cases; run_cases({done}, "
        child = subprocess.run(
            [sys.executable, "-c", f"{code}{args.cases}, {os.fspath(path)!r})"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        if child.returncode:
            if len(read_answers(path)) == done and child.returncode > 0:
                sys.exit(f"the campaign itself fails: {child.stderr[-2000:]}")
            # The case in which the process died.
            line = {"case": len(read_answers(path)), "file": "?", "answer": "crash"}
            append_answers(path, [{**line, "words": child.stderr[-2000:]}])
    answers = read_answers(path)[: args.cases]
    print(report_answers(answers, GOOD, operator.itemgetter("file"), "file"))


if __name__ == "__main__":
    main()
