"""Child processes that cannot outlive their parent: both ends of the line between the two.

A child is a Python module run with `-m`. It gets its settings as JSON on the command line, commands
as JSON lines on its standard input, and answers as JSON lines on a pipe of its own, because
TensorFlow writes what it likes to standard output. Both standard outputs go to a log file whose end
explains a death. The end of a child's standard input says that the parent is gone, and the child
leaves at once, whatever it is doing, even if it is stopped (SIGSTOP): `kill -9` of a parent leaves
no orphans.
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
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from tf_placer.descriptors import open_standard_files, wait_until_writable
from tf_placer.interpreter import interpreter, python_environment
from tf_placer.private_network import PrivateNetwork
from tf_placer.process_template import (
    ForkedProcess,
    ProcessTemplate,
    go_on_at_messages,
    is_stopped,
    use_default_signals,
)

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

#: The file from which TensorFlow loads a pluggable device.
PLUGIN_VARIABLE = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
# The variables that give a process its GPUs, which has none where they are empty.
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", PLUGIN_VARIABLE)
_SAVED_VARIABLES = "TF_PLACER_GPU_VARIABLES"
_LOG_BYTES = 64 * 1024
_LOG_TAIL_CHARS = 600
_EXIT_WAIT_SECS = 10.0
_OF_STACK = re.compile(r"@ +0x[0-9a-f]+ |\*\*\* .*stack trace")
# Who waits for a child looks so often whether it, or one that it needs, is stopped by a signal, and
# after so many looks at which it was takes it for hung.
_LOOK_SECS, _MOST_LOOKS = 1.0, 5


def environment_without_gpus(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Makes environment variables for a process that must not see a GPU.

    What was visible before is kept aside, so that `environment_with_gpus` finds it again in a
    descendant of that process.

    Args:
        environ: the variables to start from; the variables of this process when None.

    Returns:
        A changed copy.
    """
    result = dict(os.environ if environ is None else environ)
    saved = {name: result.get(name) for name in _GPU_VARIABLES}
    result.setdefault(_SAVED_VARIABLES, json.dumps(saved))
    return result | dict.fromkeys(_GPU_VARIABLES, "")


