"""Restarts this process, so that each stage has all GPU memory."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from tf_placer.interpreter import find_interpreter
from tf_placer.scripts.event_files import flush_event_files
from tf_placer.text.notes import say

__all__ = ["ProcessRestart", "Stage"]

_STAGE, _NOTES = "TF_PLACER_RUN_STAGE", "TF_PLACER_RUN_NOTES"


class Stage(enum.Enum):
    """The stage of a run after which the process was restarted.

    Attributes:
        FIRST: the process was not restarted, or starts over.
        SEARCHED: a search has ended, and must not be resumed now.
        ORIGINAL: placing has failed, so that the script has to run without tf_placer.
    """

    FIRST = ""
    SEARCHED = "searched"
    ORIGINAL = "original"


class ProcessRestart:
    """The state of the process at its start, which a restart recreates.

    Attributes:
        stage: the stage that the process was started for.
        notes: lines that the user was told, also before a restart.
    """

    def __init__(self) -> None:
        self.stage = Stage(os.environ.pop(_STAGE, ""))
        self.notes: list[str] = json.loads(os.environ.pop(_NOTES, "[]"))
        self._environ = dict(os.environ)
        # A descriptor, because the directory may be renamed or deleted.
        self._directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._input_offset = _read_input_offset()

    def tell(self, line: str) -> None:
        """Prints a line for the user, and notes it."""
        self.notes.append(line)
        say(line)

    def restart(
        self, stage: Stage = Stage.FIRST, environ: Mapping[str, str] | None = None
    ) -> NoReturn:
        """Restarts the process, without running exit handlers of the script.

        Args:
            stage: the stage of the new process.
            environ: the environment variables of the new process; None for the initial ones of this
                process.
        """
        import multiprocessing

        # The workers of a pool would wait forever for work.
        for child in multiprocessing.active_children():
            if child.daemon:
                child.terminate()
        flush_event_files()
        for stream in (sys.stdout, sys.stderr):
            # The script may have closed the stream, the disk may be full, or the reader gone.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os.fchdir(self._directory)
        if self._input_offset is not None:
            os.lseek(0, self._input_offset, os.SEEK_SET)
        environ = {**(environ or self._environ), **({_STAGE: stage.value} if stage.value else {})}
        if self.notes:
            environ[_NOTES] = json.dumps(self.notes)
        python = find_interpreter()
        os.execve(python, [python, *sys.orig_argv[1:]], environ)


def _read_input_offset() -> int | None:
    """Returns the read position of standard input; None if it is not a seekable file."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None
