"""Runs calls in processes of their own, some at a time, whatever becomes of them."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

__all__ = ["Call", "Ended", "run_calls"]

_TERMINATE_SECS = 5.0


@dataclasses.dataclass(frozen=True)
class Call:
    """Something to be called in a process of its own.

    Attributes:
        function: of a module, so that the process can import it.
        args: its arguments.
        limit_secs: processor time of the process, after which it is ended.
    """

    function: Callable[..., None]
    args: tuple[Any, ...]
    limit_secs: float


@dataclasses.dataclass(frozen=True)
class Ended:
    """The outcome of a call.

    Attributes:
        index: which call.
        problem: None if it returned, else one sentence.
    """

    index: int
    problem: str | None


def run_calls(calls: Sequence[Call], jobs: int) -> Iterator[Ended]:
    """Runs calls, `jobs` at a time, each in a new process, started in their order.

    A call that raises, crashes or takes too long ends its own process only. When the iteration is
    given up, for example by an interrupt, the processes that still run are ended.

    Args:
        calls: what to run.
        jobs: how many at a time.

    Yields:
        How each call ended, as they end.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[int, Any]] = {}
    following = 0
    try:
        while running or following < len(calls):
            while len(running) < jobs and following < len(calls):
                process = context.Process(target=_run, args=(calls[following],), daemon=False)
                process.start()
                running[process.sentinel] = following, process
                following += 1
            for sentinel in connection.wait(list(running)):
                assert isinstance(sentinel, int)
                index, process = running.pop(sentinel)
                process.join()
                yield Ended(index, _problem(process.exitcode, calls[index]))
                process.close()
    finally:
        for _, process in running.values():
            process.terminate()
        deadline = time.monotonic() + _TERMINATE_SECS
        for _, process in running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _run(call: Call) -> None:
    # The timer ends the process even in the midst of compiled code.
    signal.setitimer(signal.ITIMER_PROF, call.limit_secs)
    # The parent sees an interrupt from the keyboard, and ends this process then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    call.function(*call.args)


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, whatever ended that."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _problem(exit_code: int, call: Call) -> str | None:
    if exit_code == 0:
        return None
    if -exit_code == signal.SIGPROF:
        return f"gave no answer in {call.limit_secs:g} s of processor time"
    if exit_code < 0:
        return f"its process died of {signal.Signals(-exit_code).name}"
    return f"its process ended with status {exit_code}"
