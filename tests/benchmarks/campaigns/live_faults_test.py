"""A share of the campaign of hung processes, and tests of the campaign itself."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
from unittest import mock

import tensorflow as tf

from benchmarks.campaigns import live_faults
from benchmarks.campaigns.live_faults import Faults, Search, judged
from tests import graphs
from tf_placer import processes
from tf_placer.inputs.sources import read_source
from tf_placer.live import job_confirmation
from tf_placer.live import run as live_run
from tf_placer.live.run_directory import Request, RunDirectory
from tf_placer.live.run_result import Outcome
from tf_placer.machines.machine import Device, Machine

_DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
_MACHINE = Machine("attached", "attached", tuple(Device(name, "CPU") for name in _DEVICES))


class LiveFaultsTest(tf.test.TestCase):
    def test_a_search_whose_worker_is_stopped_loses_nothing(self):
        root = pathlib.Path(self.create_tempdir().full_path)
        given = graphs.two_branches()
        source = read_source(given.graph, given.fetches)
        search = Search(num_faults=1, max_trials=4, gap_secs=(0.1, 0.5))
        config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
        asked = RunDirectory(root / "asked")
        asked.write_request(
            Request(source.step, _MACHINE, "random", {}, search.max_trials, 100.0, 0),
            source.graph_def.SerializeToString(),
            config.SerializeToString(),
        )
        lines: list[str] = []
        self.enterContext(mock.patch.object(processes, "_LOOK_SECS", 0.1))
        self.enterContext(mock.patch.object(live_faults, "FAULTS", ("stopped",)))
        # The confirmation would start more processes.
        self.enterContext(mock.patch.object(job_confirmation, "hopeful_finalists", lambda _: {}))
        faults = Faults(os.getpid(), search, random.Random(0), None, lambda: 0)
        try:
            outcome = live_run.run(asked, RunDirectory(root / "run"), lines.append)
        finally:
            seen = faults.end()
        self.assertEqual(outcome, Outcome.NOT_FASTER)
        self.assertEqual([each["kind"] for each in faults.done], ["stopped"])
        self.assertRegex(
            "\n".join(lines),
            "once more: the worker was stopped by a signal|was stopped by a signal .*once more",
        )
        self.assertNotEmpty(seen)
        how, why = judged(0, "\n".join(lines), seen, root, search, None)
        self.assertEqual(how, "works", why)

    def test_other_ends_are_told_apart(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        (directory / "run").mkdir()
        trial = {"placer": "random", "batch": 0, "assignment": [0, 1], "setup_secs": 0.1}
        times = {"repeats": None, "elapsed_secs": 1.0, "time": "2026-01-01T00:00:00+00:00"}
        ran = {**trial, **times, "index": 0, "step_secs": [0.1], "failure": None}
        failure = {"kind": "timeout", "message": "too long"}
        failed = {**trial, **times, "index": 1, "step_secs": None, "failure": failure}

        def end(code, text, records, expected=None, seen=()):
            lines = [{"format": 2}, *records]
            log = "".join(json.dumps(each) + "\n" for each in lines)
            (directory / "run/trials.jsonl").write_text(log)
            with mock.patch.object(live_faults, "_GONE_SECS", 0.0):
                return judged(code, text, seen, directory, Search(max_trials=1), expected)[0]

        self.assertEqual(end(0, "placed", [ran], [[0, 1]]), "works")
        self.assertEqual(end(0, "placed", [ran], [[1, 1]]), "lost")
        self.assertEqual(end(0, "placed", []), "lost")
        self.assertEqual(end(0, "placed", [ran, failed]), "failed trial")
        waits = "tf_placer: still {}: {} so far; 2 min 26 s of 10 min 00 s used\nplaced"
        self.assertEqual(end(0, waits.format("starting", "1 min 10 s"), [ran]), "stalled")
        self.assertEqual(end(0, waits.format("starting", "50 s"), [ran]), "works")
        self.assertEqual(end(0, waits.format("confirming: a, b", "1 min 10 s"), [ran]), "works")
        self.assertEqual(end(1, "Traceback (most", [ran]), "traceback")
        self.assertEqual(end(1, "tf_placer: the workers do not start", [ran]), "no verdict")
        self.assertEqual(end(None, "", [ran]), "hang")
        left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        process = live_faults._Process(left.pid, "left")
        self.assertEqual(end(0, "placed", [ran], seen=[process]), "orphan")
        left.communicate()
        self.assertEqual(end(0, "placed", [ran], seen=[process]), "works")

    def test_a_campaign_goes_on_where_it_stopped(self):
        directory = self.create_tempdir().full_path
        fault = {"kind": "slow", "victim": "worker", "secs": 3.0}
        case = {"case": 0, "machine": "local:2", "faults": [], "answer": "works", "words": ""}
        case |= {"said": {"killed": 0}, "measured": [None, [0, 1]]}
        with open(os.path.join(directory, "answers.jsonl"), "w") as file:
            file.write(json.dumps(case) + "\n" + '{"case": 1, "to')
        made = {**case, "case": 1, "faults": [fault], "answer": "hang", "words": "a\nlast"}
        with (
            mock.patch.object(live_faults, "run_case", return_value=made) as runs,
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            live_faults.main(["--cases=2", f"--out_dir={directory}"])
        runs.assert_called_once_with(1, Search(), [None, [0, 1]])
        self.assertIn("| slow | 1 |", printed.getvalue())
        self.assertIn("searches: 1 on local: hang, 1 on local: works", printed.getvalue())
        self.assertIn("case 1: hang: last", printed.getvalue())


if __name__ == "__main__":
    tf.test.main()
