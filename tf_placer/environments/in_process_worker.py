"""A worker that runs in a thread of the calling process, and its client in the search process.

A graph that calls Python functions runs only in the process that defines them. There a `WorkerHost`
waits in a thread; the search process inherits one end of a socket from it. Instead of starting a
process, `InProcessWorker` makes a pair of sockets and sends one of them to the host, which serves
the commands that arrive on it (see `tf_placer.environments.worker`). Instead of killing a process,
it closes its socket: the host then cancels its command and waits for the next socket.
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
from tf_placer.environments.worker import CommandLoop
from tf_placer.processes import ChildDied, ChildTimeout, await_message

__all__ = ["InProcessWorker", "WorkerHost"]

_READY = {"serves": True}
# A host waits for its last command: a running Python function cannot be canceled.
_CANCEL_TIMEOUT_SECS = 30.0
_JOIN_TIMEOUT_SECS = 10.0


class InProcessWorker:
    """The client of an in-process worker, with the interface of `ChildProcess`.

    Attributes:
        name: its name in messages.
        pid: id of the process that hosts it, the parent of this process.
    """

    def __init__(self, host: int) -> None:
        """Connects to the host.

        Args:
            host: file descriptor of the host.
        """
        self.name = "the worker in the calling process"
        self.pid = os.getppid()
        self._line, of_host = socket.socketpair()
        self._unread = b""
        self._is_ready = False
        # If the host is gone, closing its end of the line tells later reads so.
        with contextlib.suppress(OSError), of_host, socket.socket(fileno=os.dup(host)) as control:
            socket.send_fds(control, [b"w"], [of_host.fileno()])

    def wait_until_ready(self) -> None:
        """Waits until the host has canceled its previous command.

        Raises:
            ChildDied: the host is gone.
            ChildTimeout: the previous command still runs.
        """
        if self._is_ready:
            return
        try:
            await_message(self, (), time.monotonic() + _CANCEL_TIMEOUT_SECS)
        except ChildTimeout:
            raise ChildTimeout(
                "a canceled step still runs in the calling process, where nothing can end it: does "
                "a Python function of the graph wait for something?"
            ) from None
        self._is_ready = True

    def fileno(self) -> int:
        """Returns the file descriptor, readable once the host has answered or is gone."""
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
        """Reads the answers of the host; None when it has closed the line."""
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
        """Returns False: if the host is stopped, this process waits, too."""
        return False

    @property
    def exit_code(self) -> int | None:
        """None: there is no process that could exit."""
        return None

    def exit_description(self) -> str:
        """Says how it ended, as a clause."""
        return f"{self.name} has ended"

    def log_lines(self) -> list[str]:
        """Returns no lines: the host process writes to its own standard output and error."""
        return []

    def log_tail(self) -> str:
        """Returns an empty string, as there is no log."""
        return ""

    def clear_log(self) -> None:
        """Does nothing: there is no log."""

    def stop(self) -> None:
        """Closes the line, so that the host cancels its command."""
        self._line.close()


class WorkerHost:
    """The server of an in-process worker: a thread that runs sessions while in a `with`."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._control, self._of_search = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._serve, name="tf_placer worker", daemon=True)

    def fileno(self) -> int:
        """Returns the file descriptor that the search process has to inherit."""
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
        self._thread.join(_JOIN_TIMEOUT_SECS)
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
                channel = _SocketChannel(connection)
                commands = CommandLoop(channel)
                listener = threading.Thread(
                    target=channel.listen, args=(commands.cancel,), daemon=True
                )
                listener.start()
                try:
                    channel.send(_READY)
                    commands.serve()
                except EOFError:
                    pass
                except Exception:
                    logging.exception("the worker in this process has failed")
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                listener.join()
            del commands, listener
            # Graphs contain reference cycles and keep their sessions and variables alive.
            gc.collect()


class _SocketChannel:
    """The command channel of a host, over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._is_closed = False

    def listen(self, on_close: Any) -> None:
        """Reads commands until the client closes the line, then calls `on_close`."""
        with contextlib.suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._commands.put(json.loads(line))
        self._is_closed = True
        self._commands.put(None)
        on_close()

    def receive(self) -> dict[str, Any]:
        """Waits for the next command.

        Raises:
            EOFError: the client has closed the line.
        """
        command = self._commands.get()
        if command is None or self._is_closed:
            raise EOFError
        return command

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends an answer, a JSON object.

        Raises:
            EOFError: the client has closed the line.
        """
        if self._is_closed:
            raise EOFError
        try:
            self._connection.sendall(_encode(message))
        except OSError:
            raise EOFError from None


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
