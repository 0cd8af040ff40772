"""Tests of files that are written whole or not at all."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from graph_passes.util.whole_file import check_takes_files, remove_what_is_left, write_whole

_WRITER = """
import os, sys
from graph_passes.util import whole_file
whole_file.os.replace = lambda *paths: (print("here", flush=True), sys.stdin.read())
whole_file.write_whole(sys.argv[1], b"new")
"""


class WholeFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.path = self.directory / "file"

    def mode(self) -> int:
        return stat.S_IMODE(self.path.stat().st_mode)

    def test_a_new_file_has_the_mode_that_the_user_wants_and_an_old_one_keeps_its_own(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        write_whole(self.path, b"new")
        self.assertEqual(self.mode(), 0o640)
        self.path.chmod(0o604)
        write_whole(self.path, b"newer")
        self.assertEqual((self.mode(), self.path.read_bytes()), (0o604, b"newer"))
        self.assertEqual(os.listdir(self.directory), ["file"])

    def test_links_in_the_place_of_what_is_beside_the_file_are_not_followed(self):
        victim = self.directory / "victim"
        victim.write_bytes(b"mine")
        for pid in (os.getpid(), os.getpid() + 1):
            (self.directory / f"file.{pid}.tmp").symlink_to(victim)
            (self.directory / f".file.{pid}.tmp").symlink_to(victim)
        check_takes_files(self.path)
        write_whole(self.path, b"new")
        self.assertEqual(victim.read_bytes(), b"mine")

    def start_writer(self) -> subprocess.Popen[bytes]:
        """Starts a process that writes the file, and stops before it is in its place."""
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

    def test_what_a_kill_leaves_is_removed_at_the_next_start_but_not_from_under_a_writer(self):
        writer = self.start_writer()
        check_takes_files(self.path)
        self.assertLen(os.listdir(self.directory), 1)
        writer.kill()
        writer.wait()
        self.assertLen(os.listdir(self.directory), 1)
        check_takes_files(self.path)
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_file_that_has_only_the_name_of_what_a_kill_leaves_stays(self):
        names = (".mine.tmp", ".file.tmp", f".file.{'0' * 16}.tmp", ".file.0123.tmp", "a.tmp")
        for name in names:
            (self.directory / name).write_text("mine")
        check_takes_files(self.path)
        remove_what_is_left(self.directory)
        write_whole(self.path, b"new")
        self.assertCountEqual(os.listdir(self.directory), ["file", *names])

    def test_a_file_that_its_owner_has_protected_is_not_replaced(self):
        self.path.write_bytes(b"mine")
        self.path.chmod(0o444)
        # Nothing is protected from root.
        with mock.patch.object(os, "access", lambda path, mode: mode != os.W_OK):
            for write in (
                lambda: write_whole(self.path, b"new"),
                lambda: check_takes_files(self.path),
            ):
                with self.assertRaises(PermissionError):
                    write()
        self.assertEqual(self.path.read_bytes(), b"mine")

    def test_a_standard_output_that_is_a_pipe_or_a_file_is_written_to(self):
        code = "from graph_passes.util.whole_file import *; check_takes_files('/dev/stdout'); "
        code += "write_whole('/dev/stdout', b'data\\n'); print('more')"
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, b"data\nmore\n")
        with open(self.path, "ab") as output:
            subprocess.run([sys.executable, "-c", code], env=environ, stdout=output, check=True)
        self.assertEndsWith(self.path.read_bytes(), b"more\n")

    def test_an_error_names_the_file(self):
        for path in ("/dev/full", self.directory / "none" / "file", self.directory):
            with self.assertRaises(OSError) as raised:
                write_whole(path, b"x" * 100_000)
            self.assertEqual(raised.exception.filename, str(path))
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_long_name_is_written(self):
        long = self.directory / ("x" * 255)
        write_whole(long, b"data")
        self.assertEqual(long.read_bytes(), b"data")


if __name__ == "__main__":
    absltest.main()
