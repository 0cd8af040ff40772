"""The classification of a command's end: it works, reports one sentence, or is faulty."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import re
import traceback
from collections.abc import Sequence

__all__ = ["answer"]

_LIMIT_SECS = 120
_LONGEST_SENTENCE = 1500
# Words that mean something to people who write Python.
_PYTHON = re.compile(
    r"NoneType|object has no attribute|not subscriptable|unhashable|unsupported operand|"
    r"\bindices must be|object is not|not iterable|\[Errno|<class |positional argument|"
    r"Traceback|keyword argument|maximum recursion|could not convert|invalid literal|"
    r"'(int|str|float|list|dict|tuple|bool)' object"
)


def answer(command: Sequence[str]) -> tuple[str, str]:
    """Calls a command in this process, which ends if the command hangs.

    Returns:
        How it answered, "works" or "sentence" where nothing is wrong; and its last words.
    """
    from tf_placer.cli.answer import NO_VERDICT
    from tf_placer.cli.main import main as command_line

    output, errors = io.StringIO(), io.StringIO()
    faulthandler.dump_traceback_later(_LIMIT_SECS, exit=True)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            command_line(command)
    except SystemExit as end:
        if end.code in (None, 0, NO_VERDICT):
            return "works", ""
        words = end.code if isinstance(end.code, str) else errors.getvalue().strip()
        return _how(words), words
    except BaseException:
        return "traceback", traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    return "works", ""


def _how(words: str) -> str:
    """Says whether words are a sentence, or what else they are."""
    if not words.strip():
        return "silent"
    if len(words) > _LONGEST_SENTENCE:
        return "too long"
    if "\n" in words.strip():
        return "several lines"
    try:
        words.encode()
    except UnicodeEncodeError:
        return "cannot be printed"
    return "words of Python" if _PYTHON.search(words) else "sentence"
