"""Starts the process that searches, and listens to it."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import threading
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.errors import GraphError
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.hosted_worker import WorkerHost
from tf_placer.errors import SearchError
from tf_placer.live.messages import pass_on
from tf_placer.processes import (
    ChildDied,
    ChildProcess,
    ChildStopped,
    ChildTimeout,
    await_message,
    environment_without_gpus,
)
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.callbacks import Callback
from tf_placer.search.trial_log import LogError

__all__ = ["SearchKilledError", "run_search"]

# What the search process tells of an error is its class and its message.
_ERRORS: Mapping[str, type[Exception]] = {
    "GraphError": GraphError,
    "LogError": LogError,
    "OSError": OSError,
    "ValueError": ValueError,
}
# The first interrupt ends the search, the second the confirmation.
_PATIENCE = 2
_PAUSE_SECS = 0.2


class SearchKilledError(SearchError):
    """A signal ended the process that searches: nothing says that the next one will end so."""


def run_search(
    directory: RunDirectory,
    given: str,
    callback: Callback,
    start_secs: float,
    host: WorkerHost | None = None,
) -> Outcome:
    """Runs the process that searches.

    Args:
        directory: where everything goes; it is another one afterwards, if that could not be
            written.
        given: the directory with the request.
        callback: hears all that the process says of the search. Where it wants that to end, the
            process is told so, once.
        start_secs: when the time of the search began, by `time.monotonic`.
        host: runs the sessions in this process; None for a process of their own.

    Returns:
        How the search ended.

    Raises:
        GraphError, LogError, OSError, SearchError, ValueError: the request cannot be met; the
            message says why.
        KeyboardInterrupt: the search was interrupted more often than it has stages to end.
    """
    child = ChildProcess(
        "the search",
        "tf_placer.live.run",
        {
            "request": given,
            "directory": str(directory.path),
            "start_secs": start_secs,
            "host": None if host is None else host.fileno(),
        },
        log_path=pathlib.Path(given, "search.log"),
        environ=environment_without_gpus(),
        pass_fds=() if host is None else (host.fileno(),),
    )
    try:
        with _interrupts_sent_to(child):
            last = _listen(child, callback)
        if "error" in last:
            raise _ERRORS.get(last["kind"], SearchError)(last["error"])
        # A disk that was full may have moved it.
        directory.path = pathlib.Path(last["directory"])
        return Outcome(last["outcome"])
    except ChildDied as death:
        text = f"{death}: {child.log_tail()}" if child.log_tail() else str(death)
        if directory.trials.exists():
            text += (
                f"; every finished trial is in {directory.trials}: the same call with "
                f"log_dir={str(directory.path)!r} goes on there"
            )
        is_killed = (child.exit_code or 0) < 0
        raise (SearchKilledError if is_killed else SearchError)(text) from None
    finally:
        child.stop()


def _listen(child: ChildProcess, callback: Callback) -> Mapping[str, Any]:
    """Passes on what a search process says until it says how the search ended; returns that.

    Raises:
        ChildDied: it ended without.
    """
    was_ended = False
    while True:
        try:
            # A trial may take long, and has its own time limit.
            messages = await_message(child, [], time.monotonic() + 1e6)
        except ChildStopped as stopped:
            # Whoever stops a search may want to have it go on.
            callback.on_note(f"{stopped}: `kill -CONT {child.pid}` lets it go on")
            while child.is_stopped():
                time.sleep(_PAUSE_SECS)
            continue
        for message in messages:
            if "error" in message or "outcome" in message:
                return message
            # A second request would end the confirmation, too.
            if pass_on(message, callback) and not was_ended:
                was_ended = True
                _ask_to_end(child)


def _ask_to_end(child: ChildProcess) -> None:
    """Asks a search to end, if it has not ended."""
    with contextlib.suppress(ChildDied, ChildTimeout):
        child.send({"command": "end"}, time.monotonic() + 1.0)


@contextlib.contextmanager
def _interrupts_sent_to(child: ChildProcess) -> Iterator[None]:
    """Lets interrupts from the keyboard end a search; who insists gets a KeyboardInterrupt.

    Nothing is changed where this is not the main thread, or where interrupts are not Python's.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    count = 0

    def handle(number: int, frame: types.FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > _PATIENCE:
            raise KeyboardInterrupt
        _ask_to_end(child)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
