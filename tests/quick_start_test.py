"""The programs of the quick start work: as they are, but for the time of the search."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

from absl.testing import absltest, parameterized

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"^    import .*\n(?:(?:    .*)?\n)+", README, re.M)
_SECS = "max_secs=180"


class QuickStartTest(parameterized.TestCase):
    def test_there_are_two_programs_which_the_manual_has_too(self):
        self.assertLen(PROGRAMS, 2)
        page = (ROOT / "docs" / "quick_start.md").read_text()
        for program in PROGRAMS:
            self.assertIn(program, page)
            self.assertIn(_SECS, program)

    @parameterized.parameters(0, 1)
    def test_it_works_anywhere(self, number):
        code = textwrap.dedent(PROGRAMS[number]).replace(_SECS, "max_trials=2, max_secs=60")
        directory = self.create_tempdir().full_path
        pathlib.Path(directory, "first.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "first.py"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        # The verdict depends on the machine.
        self.assertRegex(done.stdout, "^placement .*\n.*\noriginal .*")
        self.assertRegex(done.stdout, "the original|no placement")


if __name__ == "__main__":
    absltest.main()
