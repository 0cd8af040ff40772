"""Child processes that cannot outlive their parent, and the connection between the two.

A child is a Python module run with `-m`. It gets its settings as JSON on the command line and
commands as JSON lines on its standard input. It answers with JSON lines on a separate pipe, because
TensorFlow writes to standard output. Standard output and standard error go to a log file, whose end
explains crashes. The end of a child's standard input means that the parent is gone, and the child
exits at once, even if it is stopped (SIGSTOP): `kill -9` of a parent leaves no orphans.
"""

from __future__ import annotations

import json
import os
import pathlib
import queue
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from tf_placer.descriptors import open_standard_files, wait_until_writable
from tf_placer.fork_server import (
    ForkedProcess,
    ForkServer,
    is_stopped,
    resume_on_input,
    use_default_signals,
)
from tf_placer.interpreter import build_python_environment, find_interpreter
from tf_placer.private_network import PrivateNetwork

__all__ = [
    "PLUGIN_VARIABLE",
    "Child",
    "ChildDied",
    "ChildProcess",
    "ChildStopped",
    "ChildTimeout",
    "Parent",
    "await_message",
    "environment_with_gpus",
    "environment_with_plugin",
    "environment_without_gpus",
    "pin_to_cores",
]

#: The environment variable with the library from which TensorFlow loads a pluggable device.
PLUGIN_VARIABLE = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
# The environment variables that select the GPUs of a process; if they are empty, it has none.
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", PLUGIN_VARIABLE)
_SAVED_VARIABLES = "TF_PLACER_GPU_VARIABLES"
_LOG_BYTES = 64 * 1024
_LOG_TAIL_CHARS = 600
_EXIT_WAIT_SECS = 10.0
_STACK_TRACE = re.compile(r"@ +0x[0-9a-f]+ |\*\*\* .*stack trace")
# The interval of checks whether a child is stopped by a signal, and the number of successive checks
# that find it stopped after which it counts as hung.
_CHECK_INTERVAL_SECS, _MAX_STOPPED_CHECKS = 1.0, 5


