"""Tests of the training log: its content, after a kill, and with invalid content."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from absl.testing import absltest

from tests.tf_placer.doubles import update_record
from tf_placer.search.log_header import LogError
from tf_placer.search.training_log import TRAINING, TrainingLog, read_training_log

_HEADER = {"placer": "post", "seed": 3, "versions": {"numpy": "1"}}
_UPDATES = [update_record(number) for number in range(4)]


class TrainingLogTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir().full_path, "run")
        self.path = os.path.join(self.directory, TRAINING)

    def write(self, updates=_UPDATES, header=_HEADER) -> bytes:
        with TrainingLog(self.directory, header) as log:
            log.extend(updates)
        return self.content()

    def content(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def put(self, content: bytes) -> None:
        os.makedirs(self.directory, exist_ok=True)
        with open(self.path, "wb") as file:
            file.write(content)

    def event_files(self) -> list[str]:
        return sorted(os.listdir(os.path.join(self.directory, "tensorboard")))

    def test_what_is_written_is_read_again(self):
        self.write()
        header, updates = read_training_log(self.directory)
        self.assertEqual(header, {"format": 1, **_HEADER})
        self.assertEqual(updates, tuple(_UPDATES))

    def test_each_line_is_json(self):
        lines = self.write().splitlines()
        self.assertLen(lines, 5)
        self.assertEqual([json.loads(line)["update"] for line in lines[1:]], [0, 1, 2, 3])

    def test_updates_that_the_log_has_are_not_written_again(self):
        with TrainingLog(self.directory, _HEADER) as log:
            log.extend(_UPDATES[:2])
            log.extend(_UPDATES[:2])
            log.extend(_UPDATES[:3])
            self.assertEqual(log.num_updates, 3)
        with TrainingLog(self.directory, _HEADER) as log:
            self.assertEqual(log.num_updates, 3)
            log.extend(_UPDATES[:1])
            log.extend(_UPDATES)
        self.assertEqual(read_training_log(self.directory)[1], tuple(_UPDATES))

    def test_each_process_with_new_updates_writes_one_event_file(self):
        self.write(_UPDATES[:2])
        self.assertLen(self.event_files(), 1)
        self.write(_UPDATES[:2])
        self.assertLen(self.event_files(), 1)
        self.write(_UPDATES)
        self.assertLen(self.event_files(), 2)

    def test_without_updates_there_is_a_header_and_nothing_for_tensorboard(self):
        self.assertLen(self.write([]).splitlines(), 1)
        self.assertEqual(os.listdir(self.directory), [TRAINING])

    def test_a_restart_drops_the_updates_and_keeps_the_header(self):
        self.write()
        with TrainingLog(self.directory, _HEADER) as log:
            log.restart()
            self.assertEqual(log.num_updates, 0)
            log.extend(_UPDATES[:1])
        header, updates = read_training_log(self.directory)
        self.assertEqual(header["seed"], 3)
        self.assertEqual(updates, tuple(_UPDATES[:1]))

    def test_a_line_that_is_no_update_is_an_error_that_says_why(self):
        self.put(b'{"format": 1}\n{"update": 0}\n')
        wrong = ':2: not an update of a placer: it has no entry "samples"'
        with self.assertRaisesRegex(LogError, wrong):
            read_training_log(self.directory)

    def test_an_update_out_of_order_is_an_error(self):
        lines = self.write().splitlines(keepends=True)
        self.put(b"".join([lines[0], lines[2]]))
        with self.assertRaisesRegex(LogError, ":2: update 1 where 0 should be"):
            read_training_log(self.directory)

    def test_a_placer_without_updates_needs_no_tensorflow(self):
        program = (
            "import sys\n"
            "from tf_placer.search.training_log import TrainingLog\n"
            "TrainingLog(sys.argv[1], {}).extend(())\n"
            "print('tensorflow' in sys.modules)\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program, self.directory],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(printed.strip(), "False")


if __name__ == "__main__":
    absltest.main()
