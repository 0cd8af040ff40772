"""The directory of one search: what was asked, what was measured, what came out.

request.json, graph.pb, feeds, initializer_feeds, session_config    what was asked
problem.json, profile.json                       what the operations cost, and what that is of, if
                                                 the placer needs to know
trials.jsonl                                     every trial, as it was measured
workers.jsonl                                    what workers did, if there were any
best_so_far.json                                 the fastest placement of these, not confirmed
training.jsonl, tensorboard/, policy.weights.h5  what the placer has learned, if it learns
result.json, placement.json                      what came out, when the search has ended
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_passes.util.json_records import check_entries, read_value
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.files import lasting_directory, read_json, reading, write_bytes
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.interpreter import command_line
from tf_placer.machines.machine import Machine
from tf_placer.runs.run_result import RunResult
from tf_placer.search.config import SearchConfig, read_settings
from tf_placer.search.distributed.worker_events import WORKER_EVENTS

if TYPE_CHECKING:
    from tf_placer.inputs.sources import Source

__all__ = ["TRIALS", "RunDirectory", "check_writable"]

#: Name of the log in its directory.
TRIALS = "trials.jsonl"
# What `write_request` writes. Two more are there if the step has what they are for; of these a
# search does not take over the restored values: they are large, and whoever asks has them.
_REQUEST = "request.json"
_REQUEST_FILES = ("graph.pb", "session_config", "feeds", "request.json")
_SESSION_CONFIG, _INITIALIZER_FEEDS, _RESTORED = "session_config", "initializer_feeds", "restored"
_ASKED = "what a search was asked"
# What stands in the file of a request beside what `SearchConfig` writes; earlier versions had only
# the first two.
_ENTRIES: Mapping[str, Any] = {
    "fetches": tuple[str, ...],
    "initializers": tuple[str, ...],
    "queue_runners": tuple[QueueRunner, ...],
    "command": str | None,
}


class RunDirectory:
    """Names and contents of the files of one search."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Uses a directory, which is made when something is written to it."""
        self.path = pathlib.Path(path).absolute()

    @property
    def graph(self) -> pathlib.Path:
        """The graph as it came."""
        return self.path / "graph.pb"

    @property
    def problem(self) -> pathlib.Path:
        """What the operations cost, as a placement problem; only there if a placer needed it."""
        return self.path / "problem.json"

    @property
    def profile(self) -> pathlib.Path:
        """What the placement problem is of, and what it took to find it out."""
        return self.path / "profile.json"

    @property
    def trials(self) -> pathlib.Path:
        """The log."""
        return self.path / TRIALS

    @property
    def workers(self) -> pathlib.Path:
        """What workers did; only there if there were any."""
        return self.path / WORKER_EVENTS

    @property
    def result(self) -> pathlib.Path:
        """How the search ended."""
        return self.path / "result.json"

    @property
    def placement(self) -> pathlib.Path:
        """The placement that was found; only there if it is faster."""
        return self.path / "placement.json"

    @property
    def best(self) -> pathlib.Path:
        """The fastest placement so far, as it was measured once; not confirmed."""
        return self.path / "best_so_far.json"

    @property
    def has_request(self) -> bool:
        """Whether it says what is asked."""
        return (self.path / _REQUEST).exists()

    def read_machine(self) -> Machine:
        """Reads of what is asked only the machine.

        Raises:
            ValueError: it cannot be read; the message names the file.
        """
        settings, _ = self._read_settings()
        machine: Machine = settings["machine"]
        return machine

    def read_command(self) -> str | None:
        """Reads of what is asked only the command line that asked; None if that is not there.

        Raises:
            OSError: it cannot be read.
            ValueError: it says nothing that can be asked; the message names the file.
        """
        _, others = self._read_settings()
        command: str | None = others.get("command")
        return command

    def read_step(self) -> Step:
        """Reads of what is asked only what a step runs.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is none of a request; the message names it.
        """
        return self._step(self._read_settings()[1])

    def write_request(self, workload: Source, config: SearchConfig) -> None:
        """Writes what a search needs to know.

        Args:
            workload: the graph and its step.
            config: how to search: on a machine that was looked up, with the configuration of the
                user's sessions.

        Raises:
            OSError: the directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        write_bytes(self.graph, workload.graph_def.SerializeToString())
        write_bytes(self.path / _SESSION_CONFIG, config.found_session_config.SerializeToString())
        step = workload.step
        write_tensors(self.path / "feeds", step.feeds)
        for name, tensors in (
            (_INITIALIZER_FEEDS, step.initializer_feeds),
            (_RESTORED, step.restored),
        ):
            if tensors:
                write_tensors(self.path / name, tensors)
        value = {
            "fetches": step.fetches,
            "initializers": step.initializers,
            "queue_runners": [runner.to_json() for runner in step.queue_runners],
            "command": command_line(),
            **config.to_json(),
        }
        write_bytes(self.path / _REQUEST, json.dumps(value, indent=1).encode())

    def read_request(self) -> tuple[Source, SearchConfig]:
        """Reads what `write_request` wrote.

        Raises:
            GraphError: the graph has not what the step runs.
            OSError: a file cannot be read.
            ValueError: a file is none of a request, or there is no such search; the message names
                it.
        """
        import tensorflow as tf

        from graph_passes.op_graph import OpGraph
        from tf_placer.inputs.sources import Source, read_graph

        settings, others = self._read_settings()
        settings["session_config"] = tf.compat.v1.ConfigProto.FromString(
            (self.path / _SESSION_CONFIG).read_bytes()
        )
        with reading(self.path / _REQUEST, _ASKED):
            config = SearchConfig(**settings)
        step, graph_def = self._step(others), read_graph(self.graph).graph_def
        return Source(OpGraph.from_graph_def(graph_def, step.fetches, step.feeds), step), config

    def _read_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads the file of a request: what `SearchConfig` takes, and all else by name."""
        path = self.path / _REQUEST
        with reading(path, _ASKED):
            value = read_json(path)
            settings = read_settings(value)
            # It has been found.
            settings["machine"] = read_value(Machine, value["machine"], "machine")
            check_entries(value, ("fetches", "initializers"))
            others = {
                name: read_value(kind, value[name], name)
                for name, kind in _ENTRIES.items()
                if name in value
            }
        return settings, others

    def _step(self, others: Mapping[str, Any]) -> Step:
        return Step(
            others["fetches"],
            read_tensors(self.path / "feeds"),
            others["initializers"],
            self._tensors(_INITIALIZER_FEEDS),
            others.get("queue_runners", ()),
            self._tensors(_RESTORED),
        )

    def _tensors(self, name: str) -> dict[str, np.ndarray]:
        """Reads tensors of which there may be none."""
        path = self.path / name
        return read_tensors(path) if path.exists() else {}

    def take_request(self, other: RunDirectory) -> None:
        """Takes over what is asked, as it is in another directory.

        Raises:
            OSError: it cannot be read, or this directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for name in _REQUEST_FILES:
            write_bytes(self.path / name, (other.path / name).read_bytes())
        if (other.path / _INITIALIZER_FEEDS).exists():
            write_bytes(
                self.path / _INITIALIZER_FEEDS, (other.path / _INITIALIZER_FEEDS).read_bytes()
            )

    def move(self, workload: Source, config: SearchConfig) -> None:
        """Goes on in a new directory among the temporary files, with what is asked.

        Args:
            workload: the graph and its step.
            config: how to search.

        Raises:
            OSError: that cannot be written; then nothing has moved.
        """
        old, self.path = self.path, lasting_directory()
        # Whoever asks has the restored values, which are large.
        step = dataclasses.replace(workload.step, restored={})
        try:
            self.write_request(dataclasses.replace(workload, step=step), config)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = old
            raise

    def write_result(self, result: RunResult) -> None:
        """Writes how the search ended, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        if result.outcome is not Outcome.FASTER:
            self.placement.unlink(missing_ok=True)
        write_bytes(self.result, json.dumps(result.to_json(), indent=1).encode())

    def read_result(self) -> RunResult | None:
        """Reads how the search ended; None if it has not.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no result; the message names the file.
        """
        if not self.result.exists():
            return None
        with reading(self.result, "the result of a search"):
            return RunResult.from_json(read_json(self.result))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Makes sure that a directory, or the one it is to be made in, takes files; writes nothing.

    Raises:
        OSError: it does not; the message names it.
    """
    existing = pathlib.Path(path).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise OSError(f"cannot write to {os.fspath(path)!r}: {str(existing)!r} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OSError(f"cannot write to {os.fspath(path)!r}: {str(existing)!r} takes no files")
