"""Tests of JSON Lines files: after a kill, with a full disk, and with invalid content."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from graph_passes.util.json_records import check_entries
from tf_placer.search import log_file
from tf_placer.search.log_file import LogFile, LogKind, LogLockedError, read_log_file
from tf_placer.search.log_header import LogError, LogMismatchError

HEADER = {"seed": 3, "cores": (0, 1)}
RECORDS = [{"text": "“one”\n"}, {"text": "two", "secs": 0.30000000000000004}, {"text": ""}]


def read_record(value, number):
    if value.get("number", number) != number:
        raise LogError(f"number {value['number']} where {number} should be")
    check_entries(value, ("text",))
    if not isinstance(value["text"], str):
        raise ValueError("the text is none")
    return value


KIND = LogKind("book of notes", "a note", 2, dict, read_record)


class ShortWrites(io.FileIO):
    """A file that takes a few bytes per write, until its disk is full."""

    room_bytes = 1000

    def write(self, data):
        count = min(7, len(data), self.room_bytes)
        if not count:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room_bytes -= count
        return super().write(data[:count])


class LogFileTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "notes.jsonl")

    def open(self, header=HEADER, **kwargs) -> LogFile:
        return LogFile(self.path, KIND, header, **kwargs)

    def write(self, records=RECORDS) -> bytes:
        with self.open() as log:
            log.extend(records)
        return self.content()

    def content(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def put(self, content: bytes) -> None:
        with open(self.path, "wb") as file:
            file.write(content)

    def read(self):
        return read_log_file(self.path, KIND)


class WritingTest(LogFileTestCase):
    def test_a_log_can_be_read_and_appended_to(self):
        before = self.write(RECORDS[:1])
        with self.open() as log:
            self.assertEqual(log.records, RECORDS[:1])
            log.extend(RECORDS[1:])
            self.assertEqual(log.records, RECORDS)
        self.assertStartsWith(self.content(), before)
        header = {"format": 2, "seed": 3, "cores": [0, 1]}
        self.assertEqual((log.header, log.path), (header, self.path))
        self.assertEqual(self.read(), (header, tuple(RECORDS)))

    def test_a_file_that_is_deleted_or_moved_meanwhile_is_noticed(self):
        moved = self.path + ".moved"
        for remove in (os.unlink, lambda path: os.rename(path, moved)):
            with self.open() as log:
                log.extend(RECORDS[:1])
                remove(self.path)
                with self.assertRaisesRegex(OSError, "deleted or moved while") as raised:
                    log.extend(RECORDS[1:])
                self.assertEqual(raised.exception.filename, self.path)
                self.assertEqual(log.records, RECORDS[:1])
        self.path = moved
        self.assertEqual(self.read()[1], tuple(RECORDS[:1]))

    def test_a_file_that_is_replaced_meanwhile_is_noticed(self):
        with self.open() as log:
            os.unlink(self.path)
            self.put(b"another")
            with self.assertRaisesRegex(OSError, "deleted or moved while"):
                log.extend(RECORDS)
        self.assertEqual(self.content(), b"another")

    def test_makes_its_directory(self):
        self.path = os.path.join(os.path.dirname(self.path), "a", "b", "notes.jsonl")
        self.write()
        self.assertLen(self.read()[1], 3)

    def test_a_restart_drops_the_records_and_keeps_the_header(self):
        self.write()
        with self.open() as log:
            log.restart()
            self.assertEqual(log.records, [])
            log.extend(RECORDS[:1])
        self.assertEqual(self.read()[1], tuple(RECORDS[:1]))
        self.assertEqual(self.read()[0]["seed"], 3)

    def test_a_reader_sees_every_record_while_a_search_writes(self):
        with self.open() as log:
            for count, record in enumerate(RECORDS, start=1):
                log.extend([record])
                self.assertLen(self.read()[1], count)

    def test_records_are_on_disk_when_they_are_written(self):
        sizes = []
        with mock.patch.object(os, "fsync", lambda fd: sizes.append(os.fstat(fd).st_size)):
            log = self.open()
            self.assertLen(sizes, 2)  # the header and the directory
            log.extend(RECORDS)
        self.assertEqual(sizes[2:], [os.path.getsize(self.path)])
        log.close()

    def test_lines_are_complete_after_short_writes(self):
        whole = self.write()
        os.remove(self.path)
        with self.on_small_disk() as log:
            log.extend(RECORDS)
        self.assertEqual(self.content(), whole)

    def test_lines_for_which_the_disk_is_too_full_are_removed(self):
        with self.on_small_disk() as log:
            log.extend(RECORDS[:1])
            log._file.room_bytes = 10
            with self.assertRaisesRegex(OSError, "No space left") as raised:
                log.extend(RECORDS[1:])
            self.assertEqual(raised.exception.filename, self.path)
            self.assertEqual(log.records, RECORDS[:1])
            log._file.room_bytes = 100
            log.extend(RECORDS[2:])
        self.assertEqual(self.read()[1], (RECORDS[0], RECORDS[2]))

    def test_a_log_moves_to_a_new_file_with_all_its_records(self):
        first, other = self.path, f"{self.path}.other"
        with self.open(elsewhere=lambda error: other) as log:
            log.extend(RECORDS[:1])
            os.unlink(first)
            log.extend(RECORDS[1:2])
            self.assertEqual(log.path, other)
            self.path = other
            with self.assertRaisesRegex(LogError, "another search is writing"):
                self.open()
            log.extend(RECORDS[2:])
        self.assertFalse(os.path.exists(first))
        self.assertEqual(self.read(), (log.header, tuple(RECORDS)))

    def test_a_log_that_cannot_move_stays(self):
        taken = self.create_tempfile("taken").full_path
        with self.open() as log:
            log.extend(RECORDS[:1])
            for place in (taken, "/nowhere/notes.jsonl"):
                with self.assertRaises(OSError):
                    log.move(place)
            log.extend(RECORDS[1:])
        self.assertEqual(self.read()[1], tuple(RECORDS))

    def on_small_disk(self) -> LogFile:
        def open_small(path, mode, buffering):
            return ShortWrites(path, "a+")

        with mock.patch.object(log_file, "open", open_small, create=True):
            return self.open()

    def test_numbers_that_json_does_not_have_are_refused(self):
        with self.open() as log:
            before = self.content()
            with self.assertRaises(ValueError):
                log.extend([{"text": "", "secs": float("inf")}])
        self.assertEqual(self.content(), before)


class LockTest(LogFileTestCase):
    def test_a_second_writer_is_refused_until_the_first_closes(self):
        log = self.open()
        with self.assertRaisesRegex(LogLockedError, "another search is writing .*notes.jsonl"):
            self.open()
        self.assertEqual(self.read()[1], ())
        log.extend(RECORDS[:1])
        log.close()
        self.open().close()

    def test_the_lock_holds_against_another_process_and_ends_with_it(self):
        code = (
            "import sys; from tf_placer.search.log_file import LogFile, LogKind\n"
            "log = LogFile(sys.argv[1], LogKind('log', 'line', 2, dict, dict), {'seed': 1})\n"
            "print('open', flush=True)\n"
            "sys.stdin.read()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, self.path],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            self.assertEqual(child.stdout.readline(), b"open\n")
            with self.assertRaises(LogLockedError):
                self.open({"seed": 1})
            child.kill()
        self.open({"seed": 1}).close()

    def test_a_file_system_without_locks_is_a_warning(self):
        error = OSError(95, "unsupported")
        with (
            mock.patch.object(log_file.fcntl, "flock", side_effect=error),
            self.assertLogs(level="WARNING") as logs,
        ):
            self.open().close()
        self.assertIn("notes.jsonl cannot be locked", logs.output[0])


class DamagedFileTest(LogFileTestCase):
    def test_a_cut_at_any_byte_loses_only_the_record_that_was_cut(self):
        content = self.write()
        line_ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
        with mock.patch.object(os, "fsync"):
            for size in range(len(content)):
                self.put(content[:size])
                # A line is complete without its newline.
                whole = sum(end <= size for end in line_ends)
                with self.open() as log:
                    self.assertEqual(log.records, RECORDS[: max(0, whole - 1)], size)
                    log.extend(RECORDS[len(log.records) :])
                self.assertEqual(self.content(), content, size)

    def test_a_torn_last_line_is_dropped_with_a_warning(self):
        content = self.write()
        self.put(content[:-5])
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.read()[1], 2)
        self.assertIn("notes.jsonl:4: dropping the last line", logs.output[0])
        self.assertEqual(self.content(), content[:-5])  # reading changes nothing

    def test_garbage_that_a_power_failure_left_at_the_end_is_dropped(self):
        content = self.write()
        for garbage in (b"\0" * 40, b"\0" * 40 + b"\n", b"\xff\xfe\n"):
            self.put(content + garbage)
            self.open().close()
            self.assertEqual(self.content(), content)

    def test_zeros_instead_of_a_header_count_as_new(self):
        self.put(b"\0" * 100)
        self.write()
        self.assertEqual(self.read()[1], tuple(RECORDS))

    def test_a_file_with_only_a_torn_header_counts_as_new_but_is_no_log_to_read(self):
        header = self.write([])
        for size in (0, 1, 5, len(header) // 2, len(header) - 2):
            self.put(header[:size])
            with self.assertRaisesRegex(LogError, "notes.jsonl:1: not a book of notes"):
                self.read()
            self.assertEqual(self.write([]), header)

    @parameterized.parameters(
        (b"[1]\n", ":1: not the header of a book of notes"),
        (b'{"a": 1}\n', ":1: not the header"),
        (b"7", ":1: not the header"),
        (b"hello", ":1: not a line of a book of notes: Expecting value"),
        (b"hello\nworld\n", ":1: not a line of a book of notes"),
        (b"\x08\x01", ":1: not a line of a book of notes"),
        (b'{"format": 3}\n', ":1: written by a later version .*: log format 3, .* up to 2"),
        (b'{"format": 1}\nhello\n{}\n', ":2: not a line of a book of notes"),
        (b'{"format": 1}\n{}\n', ':2: not a note: it has no entry "text"'),
        (b'{"format": 1}\n{"text": null}\n', ":2: not a note: the text is none"),
        (b'{"format": 1}\n{"text": "", "number": 4}\n', ":2: number 4 where 0 should be"),
    )
    def test_a_damaged_file_is_named_and_left_alone(self, content, message):
        self.put(content)
        for use in (self.read, self.open):
            with self.assertRaisesRegex(LogError, "notes.jsonl" + message):
                use()
        self.assertEqual(self.content(), content)

    def test_a_log_of_something_else_is_refused_left_alone_and_unlocked(self):
        content = self.write()
        with self.assertRaisesRegex(LogMismatchError, "a log of another seed: .*notes.jsonl"):
            self.open({**HEADER, "seed": 4})
        self.assertEqual(self.content(), content)
        self.open().close()

    def test_a_log_of_an_earlier_format_can_be_appended_to(self):
        self.put(b'{"format": 1, "seed": 3, "cores": [0, 1]}\n')
        self.write()
        self.assertEqual(self.read()[0]["format"], 1)

    def test_a_missing_file_is_an_os_error_to_read(self):
        with self.assertRaises(FileNotFoundError):
            self.read()


if __name__ == "__main__":
    absltest.main()
