"""Tests of calls in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest

from benchmarks.harness.run_pool import Call, run_calls

_LONG_SECS = 600.0
_PARENT = """
import multiprocessing, os, time
from benchmarks.harness.run_pool import Call, run_calls
if __name__ == "__main__":
    ended = run_calls([Call(os.getpid, (), 600.0), Call(time.sleep, (600.0,), 600.0)], 2)
    next(ended)
    [child] = multiprocessing.active_children()
    print(child.pid, flush=True)
    time.sleep(600.0)
"""


def _is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class RunCallsTest(absltest.TestCase):
    def test_each_call_ends_in_its_own_way(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        calls = [
            Call(os.mkdir, (str(folder / "made"),), _LONG_SECS),
            Call(os._exit, (3,), _LONG_SECS),
            Call(time.sleep, (_LONG_SECS,), 0.2, limit_is_wall=True),
            Call(signal.raise_signal, (signal.SIGKILL,), _LONG_SECS),
        ]
        problems = {ended.index: ended.problem for ended in run_calls(calls, 2)}
        self.assertTrue((folder / "made").is_dir())
        self.assertEqual(
            problems,
            {
                0: None,
                1: "its process ended with status 3",
                2: "gave no answer in 0.2 s",
                3: "its process died of SIGKILL",
            },
        )

    def test_processor_time_is_limited_where_it_counts(self):
        # Counts for ever.
        [ended] = run_calls([Call(sum, (iter(int, 1),), 0.2)], 1)
        self.assertEqual(ended.problem, "gave no answer in 0.2 s of processor time")

    def test_who_gives_up_leaves_no_process_behind(self):
        calls = [Call(os.getpid, (), _LONG_SECS), Call(time.sleep, (_LONG_SECS,), _LONG_SECS)]
        ended = run_calls(calls, 2)
        self.assertEqual(next(ended).index, 0)
        ended.close()
        self.assertEmpty(multiprocessing.active_children())

    def test_processes_end_with_who_started_them(self):
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        child = int(parent.stdout.readline())
        os.kill(child, 0)  # It is there.
        parent.kill()
        parent.communicate()
        deadline_secs = time.monotonic() + 60
        while _is_running(child) and time.monotonic() < deadline_secs:
            time.sleep(0.05)
        self.assertFalse(_is_running(child))

    def test_without_calls_nothing_ends(self):
        self.assertEmpty(list(run_calls([], 2)))


if __name__ == "__main__":
    absltest.main()
