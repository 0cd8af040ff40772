"""Atomic writes of files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat

__all__ = ["check_file_writable", "is_special", "remove_unfinished_files", "write_atomically"]

# The sticky bit marks an unfinished file: on Linux it has no other meaning for files, and nobody
# sets it by chance. The name alone would not prove that this module made the file.
_UNFINISHED = stat.S_ISVTX
_NAME_CHARS = 60
_TEMPORARY_NAME = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file atomically: the old content stays until the new one is complete.

    Links are followed, pipes and devices are written to, and files keep their permissions.

    Raises:
        OSError: the file cannot be written; the error has its name.
    """
    target = _resolve_target(path)
    try:
        if is_special(target):
            with open(target, "wb") as file:
                file.write(data)
        else:
            _replace(target, data)
    except OSError as error:
        # The original error names the temporary file, or none where the disk is full.
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def check_file_writable(path: str | os.PathLike[str]) -> None:
    """Checks that `write_atomically` can write to a path, and removes temporary files beside it.

    Only the temporary files of killed writers are removed.

    Raises:
        OSError: the path cannot be written to.
    """
    target = _resolve_target(path)
    if is_special(target):
        return
    directory, name = os.path.split(target)
    remove_unfinished_files(directory, name)
    temporary, file = _open_temporary(target)
    os.close(file)
    os.unlink(temporary)


def _resolve_target(path: str | os.PathLike[str]) -> str:
    """Follows links, except those of /dev/stdout and the like."""
    path = os.path.abspath(path)
    return path if path.startswith(("/dev/", "/proc/")) else os.path.realpath(path)


def is_special(path: str) -> bool:
    """Returns whether a path is a pipe or device, which must not be replaced by a file."""
    return path.startswith(("/dev/fd/", "/dev/std", "/proc/")) or (
        os.path.exists(path) and not os.path.isfile(path)
    )


def _replace(path: str, data: bytes) -> None:
    temporary, file = _open_temporary(path)
    try:
        try:
            mode = os.fstat(file).st_mode & 0o777
            with contextlib.suppress(FileNotFoundError):
                mode = os.stat(path).st_mode & 0o777
                os.fchmod(file, mode | _UNFINISHED)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            # Some file systems report a full disk only here.
            os.fsync(file)
            os.replace(temporary, path)
            # Unmark after the rename, so that every temporary file of a killed writer is marked.
            os.fchmod(file, mode)
        finally:
            os.close(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _open_temporary(path: str) -> tuple[str, int]:
    """Creates a temporary file beside a file: renames are atomic only within one file system.

    Its name cannot be guessed, so that nobody can plant a link there. It is locked until this
    process ends, and marked as unfinished.

    Raises:
        OSError: it cannot be created, or the existing file is not writable.
    """
    if os.path.exists(path) and not os.access(path, os.W_OK):
        # A rename would replace the file although it is write-protected.
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
    directory, name = os.path.split(path)
    # Names may be up to 255 bytes.
    short = name[:_NAME_CHARS]
    temporary = os.path.join(directory, f".{short}.{secrets.token_hex(8)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(temporary, flags, 0o666 | _UNFINISHED)
    with contextlib.suppress(OSError):  # Some file systems have no locks.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return temporary, file


def remove_unfinished_files(directory: str | os.PathLike[str], name: str = "") -> None:
    """Removes the temporary files of killed writers.

    Args:
        directory: the directory of the written files.
        name: the name of the written file; "" for all files.
    """
    try:
        there = os.listdir(directory)
    except OSError:
        return
    for left in there:
        match = _TEMPORARY_NAME.fullmatch(left)
        if match is None or (name and match["name"] != name[:_NAME_CHARS]):
            continue
        path = os.path.join(directory, left)
        # A file that cannot be opened or locked is another user's, or is being written.
        with contextlib.suppress(OSError):
            if not _is_unfinished(os.lstat(path)):
                continue
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_unfinished(os.fstat(file)):
                    os.unlink(path)
            finally:
                os.close(file)


def _is_unfinished(status: os.stat_result) -> bool:
    """Returns whether a file is an unfinished file of this user."""
    return (
        stat.S_ISREG(status.st_mode)
        and bool(status.st_mode & _UNFINISHED)
        and status.st_uid == os.getuid()
    )
