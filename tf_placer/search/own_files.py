"""Checks that the files in a directory of a search were written by a search."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from graph_passes.util.json_records import check_entries, read_record
from graph_passes.util.json_text import parse_json
from tf_placer.search.log_file import is_torn_header
from tf_placer.search.log_header import HeaderFacts, LogError

__all__ = ["check_own_files", "check_policy_file", "read_log_header"]

_TRAINING = "training.jsonl"

_WRONG_CONTENT_ERRORS = (KeyError, MemoryError, OverflowError, TypeError, ValueError)


def check_own_files(
    directory: str | os.PathLike[str],
    readers: Mapping[str, Callable[[pathlib.Path], Any]],
    records: Collection[str],
) -> None:
    """Checks that the files that a search would replace or append to were written by a search.

    Args:
        directory: directory of the search; it need not exist.
        readers: a reader for each file that a search writes, by name. A reader raises an error if
            the file has other content, and returns None if the file has no information.
        records: the names of files of which a search writes one before all others. A directory
            without any of them does not belong to a search.

    Raises:
        LogError: a file was not written by a search; the message names the file.
        OSError: a file cannot be read.
    """
    there = []
    has_record = False
    for name, read in readers.items():
        path = pathlib.Path(directory, name)
        if not os.path.lexists(path):
            continue
        if path.is_symlink() or not path.is_file():
            raise _make_refusal(path)  # A search writes only regular files.
        try:
            value = read(path)
        except _WRONG_CONTENT_ERRORS:
            raise _make_refusal(path) from None
        there.append(path)
        has_record |= name in records and value is not None
    others = [path for path in there if path.name not in records]
    if others and not has_record:
        raise _make_refusal(others[0])


def _make_refusal(path: pathlib.Path) -> LogError:
    return LogError(
        f"'{path}' is there, and is not what a search has written, but a search would write a file "
        "of that name: move it away, or name another directory (log_dir)"
    )


def read_log_header(path: pathlib.Path) -> Mapping[str, Any] | None:
    """Reads the header of a log of any kind; None if a crash has cut it off.

    Raises:
        ValueError: the file is no log.
        OSError: the file cannot be read.
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


def check_policy_file(path: pathlib.Path) -> None:
    """Checks that a saved policy has a training log beside it.

    Raises:
        ValueError: there is no training log.
    """
    if not path.with_name(_TRAINING).is_file():
        raise ValueError("no placer has learned there")
