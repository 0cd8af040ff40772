"""A process that begins anew, so that each stage has the memory of GPUs for itself."""

from __future__ import annotations

import enum
import os
import sys
from typing import NoReturn

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
        self._directory, self._environ = os.getcwd(), dict(os.environ)
        self._input_offset = _offset_of_input()

    def again(self, stage: Stage = Stage.FIRST) -> NoReturn:
        """Begins anew. Nothing that the script has open is ended in any other way.

        Args:
            stage: what the new process is to know.
        """
        import multiprocessing

        # Those of a pool wait for work that nobody gives them any more.
        for child in multiprocessing.active_children():
            if child.daemon:
                child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self._directory)
        if self._input_offset is not None:
            os.lseek(0, self._input_offset, os.SEEK_SET)
        environ = {**self._environ, **({_STAGE: stage.value} if stage.value else {})}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def _offset_of_input() -> int | None:
    """Finds where a file on standard input is to be read from again; None if it is none."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None
