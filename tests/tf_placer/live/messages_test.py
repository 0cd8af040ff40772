"""Tests of messages between the search and the calling process."""

from __future__ import annotations

import json
import math

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.live.messages import MessageSender, pass_on
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.callbacks import Callback


class Recorded(Callback):
    def __init__(self):
        self.calls = []

    def on_trial(self, trial, progress):
        self.calls.append((trial, progress))
        return trial.index == 3

    def on_best(self, trial):
        self.calls.append(trial)

    def on_stage(self, name):
        self.calls.append(f"stage {name}")

    def on_note(self, line):
        self.calls.append(f"note {line}")


class MessagesTest(absltest.TestCase):
    def test_receives_all_messages(self):
        heard, wanted = Recorded(), []

        def send(message):
            wanted.append(pass_on(json.loads(json.dumps(message)), heard))

        sender = MessageSender(send)
        first, third = trial(0, None), trial(3, [0, 1], 0.05)
        failed = trial(1, [1, 1], None)
        budget = Budget(20, math.inf)
        told = [
            (failed, Progress(2, budget, None, 0.1 + 0.2, 60.0)),
            (first, Progress(1, budget, third, 1.0, 60.0)),
            (third, Progress(4, budget, third, 2.0, 50.0)),
        ]
        sender.on_stage("measuring")
        sender.on_note("it is late")
        for each, progress in told:
            sender.on_trial(each, progress)
        # The receiver derives calls of `on_best` from the trials.
        self.assertEqual(heard.calls, ["stage measuring", "note it is late", *told, third])
        self.assertEqual(wanted, [False, False, False, False, True])


if __name__ == "__main__":
    absltest.main()
