"""Tests of the fork server, without TensorFlow."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.process_tree import is_running
from tf_placer import processes
from tf_placer.fork_server import ForkServer
from tf_placer.private_network import PrivateNetwork, find_open_reason
from tf_placer.processes import ChildDied, ChildProcess, ChildStopped, await_message

_IMPORTED = """
import os
PID = os.getpid()
"""
_CHILD = """
import os, random
import numpy as np
import imported_for_test
from tf_placer.processes import Parent

parent = Parent()
parent.send({
    "importer": imported_for_test.PID,
    "pid": os.getpid(),
    "network": os.readlink("/proc/self/ns/net"),
    "random": [random.random(), np.random.rand()],
    "files": len(os.listdir("/proc/self/fd")),
})
parent.receive()
"""


class ProcessTemplateTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        (self.directory / "child_for_test.py").write_text(_CHILD)
        (self.directory / "imported_for_test.py").write_text(_IMPORTED)
        sys.path.insert(0, str(self.directory))
        self.addCleanup(sys.path.remove, str(self.directory))

    def server(self, *modules: str) -> ForkServer:
        server = ForkServer(modules, self.directory / "template.log")
        self.addCleanup(server.close)
        return server

    def child(self, server: ForkServer, network: PrivateNetwork | None = None):
        child = ChildProcess(
            "the child",
            "child_for_test",
            {},
            log_path=self.directory / "log",
            fork_server=server,
            network=network,
        )
        self.addCleanup(child.stop)
        return child

    def answer(self, child: ChildProcess) -> dict[str, object]:
        [answer] = await_message(child, (), time.monotonic() + 60)
        return answer

    def test_modules_are_imported_once_for_all_processes(self):
        server = self.server("imported_for_test", "numpy")
        children = [self.child(server) for _ in range(3)]
        answers = [self.answer(child) for child in children]
        [importer] = {answer["importer"] for answer in answers}
        pids = [answer["pid"] for answer in answers]
        self.assertEqual(pids, [child.pid for child in children])
        self.assertLen({importer, *pids}, 4)
        # A child does not inherit the state of an earlier one.
        self.assertLen({answer["files"] for answer in answers}, 1)
        for numbers in zip(*(answer["random"] for answer in answers), strict=True):
            self.assertLen(set(numbers), 3)

    def test_processes_can_be_in_a_network_of_their_own(self):
        if (reason := find_open_reason()) is not None:
            self.skipTest(reason)
        server = self.server()
        network = PrivateNetwork()
        self.addCleanup(network.close)
        inside = [self.answer(self.child(server, network))["network"] for _ in range(2)]
        [its_own] = set(inside)
        outside = os.readlink("/proc/self/ns/net")
        self.assertNotEqual(its_own, outside)
        self.assertEqual(self.answer(self.child(server))["network"], outside)

    def test_closing_or_killing_the_server_ends_its_processes(self):
        for end in (
            lambda server: server.close(),
            lambda server: os.kill(server._process.pid, signal.SIGKILL),
        ):
            server = self.server()
            child = self.child(server)
            self.answer(child)
            end(server)
            with self.assertRaisesRegex(ChildDied, r"killed by signal 9 \(SIGKILL\)"):
                await_message(child, (), time.monotonic() + 60)
            # Its files are closed a little before it is gone.
            deadline = time.monotonic() + 60
            while is_running(child.pid) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(is_running(child.pid))
            # The server forks no more processes.
            late = self.child(server)
            with self.assertRaises(ChildDied):
                await_message(late, (), time.monotonic() + 60)
            self.assertEqual(late.pid, -1)

    def test_a_stopped_server_resumes_on_a_request_and_at_the_end(self):
        server = self.server()
        self.answer(self.child(server))
        os.kill(server._process.pid, signal.SIGSTOP)
        self.answer(self.child(server))
        os.kill(server._process.pid, signal.SIGSTOP)
        # The death of this process would also close it.
        server._line.close()
        self.assertEqual(server._process.wait(60), 0)

    def test_a_process_pending_on_a_stopped_server_counts_as_hung(self):
        (self.directory / "slow_for_test.py").write_text("import time; time.sleep(60)")
        server = self.server("slow_for_test")
        child = self.child(server)
        os.kill(server._process.pid, signal.SIGSTOP)
        with (
            mock.patch.multiple(processes, _CHECK_INTERVAL_SECS=0.01, _MAX_STOPPED_CHECKS=3),
            self.assertRaisesRegex(ChildStopped, "the child was stopped by a signal"),
        ):
            await_message(child, (), time.monotonic() + 60)
        server.close()
        self.assertFalse(child.is_stopped())

    def test_a_server_with_a_failed_import_logs_the_reason(self):
        child = self.child(self.server("no_such_module_for_test"))
        with self.assertRaises(ChildDied):
            await_message(child, (), time.monotonic() + 60)
        self.assertEqual(child.pid, -1)
        child.stop()
        self.assertIn("no_such_module_for_test", (self.directory / "template.log").read_text())


if __name__ == "__main__":
    absltest.main()
