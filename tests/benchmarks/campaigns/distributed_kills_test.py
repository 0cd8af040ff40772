"""What the campaign of distributed searches finds wrong in logs; it needs no Ray."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.campaigns import distributed_kills
from benchmarks.campaigns.distributed_kills import FAULTS, problem_with
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.environments.environment import Measurement
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.simulation.simulator import Simulator

_PROBLEM = unrolled_lstm(2, 4)
_TIME = "2026-11-25T10:00:00+00:00"


def good_trials() -> list[Trial]:
    """Trial 0, and two batches of two by each of two controllers; the last one is a repeat."""
    legal = legal_devices(_PROBLEM)
    first = np.argmax(legal, axis=1)
    last = legal.shape[1] - 1 - np.argmax(legal[:, ::-1], axis=1)
    rows = [first, *(np.where(np.arange(len(first)) < n, last, first) for n in range(1, 8))]
    rows.append(rows[1])
    secs = Simulator(_PROBLEM).simulate(np.array(rows, np.int32)).step_secs
    trials = [Trial(0, "original", 0, None, Measurement((float(secs[0]),)), None, 0.0, _TIME)]
    for index in range(1, 9):
        controller, place = 1 + (index - 1) // 4, (index - 1) % 4
        trials.append(
            Trial(
                index,
                "post",
                place // 2,
                tuple(rows[index].tolist()),
                Measurement((float(secs[index]),)),
                1 if index == 8 else None,
                float(index),
                _TIME,
                position=place % 2,
                worker=None if index == 8 else "worker 1",
                controller=controller,
                version=0,
            )
        )
    return trials


def good_updates() -> list[UpdateRecord]:
    made = []
    for number in range(4):
        kept = (0, 2 + 2 * number, "ppo_kl", 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0, 2)
        ages = {"controller": 1 + number // 2, "version": 0, "staleness": number}
        made.append(dataclasses.replace(UpdateRecord(*kept, **ages), update=number))
    return made


class DistributedKillsTest(absltest.TestCase):
    def problem(self, trials: list[Trial], updates: list[UpdateRecord]) -> str:
        directory = self.create_tempdir().full_path
        with TrialLog(os.path.join(directory, "trials.jsonl"), {"of": "a test"}) as log:
            for trial in trials:
                log.append(trial)
        with TrainingLog(directory, {"of": "a test"}) as log:
            log.extend(updates)
        return problem_with(directory, _PROBLEM, 9)

    def changed(self, index: int, **changes) -> list[Trial]:
        trials = good_trials()
        trials[index] = dataclasses.replace(trials[index], **changes)
        return trials

    def test_nothing_is_wrong_with_a_search_that_is_right(self):
        self.assertEqual(self.problem(good_trials(), good_updates()), "")

    def test_trials_that_are_lost_or_there_twice_are_found(self):
        trials = good_trials()
        for wrong, message in (
            (trials[:-1], "8 trials instead of 9"),
            (self.changed(4, position=0), "two trials have one place"),
            (self.changed(8, repeats=None), "trial 8 measures what trial 1 measured"),
            (
                self.changed(3, measurement=Measurement((9.0,))),
                r"trial 3 says 9.0 s, and not 0\.\d+ s",
            ),
        ):
            self.assertRegex(self.problem(wrong, good_updates()), message)

    def test_updates_that_are_lost_or_there_twice_are_found(self):
        updates = good_updates()
        more = dataclasses.replace(updates[-1], update=4, samples=10)
        stale = dataclasses.replace(updates[-1], staleness=None)
        for wrong, message in (
            ([*updates[:2], *updates[3:]], "of other numbers of samples"),
            ([*updates, more], "5 updates, from more samples than there are trials"),
            ([*updates[:-1], stale], "weights that were not there yet"),
            ([], "0 updates"),
        ):
            renumbered = [dataclasses.replace(each, update=n) for n, each in enumerate(wrong)]
            self.assertRegex(self.problem(good_trials(), renumbered), message)

    def test_sixty_kills_are_wanted(self):
        kills = {part: count for (how, part), count in FAULTS.items() if how == "killed"}
        self.assertEqual(sum(kills.values()), 60)
        self.assertEqual(
            kills,
            {"worker": 20, "controller": 15, "parameter server": 10, "node": 5, "driver": 10},
        )

    def test_a_campaign_does_what_is_missing(self):
        directory = self.create_tempdir().full_path
        done = [
            {"case": 3, "how": how, "part": part, "answer": "survived", "words": ""}
            for (how, part), count in FAULTS.items()
            for _ in range(count)
        ]
        with open(os.path.join(directory, "answers.jsonl"), "w") as file:
            file.write("".join(json.dumps(each) + "\n" for each in done[1:]))
        with (
            mock.patch.object(distributed_kills, "run_search", return_value=done[:1]) as run,
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            distributed_kills.main([f"--out_dir={directory}"])
        run.assert_called_once_with(4, {("killed", "worker"): 1})
        self.assertIn("| worker killed | 20 |", printed.getvalue())


if __name__ == "__main__":
    absltest.main()
