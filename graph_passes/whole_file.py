"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets

__all__ = ["check_takes_files", "is_special", "remove_what_is_left", "write_whole"]

_SUFFIX = ".tmp"


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
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file, os.stat(path).st_mode & 0o777)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            # Some file systems say only now that there was no room.
            os.fsync(file)
            os.replace(temporary, path)
        finally:
            os.close(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _open_temporary(path: str) -> tuple[str, int]:
    """Makes a file beside another one: a rename is atomic within one file system only.

    Its name cannot be guessed, so that nobody puts a link in its place. It is locked as long as
    this process lives.
    """
    directory, name = os.path.split(path)
    # Names may be up to 255 bytes.
    temporary = os.path.join(directory, f".{name[:60]}.{secrets.token_hex(8)}{_SUFFIX}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(temporary, flags, 0o666)
    with contextlib.suppress(OSError):  # Some file systems have no locks.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return temporary, file


def remove_what_is_left(directory: str | os.PathLike[str], name: str = "") -> None:
    """Removes files that writers have left behind in a directory when they were killed.

    Args:
        directory: where they wrote to.
        name: of the file that they wrote; "" for all files.
    """
    begin = f".{name[:60]}." if name else "."
    for left in glob.glob(f"{glob.escape(os.path.join(directory, begin))}*{_SUFFIX}"):
        # What cannot be opened or locked is another user's, or is being written.
        with contextlib.suppress(OSError):
            file = os.open(left, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.fstat(file).st_uid == os.getuid():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(left)
            finally:
                os.close(file)
