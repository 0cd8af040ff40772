"""Directories for files of the moment: nobody else reads them, and no kill leaves them for long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

__all__ = ["scratch_directory"]

_PREFIX = "tf_placer_scratch_"
_LOCK = "lock"


@contextlib.contextmanager
def scratch_directory(parent: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """Makes a directory that is gone at the end, or at the next start after a kill.

    Its name cannot be guessed, and only this user can look into it. Those that processes of this
    user have left behind in the same place are removed.

    Args:
        parent: an existing directory; the system's for temporary files when None.

    Yields:
        The path.

    Raises:
        OSError: it cannot be made.
    """
    base = tempfile.gettempdir() if parent is None else os.fspath(parent)
    _remove_what_is_left(base)
    path = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    new = os.path.join(path, "new")
    # Locked as long as this process lives, and only then called the lock.
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # File systems without locks have nothing removed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.replace(new, os.path.join(path, _LOCK))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_what_is_left(base: str) -> None:
    for path in pathlib.Path(base).glob(f"{_PREFIX}*"):
        # What cannot be opened is another user's, or has been removed meanwhile.
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
