"""Tests of writing to logs on disks that take only a part, or nothing."""

from __future__ import annotations

import errno
import io
import os
from unittest import mock

from absl.testing import absltest

from tf_placer.search import log_file
from tf_placer.search.log_file import LogLockedError, lock, write_lines


class ShortWrites(io.FileIO):
    """Takes a few bytes at a time, and no more than there is room for."""

    room_bytes = 1000

    def write(self, data):
        count = min(7, len(data), self.room_bytes)
        if not count:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room_bytes -= count
        return super().write(data[:count])


class LogFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "log.jsonl")

    def content(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def test_lines_that_the_disk_takes_in_parts_get_there_whole(self):
        with ShortWrites(self.path, "a+") as file:
            write_lines(file, b"first line\n")
            write_lines(file, b"second line\nthird line\n")
        self.assertEqual(self.content(), b"first line\nsecond line\nthird line\n")

    def test_lines_that_the_disk_has_no_room_for_leave_nothing(self):
        with ShortWrites(self.path, "a+") as file:
            write_lines(file, b"first line\n")
            file.room_bytes = 10
            with self.assertRaisesRegex(OSError, "No space left") as raised:
                write_lines(file, b"second line\n")
            self.assertEqual(raised.exception.filename, self.path)
            file.room_bytes = 100
            write_lines(file, b"third line\n")
        self.assertEqual(self.content(), b"first line\nthird line\n")

    def test_a_file_has_one_writer(self):
        with open(self.path, "a+b", buffering=0) as first:
            lock(first)
            with open(self.path, "a+b", buffering=0) as second:
                with self.assertRaisesRegex(LogLockedError, "another search is writing .*log.json"):
                    lock(second)
                first.close()
                lock(second)

    def test_a_file_system_without_locks_is_a_warning(self):
        with (
            mock.patch.object(log_file.fcntl, "flock", side_effect=OSError(95, "unsupported")),
            self.assertLogs(level="WARNING") as logs,
            open(self.path, "a+b", buffering=0) as file,
        ):
            lock(file)
        self.assertIn("log.jsonl cannot be locked", logs.output[0])


if __name__ == "__main__":
    absltest.main()
