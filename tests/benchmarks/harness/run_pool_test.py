"""Tests of calls in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import time

from absl.testing import absltest

from benchmarks.harness.run_pool import Call, run_calls

_LONG_SECS = 600.0


class RunCallsTest(absltest.TestCase):
    def test_each_call_ends_in_its_own_way(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        calls = [
            Call(os.mkdir, (str(folder / "made"),), _LONG_SECS),
            Call(os._exit, (3,), _LONG_SECS),
            # Counts for ever.
            Call(sum, (iter(int, 1),), 0.2),
            Call(signal.raise_signal, (signal.SIGKILL,), _LONG_SECS),
        ]
        problems = {ended.index: ended.problem for ended in run_calls(calls, 2)}
        self.assertTrue((folder / "made").is_dir())
        self.assertEqual(
            problems,
            {
                0: None,
                1: "its process ended with status 3",
                2: "gave no answer in 0.2 s of processor time",
                3: "its process died of SIGKILL",
            },
        )

    def test_who_gives_up_leaves_no_process_behind(self):
        calls = [Call(os.getpid, (), _LONG_SECS), Call(time.sleep, (_LONG_SECS,), _LONG_SECS)]
        ended = run_calls(calls, 2)
        self.assertEqual(next(ended).index, 0)
        ended.close()
        self.assertEmpty(multiprocessing.active_children())


if __name__ == "__main__":
    absltest.main()
