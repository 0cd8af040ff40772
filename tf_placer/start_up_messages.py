"""Filters TensorFlow's start-up messages from standard error.

TensorFlow 2.21 writes some of them before it reads `TF_CPP_MIN_LOG_LEVEL`, and from C++, past
`sys.stderr`. So file descriptor 2 leads to another process, which filters and forwards the output;
this also works if this process is aborted. Output of Python bypasses the filter.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

__all__ = ["hide_start_up_messages", "is_start_up_message"]

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Information and warnings in both formats of TensorFlow's log.
_MESSAGE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|[IW]\d{4} \d\d:\d\d:\S+ +\d+ \S+\.(cc|cu|h|inc):\d+\] "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] "
    rb"|To enable the following instructions: .* rebuild TensorFlow"
)
_READ_BYTES = 65536
# Limited, because a process that has inherited the file descriptor may keep the filter alive.
_WAIT_SECS = 2.0


def is_start_up_message(line: bytes) -> bool:
    """Says whether a line is information or a warning of TensorFlow."""
    return _MESSAGE.match(line) is not None


@contextlib.contextmanager
def hide_start_up_messages() -> Iterator[None]:
    """Filters information and warnings of TensorFlow from standard error in the block.

    Does nothing if the user has set `TF_CPP_MIN_LOG_LEVEL`, if TensorFlow is imported already, or
    if `sys.stderr` is not the original standard error.
    """
    if (
        _LEVEL in os.environ
        or "tensorflow" in sys.modules
        or sys.stderr is not sys.__stderr__
        or sys.stderr is None
        or sys.stderr.closed
        or sys.stderr.fileno() != 2
        or (filter_process := _start_filter()) is None
    ):
        yield
        return
    os.environ[_LEVEL] = "2"
    before = sys.stderr
    _flush(before)
    original = os.dup(2)
    assert filter_process.stdin is not None
    os.dup2(filter_process.stdin.fileno(), 2)
    filter_process.stdin.close()
    sys.stderr = open(  # noqa: SIM115
        original, "w", buffering=1, encoding=before.encoding, errors=before.errors, closefd=False
    )
    try:
        yield
    finally:
        _flush(sys.stderr)
        sys.stderr = before
        os.dup2(original, 2)
        os.close(original)
        del os.environ[_LEVEL]
        with contextlib.suppress(subprocess.TimeoutExpired):
            filter_process.wait(_WAIT_SECS)


def _start_filter() -> subprocess.Popen[bytes] | None:
    """Starts the filter process; None if it cannot be started."""
    # Imported here, because this file as a script cannot import this package.
    from tf_placer.descriptors import open_standard_files
    from tf_placer.errors import SearchError
    from tf_placer.interpreter import find_interpreter

    open_standard_files()
    try:
        # In its own session, so that Ctrl-C does not end the filter before this process has written
        # its last lines.
        command = [find_interpreter(), "-I", "-S", os.path.abspath(__file__)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except (OSError, SearchError):
        return None


def _flush(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # The disk is full, or the stream is closed.
        stream.flush()


def _filter_input() -> None:
    """Copies standard input to standard error, without start-up messages."""
    rest = b""
    while chunk := os.read(0, _READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        kept = b"".join(line + b"\n" for line in lines if not is_start_up_message(line))
        if kept:
            os.write(2, kept)
    if rest and not is_start_up_message(rest):
        os.write(2, rest)


if __name__ == "__main__":
    _filter_input()
