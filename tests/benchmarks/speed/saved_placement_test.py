"""Tests of the benchmark of placements that are there already, on a small graph."""

from __future__ import annotations

import contextlib
import io
import pathlib

import tensorflow as tf

from benchmarks.speed import saved_placement


class SavedPlacementTest(tf.test.TestCase):
    def test_every_phase_of_an_answer_is_timed(self):
        out = pathlib.Path(self.create_tempdir().full_path)
        with contextlib.redirect_stdout(io.StringIO()):
            saved_placement.main(["--steps=2", "--runs=1", f"--out_dir={out}"])
        page = (out / "saved_placement.md").read_text()
        for phase in (*saved_placement.PHASES, "import", "process", "the call", "all"):
            self.assertRegex(page, rf"\| {phase} \| \d+\.\d\d s \|")
        header, *rows = (out / "saved_placement.csv").read_text().splitlines()
        self.assertIn("fingerprint", header)
        self.assertLen(rows, 1)


if __name__ == "__main__":
    tf.test.main()
