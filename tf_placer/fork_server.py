"""A fork server: a process that has imported TensorFlow, and forks others in milliseconds.

Importing TensorFlow takes seconds of processor time. The server does it once, and is forked for
each new process. It runs nothing of TensorFlow, so it has no threads, which a fork would lose. A
fork shares the memory layout of the server. Processes whose steps are compared, such as the servers
of a local machine, must differ as much as those of two runs of a script, and are not forked.

`ForkServer` and `ForkedProcess` are the client side. The module, run as
`python -m tf_placer.fork_server`, is the server. The server and its processes end with the
client process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import pathlib
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tf_placer.descriptors import open_standard_files, wait_until_readable
from tf_placer.interpreter import build_python_environment, find_interpreter
from tf_placer.private_network import PrivateNetwork, enter_network

__all__ = [
    "ForkServer",
    "ForkedProcess",
    "is_stopped",
    "resume_on_input",
    "use_default_signals",
]

_PR_SET_PDEATHSIG = 1
# The time limit of the imports of a server; `kill` does not wait longer for a process to start.
_IMPORT_SECS = 30.0
_NO_USER = -1
# The descriptors of a request: its text, standard input, the log, the pipe for answers, the pipe
# for the status, and up to two of a network.
_MAX_DESCRIPTORS = 7


def resume_on_input(line: int) -> None:
    """Makes this process resume, if it is stopped (SIGSTOP), when data arrives on a descriptor.

    End-of-file resumes it, too; otherwise a stopped process would outlive the other end.

    Args:
        line: the file descriptor of a pipe or a socket.
    """
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def use_default_signals() -> None:
    """Resets signals that the parent process blocks or ignores."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def is_stopped(pid: int) -> bool:
    """Says whether a process is stopped by a signal (SIGSTOP)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The state follows the name of the program, which is in parentheses and may contain any text.
    return stat.rpartition(")")[2].split()[0] == "T"


class ForkedProcess:
    """A process of a fork server, with the methods of `subprocess.Popen` that are needed here."""

    def __init__(self, status: int, server: ForkServer) -> None:
        """Wraps a process.

        Args:
            status: the file descriptor of a pipe to which the server writes the id of the process
                and, later, its exit code.
            server: the server.
        """
        self._status = status
        self._server = server
        self._written = b""
        self._is_closed = False

    @property
    def pid(self) -> int:
        """The process id; -1 until the server has forked the process."""
        self.poll()
        pid, line_end, _ = self._written.partition(b"\n")
        return int(pid) if line_end else -1

    def poll(self) -> int | None:
        """Returns the exit code, minus the signal that killed the process; None while it runs."""
        while not self._is_closed and wait_until_readable(self._status, 0.0):
            self._read()
        if not self._is_closed:
            return None
        # Without a code, the server was killed, and its processes with it.
        code = self._written.partition(b"\n")[2]
        return int(code) if code else -signal.SIGKILL

    def is_stopped(self) -> bool:
        """Says whether a signal (SIGSTOP) stopped the process, or the server before the fork."""
        return self._server.is_stopped() if self.pid < 0 else is_stopped(self.pid)

    def wait(self, timeout: float) -> int:
        """Waits for the end of the process, and returns its exit code.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not wait_until_readable(self._status, remaining):
                raise subprocess.TimeoutExpired("a process of a fork server", timeout)
        return code

    def kill(self) -> None:
        """Kills the process; waits for the fork first if it is pending."""
        while self.pid < 0 and self.poll() is None:
            # If this times out, the end of its standard input will end the process.
            if not wait_until_readable(self._status, _IMPORT_SECS):
                return
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        data = os.read(self._status, 64)
        self._written += data
        if not data:
            os.close(self._status)
            self._is_closed = True


