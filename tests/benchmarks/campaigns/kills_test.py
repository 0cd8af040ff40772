"""A share of the campaign of kills, and tests of the campaign itself."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import signal
from unittest import mock

from absl.testing import absltest

from benchmarks.campaigns import kills
from benchmarks.campaigns.kills import GOOD, run_chain
from benchmarks.campaigns.victims import VICTIMS

_LOOP = VICTIMS[0]
# Prints a trial that no log has, leaves a file of the moment, and goes on for a while.
_LOSES = """\
import pathlib, sys, time
directory = pathlib.Path(sys.argv[1])
(directory / "tmp" / "tf_placer_scratch_x").mkdir(exist_ok=True)
print("trial 0 ", flush=True)
time.sleep(float(sys.argv[2]))
"""


def _victim(code: str, *args: str, secs: float = 0.5):
    return dataclasses.replace(
        _LOOP,
        command=lambda directory, number: ["-c", code, str(directory), *args],
        lines=0,
        usual_secs=secs,
        problem=lambda directory, number, output: "",
    )


class KillsTest(absltest.TestCase):
    def test_searches_survive(self):
        cases = [case for number in range(2) for case in run_chain(number, VICTIMS[:2])]
        self.assertEqual([case for case in cases if case["answer"] not in GOOD], [])
        # How many kills come before its end hangs on how fast the machine is.
        ends = [case["signal"] == "end" for case in cases]
        self.assertEqual(sum(ends), 2)
        self.assertFalse(all(ends))

    def test_all_searches_have_names_and_shares_of_their_own(self):
        self.assertLen({victim.name for victim in VICTIMS}, len(VICTIMS))
        self.assertAlmostEqual(sum(victim.share for victim in VICTIMS), 1.0)

    def test_a_trial_that_no_log_has_is_missed_when_the_search_is_killed(self):
        with mock.patch.object(kills, "_SIGNALS", (signal.SIGKILL,)):
            cases = run_chain(4, [_victim(_LOSES, "8", secs=2.0)])
        self.assertIn("trial 0 was printed, and the log has", cases[-2]["words"])
        self.assertEqual(cases[-2]["answer"], "lost")

    def test_files_of_the_moment_are_missed_at_the_end(self):
        [case] = run_chain(3, [_victim(_LOSES.replace("trial", "no"), "0", secs=30.0)])
        self.assertEqual((case["signal"], case["answer"]), ("end", "left behind"))
        self.assertEqual(case["words"], "tmp/tf_placer_scratch_x")

    def test_processes_that_stay_are_found(self):
        stays = "import subprocess, sys\nsubprocess.Popen(['sleep', '60'])\nprint('on')\n"
        victim = dataclasses.replace(_victim(stays, secs=30.0), orphan_secs=0.2)
        [case] = run_chain(3, [victim])
        self.assertEqual(case["answer"], "orphans")
        self.assertIn("sleep 60", case["words"])

    def test_tracebacks_are_of_programs_that_have_begun(self):
        begun = f'File "{os.path.dirname(kills.__file__)}/kills.py"'
        for text, expected in (
            ("all is well", False),
            ("Traceback (most recent call last):\nFile <frozen>\nKeyboardInterrupt", False),
            (f"Traceback (most recent call last):\n{begun}\nKeyboardInterrupt", True),
            ("Traceback (most recent call last):\nFile <frozen>\nOSError: no", True),
        ):
            self.assertEqual(kills._has_traceback(text), expected, text)

    def test_what_is_not_in_the_logs_any_more_is_found(self):
        before, header = dict.fromkeys(kills._LOGS, b""), b'{"format": 2}\n'
        before["trials.jsonl"] = header + b"one\n"
        for content, printed, expected in (
            (header + b"one\ntwo\n", ["[2/3] trial 1 expert: 1 s"], ""),
            (header + b"one\n", ["[2/3] trial 1 expert: 1 s"], "trial 1 was printed"),
            (header + b"two\n", [], "lines of trials.jsonl have changed"),
            (header, [], "lines of trials.jsonl have changed"),
            (header + b"one\ntwo\n", ["trial 1 a", "trial 1 a"], "twice"),
        ):
            found = kills.lost(before, {**before, "trials.jsonl": content}, printed)
            self.assertIn(expected, found)
            self.assertEqual(bool(found), bool(expected))

    def test_a_half_file_is_found(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        (directory / "whole.json").write_text("{}")
        self.assertEqual(kills._half(directory), "")
        (directory / "half.json").write_text('{"a": ')
        self.assertEqual(kills._half(directory), "half.json")

    def test_a_campaign_goes_on_where_it_stopped(self):
        directory = self.create_tempdir().full_path
        case = {"case": 4, "victim": "v", "signal": "SIGTERM", "answer": "lost", "words": "all"}
        with open(os.path.join(directory, "answers.jsonl"), "w") as file:
            file.write(json.dumps(case) + "\n" + '{"case": 5, "to')
        made = [{**case, "case": 5, "answer": "survived"}, {**case, "case": 5, "signal": "end"}]
        with (
            mock.patch.object(kills, "run_chain", return_value=made) as chains,
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            kills.main(["--kills=2", f"--out_dir={directory}"])
        self.assertEqual([call.args[0] for call in chains.call_args_list], [5])
        self.assertIn("case 4, v: lost: all", printed.getvalue())


if __name__ == "__main__":
    absltest.main()
