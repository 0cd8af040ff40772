"""Reads the graphs of SavedModel directories, and writes copies with other graphs."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from google.protobuf import message, text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

from graph_passes.errors import GraphError
from tf_placer.files import read_json, write_json
from tf_placer.inputs.message_text import parse_message_text
from tf_placer.temporary_directory import temporary_directory

__all__ = [
    "check_new_directory",
    "is_saved_model",
    "link_saved_model",
    "read_saved_model",
    "write_saved_model",
]

_BINARY, _TEXT, _IN_PARTS = "saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"
_FINGERPRINT = "fingerprint.pb"
_GRAPH_FILES = (_BINARY, _TEXT, _FINGERPRINT)


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Says whether a path is a SavedModel directory."""
    return any(os.path.lexists(os.path.join(path, name)) for name in (_BINARY, _TEXT, _IN_PARTS))


def read_saved_model(directory: str | os.PathLike[str]) -> saved_model_pb2.SavedModel:
    """Reads the graphs of a SavedModel directory, without the values of their variables.

    Raises:
        GraphError: the directory has no graphs or has them in several files, or contains a broken
            link.
        OSError: the graphs cannot be read; the message names their file.
    """
    directory = os.fspath(directory)
    path = _find_file(directory)
    _check_links(directory)
    if path.endswith(_IN_PARTS):
        raise GraphError(
            f"the SavedModel {directory!r} is too big for one {_BINARY}, and those in parts cannot "
            "be placed: pass the tf.function or Keras model that it was saved from"
        )
    try:
        with open(path, "rb") as file:
            content = file.read()
        if path.endswith(_TEXT):
            return parse_message_text(content, saved_model_pb2.SavedModel)
        return saved_model_pb2.SavedModel.FromString(content)
    except OSError as error:
        raise type(error)(f"cannot read the SavedModel {path!r}: {error.strerror}") from error
    except (message.DecodeError, text_format.ParseError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{path!r} is not a SavedModel, or is cut short: {reason}") from error


def _check_links(directory: str) -> None:
    """Checks that a SavedModel directory has no broken links.

    Raises:
        GraphError: there is a broken link.
    """
    for folder, folders, names in os.walk(directory):
        for name in sorted([*folders, *names]):
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                raise GraphError(f"the SavedModel {directory!r} has a link to nothing: {path!r}")


def check_new_directory(
    directory: str | os.PathLike[str],
    original: str | os.PathLike[str],
    record: str | os.PathLike[str] | None = None,
) -> None:
    """Checks, before any work, that a SavedModel can be written to a directory.

    Args:
        directory: the new directory, or one that the record has and nobody has changed since.
        original: the directory of the original SavedModel.
        record: the file in which a search records the SavedModels that it writes; it need not
            exist.

    Raises:
        GraphError: the directory exists, is not empty, and is not in the record; is inside of the
            original, or has the file name extension of a graph file.
        OSError: the directory cannot be written.
        OSError, ValueError: the record cannot be read.
    """
    directory = os.path.abspath(directory)
    if os.path.splitext(directory)[1] in (".pb", ".pbtxt", ".meta"):
        raise GraphError(
            f"{directory!r} is called like a graph file: name a new directory for the SavedModel"
        )
    is_new = not os.path.lexists(directory) or (
        os.path.isdir(directory) and not os.listdir(directory)
    )
    if not is_new and not _is_recorded(directory, record):
        raise GraphError(f"{directory!r} is there already: name a new directory for the SavedModel")
    inside = os.path.join(os.path.realpath(original), "")
    if os.path.join(os.path.realpath(directory), "").startswith(inside):
        raise GraphError(
            f"{directory!r} is inside of the SavedModel itself: name a directory elsewhere"
        )
    try:
        with temporary_directory(os.path.dirname(os.path.realpath(directory))):
            pass
    except OSError as error:
        raise type(error)(
            f"cannot write to {os.path.dirname(directory)!r}: {error.strerror}"
        ) from error


def write_saved_model(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
    record: str | os.PathLike[str] | None = None,
) -> None:
    """Writes a SavedModel directory atomically.

    Args:
        directory: a new or empty directory, or one of the record, which is replaced.
        saved_model: the graphs.
        original: the SavedModel directory from which variables, assets and all other files are
            copied; it is not changed.
        record: the file of the search to which the directory is added, so that the search may
            replace it later; None for none.

    Raises:
        GraphError: see `check_new_directory`; or the graphs have no fingerprint.
        OSError: a file cannot be read or written.
        OSError, ValueError: the record cannot be read.
    """
    check_new_directory(directory, original, record)
    directory = os.path.realpath(directory)
    try:
        # In the same parent directory, because a rename is atomic within one file system only.
        with temporary_directory(os.path.dirname(directory)) as scratch:
            new = os.path.join(scratch, "model")
            shutil.copytree(original, new, ignore=shutil.ignore_patterns(*_GRAPH_FILES))
            _write_graphs(new, saved_model, original)
            if _is_recorded(directory, record):
                os.rename(directory, os.path.join(scratch, "replaced"))
            os.rename(new, directory)
    except (OSError, fingerprinting.FingerprintException) as error:  # shutil.Error, too
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
            reason = str(error.args[0][0][-1])  # The first of the files that cannot be copied.
        kind = OSError if isinstance(error, OSError) else GraphError
        raise kind(f"cannot write the SavedModel {directory!r}: {reason}") from error
    if record is not None:
        # The SavedModel is written: without a record, the next call asks for another directory.
        with contextlib.suppress(OSError):
            write_json(record, {**_read_record(record), directory: _list_files(directory)})


def _is_recorded(directory: str, record: str | os.PathLike[str] | None) -> bool:
    """Returns whether a directory has exactly the files of the record, as they were written."""
    if record is None or not os.path.isdir(directory):
        return False
    directory = os.path.realpath(directory)
    return _read_record(record).get(directory) == _list_files(directory)


def _read_record(record: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the files of SavedModels by directory; none without a record.

    Raises:
        OSError, ValueError: the record cannot be read.
    """
    value = read_json(record) if os.path.exists(record) else {}
    return value if isinstance(value, dict) else {}


def _list_files(directory: str) -> dict[str, list[int]]:
    """Lists the sizes in bytes and times of modification in ns of all files in a directory."""
    files = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            files[os.path.relpath(path, directory)] = [status.st_size, status.st_mtime_ns]
    return files


def link_saved_model(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
) -> None:
    """Writes a SavedModel whose variables and assets are links to those of another one.

    Args:
        directory: an empty directory.
        saved_model: the graphs.
        original: the SavedModel directory to which the links lead.

    Raises:
        OSError: a file cannot be written.
    """
    for name in os.listdir(original):
        if name not in _GRAPH_FILES:
            path = os.path.realpath(os.path.join(original, name))
            os.symlink(path, os.path.join(directory, name))
    _write_graphs(directory, saved_model, original)


def _write_graphs(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
) -> None:
    """Writes the graphs in the format of the original, and their fingerprint if it has one."""
    name = os.path.basename(_find_file(original))
    is_text = name == _TEXT
    content = (
        text_format.MessageToString(saved_model).encode()
        if is_text
        else saved_model.SerializeToString(deterministic=True)
    )
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)
    # The fingerprint depends on the graphs. It is optional, and old SavedModels have none.
    if os.path.exists(os.path.join(original, _FINGERPRINT)) and not is_text:
        fingerprint = fingerprinting.CreateFingerprintDef(os.fspath(directory))
        with open(os.path.join(directory, _FINGERPRINT), "wb") as file:
            file.write(fingerprint)


def _find_file(directory: str | os.PathLike[str]) -> str:
    for name in (_BINARY, _TEXT, _IN_PARTS):
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            return path
    raise GraphError(f"{os.fspath(directory)!r} is no SavedModel: it has no {_BINARY}")
