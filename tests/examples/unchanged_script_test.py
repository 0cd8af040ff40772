"""Test of an unchanged script under `run`, on two worker processes."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf

from examples import unchanged_script
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement, write_placement
from tf_placer.runs.run_directory import RunDirectory

_SCRIPT = unchanged_script.__file__
_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
_ENVIRON["TF_CPP_MIN_LOG_LEVEL"] = "2"
_SIZE = ("--steps=3", "--rows=8", "--units=16", "--layers=2")


class UnchangedScriptTest(tf.test.TestCase):
    def run_placed(self, *args: str) -> tuple[list[float], str]:
        """Runs the script under `run`; returns its losses and its standard error."""
        command = ("-m", "tf_placer", "run", "--machine=local:2", "--search_secs=9")
        done = subprocess.run(
            [sys.executable, *command, _SCRIPT, *_SIZE, *args],
            cwd=self.directory,
            env=_ENVIRON,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.losses(done.stdout), done.stderr

    def run_plainly(self, *args: str) -> list[float]:
        """Runs the script without tf_placer, in this process; returns its losses."""
        with (
            contextlib.chdir(self.directory),
            mock.patch.object(sys, "argv", [_SCRIPT, *_SIZE, *args]),
            contextlib.redirect_stdout(io.StringIO()) as output,
            tf.Graph().as_default(),
        ):
            unchanged_script.main()
        return self.losses(output.getvalue())

    def losses(self, output: str) -> list[float]:
        found = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", output, re.M)]
        self.assertLen(found, 3)
        return found

    def test_placed_and_unplaced_runs_resume_from_each_others_checkpoints(self):
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        plain = [self.run_plainly("--checkpoint=plain/at") for _ in range(2)]

        first, errors = self.run_placed("--checkpoint=first/at")
        self.assertIn("found the training step", errors)
        # The verdict depends on the machine, so write a placement that uses both devices.
        kept = RunDirectory(self.directory / "unchanged_script.tf_placer")
        self.spread(kept)
        placed, errors = self.run_placed("--checkpoint=first/at")
        self.assertRegex(errors, r"tf_placer: placed \d+ operations of the graph")
        self.assertNotIn("found the training step", errors)
        unplaced = self.run_plainly("--checkpoint=first/at")
        self.assertAllClose(plain, [first, placed], rtol=1e-4)
        self.assertAllClose(unplaced, self.run_placed("--checkpoint=plain/at")[0], rtol=1e-4)

        _, errors = self.run_placed("--layers=3")
        self.assertIn("it has changed since, and the script runs unchanged", errors)

    def spread(self, directory: RunDirectory) -> None:
        """Replaces the placement: groups alternate between both devices."""
        workload, config = directory.read_request()
        grouped = group_operations(workload.op_graph)
        devices = tuple(device.name for device in config.found_machine.devices)
        row = np.arange(len(grouped.grouping.kinds), dtype=np.int32) % 2
        write_placement(
            Placement("", devices, grouped.assignment(row, devices)), directory.placement
        )


if __name__ == "__main__":
    tf.test.main()
