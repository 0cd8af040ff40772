"""Tests of atomic writes."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from graph_passes.util.atomic_write import (
    check_file_writable,
    remove_unfinished_files,
    write_atomically,
)

_WRITER = """
import os, sys
from graph_passes.util import atomic_write
atomic_write.os.replace = lambda *paths: (print("here", flush=True), sys.stdin.read())
atomic_write.write_atomically(sys.argv[1], b"new")
"""


class AtomicWriteTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.path = self.directory / "file"

    def mode(self) -> int:
        return stat.S_IMODE(self.path.stat().st_mode)

    def test_new_files_follow_the_umask_and_old_ones_keep_their_mode(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        write_atomically(self.path, b"new")
        self.assertEqual(self.mode(), 0o640)
        self.path.chmod(0o604)
        write_atomically(self.path, b"newer")
        self.assertEqual((self.mode(), self.path.read_bytes()), (0o604, b"newer"))
        self.assertEqual(os.listdir(self.directory), ["file"])

    def test_links_at_temporary_names_are_not_followed(self):
        victim = self.directory / "victim"
        victim.write_bytes(b"mine")
        for pid in (os.getpid(), os.getpid() + 1):
            (self.directory / f"file.{pid}.tmp").symlink_to(victim)
            (self.directory / f".file.{pid}.tmp").symlink_to(victim)
        check_file_writable(self.path)
        write_atomically(self.path, b"new")
        self.assertEqual(victim.read_bytes(), b"mine")

    def start_writer(self) -> subprocess.Popen[bytes]:
        """Starts a process that writes the file, and waits before the rename."""
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, self.path],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(writer.stdin.close)
        self.addCleanup(writer.stdout.close)
        self.addCleanup(writer.kill)
        self.assertEqual(writer.stdout.readline(), b"here\n")
        return writer

    def test_removes_files_of_killed_writers_only(self):
        writer = self.start_writer()
        check_file_writable(self.path)
        self.assertLen(os.listdir(self.directory), 1)
        writer.kill()
        writer.wait()
        self.assertLen(os.listdir(self.directory), 1)
        check_file_writable(self.path)
        self.assertEqual(os.listdir(self.directory), [])

    def test_keeps_unmarked_files_with_similar_names(self):
        names = (".mine.tmp", ".file.tmp", f".file.{'0' * 16}.tmp", ".file.0123.tmp", "a.tmp")
        for name in names:
            (self.directory / name).write_text("mine")
        check_file_writable(self.path)
        remove_unfinished_files(self.directory)
        write_atomically(self.path, b"new")
        self.assertCountEqual(os.listdir(self.directory), ["file", *names])

    def test_does_not_replace_write_protected_files(self):
        self.path.write_bytes(b"mine")
        self.path.chmod(0o444)
        # Root may write to any file, so the refusal is simulated.
        with mock.patch.object(os, "access", lambda path, mode: mode != os.W_OK):
            for write in (
                lambda: write_atomically(self.path, b"new"),
                lambda: check_file_writable(self.path),
            ):
                with self.assertRaises(PermissionError):
                    write()
        self.assertEqual(self.path.read_bytes(), b"mine")

    def test_writes_to_standard_output(self):
        code = "from graph_passes.util.atomic_write import *; check_file_writable('/dev/stdout'); "
        code += "write_atomically('/dev/stdout', b'data\\n'); print('more')"
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, b"data\nmore\n")
        with open(self.path, "ab") as output:
            subprocess.run([sys.executable, "-c", code], env=environ, stdout=output, check=True)
        self.assertEndsWith(self.path.read_bytes(), b"more\n")

    def test_errors_name_the_file(self):
        for path in ("/dev/full", self.directory / "none" / "file", self.directory):
            with self.assertRaises(OSError) as raised:
                write_atomically(path, b"x" * 100_000)
            self.assertEqual(raised.exception.filename, str(path))
        self.assertEqual(os.listdir(self.directory), [])

    def test_accepts_long_names(self):
        long = self.directory / ("x" * 255)
        write_atomically(long, b"data")
        self.assertEqual(long.read_bytes(), b"data")


if __name__ == "__main__":
    absltest.main()
