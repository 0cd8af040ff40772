"""Checks that files in a directory were written by a live search, before they are replaced."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from graph_passes.util.json_records import read_value
from tf_placer.files import read_json
from tf_placer.problem.problem_file import read_problem
from tf_placer.runs.run_directory import TRIALS, RunDirectory
from tf_placer.search.log_header import LogError
from tf_placer.search.own_files import check_own_files, check_policy_file, read_log_header

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "REFUSAL",
    "TRAINED_BY",
    "check_own_graph",
    "check_own_run",
    "check_own_step",
    "own_paths",
]

#: Names of the files that `run` keeps for a training step, beside the request.
TRAINED_BY, REFUSAL = "trained_by.json", "refusal.json"

_REQUEST = "request.json"
# Every search writes one of these files before all others.
_RECORDS = (TRIALS, _REQUEST, TRAINED_BY)


def check_own_run(directory: RunDirectory) -> None:
    """Checks that the files in a directory belong to a search; changes nothing.

    Raises:
        LogError: a file belongs to another program; the message names it.
        OSError: a file cannot be read.
    """
    check_own_files(directory.path, _readers(directory), _RECORDS)


def check_own_graph(directory: RunDirectory, graph_def: tf.compat.v1.GraphDef) -> None:
    """Checks that the graph in a directory belongs to the log there.

    Args:
        directory: the directory of the search.
        graph_def: the graph of the search.

    Raises:
        LogError: the file has a different graph, or different devices.
        OSError: the file cannot be read.
    """
    if not directory.graph.exists():
        return
    import tensorflow as tf

    from graph_passes.fingerprint import graph_fingerprint

    found = _parse_message(directory.graph, tf.compat.v1.GraphDef)
    devices, known = ({n.name: n.device for n in each.node} for each in (found, graph_def))
    if devices != known or graph_fingerprint(found) != graph_fingerprint(graph_def):
        raise LogError(
            f"'{directory.graph}' is not the graph that the log beside it is of, and a search "
            "would replace it: move it away, or name another directory (log_dir)"
        )


def check_own_step(directory: RunDirectory) -> None:
    """Checks that a training step may be kept in a directory; changes nothing.

    This runs before the step is known and before the script imports TensorFlow, so it recognizes a
    search by the files that are written first.

    Raises:
        LogError: a file belongs to another program; the message names it.
        OSError: a file cannot be read.
    """
    names = _readers(directory)
    readers: dict[str, Callable[[pathlib.Path], Any]] = {name: str for name in names}
    readers[TRIALS], readers[TRAINED_BY] = names[TRIALS], _read_texts
    check_own_files(directory.path, readers, _RECORDS)


def own_paths(path: str | os.PathLike[str] | None) -> list[pathlib.Path]:
    """Lists the files that a search may write in a directory; none without a directory."""
    if path is None:
        return []
    directory = RunDirectory(path)
    return [directory.path / name for name in _readers(directory)]


def _readers(directory: RunDirectory) -> Mapping[str, Callable[[pathlib.Path], Any]]:
    """Returns the readers of the files of a search by file name."""
    return {
        TRIALS: read_log_header,
        _REQUEST: lambda path: directory.read_machine(),
        TRAINED_BY: _read_texts,
        REFUSAL: lambda path: read_json(path)["reason"],
        directory.graph.name: _read_graph,
        "session_config": _read_config,
        "feeds": _read_tensors,
        "initializer_feeds": _read_tensors,
        "restored": _read_tensors,
        directory.problem.name: read_problem,
        directory.profile.name: lambda path: read_json(path)["problem_sha256"],
        directory.workers.name: read_log_header,
        directory.best.name: _read_placement,
        "training.jsonl": read_log_header,
        "policy.weights.h5": check_policy_file,
        "controllers.npz": check_policy_file,
        directory.result.name: str,  # The search itself reads and checks this file.
        directory.placement.name: _read_placement,
        directory.saved_models.name: lambda path: read_value(
            Mapping[str, Mapping[str, tuple[int, int]]], read_json(path), "it"
        ),
    }


def _read_graph(path: pathlib.Path) -> object:
    import tensorflow as tf

    return _parse_message(path, tf.compat.v1.GraphDef)


def _read_config(path: pathlib.Path) -> object:
    import tensorflow as tf

    return _parse_message(path, tf.compat.v1.ConfigProto)


def _read_placement(path: pathlib.Path) -> object:
    from graph_passes.placement import read_placement

    return read_placement(path)


def _read_tensors(path: pathlib.Path) -> None:
    from tf_placer.environments.tensor_file import check_tensors

    check_tensors(path)


def _parse_message(path: pathlib.Path, kind: Any) -> Any:
    """Reads a protocol buffer.

    Raises:
        ValueError: the file has no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _read_texts(path: pathlib.Path) -> object:
    return read_value(tuple[str, ...], read_json(path), "it")
