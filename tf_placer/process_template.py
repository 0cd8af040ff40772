"""A process that has imported TensorFlow, and of which others are made in milliseconds.

To import TensorFlow takes seconds of processor time. The template does it once, and then is forked
for every process that is wanted. It runs nothing of TensorFlow, and so has no threads that a fork
would miss. A fork shares the memory layout of its template: where processes are to differ as much
as those of two runs of a script, as in a confirmation, they are to be started without one.

`ProcessTemplate` and `ForkedProcess` are the ends of the process that wants others; the module, run
as `python -m tf_placer.process_template`, is the other one. Both processes and template end with
the process that started them.
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
from tf_placer.interpreter import interpreter, python_environment
from tf_placer.private_network import PrivateNetwork, enter_network

__all__ = [
    "ForkedProcess",
    "ProcessTemplate",
    "go_on_at_messages",
    "is_stopped",
    "use_default_signals",
]

_PR_SET_PDEATHSIG = 1
# How long a template may take to import what it needs, before processes that are to end wait no
# longer for their beginning.
_MAKING_SECS = 30.0
_NO_USER = -1
# A request comes with: its text, standard input, the log, the line for answers, the line for the
# status, and the descriptors of a network.
_MOST_DESCRIPTORS = 7


def go_on_at_messages(line: int) -> None:
    """Lets this process go on, if it is stopped (SIGSTOP), when something comes over a line.

    So does the end of the line: a process that is stopped would outlive the other end otherwise.

    Args:
        line: file descriptor of a pipe or a socket.
    """
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def use_default_signals() -> None:
    """Lets this process hear signals that the one which started it blocks or ignores."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def is_stopped(pid: int) -> bool:
    """Says whether a process is stopped by a signal (SIGSTOP)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The name of the program, which may be anything, is in parentheses before its state.
    return stat.rpartition(")")[2].split()[0] == "T"


class ForkedProcess:
    """A process made of a template, with the methods of `subprocess.Popen` that are needed here."""

    def __init__(self, status: int, template: ProcessTemplate) -> None:
        """Takes the process over.

        Args:
            status: file descriptor of a pipe on which the template writes the id of the process,
                once there is one, and its exit code.
            template: what makes it.
        """
        self._status = status
        self._template = template
        self._written = b""
        self._is_closed = False

    @property
    def pid(self) -> int:
        """The process id; -1 as long as the template has not made the process."""
        self.poll()
        pid, line_end, _ = self._written.partition(b"\n")
        return int(pid) if line_end else -1

    def poll(self) -> int | None:
        """Returns the exit code, minus the signal that killed the process; None while it runs."""
        while not self._is_closed and wait_until_readable(self._status, 0.0):
            self._read()
        if not self._is_closed:
            return None
        # A template that is killed takes its processes with it, and has no more to say.
        code = self._written.partition(b"\n")[2]
        return int(code) if code else -signal.SIGKILL

    def is_stopped(self) -> bool:
        """Says whether a signal (SIGSTOP) stopped the process, or who has yet to make it."""
        return self._template.is_stopped() if self.pid < 0 else is_stopped(self.pid)

    def wait(self, timeout: float) -> int:
        """Waits for the end of the process, and returns its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not wait_until_readable(self._status, remaining):
                raise subprocess.TimeoutExpired("a process made of a template", timeout)
        return code

    def kill(self) -> None:
        """Kills the process if it runs, as soon as it does."""
        while self.pid < 0 and self.poll() is None:
            # Without one, the end of its standard input ends it.
            if not wait_until_readable(self._status, _MAKING_SECS):
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


class ProcessTemplate:
    """A template, from its start until it is closed; its processes end with it."""

    def __init__(self, modules: Sequence[str], log_path: str | os.PathLike[str]) -> None:
        """Starts it, and does not wait for it.

        Args:
            modules: what it imports for its processes.
            log_path: the file for what it has to say when it fails.
        """
        open_standard_files()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {**python_environment(), "TF_CPP_MIN_LOG_LEVEL": "1"}
        with theirs, open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                [interpreter(), "-P", "-m", __name__, str(theirs.fileno()), *modules],
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
        """Has it make a process, and does not wait for it.

        Args:
            command: the module to run with `-m`, and its arguments; one more follows them, the
                number that `answers` has in the process.
            environ: the environment variables of the process. Of what a module reads while it is
                imported the template's count.
            stdin: file descriptor of its standard input.
            log: that of its standard outputs.
            answers: that of the pipe that it answers on.
            network: the network that it is in; that of this process when None.

        Returns:
            The process, which dies at once where the template cannot make it.
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
            with contextlib.suppress(OSError):  # One that is gone; the status says so.
                socket.send_fds(self._line, [b"f"], descriptors)
        finally:
            os.close(text)
            os.close(theirs)
        return ForkedProcess(status, self)

    def is_stopped(self) -> bool:
        """Says whether it is stopped by a signal, and does not say how its processes ended."""
        return is_stopped(self._process.pid)

    def is_fit(self) -> bool:
        """Says whether it can make processes: it is there, and not stopped by a signal."""
        return self._process.poll() is None and not self.is_stopped()

    def has_failed(self) -> bool:
        """Says whether it has ended by itself, as after an import that failed."""
        has_closed_line = wait_until_readable(self._line.fileno(), 0.0)
        return has_closed_line and self._process.wait() > 0

    def close(self) -> None:
        """Ends it, and with it all its processes."""
        self._line.close()
        self._process.kill()
        self._process.wait()


class _Template:
    """The other end: waits for requests and for the ends of processes, in one thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        # Pipes for exit codes, by process.
        self._running: dict[int, int] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Obeys until the line is closed."""
        # Without a descriptor of its own, which a fork would inherit.
        selector = selectors.PollSelector()
        for each in (self._line.fileno(), self._woken):
            selector.register(each, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._bury()
            if self._line.fileno() in ready:
                data, descriptors, _, _ = socket.recv_fds(self._line, 16, _MOST_DESCRIPTORS)
                if not data:
                    return
                self._fork(descriptors)

    def _bury(self) -> None:
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
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run(request, template, others)
        status = others[3]
        with contextlib.suppress(BrokenPipeError):
            os.write(status, b"%d\n" % pid)
        self._running[pid] = status
        for each in (*others[:3], *others[4:]):
            os.close(each)

    def _run(self, request: Mapping[str, Any], template: int, descriptors: list[int]) -> NoReturn:
        """Becomes the process that is wanted, and ends with it."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._line.close()
            # Of its siblings: a pipe is closed when nobody can write to it.
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
            # Not before: who enters a namespace of users loses this setting.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != template:
                os._exit(code)
            os.environ.clear()
            os.environ.update(request["environ"])
            if "numpy" in sys.modules:  # Python and TensorFlow seed themselves.
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
    go_on_at_messages(int(line))
    template = _Template(socket.socket(fileno=int(line)))
    for module in modules:
        importlib.import_module(module)
    template.serve()


if __name__ == "__main__":
    _main()
