"""Gives commands files that are wrong, and counts how they answer.

Each case takes a valid graph, placement, log, machine file, problem, assignment or file of feeds,
changes it as `tests.faults.mutations` does, and calls a command with it, in a process that some
hundred cases share. An answer is good if the command works, or fails with one sentence that names
the file in words of the field.

    python -m tests.faults.bad_inputs --cases 5000
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.placement import Placement, write_placement
from tests.faults.campaign import Case, run_campaign
from tests.faults.command_answer import answer
from tests.faults.mutations import mutate_bytes, mutate_json, mutate_lines
from tests.tf_placer.doubles import update_record
from tests.tf_placer.scripted import confirmation, run_result, search_config, trial
from tf_placer.confirmation.outcome import Outcome
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.trial_log import TrialLog

__all__ = ["make_cases"]

_AT_A_TIME = 250
_OUTPUTS = {"out.pb", "out.json", "page.html"}
_PROFILE = "profile --fetches=result --output={0}/out.json"
_APPLY = "apply --placement={0}/placement.json --output_graph={0}/out.pb"
_REPORT = "report --output={0}/page.html"
#: By kind of file the command that reads it, and what changes it.
_FILES: Mapping[str, tuple[str, Callable[[bytes, random.Random], bytes]]] = {
    "graph.pb": (_APPLY + " --input_graph={0}/graph.pb", mutate_bytes),
    "graph.pbtxt": (_APPLY + " --input_graph={0}/graph.pbtxt", mutate_bytes),
    "graph.meta": (_PROFILE + " --input_graph={0}/graph.meta --machine=2xK80", mutate_bytes),
    "feeds.npz": (
        _PROFILE + " --input_graph={0}/graph.pb --machine=2xK80 --feeds={0}/feeds.npz",
        mutate_bytes,
    ),
    "placement.json": (_APPLY + " --input_graph={0}/graph.pb", mutate_json),
    "machine.json": (
        _PROFILE + " --input_graph={0}/graph.pb --machine={0}/machine.json",
        mutate_json,
    ),
    "problem.json": (
        "search --problem={0}/problem.json --placer=single_device --output={0}/out.json",
        mutate_json,
    ),
    "assignment.json": (
        "simulate --problem={0}/problem.json --assignment={0}/assignment.json",
        mutate_json,
    ),
    "log/trials.jsonl": ("log {0}/log", mutate_lines),
    "log/training.jsonl": ("log {0}/log --json", mutate_lines),
    "log/result.json": ("log {0}/log --json", mutate_json),
    "log/request.json": (_REPORT + " {0}/log", mutate_json),
    "plan/result.json": (_REPORT + " {0}/plan", mutate_json),
    "plan/search.json": (_REPORT + " {0}/plan", mutate_json),
}


def make_cases(first: int, word: str = "", count: int = _AT_A_TIME) -> Iterator[Case]:
    """Makes the cases of some numbers.

    Args:
        first: the first number.
        word: what the names of the files have.
        count: how many numbers.
    """
    with tempfile.TemporaryDirectory() as outside:
        directory = pathlib.Path(outside)
        _write_files(directory)
        names = [name for name in _FILES if word in name]
        contents = {name: (directory / name).read_bytes() for name in names}
        for number in range(first, first + count):
            draw = random.Random(number)
            name = draw.choice(names)
            command, change = _FILES[name]
            changed = change(contents[name], draw)
            how, words = _call(command, directory, name, changed)
            (directory / name).write_bytes(contents[name])
            kind = change.__name__.removeprefix("mutated_")
            yield Case(number, name, kind, how, words.replace(outside, "DIR")[-2000:])


def _call(command: str, directory: pathlib.Path, name: str, content: bytes) -> tuple[str, str]:
    """Gives a file to a command; returns how it answered, and in which words."""
    path = directory / name
    path.write_bytes(content)
    before = set(os.listdir(directory))
    how, words = answer(command.format(directory).split())
    new = set(os.listdir(directory)) - before
    for each in new:
        (directory / each).unlink()
    if path.read_bytes() != content:
        return "damaged", words
    if new - _OUTPUTS or (new and how != "works"):
        return "damaged", f"left {sorted(new)}: {words}"
    if how == "sentence" and name.partition(".")[0] not in words:
        return "names no file", words
    return how, words


def _write_files(directory: pathlib.Path) -> None:
    """Writes valid files of all kinds, some by commands, and makes sure that they are valid."""
    _write_graph(directory)
    _write_log(directory / "log")
    (directory / "machine.json").write_text(json.dumps(_machine()))
    problem = directory / "problem.json"
    _must_work(
        _PROFILE.replace("out.json", "problem.json") + " --input_graph={0}/graph.pb"
        " --machine={0}/machine.json",
        directory,
    )
    groups = 1 + max(each["group"] for each in json.loads(problem.read_text())["operations"])
    (directory / "assignment.json").write_text(json.dumps({"assignment": [1] * groups}))
    _must_work(
        "search --problem={0}/problem.json --placer=hill_climbing --log_dir={0}/plan"
        " --output={0}/out.json --max_trials=20",
        directory,
    )
    for command, _ in _FILES.values():
        _must_work(command, directory)
    for name in _OUTPUTS:
        (directory / name).unlink()


def _must_work(command: str, directory: pathlib.Path) -> None:
    how, words = answer(command.format(directory).split())
    assert how == "works", f"{command}: {words}"


def _write_graph(directory: pathlib.Path) -> None:
    """Writes a graph in all formats, its feeds and a placement of it."""
    import tensorflow as tf

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
    feeds = {"x": np.ones([4, 3], np.float32), "counts": np.array([1, 2], np.int32)}
    np.savez(directory / "feeds.npz", **feeds)
    devices = tuple(f"/job:localhost/replica:0/task:0/device:GPU:{k}" for k in range(2))
    assignment = {node.name: devices[k % 2] for k, node in enumerate(graph_def.node)}
    placement = Placement(graph_fingerprint(graph_def), devices, assignment, {"step_secs": 0.1})
    write_placement(placement, directory / "placement.json")


def _write_log(directory: pathlib.Path) -> None:
    """Writes the directory of a live search that has ended."""
    from tf_placer.inputs.workload import read_workload

    run, machine = RunDirectory(directory), find_machine("local:2")
    workload = read_workload(os.fspath(directory.parent / "graph.pb"), "result")
    run.write_request(workload, search_config(machine=machine, placer="single_device"))
    header = {"graph_fingerprint": "0" * 64, "machine": machine.to_json(), "seed": 0}
    header |= {"placer": "single_device", "versions": {}}
    with TrialLog(run.trials, header) as log:
        for each in (trial(0, None), trial(1, [0, 1], 0.2), trial(2, [1, 1], None)):
            log.append(each)
    with TrainingLog(directory, header) as training:
        training.extend([update_record(0), update_record(1)])
    confirmed = confirmation({"single_device": 0.5})
    run.write_result(
        run_result(Outcome.NOT_FASTER, confirmed=confirmed, note="a note", num_trials=3)
    )


def _machine() -> dict[str, Any]:
    """Describes a machine with a processor and two GPUs on a bus."""
    names = [
        f"/job:localhost/replica:0/task:0/device:{each}" for each in ("CPU:0", "GPU:0", "GPU:1")
    ]
    gpus = [{"name": name, "class": "V100", "memory_bytes": 32e9} for name in names[1:]]
    cost = {"latency_secs": 25e-6, "bandwidth_bytes_per_sec": 11e9, "channel": "bus"}
    links = [{"source": a, "destination": b, **cost} for a, b in itertools.permutations(names, 2)]
    return {
        "format": 1,
        "name": "box",
        "devices": [{"name": names[0], "class": "CPU"}, *gpus],
        "links": links,
    }


if __name__ == "__main__":
    run_campaign("bad_inputs", make_cases)
