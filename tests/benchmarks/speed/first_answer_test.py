"""Tests of the benchmark of first answers, on a tiny problem."""

from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.speed import first_answer


class FirstAnswerTest(absltest.TestCase):
    def test_a_command_is_measured(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        num_operations, commands = first_answer.problem_commands(folder, 1, 1)
        self.assertBetween(num_operations, 40, 80)
        wall_secs, usage = first_answer.measure(("simulate", *commands["simulate"]), folder)
        self.assertGreater(wall_secs, 0.0)
        self.assertGreater(usage.ru_utime, 0.0)
        self.assertGreater(usage.ru_maxrss, 10**4)

    def test_a_command_that_fails_says_why(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        with self.assertRaisesRegex(SystemExit, "`tf_placer simulate --problem=none` failed:\n."):
            first_answer.measure(("simulate", "--problem=none"), folder)


if __name__ == "__main__":
    absltest.main()