def environment_with_gpus(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Makes environment variables for a process that sees the GPUs that were visible at first.

    Args:
        environ: the variables to start from; the variables of this process when None.

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
    """Makes environment variables for a process whose only GPUs are those of a pluggable device.

    To its descendants these are the GPUs that were visible at first.

    Args:
        library: the file of the pluggable device.
        environ: the variables to start from; the variables of this process when None.

    Returns:
        A changed copy.
    """
    result = environment_without_gpus(environ) | {PLUGIN_VARIABLE: os.fspath(library)}
    del result[_SAVED_VARIABLES]
    return result


def pin_to_cores(cores: Sequence[int]) -> None:
    """Keeps this process on some cores.

    To be called before TensorFlow is imported: threads inherit the cores of the thread that starts
    them.
    """
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


class Child(Protocol):
    """What obeys commands and can die: a `ChildProcess`, or a stand-in for one."""

    name: str

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def fileno(self) -> int:
        """Returns the file descriptor that is readable when it has answered or died."""
        ...

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Sends a command; see `ChildProcess.send`."""
        ...

    def read_messages(self) -> list[dict[str, Any]] | None:
        """Reads what it has answered; None when it has closed the line."""
        ...

    def is_alive(self) -> bool:
        """Says whether it still obeys."""
        ...

    def is_stopped(self) -> bool:
        """Says whether it is stopped by a signal, and does nothing until another one."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code, minus the signal that killed the process, or None without any."""
        ...

    def exit_description(self) -> str:
        """Says how it ended, as a clause."""
        ...

    def log_lines(self) -> list[str]:
        """Reads the lines that it wrote to standard outputs."""
        ...

    def log_tail(self) -> str:
        """Joins the end of `log_lines` into one line; empty without any."""
        ...

    def clear_log(self) -> None:
        """Empties the log."""
        ...

    def stop(self) -> None:
        """Ends it."""
        ...


class ChildDied(Exception):
    """A child process is gone.

    Attributes:
        child: the process that died.
    """

    def __init__(self, child: Child, description: str | None = None) -> None:
        super().__init__(child.exit_description() if description is None else description)
        self.child = child


class ChildStopped(ChildDied):
    """A child process was stopped by a signal (SIGSTOP), and nobody lets it go on."""

    def __init__(self, child: Child) -> None:
        super().__init__(
            child,
            f"{child.name} was stopped by a signal (SIGSTOP) and has not gone on for "
            f"{_MOST_LOOKS * _LOOK_SECS:g} s",
        )


class ChildTimeout(Exception):
    """A child process did not answer in time."""


class ChildProcess:
    """The parent's end: a process to start, to talk to and to stop.

    Attributes:
        name: what messages call the process.
        log_path: the file with everything that it wrote to its standard outputs.
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
        template: ProcessTemplate | None = None,
    ) -> None:
        """Starts the process.

        Args:
            name: what messages call the process.
            module: the Python module that it runs.
            settings: JSON values that its `Parent.settings` will hold.
            log_path: the file for its standard outputs; its directory exists.
            environ: its environment variables; those of this process when None.
            pass_fds: file descriptors that it inherits, with their numbers.
            network: the network that it is in; that of this process when None.
            template: what it is made of, without `pass_fds`; None to start it afresh.
        """
        self.name = name
        self.log_path = pathlib.Path(log_path)
        variables = python_environment(environ)
        # Warnings stay: the allocator's "ran out of memory" explains a death.
        variables["TF_CPP_MIN_LOG_LEVEL"] = "1"
        if network is not None:
            variables.update(network.environ())
        open_standard_files()
        self._answers, answers_of_child = os.pipe()
        stdin, self._commands = os.pipe()
        os.set_blocking(self._commands, False)
        self._process: subprocess.Popen[bytes] | ForkedProcess
        try:
            # Append mode, so that what follows a truncation starts at the beginning of the file.
            with open(self.log_path, "ab") as log:
                if template is not None:
                    self._process = template.fork(
                        [module, json.dumps(settings)],
                        environ=variables,
                        stdin=stdin,
                        log=log.fileno(),
                        answers=answers_of_child,
                        network=network,
                    )
                else:
                    # -P: the working directory counts only if it is on this process's path.
                    command = [interpreter(), "-P", "-m", module]
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
                        # Ctrl-C in a terminal reaches the parent alone, which then stops its
                        # children.
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
        """The process id; -1 as long as a template has not made the process."""
        return self._process.pid

    def fileno(self) -> int:
        """Returns the file descriptor that is readable when the child has answered or died."""
        return self._answers

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Sends a command.

        Args:
            message: a JSON object.
            deadline: `time.monotonic` seconds by which the child must have taken it.

        Raises:
            ChildDied: the child is gone.
            ChildTimeout: the child does not read.
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
        """Reads what the child has answered, without waiting for more than one piece.

        Returns:
            Complete messages, possibly none yet; None when the child has closed the line.
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
        """Says whether the process is stopped by a signal."""
        if isinstance(self._process, ForkedProcess):
            return self._process.is_stopped()
        return is_stopped(self.pid)

    @property
    def exit_code(self) -> int | None:
        """The exit code, minus the signal that killed the process, or None while it runs."""
        return self._process.poll()

    def exit_description(self) -> str:
        """Says how the process ended, as a clause: "task 1 was killed by signal 9 (SIGKILL)"."""
        try:
            code = self._process.wait(_EXIT_WAIT_SECS)
        except subprocess.TimeoutExpired:
            return f"{self.name} closed its line but did not exit"
        if code < 0:
            try:
                signal_name = f" ({signal.Signals(-code).name})"
            except ValueError:
                signal_name = ""
            return f"{self.name} was killed by signal {-code}{signal_name}"
        return f"{self.name} exited with code {code}"

    def log_lines(self) -> list[str]:
        """Reads the lines that the process wrote to standard outputs, at most the last 64 KiB."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()]

    def log_tail(self) -> str:
        """Joins the end of `log_lines` into one line; empty without any."""
        # The addresses below a check that failed would leave no room for what it says.
        tail = " | ".join(line for line in self.log_lines() if not _OF_STACK.match(line))
        return tail if len(tail) <= _LOG_TAIL_CHARS else "…" + tail[-_LOG_TAIL_CHARS:]

    def clear_log(self) -> None:
        """Empties the log, so that its end speaks of what happens from now on."""
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


def await_message(child: Child, others: Sequence[Child], deadline: float) -> list[dict[str, Any]]:
    """Waits for the next answer of a child while others must stay alive.

    Args:
        child: the process that should answer.
        others: processes that say nothing but without which there is nothing to wait for.
        deadline: `time.monotonic` seconds at which to give up.

    Returns:
        At least one message.

    Raises:
        ChildDied: one of the processes is gone.
        ChildStopped: one of them is stopped by a signal for some seconds.
        ChildTimeout: the deadline passed.
    """
    looks: dict[Child, int] = {}
    with selectors.DefaultSelector() as selector:
        for process in (child, *others):
            selector.register(process, selectors.EVENT_READ, process)
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            ready = selector.select(min(remaining, _LOOK_SECS))
            if not ready and time.monotonic() >= deadline:
                raise ChildTimeout(f"{child.name} did not answer in time")
            if not ready:
                # Looks are counted, and not seconds: where all processes are stopped and go on one
                # after the other, none of them has hung.
                for process in (child, *others):
                    looks[process] = looks.get(process, 0) + 1 if process.is_stopped() else 0
                    if looks[process] >= _MOST_LOOKS:
                        raise ChildStopped(process)
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
    """The child's end. Made first thing by the module that a `ChildProcess` runs.

    Attributes:
        settings: what the parent gave at the start.
    """

    def __init__(self) -> None:
        """Starts to listen; from now on this process ends when its parent does."""
        _, settings, answers = sys.argv
        self.settings: dict[str, Any] = json.loads(settings)
        self._answers = int(answers)
        os.set_inheritable(self._answers, False)
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        use_default_signals()
        go_on_at_messages(0)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with open(0, "rb", closefd=False) as stdin:
                for line in stdin:
                    self._commands.put(json.loads(line))
        finally:
            # Also behind half a line, which is all that a parent killed while it wrote leaves.
            os._exit(0)

    def receive(self) -> dict[str, Any]:
        """Waits for the next command, and returns it."""
        return self._commands.get()

    def send(self, message: Mapping[str, Any]) -> None:
        """Answers with a JSON object."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self._answers, data) :]
