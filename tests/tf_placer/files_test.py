"""Tests of reading and writing JSON files."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from tf_placer import files as json_file
from tf_placer.files import cache_directory, check_output, is_stream, read_json, write_json


class JsonFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.path = self.directory / "value.json"

    def test_brings_back_what_was_written(self):
        for value in ({"a": [1, 2.5, None, "µ"]}, [], "text"):
            write_json(self.path, value)
            self.assertEqual(read_json(self.path), value)
        self.assertEqual(os.listdir(self.directory), ["value.json"])

    def test_names_a_file_that_is_not_json(self):
        for content in (b"", b"{", b'{"a": 1} x', b"\xff\xfe", b"[" * 200_000):
            self.path.write_bytes(content)
            with self.assertRaisesRegex(ValueError, "value.json is not a JSON file: "):
                read_json(self.path)

    def test_a_missing_file_is_refused_by_name(self):
        with self.assertRaises(FileNotFoundError) as raised:
            read_json(self.path)
        self.assertEqual(raised.exception.filename, str(self.path))

    def test_the_cache_is_never_in_the_working_directory(self):
        for environ, expected in (
            ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/tf_placer"),
            ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/tf_placer"),
            ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/tf_placer"),
            ({"HOME": "~"}, "/nonexistent/.cache/tf_placer"),
        ):
            with self.subTest(environ), mock.patch.dict(os.environ, environ, clear=True):
                self.assertEqual(cache_directory(), pathlib.Path(expected))

    def test_a_standard_file_that_is_closed_or_full_is_refused_by_name(self):
        with mock.patch.object(sys, "stdin", None), self.assertRaises(OSError) as raised:
            read_json("-")
        self.assertEqual(raised.exception.filename, "standard input")
        full = open("/dev/full", "w")  # noqa: SIM115
        for stream in (full, None):
            with (
                mock.patch.object(sys, "stdout", stream),
                self.assertRaises(OSError) as raised,
            ):
                write_json("-", [])
            self.assertEqual(raised.exception.filename, "standard output")
        with contextlib.suppress(OSError):
            full.close()

    def test_a_value_that_cannot_be_written_leaves_the_file_as_it_was(self):
        write_json(self.path, "before")
        with self.assertRaises(ValueError):
            write_json(self.path, [1.0, float("nan")])
        for error in (OSError("disk full"), KeyboardInterrupt()):
            with (
                mock.patch.object(json_file.os, "replace", side_effect=error),
                self.assertRaises(type(error)),
            ):
                write_json(self.path, "after")
        self.assertEqual(read_json(self.path), "before")
        self.assertEqual(os.listdir(self.directory), ["value.json"])

    def test_a_link_stays_a_link(self):
        link = self.directory / "link.json"
        link.symlink_to(self.path)
        write_json(link, 1)
        self.assertTrue(link.is_symlink())
        self.assertEqual(read_json(self.path), 1)

    def test_devices_and_pipes_are_written_to_and_not_replaced(self):
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        check_output(pipe)
        write_json(pipe, [1])
        self.assertEqual(os.read(reader, 100), b"[1]\n")
        self.assertTrue(pipe.is_fifo())

    def test_standard_output_has_two_names(self):
        for name in ("-", "/dev/stdout"):
            check_output(name)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                write_json(name, {"a": 1})
            self.assertEqual(output.getvalue(), '{"a": 1}\n')
        self.assertEqual(os.listdir(self.directory), [])

    def test_standard_input_is_read_by_a_dash(self):
        stdin = io.TextIOWrapper(io.BytesIO(b"[1, 2]"))
        with mock.patch.object(json_file.sys, "stdin", stdin):
            self.assertEqual(read_json("-"), [1, 2])

    def test_a_pipe_of_the_shell_is_written_to(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        path = f"/dev/fd/{writer}"
        check_output(path)
        write_json(path, [1])
        os.close(writer)
        self.assertEqual(os.read(reader, 100), b"[1]\n")

    def test_distinguishes_streams_from_files(self):
        self.path.touch()
        streams = [path for path in ("-", "/dev/null", self.path, "new") if is_stream(path)]
        self.assertEqual(streams, ["-", "/dev/null"])

    def test_an_output_that_can_be_written_is_accepted_and_nothing_is_left(self):
        check_output(self.path)
        self.assertEqual(os.listdir(self.directory), [])
        self.path.write_text("before")
        check_output(self.path)
        self.assertEqual(self.path.read_text(), "before")

    def test_an_output_that_cannot_be_written_is_refused_by_name(self):
        self.path.touch()
        for path, reason in (
            (
                self.directory / "none" / "x.json",
                "none/x.json': No such file or directory: '.*none'",
            ),
            (self.path / "x.json", "value.json/x.json': Not a directory"),
            (self.directory, "': it is a directory"),
        ):
            with self.assertRaisesRegex(OSError, f"^cannot write to '.*{reason}$"):
                check_output(path)

    def test_an_output_without_a_name_is_refused(self):
        with self.assertRaisesRegex(OSError, "^cannot write to a file with an empty name$"):
            check_output("")

    def test_an_output_that_would_replace_another_file_is_refused(self):
        self.path.touch()
        link = self.directory / "link.json"
        link.symlink_to(self.path)
        check_output(link, None, self.directory / "other.json")
        with self.assertRaisesRegex(OSError, "^cannot write to '.*link.json': it would replace"):
            check_output(link, None, self.path)

    def test_a_full_disk_is_named(self):
        with self.assertRaises(OSError) as raised:
            write_json("/dev/full", [1] * 10_000)
        self.assertEqual(raised.exception.filename, "/dev/full")


if __name__ == "__main__":
    absltest.main()