def environment_without_gpus(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Builds environment variables for a process that must not see a GPU.

    The former values are saved in another variable, so that `environment_with_gpus` can restore
    them in a descendant of that process.

    Args:
        environ: the variables to start from; None for the variables of this process.

    Returns:
        A changed copy.
    """
    result = dict(os.environ if environ is None else environ)
    saved = {name: result.get(name) for name in _GPU_VARIABLES}
    result.setdefault(_SAVED_VARIABLES, json.dumps(saved))
    return result | dict.fromkeys(_GPU_VARIABLES, "")


def environment_with_gpus(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Builds environment variables for a process that sees the originally visible GPUs.

    Args:
        environ: the variables to start from; None for the variables of this process.

    Returns:
        A copy in which `environment_without_gpus` is undone.
    """
    result = dict(os.environ if environ is None else environ)
    for name, value in json.loads(result.pop(_SAVED_VARIABLES, "{}")).items():
        result.pop(name, None)
        if value is not None:
            result[name] = value
    return result


def environment_with_plugin(
    library: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Builds environment variables for a process whose only GPUs are those of a pluggable device.

    For its descendants, these are the originally visible GPUs.

    Args:
        library: the file of the pluggable device.
        environ: the variables to start from; None for the variables of this process.

    Returns:
        A changed copy.
    """
    result = environment_without_gpus(environ) | {PLUGIN_VARIABLE: os.fspath(library)}
    del result[_SAVED_VARIABLES]
    return result


def pin_to_cores(cores: Sequence[int]) -> None:
    """Restricts this process to some cores.

    Call it before TensorFlow is imported, because threads inherit the cores of the thread that
    starts them.
    """
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


class Child(Protocol):
    """The interface of a `ChildProcess` and of its substitutes."""

    name: str

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def fileno(self) -> int:
        """Returns a file descriptor that is readable after an answer or the child's death."""
        ...

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Sends a command; see `ChildProcess.send`."""
        ...

    def read_messages(self) -> list[dict[str, Any]] | None:
        """Reads the available answers; None if the child has closed the connection."""
        ...

    def is_alive(self) -> bool:
        """Says whether the child runs."""
        ...

    def is_stopped(self) -> bool:
        """Says whether a signal (SIGSTOP) has stopped the child."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the signal that killed the process; None while it runs."""
        ...

    def exit_description(self) -> str:
        """Describes how the child ended, as a clause."""
        ...

    def log_lines(self) -> list[str]:
        """Reads the lines of the log."""
        ...

    def log_tail(self) -> str:
        """Joins the last lines of the log into one line; "" if the log is empty."""
        ...

    def clear_log(self) -> None:
        """Empties the log."""
        ...

    def stop(self) -> None:
        """Ends the child."""
        ...


class ChildDied(Exception):
    """The error for a child process that has ended.

    Attributes:
        child: the process that died.
    """

    def __init__(self, child: Child, description: str | None = None) -> None:
        super().__init__(child.exit_description() if description is None else description)
        self.child = child


class ChildStopped(ChildDied):
    """The error for a child process that a signal (SIGSTOP) has stopped for some seconds."""

    def __init__(self, child: Child) -> None:
        super().__init__(
            child,
            f"{child.name} was stopped by a signal (SIGSTOP) and has not resumed for "
            f"{_MAX_STOPPED_CHECKS * _CHECK_INTERVAL_SECS:g} s",
        )


class ChildTimeout(Exception):
    """The error for a child process that did not answer in time."""


class ChildProcess:
    """A child process, as its parent starts, commands and stops it.

    Attributes:
        name: the name of the process in messages.
        log_path: the file with its standard output and standard error.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: Mapping[str, Any],
        *,
        log_path: str | os.PathLike[str],
        environ: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        network: PrivateNetwork | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        """Starts the process.

        Args:
            name: the name of the process in messages.
            module: the Python module that the process runs.
            settings: JSON values for `Parent.settings` of the process.
            log_path: the file for its standard output and standard error, in an existing directory.
            environ: its environment variables; None for those of this process.
            pass_fds: file descriptors that it inherits under the same numbers.
            network: its private network; None for the network of this process.
            fork_server: forks the process, without `pass_fds`; None to start a new Python.
        """
        self.name = name
        self.log_path = pathlib.Path(log_path)
        variables = build_python_environment(environ)
        # Level 1 keeps warnings, because the allocator's "ran out of memory" explains a crash.
        variables["TF_CPP_MIN_LOG_LEVEL"] = "1"
        if network is not None:
            variables.update(network.environ())
        open_standard_files()
        self._answers, answers_of_child = os.pipe()
        stdin, self._commands = os.pipe()
        os.set_blocking(self._commands, False)
        self._process: subprocess.Popen[bytes] | ForkedProcess
        try:
            # In append mode, the output after `clear_log` starts at the new end of the file.
            with open(self.log_path, "ab") as log:
                if fork_server is not None:
                    self._process = fork_server.fork(
                        [module, json.dumps(settings)],
                        environ=variables,
                        stdin=stdin,
                        log=log.fileno(),
                        answers=answers_of_child,
                        network=network,
                    )
                else:
                    # -P keeps the working directory off the path unless it is on this one's path.
                    command = [find_interpreter(), "-P", "-m", module]
                    if network is not None:
                        command = network.command(module)
                        pass_fds = (*pass_fds, *network.inherited)
                    self._process = subprocess.Popen(
                        [*command, json.dumps(settings), str(answers_of_child)],
                        stdin=stdin,
                        stdout=log,
                        stderr=log,
                        env=variables,
                        pass_fds=(answers_of_child, *pass_fds),
                        # In its own session, so that Ctrl-C in a terminal only reaches the parent,
                        # which stops its children.
                        start_new_session=True,
                    )
        except BaseException:
            os.close(self._answers)
            os.close(self._commands)
            raise
        finally:
            os.close(answers_of_child)
            os.close(stdin)
        self._unread = b""
        self._stopped = False

    @property
    def pid(self) -> int:
        """The process id; -1 until a fork server has forked the process."""
        return self._process.pid

    def fileno(self) -> int:
        """Returns a file descriptor that is readable after an answer or the child's death."""
        return self._answers

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Sends a command.

        Args:
            message: a JSON object.
            deadline: `time.monotonic` seconds by which the child must have taken it.

        Raises:
            ChildDied: the child is gone.
            ChildTimeout: the child does not read the command in time.
        """
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            remaining = max(0.0, deadline - time.monotonic())
            if not wait_until_writable(self._commands, remaining):
                raise ChildTimeout(f"{self.name} does not take commands")
            try:
                data = data[os.write(self._commands, data) :]
            except BrokenPipeError:
                raise ChildDied(self) from None

    def read_messages(self) -> list[dict[str, Any]] | None:
        """Reads answers of the child, by a single read that waits for data.

        Returns:
            The complete messages, possibly none; None if the child has closed the connection.
        """
        data = os.read(self._answers, 1 << 16)
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def is_alive(self) -> bool:
        """Says whether the process runs."""
        return self._process.poll() is None

    def is_stopped(self) -> bool:
        """Says whether a signal (SIGSTOP) has stopped the process."""
        if isinstance(self._process, ForkedProcess):
            return self._process.is_stopped()
        return is_stopped(self.pid)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the signal that killed the process; None while it runs."""
        return self._process.poll()

    def exit_description(self) -> str:
        """Describes how the process ended: "task 1 was killed by signal 9 (SIGKILL)"."""
        try:
            code = self._process.wait(_EXIT_WAIT_SECS)
        except subprocess.TimeoutExpired:
            return f"{self.name} closed its connection but did not exit"
        if code < 0:
            try:
                signal_name = f" ({signal.Signals(-code).name})"
            except ValueError:
                signal_name = ""
            return f"{self.name} was killed by signal {-code}{signal_name}"
        return f"{self.name} exited with code {code}"

    def log_lines(self) -> list[str]:
        """Reads the lines in the last 64 KiB of the log."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()]

    def log_tail(self) -> str:
        """Joins the last lines of the log into one line; "" if the log is empty."""
        # The stack trace of a failed check would leave no room for its message.
        tail = " | ".join(line for line in self.log_lines() if not _STACK_TRACE.match(line))
        return tail if len(tail) <= _LOG_TAIL_CHARS else "…" + tail[-_LOG_TAIL_CHARS:]

    def clear_log(self) -> None:
        """Empties the log, so that it only explains later events."""
        os.truncate(self.log_path, 0)

    def stop(self) -> None:
        """Kills the process if it still runs, and waits until it is gone."""
        if self._stopped:
            return
        self._stopped = True
        if self.is_alive():
            self._process.kill()
        try:
            self._process.wait(_EXIT_WAIT_SECS)
        except subprocess.TimeoutExpired:
            logging.warning("%s (process %d) does not die", self.name, self.pid)
        os.close(self._commands)
        os.close(self._answers)


def await_message(
    child: Child,
    others: Sequence[Child],
    deadline: float,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Waits for the next answer of a child, while other children must stay alive.

    Args:
        child: the process that should answer.
        others: silent processes that the child depends on.
        deadline: the time limit, in seconds of `time.monotonic`.
        check: called after each second without an answer; what it raises ends the wait.

    Returns:
        At least one message.

    Raises:
        ChildDied: one of the processes is gone.
        ChildStopped: a signal has stopped one of the processes for some seconds.
        ChildTimeout: the deadline has passed.
    """
    looks: dict[Child, int] = {}
    with selectors.DefaultSelector() as selector:
        for process in (child, *others):
            selector.register(process, selectors.EVENT_READ, process)
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            ready = selector.select(min(remaining, _CHECK_INTERVAL_SECS))
            if not ready and time.monotonic() >= deadline:
                raise ChildTimeout(f"{child.name} did not answer in time")
            if not ready:
                # Checks are counted instead of seconds. If all processes, including this one, are
                # stopped and then resume one after the other, none of them hangs.
                for process in (child, *others):
                    looks[process] = looks.get(process, 0) + 1 if process.is_stopped() else 0
                    if looks[process] >= _MAX_STOPPED_CHECKS:
                        raise ChildStopped(process)
                check()
                continue
            messages: list[dict[str, Any]] = []
            for key, _ in ready:
                read = key.data.read_messages()
                if read is None:
                    raise ChildDied(key.data)
                if key.data is child:
                    messages += read
            if messages:
                return messages


class Parent:
    """The child's connection to its parent, which the module of a `ChildProcess` creates first.

    Attributes:
        settings: the settings from the parent.
    """

    def __init__(self) -> None:
        """Connects to the parent; from now on this process exits when its parent does."""
        _, settings, answers = sys.argv
        self.settings: dict[str, Any] = json.loads(settings)
        self._answers = int(answers)
        os.set_inheritable(self._answers, False)
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        use_default_signals()
        resume_on_input(0)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with open(0, "rb", closefd=False) as stdin:
                for line in stdin:
                    self._commands.put(json.loads(line))
        finally:
            # In `finally`, because a parent that is killed while it writes leaves an invalid line.
            os._exit(0)

    def receive(self) -> dict[str, Any]:
        """Returns the next command, and waits for it if necessary."""
        return self._commands.get()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends an answer, which is a JSON object."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self._answers, data) :]
