"""Tests of private networks."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys

from absl.testing import absltest

from tf_placer.private_network import (
    OPEN_VARIABLE,
    NetworkError,
    PrivateNetwork,
    describe_open_servers,
    find_open_reason,
    is_private,
)

_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
_ASK = "from tf_placer.private_network import *; print(is_private(), find_open_reason())"
# In a user namespace of its own, where no network namespace may be made: what a kernel answers that
# does not let users have any.
_DENIED = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" -c '{}'"
_SERVER = """
import socket
server = socket.create_server(("localhost", 0))
print(server.getsockname()[1], flush=True)
server.accept()
print("met", flush=True)
"""
_CLIENT = "import socket, sys; socket.create_connection(('localhost', int(sys.argv[1])))"


def _can_be_denied() -> bool:
    command = ["unshare", "-Ur", "sh", "-c", _DENIED.format("0"), sys.executable]
    return shutil.which("unshare") is not None and not subprocess.run(command).returncode


class PrivateNetworkTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        try:
            self.network = PrivateNetwork()
        except NetworkError as error:
            self.skipTest(str(error))
        self.addCleanup(self.network.close)

    def run_inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.network.command("-", *command),
            env={**_ENVIRON, **self.network.environ()},
            pass_fds=self.network.inherited,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_processes_inside_can_connect_and_others_cannot(self):
        server = subprocess.Popen(
            self.network.command("-", sys.executable, "-c", _SERVER),
            pass_fds=self.network.inherited,
            env=_ENVIRON,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        port = server.stdout.readline().strip()
        with socket.socket() as outside:
            self.assertNotEqual(outside.connect_ex(("localhost", int(port))), 0)
        with socket.create_server(("localhost", 0)) as here:
            out = self.run_inside(sys.executable, "-c", _CLIENT, str(here.getsockname()[1]))
        self.assertNotEqual(out.returncode, 0)
        self.assertEqual(self.run_inside(sys.executable, "-c", _CLIENT, port).returncode, 0)
        self.assertEqual(server.stdout.readline(), "met\n")
        self.assertEqual(server.wait(30), 0)

    def test_keeps_user_files_and_exit_codes(self):
        path = self.create_tempfile("file").full_path
        done = self.run_inside("stat", "-c", "%u %g", path)
        self.assertEqual(done.stdout.split(), [str(os.getuid()), str(os.getgid())])
        self.assertEqual(self.run_inside("sh", "-c", "exit 9").returncode, 9)

    def test_processes_inside_know_that_they_are(self):
        self.assertFalse(is_private())
        self.assertEqual(self.run_inside(sys.executable, "-c", _ASK).stdout, "True None\n")

    def test_a_stale_environment_variable_is_ignored(self):
        environ = {**_ENVIRON, **self.network.environ()}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=environ, stdout=subprocess.PIPE, text=True
        )
        self.assertEqual(done.stdout, "False None\n")


class OpenServersTest(absltest.TestCase):
    def test_the_warning_names_users_and_interfaces(self):
        note = describe_open_servers("the servers of local:2", "nobody minds")
        self.assertStartsWith(note, "the servers of local:2 listen without a password, because ")
        self.assertIn("because nobody minds. Every user of this computer", note)
        self.assertEndsWith(note, ". docs/safety.md tells how to keep others out")
        remedied = describe_open_servers("the servers of local:2", "nobody minds", "Use serve")
        self.assertEndsWith(remedied, "'s files. Use serve")
        short = describe_open_servers("the servers of local:2", None, "Use serve")
        self.assertStartsWith(short, "the servers of local:2 listen without a password: every user")
        self.assertRegex(short, " can run graphs there as [^ ]+. Use serve$")
        for _, name in socket.if_nameindex():
            flags = int(pathlib.Path("/sys/class/net", name, "flags").read_text(), 16)
            is_reached = name != "lo" and flags & 1
            self.assertEqual(bool(is_reached), f" {name}," in note, name)
        self.assertNotIn("\n", note)

    def test_a_variable_asks_for_open_servers(self):
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            env={**_ENVIRON, OPEN_VARIABLE: "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.stdout, f"False {OPEN_VARIABLE}=1 asks for that\n")

    @absltest.skipIf(not _can_be_denied(), "users have no namespaces here at all")
    def test_a_kernel_that_denies_it_is_quoted(self):
        done = subprocess.run(
            ["unshare", "-Ur", "sh", "-c", _DENIED.format(_ASK), sys.executable],
            env=_ENVIRON,
            stdout=subprocess.PIPE,
            text=True,
        )
        why = "it allows no more of them"
        self.assertEqual(done.stdout, f"False the kernel denies a network of its own ({why})\n")

    def test_this_process_is_answered_without_leaving_anything_open(self):
        before = os.listdir("/proc/self/fd")
        reason = find_open_reason()
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        self.assertTrue(reason is None or "network of its own" in reason)


if __name__ == "__main__":
    absltest.main()