class ForkServer:
    """The client of a fork server, from its start until it is closed; its processes end with it."""

    def __init__(self, modules: Sequence[str], log_path: str | os.PathLike[str]) -> None:
        """Starts the server, without waiting for it.

        Args:
            modules: the modules that the server imports.
            log_path: the file for the server's output.
        """
        open_standard_files()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {**build_python_environment(), "TF_CPP_MIN_LOG_LEVEL": "1"}
        with theirs, open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                [find_interpreter(), "-P", "-m", __name__, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fork(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        stdin: int,
        log: int,
        answers: int,
        network: PrivateNetwork | None,
    ) -> ForkedProcess:
        """Requests a new process, without waiting for it.

        Args:
            command: the module to run as with `-m`, and its arguments; the descriptor of `answers`
                in the process is appended.
            environ: the environment variables of the process. Modules that read variables while
                they are imported have seen those of the server.
            stdin: the file descriptor of its standard input.
            log: the file descriptor of its standard output and standard error.
            answers: the file descriptor of the pipe for its answers.
            network: the private network of the process; None for the network of this process.

        Returns:
            The process, which counts as dead if the server cannot fork it.
        """
        text = os.memfd_create("request", os.MFD_CLOEXEC)
        status, theirs = os.pipe()
        try:
            request = {
                "command": list(command),
                "environ": dict(environ),
                "has_user": network is not None and len(network.inherited) > 1,
                "has_network": network is not None,
            }
            os.write(text, json.dumps(request).encode())
            os.lseek(text, 0, os.SEEK_SET)
            descriptors = [text, stdin, log, answers, theirs]
            descriptors += network.inherited if network is not None else ()
            with contextlib.suppress(OSError):  # The status tells if the server is gone.
                socket.send_fds(self._line, [b"f"], descriptors)
        finally:
            os.close(text)
            os.close(theirs)
        return ForkedProcess(status, self)

    def is_stopped(self) -> bool:
        """Says whether a signal stopped the server, so that it does not report exit codes."""
        return is_stopped(self._process.pid)

    def is_fit(self) -> bool:
        """Says whether the server can fork processes: it runs, and no signal stopped it."""
        return self._process.poll() is None and not self.is_stopped()

    def has_failed(self) -> bool:
        """Says whether the server has ended with an error, such as a failed import."""
        has_closed_line = wait_until_readable(self._line.fileno(), 0.0)
        return has_closed_line and self._process.wait() > 0

    def close(self) -> None:
        """Ends the server and all its processes."""
        self._line.close()
        self._process.kill()
        self._process.wait()


class _Server:
    """The server: handles requests and exits of its processes, in one thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        # Pipes for exit codes, by process id.
        self._running: dict[int, int] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Handles requests until the client closes the socket."""
        # `PollSelector` has no file descriptor, which a fork would inherit.
        selector = selectors.PollSelector()
        for each in (self._line.fileno(), self._woken):
            selector.register(each, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._report_exits()
            if self._line.fileno() in ready:
                data, descriptors, _, _ = socket.recv_fds(self._line, 16, _MAX_DESCRIPTORS)
                if not data:
                    return
                self._fork(descriptors)

    def _report_exits(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(line, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(line)

    def _fork(self, descriptors: list[int]) -> None:
        text, *others = descriptors
        with open(text, "rb") as file:
            request = json.load(file)
        server_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run(request, server_pid, others)
        status = others[3]
        with contextlib.suppress(BrokenPipeError):
            os.write(status, b"%d\n" % pid)
        self._running[pid] = status
        for each in (*others[:3], *others[4:]):
            os.close(each)

    def _run(self, request: Mapping[str, Any], server_pid: int, descriptors: list[int]) -> NoReturn:
        """Runs the requested module in the forked process, and exits."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._line.close()
            # A sibling's pipe reaches its end only when all copies of the write end are closed.
            for line in self._running.values():
                os.close(line)
            stdin, log, answers, status, *network = descriptors
            os.close(status)
            os.setsid()
            for source, target in ((stdin, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            os.close(stdin)
            os.close(log)
            if request["has_network"]:
                enter_network(network if request["has_user"] else [_NO_USER, *network])
            # After the network, because entering a user namespace resets this setting.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != server_pid:
                os._exit(code)
            os.environ.clear()
            os.environ.update(request["environ"])
            if "numpy" in sys.modules:  # Python and TensorFlow seed themselves after a fork.
                sys.modules["numpy"].random.seed()
            module, *arguments = request["command"]
            sys.argv = [module, *arguments, str(answers)]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _main() -> None:
    _, line, *modules = sys.argv
    os.set_inheritable(int(line), False)
    use_default_signals()
    resume_on_input(int(line))
    server = _Server(socket.socket(fileno=int(line)))
    for module in modules:
        importlib.import_module(module)
    server.serve()


if __name__ == "__main__":
    _main()
