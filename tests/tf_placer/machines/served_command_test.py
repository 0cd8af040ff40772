"""Tests of a command that ends with its client process, without servers."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from absl.testing import absltest

from tests.tf_placer.process_tree import descendants, wait_until_gone
from tf_placer.machines import served_command

# The command starts two processes and waits only for one of them.
_FAMILY = "sleep 1000 & sleep 1000; echo not reached"


class ServedCommandTest(absltest.TestCase):
    def start(self, *command: str) -> tuple[subprocess.Popen[str], int]:
        """Starts a process that runs the command; returns it with the client's end of the line."""
        read, write = os.pipe()
        script = os.path.abspath(served_command.__file__)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(read), *command],
            pass_fds=(read,),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(read)
        self.addCleanup(process.kill)
        return process, write

    def run_to_end(self, *command: str) -> tuple[int, str, str]:
        process, line = self.start(*command)
        output, errors = process.communicate(timeout=60)
        os.close(line)
        return process.returncode, output, errors

    def test_has_the_exit_code_and_output_of_the_command(self):
        self.assertEqual(self.run_to_end("sh", "-c", "echo yes; exit 7"), (7, "yes\n", ""))
        self.assertEqual(self.run_to_end("sh", "-c", "kill -9 $$"), (137, "", ""))

    def test_the_command_has_the_default_signal_handlers(self):
        # Python ignores SIGPIPE, and `yes` would complain.
        self.assertEqual(self.run_to_end("sh", "-c", "yes | head -1"), (0, "y\n", ""))
        state = "import signal; print(signal.getsignal(signal.SIGINT).__name__)"
        _, output, _ = self.run_to_end(sys.executable, "-c", state)
        self.assertEqual(output, "default_int_handler\n")

    def test_reports_a_command_that_cannot_be_run(self):
        code, _, errors = self.run_to_end(self.create_tempdir().full_path)
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"^tf_placer: cannot run '/.*': Permission denied\n$")

    def check_all_processes_end(
        self, end: Callable[[subprocess.Popen[str], int], None], command: str = _FAMILY
    ) -> int:
        process, line = self.start("sh", "-c", command)
        deadline = time.monotonic() + 60.0
        while len(started := descendants(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertLen(started, 3)
        end(process, line)
        self.assertEqual(wait_until_gone(started), [])
        output, errors = process.communicate(timeout=60)
        self.assertEqual((output, errors), ("", ""))
        return process.returncode

    def test_all_processes_end_when_the_client_ends(self):
        self.check_all_processes_end(lambda process, line: os.close(line))

    def test_stopped_processes_end_when_the_client_ends(self):
        def stop(process: subprocess.Popen[str], line: int) -> None:
            for pid, _ in descendants(process.pid):
                os.kill(pid, signal.SIGSTOP)
            process.send_signal(signal.SIGSTOP)
            os.close(line)

        self.check_all_processes_end(stop)

    def test_forwards_termination_signals_to_all_processes(self):
        for number in served_command.ENDING_SIGNALS:
            with self.subTest(number):
                code = self.check_all_processes_end(
                    lambda process, line, number=number: process.send_signal(number)
                )
                self.assertEqual(code, 128 + number)

    def test_the_command_may_handle_a_signal(self):
        path = pathlib.Path(self.create_tempdir().full_path, "saved")
        command = f"trap 'echo > {path}; exit 3' TERM; sleep 1000 & sleep 1000 & wait; wait"
        code = self.check_all_processes_end(
            lambda process, line: process.send_signal(signal.SIGTERM), command
        )
        self.assertEqual(code, 3)
        self.assertTrue(path.exists())


if __name__ == "__main__":
    absltest.main()
