"""SavedModel directories: what is in one, and another one that differs in its graphs only."""

from __future__ import annotations

import os
import shutil

from google.protobuf import message, text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

from graph_passes.errors import GraphError
from tf_placer.inputs.message_text import parse_message_text
from tf_placer.scratch import scratch_directory

__all__ = [
    "check_new_directory",
    "is_saved_model",
    "link_saved_model",
    "read_saved_model",
    "write_saved_model",
]

_BINARY, _TEXT, _IN_PARTS = "saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"
_FINGERPRINT = "fingerprint.pb"
_OF_GRAPHS = (_BINARY, _TEXT, _FINGERPRINT)


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Says whether a path is that of a SavedModel directory."""
    return any(os.path.lexists(os.path.join(path, name)) for name in (_BINARY, _TEXT, _IN_PARTS))


def read_saved_model(directory: str | os.PathLike[str]) -> saved_model_pb2.SavedModel:
    """Reads the graphs of a SavedModel directory, without the values of their variables.

    Raises:
        GraphError: they cannot be read, or are in several files, or a link in the directory leads
            to nothing.
    """
    directory = os.fspath(directory)
    path = _file(directory)
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
        raise GraphError(f"cannot read the SavedModel {path!r}: {error.strerror}") from error
    except (message.DecodeError, text_format.ParseError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{path!r} is not a SavedModel, or is cut short: {reason}") from error


def _check_links(directory: str) -> None:
    """Makes sure that all links of a SavedModel directory lead somewhere.

    Raises:
        GraphError: one does not.
    """
    for folder, folders, names in os.walk(directory):
        for name in sorted([*folders, *names]):
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                raise GraphError(f"the SavedModel {directory!r} has a link to nothing: {path!r}")


def check_new_directory(
    directory: str | os.PathLike[str], original: str | os.PathLike[str]
) -> None:
    """Makes sure, before any work, that a SavedModel can be written to a directory.

    Args:
        directory: where it is to go.
        original: the directory of the one that it is made from.

    Raises:
        GraphError: there is something already, it would be inside of the original, is called like
            a file of a graph, or cannot be written.
    """
    directory = os.path.abspath(directory)
    if os.path.splitext(directory)[1] in (".pb", ".pbtxt", ".meta"):
        raise GraphError(
            f"{directory!r} is called like a graph file: name a new directory for the SavedModel"
        )
    if os.path.lexists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise GraphError(f"{directory!r} is there already: name a new directory for the SavedModel")
    inside = os.path.join(os.path.realpath(original), "")
    if os.path.join(os.path.realpath(directory), "").startswith(inside):
        raise GraphError(
            f"{directory!r} is inside of the SavedModel itself: name a directory elsewhere"
        )
    try:
        with scratch_directory(os.path.dirname(os.path.realpath(directory))):
            pass
    except OSError as error:
        raise GraphError(
            f"cannot write to {os.path.dirname(directory)!r}: {error.strerror}"
        ) from error


def write_saved_model(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
) -> None:
    """Writes a SavedModel directory, whole or not at all.

    Args:
        directory: a new one, or one with nothing in it.
        saved_model: its graphs.
        original: the SavedModel directory that variables, assets and everything else are copied
            from; nothing in it changes.

    Raises:
        GraphError: as `check_new_directory`, or something cannot be read or written.
    """
    check_new_directory(directory, original)
    directory = os.path.realpath(directory)
    try:
        # Beside it: a rename is atomic within one file system only.
        with scratch_directory(os.path.dirname(directory)) as scratch:
            new = os.path.join(scratch, "model")
            shutil.copytree(original, new, ignore=shutil.ignore_patterns(*_OF_GRAPHS))
            _write_graphs(new, saved_model, original)
            os.rename(new, directory)
    except (OSError, fingerprinting.FingerprintException) as error:  # shutil.Error, too
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
            reason = str(error.args[0][0][-1])  # Of the first file that cannot be copied.
        raise GraphError(f"cannot write the SavedModel {directory!r}: {reason}") from error


def link_saved_model(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
) -> None:
    """Makes a SavedModel of a directory; variables and assets are links to those of another one.

    Args:
        directory: a directory with nothing in it.
        saved_model: its graphs.
        original: the SavedModel directory that everything else is linked from.

    Raises:
        OSError: something cannot be written.
    """
    for name in os.listdir(original):
        if name not in _OF_GRAPHS:
            path = os.path.realpath(os.path.join(original, name))
            os.symlink(path, os.path.join(directory, name))
    _write_graphs(directory, saved_model, original)


def _write_graphs(
    directory: str | os.PathLike[str],
    saved_model: saved_model_pb2.SavedModel,
    original: str | os.PathLike[str],
) -> None:
    """Writes the graphs in the form that the original has, and says which ones they are."""
    name = os.path.basename(_file(original))
    is_text = name == _TEXT
    content = (
        text_format.MessageToString(saved_model).encode()
        if is_text
        else saved_model.SerializeToString(deterministic=True)
    )
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)
    # It is made of the graphs; old SavedModels have none, and it can be done without.
    if os.path.exists(os.path.join(original, _FINGERPRINT)) and not is_text:
        fingerprint = fingerprinting.CreateFingerprintDef(os.fspath(directory))
        with open(os.path.join(directory, _FINGERPRINT), "wb") as file:
            file.write(fingerprint)


def _file(directory: str | os.PathLike[str]) -> str:
    for name in (_BINARY, _TEXT, _IN_PARTS):
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            return path
    raise GraphError(f"{os.fspath(directory)!r} is no SavedModel: it has no {_BINARY}")
