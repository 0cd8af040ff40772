"""The directory of one search: its request, its measurements and its result.

request.json, graph.pb, feeds, initializer_feeds, session_config    the request
earlier_answer.json                              the placement of a similar step, which the search
                                                 tries first; only in the directory of the request
problem.json, profile.json                       the profiled costs and their origin, if the
                                                 placer needs costs
trials.jsonl                                     every trial, as it was measured
workers.jsonl                                    the events of workers, if there were any
best_so_far.json                                 the fastest placement so far, not confirmed
training.jsonl, tensorboard/, policy.weights.h5  the training of a learned placer
result.json, placement.json                      the result, when the search has ended
saved_models.json                                the SavedModel directories that were written with
                                                 the result, and the files in them
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

from graph_passes.restrictions import Restrictions, resolve_restrictions
from graph_passes.util.json_records import check_entries, read_value
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.files import make_persistent_directory, name_file_in_errors, read_json, write_bytes
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.interpreter import format_command_line
from tf_placer.machines.machine import Machine
from tf_placer.placers import find_placer
from tf_placer.runs.run_result import RunResult
from tf_placer.search.budget import Budget
from tf_placer.search.config import SearchConfig, read_settings
from tf_placer.search.distributed.worker_events import WORKER_EVENTS

if TYPE_CHECKING:
    from graph_passes.placement import Placement
    from tf_placer.inputs.workload import Workload

__all__ = ["TRIALS", "RunDirectory", "check_writable"]

#: Name of the log in its directory.
TRIALS = "trials.jsonl"
# The files that every request has. A search does not copy the restored values: they are large, and
# the calling process has them.
_REQUEST = "request.json"
_REQUEST_FILES = ("graph.pb", "session_config", "feeds", "request.json")
_SESSION_CONFIG, _INITIALIZER_FEEDS, _RESTORED = "session_config", "initializer_feeds", "restored"
_EARLIER_ANSWER = "earlier_answer.json"
_ASKED = "what a search was asked"
# Entries of a request beside the fields of `SearchConfig`. Earlier versions had only the first two.
_ENTRIES: Mapping[str, Any] = {
    "fetches": tuple[str, ...],
    "initializers": tuple[str, ...],
    "queue_runners": tuple[QueueRunner, ...],
    "command": str | None,
    "is_cleared": bool,
}


class RunDirectory:
    """Names and contents of the files of one search."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Uses a directory, which is created when a file is written to it."""
        self.path = pathlib.Path(path).absolute()

    @property
    def graph(self) -> pathlib.Path:
        """The file of the original graph."""
        return self.path / "graph.pb"

    @property
    def problem(self) -> pathlib.Path:
        """The file of the placement problem with profiled costs; exists if a placer needed it."""
        return self.path / "problem.json"

    @property
    def profile(self) -> pathlib.Path:
        """The file with the origin of the placement problem and the duration of profiling."""
        return self.path / "profile.json"

    @property
    def trials(self) -> pathlib.Path:
        """The file of the log of trials."""
        return self.path / TRIALS

    @property
    def workers(self) -> pathlib.Path:
        """The file of the events of workers; exists if there were workers."""
        return self.path / WORKER_EVENTS

    @property
    def result(self) -> pathlib.Path:
        """The file of the result."""
        return self.path / "result.json"

    @property
    def placement(self) -> pathlib.Path:
        """The file of the confirmed placement; exists if one is faster."""
        return self.path / "placement.json"

    @property
    def saved_models(self) -> pathlib.Path:
        """The file that lists the SavedModels written with the result; exists if there are any."""
        return self.path / "saved_models.json"

    @property
    def best(self) -> pathlib.Path:
        """The file of the fastest placement so far, not confirmed."""
        return self.path / "best_so_far.json"

    @property
    def has_request(self) -> bool:
        """True if the directory has a request."""
        return (self.path / _REQUEST).exists()

    def remove_request(self) -> None:
        """Removes all files of the request, so that the directory has none."""
        for name in (_REQUEST, *_REQUEST_FILES, _INITIALIZER_FEEDS, _RESTORED):
            (self.path / name).unlink(missing_ok=True)

    def read_machine(self) -> Machine:
        """Reads the machine of the request.

        Raises:
            ValueError: the request cannot be read; the message names the file.
        """
        settings, _ = self._read_settings()
        machine: Machine = settings["machine"]
        return machine

    def read_restrictions(self) -> Restrictions | None:
        """Reads the restrictions of the placements of the request; None if there are none.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no request; the message names it.
        """
        settings, _ = self._read_settings()
        devices = [device.name for device in settings["machine"].devices]
        return resolve_restrictions(settings["pin"], settings["keep_together"], devices)

    def read_placer_options(self) -> Mapping[str, Any]:
        """Reads the settings that the request gives to the placer.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no request; the message names it.
        """
        settings, _ = self._read_settings()
        options: Mapping[str, Any] = settings["placer_options"]
        return options

    def read_budget(self) -> Budget:
        """Reads the trials and the time that the request allows.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no request; the message names it.
        """
        settings, _ = self._read_settings()
        return Budget(settings["max_trials"], settings["max_secs"])

    def read_command(self) -> str | None:
        """Reads the command line of the request; None if the request has none.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no request; the message names it.
        """
        _, others = self._read_settings()
        command: str | None = others.get("command")
        return command

    def read_is_cleared(self) -> bool:
        """Returns whether the devices of the graph of the request were cleared; see `Workload`.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no request; the message names it.
        """
        _, others = self._read_settings()
        return bool(others.get("is_cleared", False))

    def read_step(self) -> Step:
        """Reads the step of the request.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is invalid; the message names it.
        """
        return self._step(self._read_settings()[1])

    def write_request(self, workload: Workload, config: SearchConfig) -> None:
        """Writes a request for a search.

        Args:
            workload: the graph and its step.
            config: the settings of the search, with the machine that was found and the
                configuration of the user's sessions.

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
            "command": format_command_line(),
            "is_cleared": workload.is_cleared,
            **config.to_json(),
        }
        write_bytes(self.path / _REQUEST, json.dumps(value, indent=1).encode())

    def write_earlier_answer(self, placement: Placement) -> None:
        """Adds the placement of a similar step, which the search tries first, to a request.

        Raises:
            OSError: the directory cannot be written.
        """
        from graph_passes.placement import write_placement

        write_placement(placement, self.path / _EARLIER_ANSWER)

    def read_earlier_answer(self) -> Placement | None:
        """Reads the placement of a similar step from a request; None if it has none.

        Raises:
            GraphError, OSError: the file cannot be read.
        """
        from graph_passes.placement import read_placement

        path = self.path / _EARLIER_ANSWER
        return read_placement(path) if path.exists() else None

    def read_request(self) -> tuple[Workload, SearchConfig]:
        """Reads a request, as `write_request` writes it.

        Raises:
            GraphError: the graph lacks operations of the step.
            OSError: a file cannot be read.
            ValueError: a file or a setting is invalid, or there is no such placer; the message
                names it.
        """
        import tensorflow as tf

        from graph_passes.op_graph import OpGraph
        from tf_placer.inputs.workload import Workload, read_graph

        settings, others = self._read_settings()
        # The file is not to blame for a module of the user that cannot be imported.
        if ":" in settings["placer"]:
            find_placer(settings["placer"])
        settings["session_config"] = tf.compat.v1.ConfigProto.FromString(
            (self.path / _SESSION_CONFIG).read_bytes()
        )
        with name_file_in_errors(self.path / _REQUEST, _ASKED):
            config = SearchConfig(**settings)
        step, graph_def = self._step(others), read_graph(self.graph).graph_def
        op_graph = OpGraph.from_graph_def(graph_def, step.fetches, step.feeds)
        return Workload(op_graph, step, is_cleared=others.get("is_cleared", False)), config

    def _read_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads a request: the arguments of `SearchConfig`, and the other entries by name."""
        path = self.path / _REQUEST
        with name_file_in_errors(path, _ASKED):
            value = read_json(path)
            settings = read_settings(value)
            # Requests have the machine that was found, not its name.
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
        """Reads tensors from a file that may be missing."""
        path = self.path / name
        return read_tensors(path) if path.exists() else {}

    def take_request(self, other: RunDirectory) -> None:
        """Copies the request from another directory.

        Raises:
            OSError: the request cannot be read, or this directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for name in _REQUEST_FILES:
            write_bytes(self.path / name, (other.path / name).read_bytes())
        if (other.path / _INITIALIZER_FEEDS).exists():
            write_bytes(
                self.path / _INITIALIZER_FEEDS, (other.path / _INITIALIZER_FEEDS).read_bytes()
            )

    def move(self, workload: Workload, config: SearchConfig) -> None:
        """Changes to a new temporary directory and writes the request there.

        Args:
            workload: the graph and its step.
            config: the settings of the search.

        Raises:
            OSError: the new directory cannot be written; then the directory stays the same.
        """
        old, self.path = self.path, make_persistent_directory()
        # Leave out the restored values: they are large, and the calling process has them.
        step = dataclasses.replace(workload.step, restored={})
        try:
            self.write_request(dataclasses.replace(workload, step=step), config)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = old
            raise

    def write_result(self, result: RunResult) -> None:
        """Writes the result atomically.

        Raises:
            OSError: the result cannot be written.
        """
        if result.outcome is not Outcome.FASTER:
            self.placement.unlink(missing_ok=True)
        write_bytes(self.result, json.dumps(result.to_json(), indent=1).encode())

    def read_result(self) -> RunResult | None:
        """Reads the result; None if the search has not ended.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no result; the message names it.
        """
        if not self.result.exists():
            return None
        with name_file_in_errors(self.result, "the result of a search"):
            return RunResult.from_json(read_json(self.result))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Checks that a directory, or its first existing parent, is writable; writes nothing.

    Raises:
        OSError: it is not; the message names it.
    """
    existing = pathlib.Path(path).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise OSError(f"cannot write to {os.fspath(path)!r}: {str(existing)!r} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OSError(f"cannot write to {os.fspath(path)!r}: {str(existing)!r} takes no files")
