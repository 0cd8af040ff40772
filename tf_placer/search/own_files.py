"""Files of a search, told from files of the same names that somebody else has made."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from graph_passes.util.json_records import check_entries, read_record
from graph_passes.util.json_text import parse_json
from tf_placer.search.log_file import is_torn_header
from tf_placer.search.log_header import HeaderFacts, LogError

__all__ = ["check_own_files", "read_log_header", "read_of_training"]

_TRAINING = "training.jsonl"

# What a reader raises where a file is something else.
_SOMETHING_ELSE = (KeyError, MemoryError, OverflowError, TypeError, ValueError)


def check_own_files(
    directory: str | os.PathLike[str],
    readers: Mapping[str, Callable[[pathlib.Path], Any]],
    records: Collection[str],
) -> None:
    """Makes sure that what a search would replace or append to in a directory is that of a search.

    Args:
        directory: of the search; it need not exist.
        readers: by the name of each file that a search writes, what reads it. A reader raises an
            error where the file is something else, and returns None where it says nothing.
        records: the names of the files of which a search writes one before all others, so that a
            directory without any is not that of a search.

    Raises:
        LogError: a file is somebody else's; the message names it.
        OSError: a file cannot be read.
    """
    there = []
    has_record = False
    for name, read in readers.items():
        path = pathlib.Path(directory, name)
        if not os.path.lexists(path):
            continue
        if path.is_symlink() or not path.is_file():
            raise _refusal(path)  # A search makes neither links nor anything but plain files.
        try:
            value = read(path)
        except _SOMETHING_ELSE:
            raise _refusal(path) from None
        there.append(path)
        has_record |= name in records and value is not None
    others = [path for path in there if path.name not in records]
    if others and not has_record:
        raise _refusal(others[0])


def _refusal(path: pathlib.Path) -> LogError:
    return LogError(
        f"'{path}' is there, and is not what a search has written, but a search would write a file "
        "of that name: move it away, or name another directory (log_dir)"
    )


def read_log_header(path: pathlib.Path) -> Mapping[str, Any] | None:
    """Reads the header of a log of any kind; None if a kill has left less than one.

    Raises:
        ValueError: the file is no log.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        line = file.readline()
    try:
        header = parse_json(line)
    except ValueError:
        if is_torn_header(line):
            return None
        raise
    check_entries(header, ("format", "placer", "seed"))
    read_record(HeaderFacts, header)
    return dict(header)


def read_of_training(path: pathlib.Path) -> None:
    """Accepts what a placer that learns has saved, which has a training log beside it.

    Raises:
        ValueError: it has none.
    """
    if not path.with_name(_TRAINING).is_file():
        raise ValueError("no placer has learned there")
