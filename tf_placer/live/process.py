"""Starts the process of a search, and receives its messages."""

from __future__ import annotations

import contextlib
import math
import pathlib
import signal
import threading
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.clearing_advice import find_clearing_setting
from graph_passes.errors import GraphError
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.in_process_worker import WorkerHost
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
from tf_placer.search.trial_log import LogError, read_log
from tf_placer.text.units import format_duration

__all__ = ["SearchKilledError", "run_search"]

# The process of the search sends the class and the message of an error.
_ERRORS: Mapping[str, type[Exception]] = {
    "GraphError": GraphError,
    "LogError": LogError,
    "OSError": OSError,
    "ValueError": ValueError,
}
# The first interrupt ends the search, the second the confirmation.
_MAX_INTERRUPTS = 2
_PAUSE_SECS = 0.2


class SearchKilledError(SearchError):
    """The process of a search was killed by a signal, so another attempt may succeed."""


def run_search(
    directory: RunDirectory,
    given: str,
    callback: Callback,
    start_secs: float,
    host: WorkerHost | None = None,
    *,
    forks: bool = False,
    max_secs: float = math.inf,
) -> Outcome:
    """Runs a search in a process of its own.

    Args:
        directory: the directory of the search; its path changes if the search was relocated.
        given: the directory with the request.
        callback: receives all messages of the search, and may end it.
        start_secs: start of the time of the search, by `time.monotonic`.
        host: runs the sessions in this process; None for processes of their own.
        forks: whether the search will fork its workers from a server that imports TensorFlow.
        max_secs: the time limit of the search, for the lines about interrupts.

    Returns:
        The outcome of the search.

    Raises:
        GraphError, LogError, OSError, SearchError, ValueError: the request cannot be met; the
            message says why.
        KeyboardInterrupt: the search was interrupted more often than it has stages to end.
    """
    child = ChildProcess(
        "the search",
        "tf_placer.live.search_process",
        {
            "request": given,
            "directory": str(directory.path),
            "start_secs": start_secs,
            "host": None if host is None else host.fileno(),
            "forks": forks,
            "clear_by": find_clearing_setting(),
        },
        log_path=pathlib.Path(given, "search.log"),
        environ=environment_without_gpus(),
        pass_fds=() if host is None else (host.fileno(),),
    )
    try:
        callback.on_note("starting the search, which reads and groups the graph")
        requests = _EndRequests(child, callback, start_secs + max_secs)
        with _interrupts_sent_to(requests):
            last = _listen(child, callback, requests)
        if "error" in last:
            kind = _ERRORS.get(last["kind"], SearchError)
            # Other errors are about the request, which the same call would repeat.
            is_lost = kind is SearchError and _has_trials(directory)
            error = kind(last["error"] + (_describe_log(directory) if is_lost else ""))
            for note in last.get("notes", ()):
                error.add_note(note)
            raise error
        # The search may have been relocated, for example from a full disk.
        directory.path = pathlib.Path(last["directory"])
        return Outcome(last["outcome"])
    except ChildDied as death:
        text = f"{death}: {child.log_tail()}" if child.log_tail() else str(death)
        if directory.trials.exists():
            text += _describe_log(directory)
        is_killed = (child.exit_code or 0) < 0
        raise (SearchKilledError if is_killed else SearchError)(text) from None
    finally:
        child.stop()


def _has_trials(directory: RunDirectory) -> bool:
    """Returns whether the log has trials of placements, not of the original alone."""
    try:
        return len(read_log(directory.trials)[1]) > 1
    except (OSError, ValueError):
        return False


def _describe_log(directory: RunDirectory) -> str:
    """Describes the log of a failed search as the end of a sentence."""
    return (
        f"; every finished trial is in {directory.trials}: the same call with "
        f"log_dir={str(directory.path)!r} resumes there"
    )


class _EndRequests:
    """Requests to end a search, from the keyboard or a callback, and the lines about them."""

    def __init__(self, child: ChildProcess, callback: Callback, end_secs: float) -> None:
        self._child, self._callback, self._end_secs = child, callback, end_secs
        self._has_ended_by_callback = self._is_passing = False
        self._num_interrupts = 0
        self._lines: list[str] = []

    def pass_on(self, message: Mapping[str, Any]) -> None:
        """Passes a message on, and ends the search if the callback asks for it."""
        self._is_passing = True
        wants_end = pass_on(message, self._callback)
        # Send one request only: a second one would cancel the confirmation.
        if wants_end and not self._has_ended_by_callback:
            self._has_ended_by_callback = True
            _ask_to_end(self._child)
            self._lines.append(f"a callback ends the search{self._describe_confirmation()}")
        while self._lines:
            self._callback.on_note(self._lines.pop(0))
        self._is_passing = False

    def interrupt(self) -> None:
        """Sends an interrupt from the keyboard on, and says at once that it was heard.

        Raises:
            KeyboardInterrupt: there were more interrupts than the search has stages to end.
        """
        self._num_interrupts += 1
        if self._num_interrupts > _MAX_INTERRUPTS:
            raise KeyboardInterrupt
        _ask_to_end(self._child)
        line = "interrupted again: the original stays"
        if self._num_interrupts + self._has_ended_by_callback == 1:
            again = "interrupt again to keep the original"
            line = f"interrupted{self._describe_confirmation()}; {again}"
        self._lines.append(line)
        # A callback that runs now cannot be called again before it returns.
        if not self._is_passing:
            self._callback.on_note(self._lines.pop(0))

    def _describe_confirmation(self) -> str:
        left_secs = self._end_secs - time.monotonic()
        text = ": ending with the best so far"
        if math.isfinite(left_secs):
            text += f", at most {format_duration(max(left_secs, 0.0))} to confirm it"
        return text


def _listen(child: ChildProcess, callback: Callback, requests: _EndRequests) -> Mapping[str, Any]:
    """Passes messages of the search process on, and returns its last one, about the end.

    Raises:
        ChildDied: the process ended without such a message.
    """
    while True:
        try:
            # A trial may take long, and has its own time limit.
            messages = await_message(child, [], time.monotonic() + 1e6)
        except ChildStopped as stopped:
            # The user may continue a stopped search later.
            callback.on_note(f"{stopped}: `kill -CONT {child.pid}` continues it")
            while child.is_stopped():
                time.sleep(_PAUSE_SECS)
            continue
        for message in messages:
            if "error" in message or "outcome" in message:
                return message
            requests.pass_on(message)


def _ask_to_end(child: ChildProcess) -> None:
    """Requests the end of a search, if it is running."""
    with contextlib.suppress(ChildDied, ChildTimeout):
        child.send({"command": "end"}, time.monotonic() + 1.0)


@contextlib.contextmanager
def _interrupts_sent_to(requests: _EndRequests) -> Iterator[None]:
    """Sends keyboard interrupts to a search; the third one raises KeyboardInterrupt here.

    Nothing changes outside of the main thread, or if interrupts have another handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(number: int, frame: types.FrameType | None) -> None:
        requests.interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
