"""Tests of how processes start when they fail or somebody disturbs them, without TensorFlow."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import sys
import time
from collections.abc import Sequence
from unittest import mock

from absl.testing import absltest

from tf_placer import processes
from tf_placer.environments import live_processes, worker_fork_server
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.live_processes import LiveProcesses, WorkerStartError
from tf_placer.machines.local_cluster import LocalClusterError
from tf_placer.machines.lookup import find_machine
from tf_placer.processes import ChildDied, ChildProcess, await_message

# A process that ends as the next line of a file says, or obeys where there is none. A command with
# a line for the log of the server has no answer.
_CHILD = """
import os, pathlib, signal, sys
from tf_placer.processes import Parent

parent = Parent()
ends = pathlib.Path(__file__).with_name(parent.settings["ends"])
first, *others = ends.read_text().split() or [""]
ends.write_text(" ".join(others))
if first == "fails":
    sys.exit("no such device")
if first:
    os.kill(os.getpid(), getattr(signal, first))
if parent.settings["ends"] == "server_ends":
    parent.send({"ready": True})
while True:
    command = parent.receive()
    if "line" in command:
        pathlib.Path(__file__).with_name("task_0.log").write_text(command["line"])
    else:
        parent.send({"done": True})
"""
_LOAD = {"graph": "graph.pb"}


class _Cluster:
    """A `LocalCluster` with one server, which computes nothing."""

    target = "grpc://nowhere"

    def __init__(self, machine, *, log_dir, network, open_reason):
        del machine, network, open_reason
        log_path = pathlib.Path(log_dir, "task_0.log")
        settings = {"ends": "server_ends"}
        server = ChildProcess("task 0", "child_for_test", settings, log_path=log_path)
        self.servers = [server]

    def wait_until_ready(self):
        try:
            await_message(self.servers[0], (), time.monotonic() + 60)
        except ChildDied as death:
            raise LocalClusterError(f"{death} while it started") from None

    def close(self):
        self.servers[0].stop()


class LiveProcessesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        (self.directory / "child_for_test.py").write_text(_CHILD)
        sys.path.insert(0, str(self.directory))
        self.addCleanup(sys.path.remove, str(self.directory))
        self.enter_context(mock.patch.object(processes, "_CHECK_INTERVAL_SECS", 0.02))
        self.enter_context(mock.patch.object(worker_fork_server, "_MODULES", ()))
        self.enter_context(mock.patch.object(live_processes, "LocalCluster", _Cluster))
        self.lines: list[str] = []
        self.processes = LiveProcesses(
            find_machine("local:1"), self.directory, report=self.lines.append
        )
        self.addCleanup(self.processes.close)
        self.enter_context(mock.patch.object(self.processes, "_start_worker", self.worker))
        self.ends([])

    def worker(self, template):
        return ChildProcess(
            "the worker",
            "child_for_test",
            {"ends": "worker_ends"},
            log_path=self.directory / "worker.log",
            fork_server=template,
        )

    def ends(self, of_servers: Sequence[str], of_workers: Sequence[str] = ()) -> None:
        """Says how the next servers and workers end."""
        (self.directory / "server_ends").write_text(" ".join(of_servers))
        (self.directory / "worker_ends").write_text(" ".join(of_workers))

    def template_pid(self) -> int:
        return self.processes._template._process.pid

    def test_a_start_that_others_end_is_tried_twice_more_with_the_template(self):
        self.ends(["SIGKILL", "SIGSTOP"])
        start = worker_fork_server.start_fork_server
        with mock.patch.object(live_processes, "start_fork_server", wraps=start) as made:
            self.processes.start(_LOAD)
        self.assertTrue(self.processes.are_running())
        made.assert_called_once()
        self.assertLen(self.lines, 2)
        again = "^the workers did not start, trying once more: task 0 was "
        self.assertRegex(self.lines[0], again + r"killed by signal 9 \(SIGKILL\)")
        self.assertRegex(self.lines[1], again + r"stopped by a signal \(SIGSTOP\)")

    def test_there_is_no_fourth_try(self):
        self.ends([], ["SIGKILL", "SIGSEGV", "SIGTERM"])
        with self.assertRaisesRegex(WorkerStartError, r"do not start: the worker .* \(SIGTERM\)"):
            self.processes.start(_LOAD)
        self.assertLen(self.lines, 2)
        self.assertEmpty(self.processes.children())
        self.processes.start(_LOAD)

    def test_a_start_that_fails_by_itself_is_tried_once_more_and_afresh(self):
        self.ends(["fails"])
        self.processes.start(_LOAD)
        self.assertIsNone(self.processes._template)
        self.processes.stop()
        self.ends(["fails", "fails"])
        with self.assertRaisesRegex(WorkerStartError, "task 0 exited with code 1"):
            self.processes.start(_LOAD)
        self.assertLen(self.lines, 2)

    def test_a_template_that_fails_is_not_tried_again(self):
        modules = ("no_such_module_for_test",)
        self.enter_context(mock.patch.object(worker_fork_server, "_MODULES", modules))
        self.processes.start(_LOAD)
        self.assertIsNone(self.processes._template)
        self.assertLen(self.lines, 1)

    def test_a_template_that_is_gone_or_stopped_is_replaced_and_costs_no_try(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            self.processes.start(_LOAD)
            self.processes.stop()
            before = self.template_pid()
            os.kill(before, number)
            while self.processes._template.is_fit():
                time.sleep(0.01)
            self.processes.start(_LOAD)
            self.assertTrue(self.processes.are_running())
            self.assertNotEqual(self.template_pid(), before)
        self.assertEmpty(self.lines)

    def find_failure(self, machine: str, line: str) -> Failure:
        """Returns the failure of a request without an answer, when the log has the line."""
        self.processes.machine = find_machine(machine)
        command = {"command": "open_session", "line": line}
        answer = self.processes.request(_LOAD, command, 0.5, "the initializers")
        self.assertIsInstance(answer, Failure)
        return answer

    def test_a_server_without_memory_ends_a_request_that_has_no_answer(self):
        limits = dataclasses.replace(live_processes._LIMITS, memory_patience_secs=0.0)
        self.enter_context(mock.patch.object(live_processes, "_LIMITS", limits))
        lacks = "Allocator (bfc_cpu_allocator_for_gpu) ran out of memory trying to allocate 4B"
        failure = self.find_failure("local:1,memory_mb=3", lacks)
        self.assertEqual(failure.kind, FailureKind.OUT_OF_MEMORY)
        self.assertEqual(failure.message, "in the initializers, task 0 ran out of its 3.000 MiB")
        # Such a line does not tell of the limit, or there is none.
        for machine, line in (("local:1,memory_mb=3", "Slow operation"), ("local:1", lacks)):
            failure = self.find_failure(machine, line)
            self.assertEqual(failure.kind, FailureKind.TIMEOUT)

    def test_a_request_may_recover_from_a_want_of_memory(self):
        lacks = "Allocator (bfc_cpu_allocator_for_gpu) ran out of memory trying to allocate 4B"
        # The time limit of the request ends before the patience.
        failure = self.find_failure("local:1,memory_mb=3", lacks)
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)


if __name__ == "__main__":
    absltest.main()
