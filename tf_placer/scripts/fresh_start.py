"""A process that begins anew, so that each stage has the memory of GPUs for itself."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from tf_placer.interpreter import interpreter

__all__ = ["FreshStart", "Stage"]

_STAGE = "TF_PLACER_RUN_STAGE"


class Stage(enum.Enum):
    """How far a process was when it began anew.

    Attributes:
        FIRST: it did not.
        SEARCHED: a search has ended, and is not gone on with now.
        ORIGINAL: the script is to run as Python alone runs it.
    """

    FIRST = ""
    SEARCHED = "searched"
    ORIGINAL = "original"


class FreshStart:
    """What the process was when it began.

    Attributes:
        stage: how far it was.
    """

    def __init__(self) -> None:
        self.stage = Stage(os.environ.pop(_STAGE, ""))
        self._environ = dict(os.environ)
        # Not its path: the directory may be deleted.
        self._directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._input_offset = _offset_of_input()

    def again(
        self, stage: Stage = Stage.FIRST, environ: Mapping[str, str] | None = None
    ) -> NoReturn:
        """Begins anew. Nothing that the script has open is ended in any other way.

        Args:
            stage: what the new process is to know.
            environ: its environment variables; those that this one began with when None.
        """
        import multiprocessing

        # Those of a pool wait for work that nobody gives them any more.
        for child in multiprocessing.active_children():
            if child.daemon:
                child.terminate()
        for stream in (sys.stdout, sys.stderr):
            # A script may have closed it, its disk may be full, and its reader gone.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os.fchdir(self._directory)
        if self._input_offset is not None:
            os.lseek(0, self._input_offset, os.SEEK_SET)
        environ = {**(environ or self._environ), **({_STAGE: stage.value} if stage.value else {})}
        python = interpreter()
        os.execve(python, [python, *sys.orig_argv[1:]], environ)


def _offset_of_input() -> int | None:
    """Finds where a file on standard input is to be read from again; None if it is none."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None
