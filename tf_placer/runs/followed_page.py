"""The page about a live search, made anew while the search runs."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator

from tf_placer.report.page.page import write_page
from tf_placer.runs.run_directory import TRIALS, RunDirectory
from tf_placer.runs.run_page import read_run_view
from tf_placer.search.log_file import is_being_written

__all__ = ["follow_search"]

_RELOAD_SECS = 5.0
_CHECK_SECS = 2.0
# A page takes seconds of a core that the search may be timed on: pause for this multiple of them.
_PAUSE_RATIO = 4.0


def follow_search(
    searched: str | os.PathLike[str],
    path: str | os.PathLike[str],
    problem: str | os.PathLike[str] | None = None,
) -> Iterator[None]:
    """Writes the page of a search, again when the log has grown, and a last time at its end.

    A directory without a search is waited for. In a browser, the page loads itself again as long as
    the search runs. A search that has ended has one page.

    Args:
        searched: the directory of the search.
        path: the file of the page (.html), which is replaced atomically.
        problem: as `read_run_view` takes it.

    Yields:
        None after each page.

    Raises:
        ImportError, OSError, ValueError: as `read_run_view` and `write_page` raise them.
    """
    log = pathlib.Path(searched) / TRIALS
    while not (_has_content(log) or RunDirectory(searched).result.exists()):
        time.sleep(_CHECK_SECS)
    shown_bytes = None
    while True:
        # Ask first: a search that ends meanwhile has completed its files.
        is_running = is_being_written(log)
        log_bytes = log.stat().st_size if is_running else None
        start_secs = time.process_time()
        if not is_running or log_bytes != shown_bytes:
            view = dataclasses.replace(read_run_view(searched, problem), name=os.fspath(searched))
            write_page(view, path, reload_secs=_RELOAD_SECS if is_running else None)
            shown_bytes = log_bytes
            yield
        if not is_running:
            return
        cpu_secs = time.process_time() - start_secs
        time.sleep(max(_CHECK_SECS, _PAUSE_RATIO * cpu_secs))


def _has_content(path: pathlib.Path) -> bool:
    return path.exists() and path.stat().st_size > 0
