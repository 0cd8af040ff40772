"""Directories for files of the moment: nobody else reads them, and no kill leaves them for long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

__all__ = ["remove_scratch", "scratch_directory"]

_PREFIX = "tf_placer_scratch_"
_LOCK = "lock"
# What is in the lock: a name alone would not say who made the directory.
_MARK = b"A directory of tf_placer that is removed with all that it holds.\n"


@contextlib.contextmanager
def scratch_directory(
    parent: str | os.PathLike[str] | None = None, prefix: str = _PREFIX
) -> Iterator[str]:
    """Makes a directory that is gone at the end, or at the next start after a kill.

    Its name cannot be guessed, and only this user can look into it. Those that processes of this
    user have left behind in the same place are removed.

    Args:
        parent: an existing directory; the system's for temporary files when None.
        prefix: how its name begins, and that of those that are removed; a short one where sockets
            are in it.

    Yields:
        The path.

    Raises:
        OSError: it cannot be made.
    """
    base = tempfile.gettempdir() if parent is None else os.fspath(parent)
    remove_scratch(base, prefix)
    path = tempfile.mkdtemp(prefix=prefix, dir=base)
    new = os.path.join(path, "new")
    # Locked as long as this process lives, and only then called the lock.
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # File systems without locks have nothing removed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            os.write(lock, _MARK)
        except OSError as error:  # A full disk names no file.
            raise OSError(error.errno, error.strerror, path) from error
        os.replace(new, os.path.join(path, _LOCK))
        yield path
    finally:
        _remove(pathlib.Path(path))
        os.close(lock)


def remove_scratch(parent: str | os.PathLike[str] | None = None, prefix: str = _PREFIX) -> None:
    """Removes the directories that killed processes of this user have left behind in a place.

    They are known by their lock, which says so. Others of such a name stay.

    Args:
        parent: the place; the system's for temporary files when None.
        prefix: how their names begin.
    """
    base = tempfile.gettempdir() if parent is None else os.fspath(parent)
    for path in pathlib.Path(base).glob(f"{prefix}*"):
        # What cannot be opened is another user's, or has been removed meanwhile.
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
    """Removes a directory, the lock last: what somebody still writes there is found again."""
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
