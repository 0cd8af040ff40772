"""Tests of the table of many searches, and of the process that disturbs them."""

from __future__ import annotations

import os
import pathlib

from absl.testing import absltest

from benchmarks.live.verdicts import neighbor, summary_table

_RUN = {
    "seed": 3,
    "changed": True,
    "speedup": 1.25,
    "interval": [1.2, 1.3],
    "trials": 12,
    "rounds": 5,
    "secs": 185.0,
}


def _children() -> list[str]:
    path = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    return path.read_text().split()


class LiveVerdictsTest(absltest.TestCase):
    def test_every_run_has_a_line_with_what_was_measured_again_of_it(self):
        unchanged = _RUN | {"seed": 4, "changed": False, "speedup": None, "interval": None}
        lines = summary_table([unchanged, _RUN], {3: [1.0, 1.25, 1.5625]}).splitlines()
        self.assertRegex(lines[2], r"4 +unchanged +12 +5 +3 min 05 s$")
        self.assertRegex(
            lines[3],
            r"3 +placed +1\.250x +1\.200 to 1\.300 +12 +5 +3 min 05 s +1\.250x +1\.000 to 1\.562",
        )

    def test_the_neighbor_is_there_only_while_it_is_wanted(self):
        before = _children()
        with neighbor(True):
            self.assertLen(_children(), len(before) + 1)
        self.assertEqual(_children(), before)
        with neighbor(False):
            self.assertEqual(_children(), before)


if __name__ == "__main__":
    absltest.main()
