"""Both ends of a worker that is no process of its own but a thread of another one.

A graph that calls functions of Python runs only in the process that has them. There a `WorkerHost`
waits in a thread; the process that searches inherits one end of a socket from it. Where others
start a process, a `InProcessWorker` makes a pair of sockets and sends one of them to the host,
which then obeys what comes over it, as `tf_placer.environments.worker` says. Where others kill the
process, it closes its socket: the host breaks off what it does and waits for the next one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from absl import logging

from tf_placer.descriptors import wait_until_readable
from tf_placer.environments.worker import Worker
from tf_placer.processes import ChildDied, ChildTimeout, await_message

__all__ = ["InProcessWorker", "WorkerHost"]

_SERVES = {"serves": True}
# A host may need this long to cancel its last command; Python functions cannot be canceled.
_FREE_SECS = 30.0
_JOIN_SECS = 10.0


class InProcessWorker:
    """The end of the process that searches; to it, it is like a `ChildProcess`.

    Attributes:
        name: what messages call it.
        pid: id of the process that hosts it, the parent of this one.
    """

    def __init__(self, host: int) -> None:
        """Has the host serve.

        Args:
            host: file descriptor of the host.
        """
        self.name = "the worker in the calling process"
        self.pid = os.getppid()
        self._line, of_host = socket.socketpair()
        self._unread = b""
        self._serves = False
        # A host that is gone does not take it, and then the line is closed at its other end.
        with contextlib.suppress(OSError), of_host, socket.socket(fileno=os.dup(host)) as control:
            socket.send_fds(control, [b"w"], [of_host.fileno()])

    def wait_until_ready(self) -> None:
        """Waits until the host has broken off what it did before, unless it has said so already.

        Raises:
            ChildDied: the host is gone.
            ChildTimeout: it is still at it.
        """
        if self._serves:
            return
        try:
            await_message(self, (), time.monotonic() + _FREE_SECS)
        except ChildTimeout:
            raise ChildTimeout(
                "a step that was given up still runs in the calling process, where nothing can "
                "end it: does a Python function of the graph wait for something?"
            ) from None
        self._serves = True

    def fileno(self) -> int:
        """Returns the file descriptor that is readable when the host has answered or gone."""
        return self._line.fileno()

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Sends a command; see `ChildProcess.send`."""
        self._line.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            self._line.sendall(_encode(message))
        except TimeoutError:
            raise ChildTimeout(f"{self.name} does not take commands") from None
        except OSError:
            raise ChildDied(self) from None

    def read_messages(self) -> list[dict[str, Any]] | None:
        """Reads what the host has answered; None when it has closed the line."""
        try:
            data = self._line.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def is_alive(self) -> bool:
        """Says whether the host listens."""
        if not wait_until_readable(self._line.fileno(), 0.0):
            return True
        try:
            return bool(self._line.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            return False

    def is_stopped(self) -> bool:
        """Returns False: a host that is stopped has this process wait, and nothing measures."""
        return False

    @property
    def exit_code(self) -> int | None:
        """None: there is no process that could exit."""
        return None

    def exit_description(self) -> str:
        """Says how it ended, as a clause."""
        return f"{self.name} has ended"

    def log_lines(self) -> list[str]:
        """Returns nothing: the process writes to standard outputs of its own."""
        return []

    def log_tail(self) -> str:
        """Returns nothing, as `log_lines`."""
        return ""

    def clear_log(self) -> None:
        """Does nothing: there is no log."""

    def stop(self) -> None:
        """Lets the host break off what it does."""
        self._line.close()


class WorkerHost:
    """The end of the process in which sessions run, in a thread of its own, while in a `with`."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._control, self._of_search = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._serve, name="tf_placer worker", daemon=True)

    def fileno(self) -> int:
        """Returns the file descriptor that the process which searches has to inherit."""
        return self._of_search.fileno()

    def __enter__(self) -> WorkerHost:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._thread.join(_JOIN_SECS)
        if self._thread.is_alive():
            logging.warning("a step of the search still runs in this process")
            return
        self._control.close()
        self._of_search.close()

    def _serve(self) -> None:
        while True:
            _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                return
            with socket.socket(fileno=descriptors[0]) as connection:
                line = _Line(connection)
                worker = Worker(line)
                listener = threading.Thread(target=line.listen, args=(worker.cancel,), daemon=True)
                listener.start()
                try:
                    line.send(_SERVES)
                    worker.serve()
                except EOFError:
                    pass
                except Exception:
                    logging.exception("the worker in this process has failed")
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                listener.join()
            del worker, listener
            # Graphs are full of cycles, and hold their sessions, and these the variables.
            gc.collect()


class _Line:
    """The host's end of a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._is_closed = False

    def listen(self, on_close: Any) -> None:
        """Reads commands until the other end is closed, and then calls a function."""
        with contextlib.suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._commands.put(json.loads(line))
        self._is_closed = True
        self._commands.put(None)
        on_close()

    def receive(self) -> dict[str, Any]:
        """Waits for the next command.

        Raises:
            EOFError: there is none.
        """
        command = self._commands.get()
        if command is None or self._is_closed:
            raise EOFError
        return command

    def send(self, message: Mapping[str, Any]) -> None:
        """Answers with a JSON object.

        Raises:
            EOFError: nobody listens.
        """
        if self._is_closed:
            raise EOFError
        try:
            self._connection.sendall(_encode(message))
        except OSError:
            raise EOFError from None


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
