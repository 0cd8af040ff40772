"""Tests of the check that files were written by a search."""

from __future__ import annotations

import os
import pathlib

from absl.testing import absltest

from tf_placer.search.log_header import LogError
from tf_placer.search.own_files import check_own_files, check_policy_file, read_log_header

_HEADER = '{"format": 1, "placer": "random", "seed": 0, "versions": {}}\n'
_TESTDATA = pathlib.Path(__file__).parent / "testdata"


def _describe(path: pathlib.Path) -> tuple[int, ...]:
    """Describes a file, but for the time of its last access, which reading changes."""
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _number(path: pathlib.Path) -> float:
    return float(path.read_text())


class CheckOwnFilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def check(self) -> None:
        readers = {"log": read_log_header, "number": _number, "weights": check_policy_file}
        check_own_files(self.directory, readers, records=("log",))

    def assert_refused(self, name: str) -> None:
        path = self.directory / name
        before = _describe(path)
        with self.assertRaisesRegex(LogError, f"^'{path}' is there, .*: move it away, or name"):
            self.check()
        self.assertEqual(_describe(path), before)

    def test_accepts_a_directory_without_files_of_a_search(self):
        (self.directory / "thesis.txt").write_text("mine")
        self.check()
        self.directory /= "none"
        self.check()

    def test_refuses_a_file_of_a_search_without_a_record_beside_it(self):
        (self.directory / "number").write_text("1")
        self.assert_refused("number")
        (self.directory / "log").write_text(_HEADER)
        self.check()

    def test_accepts_an_incomplete_record_but_no_files_beside_it(self):
        for content in ("", '{"format": 1, "pl'):
            (self.directory / "log").write_text(content)
            self.check()
        (self.directory / "number").write_text("1")
        self.assert_refused("number")

    def test_refuses_a_file_of_other_content_beside_a_record(self):
        (self.directory / "log").write_text(_HEADER)
        for content in ("mine", ""):
            (self.directory / "number").write_text(content)
            self.assert_refused("number")

    def test_refuses_a_record_of_other_content(self):
        for content in ("mine", "[1]", '{"format": 1}', '{"format": 1, "seed": 0}', "\0" * 9 + "a"):
            (self.directory / "log").write_text(content)
            self.assert_refused("log")

    def test_refuses_links_folders_and_pipes(self):
        (self.directory / "log").write_text(_HEADER)
        number = self.directory / "number"
        number.symlink_to(self.directory / "gone")
        self.assert_refused("number")
        number.unlink()
        number.mkdir()
        self.assert_refused("number")
        number.rmdir()
        os.mkfifo(number)
        self.assert_refused("number")

    def test_weights_need_a_training_log(self):
        (self.directory / "log").write_text(_HEADER)
        (self.directory / "weights").write_text("7")
        self.assert_refused("weights")
        (self.directory / "training.jsonl").write_text(_HEADER)
        self.check()

    def test_logs_of_earlier_versions_are_records(self):
        for path in sorted(_TESTDATA.glob("trials_v*.jsonl")):
            self.assertIsNotNone(read_log_header(path), path)


if __name__ == "__main__":
    absltest.main()
