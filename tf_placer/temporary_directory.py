"""Temporary directories that are removed even after their process was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

__all__ = ["remove_stale_directories", "temporary_directory"]

_PREFIX = "tf_placer_scratch_"
_LOCK = "lock"
# The content of the lock file, because a name alone would not prove that tf_placer made the
# directory.
_MARK = b"A directory of tf_placer that is removed with all that it holds.\n"


@contextlib.contextmanager
def temporary_directory(
    parent: str | os.PathLike[str] | None = None, prefix: str = _PREFIX
) -> Iterator[str]:
    """Creates a directory that is removed at the end of the block.

    If the process is killed, the next call for the same parent removes the directory. Its name
    cannot be guessed, and only this user can access it.

    Args:
        parent: an existing directory; None for the system's directory of temporary files.
        prefix: the prefix of its name, and of the stale directories that are removed. Use a short
            one for sockets, whose paths are limited in length.

    Yields:
        The path.

    Raises:
        OSError: the directory cannot be created.
    """
    base = tempfile.gettempdir() if parent is None else os.fspath(parent)
    remove_stale_directories(base, prefix)
    path = tempfile.mkdtemp(prefix=prefix, dir=base)
    new = os.path.join(path, "new")
    # Renamed to the lock file only after it is locked, and locked as long as this process lives.
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # On file systems without locks, stale directories are never removed.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            os.write(lock, _MARK)
        except OSError as error:  # The error of a full disk names no file.
            raise OSError(error.errno, error.strerror, path) from error
        os.replace(new, os.path.join(path, _LOCK))
        yield path
    finally:
        _remove(pathlib.Path(path))
        os.close(lock)


def remove_stale_directories(
    parent: str | os.PathLike[str] | None = None, prefix: str = _PREFIX
) -> None:
    """Removes the temporary directories of killed processes of this user.

    Only directories with a marked lock file are removed; others with such a name stay.

    Args:
        parent: the parent directory; None for the system's directory of temporary files.
        prefix: the prefix of their names.
    """
    base = tempfile.gettempdir() if parent is None else os.fspath(parent)
    for path in pathlib.Path(base).glob(f"{prefix}*"):
        # A lock file that cannot be opened belongs to another user, or was removed meanwhile.
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.pread(lock, len(_MARK) + 1, 0) == _MARK:
                    _remove(path)
            finally:
                os.close(lock)


def _remove(path: pathlib.Path) -> None:
    """Removes a directory, the lock file last.

    If a child process still writes files there, a later call can find and remove them by the lock.
    """
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            if each.name == _LOCK:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if all(each.name == _LOCK for each in path.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
