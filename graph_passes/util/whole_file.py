"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat

__all__ = ["check_takes_files", "is_special", "remove_what_is_left", "write_whole"]

# Marks a file that is not whole yet: on Linux this bit of a file has no other meaning, and nobody
# sets it by chance. A name alone would not say who made the file.
_UNFINISHED = stat.S_ISVTX
_NAME_CHARS = 60
_TEMPORARY_NAME = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file; what was there before stays until the new one is whole.

    A link stays a link, a pipe or a device is written to, and a file keeps its permissions.

    Raises:
        OSError: it cannot be written; the error has the name of the file.
    """
    target = _target_of(path)
    try:
        if is_special(target):
            with open(target, "wb") as file:
                file.write(data)
        else:
            _replace(target, data)
    except OSError as error:
        # The name of the file, not that of something beside it; a full disk names none.
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def check_takes_files(path: str | os.PathLike[str]) -> None:
    """Makes sure that a file can be written to a path, and removes what a kill has left beside it.

    Raises:
        OSError: it cannot be.
    """
    target = _target_of(path)
    if is_special(target):
        return
    directory, name = os.path.split(target)
    remove_what_is_left(directory, name)
    temporary, file = _open_temporary(target)
    os.close(file)
    os.unlink(temporary)


def _target_of(path: str | os.PathLike[str]) -> str:
    """Finds what is written to: where links lead, but not those of /dev/stdout and the like."""
    path = os.path.abspath(path)
    return path if path.startswith(("/dev/", "/proc/")) else os.path.realpath(path)


def is_special(path: str) -> bool:
    """Says whether this is something like /dev/null, which must not be replaced by a file."""
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
            # Some file systems say only now that there was no room.
            os.fsync(file)
            os.replace(temporary, path)
            # Only now: what a kill leaves under the other name always has the mark.
            os.fchmod(file, mode)
        finally:
            os.close(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _open_temporary(path: str) -> tuple[str, int]:
    """Makes a file beside another one: a rename is atomic within one file system only.

    Its name cannot be guessed, so that nobody puts a link in its place. It is locked as long as
    this process lives, and marked as unfinished.

    Raises:
        OSError: it cannot be made, or the other file may not be written to.
    """
    if os.path.exists(path) and not os.access(path, os.W_OK):
        # A rename would replace what its owner has protected.
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


def remove_what_is_left(directory: str | os.PathLike[str], name: str = "") -> None:
    """Removes files that writers have left behind in a directory when they were killed.

    Args:
        directory: where they wrote to.
        name: of the file that they wrote; "" for all files.
    """
    try:
        there = os.listdir(directory)
    except OSError:
        return  # There is nothing that could be removed.
    for left in there:
        match = _TEMPORARY_NAME.fullmatch(left)
        if match is None or (name and match["name"] != name[:_NAME_CHARS]):
            continue
        path = os.path.join(directory, left)
        # What cannot be opened or locked is another user's, or is being written.
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
    """Says whether a file is one that a process of this user has not finished."""
    return (
        stat.S_ISREG(status.st_mode)
        and bool(status.st_mode & _UNFINISHED)
        and status.st_uid == os.getuid()
    )
