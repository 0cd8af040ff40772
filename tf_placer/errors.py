"""The error of a failed search, and error messages for users."""

from __future__ import annotations

import importlib.util
import os

__all__ = ["NoAnswerError", "SearchError", "describe_error", "require_tensorflow"]


class SearchError(RuntimeError):
    """The error of a search that could not be carried out; the message says what to do."""


class NoAnswerError(SearchError):
    """The error where an answer is required, and none was kept."""


def describe_error(error: BaseException) -> str:
    """Returns the message of an error for users, without the number of a system error."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    reason = str(error.strerror)
    if isinstance(error.filename, int):
        return f"file descriptor {error.filename}: {reason}"
    if error.filename is not None:
        return f"{os.fsdecode(error.filename) or 'a file with an empty name'}: {reason}"
    if _is_directory_missing(error):
        return "the working directory has been deleted: go to another one, or give whole paths"
    return reason


def _is_directory_missing(error: OSError) -> bool:
    """Says whether the cause of an error is a deleted working directory."""
    if not isinstance(error, FileNotFoundError):
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def require_tensorflow() -> None:
    """Checks that TensorFlow is installed, without importing it.

    Raises:
        ImportError: TensorFlow is not installed; the message says how to install it.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise ImportError(
            "tf_placer needs TensorFlow 2.14 to 2.21: pip install 'tf_placer[cpu]', or "
            "'tf_placer[gpu]' for NVIDIA GPUs"
        )
