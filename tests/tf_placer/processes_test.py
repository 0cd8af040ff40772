"""Tests of child processes, without TensorFlow."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest

from tf_placer import processes
from tf_placer.fork_server import ForkServer
from tf_placer.processes import (
    ChildDied,
    ChildProcess,
    ChildStopped,
    ChildTimeout,
    await_message,
    environment_with_gpus,
    environment_with_plugin,
    environment_without_gpus,
)

_CHILD = """
import os, sys, time
from tf_placer.processes import Parent

parent = Parent()
parent.send({"settings": parent.settings, "visible": os.environ.get("PROBE")})
while True:
    command = parent.receive()
    if command["do"] == "echo":
        parent.send({"echo": command["value"]})
    elif command["do"] == "sleep":
        time.sleep(1000)
    elif command["do"] == "hang":
        parent.send({"hangs": True})
        3 ** 10 ** 9  # Holds the GIL, so that no other thread runs.
    elif command["do"] == "exit":
        print("the last word", file=sys.stderr, flush=True)
        os._exit(7)
"""

_PARENT = """
import sys, time
from tf_placer.fork_server import ForkServer
from tf_placer.processes import ChildProcess, await_message

template = ForkServer([], sys.argv[1]) if sys.argv[2] == "template" else None
child = ChildProcess("child", "child_for_test", {}, log_path=sys.argv[1], fork_server=template)
await_message(child, (), time.monotonic() + 60)
child.send({"do": "sleep"}, time.monotonic() + 60)
print(child.pid, flush=True)
time.sleep(1000)
"""


def _soon() -> float:
    return time.monotonic() + 60.0


def _is_running(pid: int) -> bool:
    """Says whether a process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class ChildProcessTest(absltest.TestCase):
    fork_server: ForkServer | None = None

    def setUp(self):
        super().setUp()
        directory = self.create_tempdir().full_path
        pathlib.Path(directory, "child_for_test.py").write_text(_CHILD)
        sys.path.insert(0, directory)
        self.addCleanup(sys.path.remove, directory)
        self.log_path = pathlib.Path(directory, "log")

    def start(self, **kwargs) -> ChildProcess:
        child = ChildProcess(
            "the child",
            "child_for_test",
            {"depth": 3},
            log_path=self.log_path,
            fork_server=self.fork_server,
            **kwargs,
        )
        self.addCleanup(child.stop)
        return child

    def test_the_child_gets_settings_and_environment(self):
        child = self.start(environ={**os.environ, "PROBE": "yes"})
        self.assertEqual(
            await_message(child, (), _soon()), [{"settings": {"depth": 3}, "visible": "yes"}]
        )

    def test_messages_of_a_megabyte_go_both_ways(self):
        child = self.start()
        await_message(child, (), _soon())
        value = "äx" * 500_000
        child.send({"do": "echo", "value": value}, _soon())
        messages = []
        while not messages:
            messages = child.read_messages()
        self.assertEqual(messages, [{"echo": value}])

    def test_a_silent_child_is_a_timeout(self):
        child = self.start()
        await_message(child, (), _soon())
        with self.assertRaises(ChildTimeout):
            await_message(child, (), time.monotonic() + 0.1)

    def test_a_check_ends_the_wait_for_a_silent_child(self):
        child = self.start()
        await_message(child, (), _soon())
        self.enterContext(mock.patch.object(processes, "_CHECK_INTERVAL_SECS", 0.01))
        check = mock.Mock(side_effect=[None, LookupError])
        with self.assertRaises(LookupError):
            await_message(child, (), _soon(), check)
        self.assertEqual(check.call_count, 2)

    def test_a_child_that_does_not_read_is_a_timeout(self):
        child = self.start()
        await_message(child, (), _soon())
        child.send({"do": "hang"}, _soon())
        await_message(child, (), _soon())
        with self.assertRaises(ChildTimeout):
            child.send({"do": "echo", "value": "x" * 10_000_000}, time.monotonic() + 0.2)

    def test_an_exit_reports_its_code_and_the_end_of_the_log(self):
        child = self.start()
        await_message(child, (), _soon())
        child.send({"do": "exit"}, _soon())
        with self.assertRaisesRegex(ChildDied, "^the child exited with code 7$"):
            await_message(child, (), _soon())
        self.assertEqual(child.log_tail(), "the last word")

    def test_a_killed_child_says_its_signal(self):
        child = self.start()
        await_message(child, (), _soon())
        os.kill(child.pid, signal.SIGKILL)
        with self.assertRaisesRegex(ChildDied, r"killed by signal 9 \(SIGKILL\)"):
            await_message(child, (), _soon())
        with self.assertRaises(ChildDied):
            child.send({"do": "echo", "value": 1}, _soon())

    def test_the_death_of_another_child_is_noticed(self):
        child, other = self.start(), self.start()
        for process in (child, other):
            await_message(process, (), _soon())
        os.kill(other.pid, signal.SIGKILL)
        with self.assertRaises(ChildDied) as caught:
            await_message(child, (other,), _soon())
        self.assertIs(caught.exception.child, other)

    def test_a_child_that_is_stopped_by_a_signal_is_noticed(self):
        child, other = self.start(), self.start()
        for process in (child, other):
            await_message(process, (), _soon())
        self.assertFalse(other.is_stopped())
        self.enterContext(mock.patch.object(processes, "_CHECK_INTERVAL_SECS", 0.01))
        os.kill(other.pid, signal.SIGSTOP)
        with self.assertRaisesRegex(
            ChildStopped, r"the child was stopped by a signal \(SIGSTOP\) and has not resumed"
        ) as caught:
            await_message(child, (other,), _soon())
        self.assertIs(caught.exception.child, other)
        other.stop()
        self.assertFalse(_is_running(other.pid))

    def test_a_resumed_child_does_not_count_as_hung(self):
        child = self.start()
        await_message(child, (), _soon())
        self.enterContext(mock.patch.object(processes, "_CHECK_INTERVAL_SECS", 0.001))
        # Never in so many successive checks.
        states = itertools.cycle([True] * (processes._MAX_STOPPED_CHECKS - 1) + [False])
        self.enterContext(mock.patch.object(child, "is_stopped", lambda: next(states)))
        with self.assertRaises(ChildTimeout):
            await_message(child, (), time.monotonic() + 0.1)

    def test_a_command_resumes_a_stopped_child(self):
        child = self.start()
        await_message(child, (), _soon())
        os.kill(child.pid, signal.SIGSTOP)
        child.send({"do": "echo", "value": 1}, _soon())
        self.assertEqual(await_message(child, (), _soon()), [{"echo": 1}])

    def test_a_cleared_log_starts_again(self):
        child = self.start()
        await_message(child, (), _soon())
        self.log_path.write_text("from an earlier trial\n")
        child.clear_log()
        child.send({"do": "exit"}, _soon())
        with self.assertRaises(ChildDied):
            await_message(child, (), _soon())
        self.assertEqual(child.log_tail(), "the last word")

    def test_the_log_tail_omits_stack_traces(self):
        child = self.start()
        await_message(child, (), _soon())
        addresses = "    @     0x7f8cf5ae74e5  tensorflow::CreateGrpcWorkerEnv()\n" * 40
        self.log_path.write_text(
            "F0000 env.cc:1] Check failed: ret == 0 pthread_create() failed.\n"
            f"*** Check failure stack trace: ***\n{addresses}"
        )
        self.assertEqual(
            child.log_tail(), "F0000 env.cc:1] Check failed: ret == 0 pthread_create() failed."
        )

    def test_a_stopped_child_is_gone(self):
        child = self.start()
        await_message(child, (), _soon())
        child.stop()
        self.assertFalse(_is_running(child.pid))
        child.stop()

    def test_an_incomplete_command_at_the_end_of_input_ends_the_child(self):
        child = self.start()
        await_message(child, (), _soon())
        os.write(child._commands, b'{"do": "ec')
        # In its place, so that the child closes what it has opened.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), child._commands)
        with self.assertRaisesRegex(ChildDied, "the child exited with code 0"):
            await_message(child, (), _soon())

    def test_starts_with_unusual_interpreter_settings(self):
        gone = self.create_tempdir("gone").full_path
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(gone)
        os.rmdir(gone)
        path = [*sys.path, pathlib.Path("/tmp"), b"/tmp", None, "relative", "/a:/b"]
        with mock.patch.multiple(sys, path=path, executable=None):
            child = self.start()
            self.assertLen(await_message(child, (), _soon()), 1)

    def test_a_child_has_a_line_where_descriptors_are_beyond_1024(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 2000:
            self.skipTest(f"no process can have more than {hard} open files here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(open(os.devnull))
            child = self.start()
            await_message(child, (), _soon())
            child.send({"do": "exit"}, _soon())
            with self.assertRaisesRegex(ChildDied, "exited with code 7"):
                await_message(child, (), _soon())
            child.stop()

    def test_a_child_hears_the_signals_that_its_parent_blocks(self):
        self.addCleanup(signal.signal, signal.SIGCHLD, signal.getsignal(signal.SIGCHLD))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGCHLD])
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if self.fork_server is not None:
            self.fork_server = ForkServer([], self.log_path.with_name("template.log"))
            self.addCleanup(self.fork_server.close)
        child = self.start()
        await_message(child, (), _soon())
        os.kill(child.pid, signal.SIGINT)
        with self.assertRaises(ChildDied):
            await_message(child, (), _soon())

    def check_that_a_child_does_not_outlive_a_killed_parent(self, *, is_stopped: bool):
        parent = subprocess.Popen(
            [
                *(sys.executable, "-c", _PARENT, str(self.log_path)),
                "template" if self.fork_server is not None else "afresh",
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.addCleanup(parent.stdout.close)
        child_pid = int(parent.stdout.readline())
        self.assertTrue(_is_running(child_pid))
        if is_stopped:
            os.kill(child_pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        deadline = _soon()
        while _is_running(child_pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(_is_running(child_pid))

    def test_a_child_does_not_outlive_a_killed_parent(self):
        self.check_that_a_child_does_not_outlive_a_killed_parent(is_stopped=False)

    def test_a_stopped_child_does_not_outlive_a_killed_parent(self):
        self.check_that_a_child_does_not_outlive_a_killed_parent(is_stopped=True)


class ChildOfTemplateTest(ChildProcessTest):
    """Repeats the tests with children from a fork server."""

    def setUp(self):
        super().setUp()
        self.fork_server = ForkServer([], self.log_path.with_name("template.log"))
        self.addCleanup(self.fork_server.close)


class ClosedStandardFilesTest(absltest.TestCase):
    def test_a_child_starts_where_standard_files_are_closed(self):
        directory = self.create_tempdir().full_path
        pathlib.Path(directory, "child_for_test.py").write_text(_CHILD)
        for kind in ("afresh", "template"):
            with self.subTest(kind):
                done = subprocess.run(
                    [
                        *("sh", "-c", 'exec "$0" "$@" <&- >&-', sys.executable, "-c"),
                        _PARENT.replace("print(child.pid, flush=True)\ntime.sleep(1000)", ""),
                        *(os.path.join(directory, "log"), kind),
                    ],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([directory, *sys.path])},
                    timeout=60,
                    capture_output=True,
                    text=True,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))


class GpuEnvironmentTest(absltest.TestCase):
    def test_hidden_gpus_come_back_as_they_were(self):
        library = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
        for before in (
            {},
            {"CUDA_VISIBLE_DEVICES": "0,1"},
            {"CUDA_VISIBLE_DEVICES": ""},
            {library: "gpu.so"},
        ):
            with self.subTest(before):
                hidden = environment_without_gpus({"HOME": "/", **before})
                self.assertEqual(hidden["CUDA_VISIBLE_DEVICES"], "")
                self.assertEqual(hidden[library], "")
                self.assertEqual(environment_with_gpus(hidden), {"HOME": "/", **before})

    def test_hiding_twice_still_finds_the_first_state(self):
        before = {"CUDA_VISIBLE_DEVICES": "1"}
        hidden = environment_without_gpus(environment_without_gpus(before))
        self.assertEqual(environment_with_gpus(hidden), before)

    def test_to_descendants_the_gpus_of_a_plugin_are_those_that_were_visible_at_first(self):
        library = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
        for before in ({"CUDA_VISIBLE_DEVICES": "1"}, environment_without_gpus({})):
            with self.subTest(before):
                plugged = environment_with_plugin("gpu.so", before)
                self.assertEqual(plugged["CUDA_VISIBLE_DEVICES"], "")
                self.assertEqual(environment_with_gpus(plugged), plugged)
                hidden = environment_without_gpus(plugged)
                self.assertEqual(hidden[library], "")
                self.assertEqual(environment_with_gpus(hidden), plugged)

    def test_an_untouched_environment_stays(self):
        self.assertEqual(
            environment_with_gpus({"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"], "2"
        )


if __name__ == "__main__":
    absltest.main()
