"""A share of the campaign of kills, and what it finds wrong."""

from __future__ import annotations

import signal
from unittest import mock

from absl.testing import absltest

from tests.faults import kills
from tests.faults.campaign import GOOD
from tests.faults.fault import Fault
from tests.faults.kills import END, run_search
from tests.faults.victims import VICTIMS, Victim

_KILL = (Fault("SIGKILL", "", [(signal.SIGKILL, (0.0, 0.0))]),)
# Prints a trial that no log has, leaves a file of the moment, and goes on for a while.
_LOSES = """\
import pathlib, sys, time
(pathlib.Path(sys.argv[1]) / "tmp" / "tf_placer_scratch_x").mkdir(exist_ok=True)
print(sys.argv[2], flush=True)
time.sleep(float(sys.argv[3]))
"""
_STAYS = "import subprocess\nsubprocess.Popen(['sleep', '60'])\n"


def victim(code: str, *args: str, usual_secs: float = 30.0) -> Victim:
    return Victim(
        "made up",
        1.0,
        lambda directory, number: ["-c", code, str(directory), *args],
        usual_secs,
        lambda directory, number, output: "",
        _KILL,
    )


class KillsTest(absltest.TestCase):
    def test_searches_survive(self):
        cases = [case for number in range(2) for case in run_search(number, VICTIMS[:2])]
        self.assertEqual([case for case in cases if case.answer not in GOOD], [])
        # The number of kills before the end depends on the speed of the machine.
        ends = [case.fault == END for case in cases]
        self.assertEqual(sum(ends), 2)
        self.assertFalse(all(ends))

    def test_a_trial_that_no_log_has_is_missed_when_the_search_is_killed(self):
        first, *_ = run_search(4, [victim(_LOSES, "trial 0 ", "9", usual_secs=3.0)])
        self.assertEqual((first.fault, first.answer), ("SIGKILL", "lost"))
        self.assertIn("trial 0 was printed, and the log has", first.words)

    def test_files_of_the_moment_are_missed_at_the_end(self):
        [case] = run_search(3, [victim(_LOSES, "nothing", "0")])
        self.assertEqual((case.fault, case.answer), (END, "left behind"))
        self.assertEqual(case.words, "tmp/tf_placer_scratch_x")

    def test_processes_that_stay_are_found(self):
        with mock.patch.object(Victim, "orphan_secs", 0.2):
            [case] = run_search(3, [victim(_STAYS)])
        self.assertEqual(case.answer, "orphans")
        self.assertIn("sleep 60", case.words)

    def test_what_is_not_in_the_logs_any_more_is_found(self):
        before, header = dict.fromkeys(kills._LOGS, b""), b'{"format": 2}\n'
        before["trials.jsonl"] = header + b"one\n"
        for content, printed, expected in (
            (header + b"one\ntwo\n", "[2/3] trial 1 expert: 1 s", ""),
            (header + b"one\n", "[2/3] trial 1 expert: 1 s", "trial 1 was printed"),
            (header + b"two\n", "", "lines of trials.jsonl have changed"),
            (header, "", "lines of trials.jsonl have changed"),
            (header + b"one\ntwo\n", "trial 1 a\ntrial 1 a", "twice"),
        ):
            found = kills._find_lost(before, {**before, "trials.jsonl": content}, printed)
            self.assertIn(expected, found)
            self.assertEqual(bool(found), bool(expected))


if __name__ == "__main__":
    absltest.main()
