import os
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tf_placer.environments.environment import Measurement
from tf_placer.search import training_recorder
from tf_placer.search.training_log import TrainingLog, read_training_log
from tf_placer.search.training_recorder import TrainingRecorder


class FakeClock:
    """A fake module `time`."""

    def __init__(self):
        self.now_secs = 1000.0

    def monotonic(self):
        return self.now_secs


def learning_placer() -> doubles.LearningPlacer:
    legal = np.ones((doubles.NUM_GROUPS, doubles.NUM_DEVICES), bool)
    return doubles.LearningPlacer(doubles.group_graph(), legal)


def learn(placer: doubles.LearningPlacer, *step_secs: float) -> None:
    """Lets the placer observe one batch for each of these step times."""
    for secs in step_secs:
        placements = placer.propose(placer.batch_size)
        placer.observe(placements, [Measurement((secs,))] * len(placements))


class TrainingRecorderTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.clock = FakeClock()
        self.enter_context(mock.patch.object(training_recorder, "time", self.clock))
        self.placer = learning_placer()
        self.lines: list[str] = []

    def open(self) -> TrainingRecorder:
        log = self.enter_context(TrainingLog(self.directory, {}))
        return TrainingRecorder(log, self.directory, self.lines.append)

    def read_saved_updates(self) -> int | None:
        """Reads the number of updates of the saved policy; None if none was saved."""
        path = os.path.join(self.directory, "policy.weights.h5")
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return int(file.read())

    def test_updates_are_in_the_log_when_they_have_been_observed(self):
        recorder = self.open()
        for count in (1, 2, 3):
            learn(self.placer, 1.0)
            recorder.record(self.placer)
            self.assertEqual(
                read_training_log(self.directory)[1], tuple(self.placer.updates[:count])
            )

    def test_the_policy_is_saved_when_the_best_improves(self):
        recorder = self.open()
        for secs, saved in ((3.0, 1), (2.0, 2), (2.0, 2), (2.5, 2), (1.0, 5)):
            learn(self.placer, secs)
            recorder.record(self.placer)
            self.assertEqual(self.read_saved_updates(), saved)
            self.clock.now_secs += 60

    def test_the_policy_is_saved_at_most_every_few_seconds(self):
        recorder = self.open()
        for secs, saved in ((3.0, 1), (2.0, 1), (2.0, 1), (2.0, 1), (2.0, 5), (2.0, 5)):
            learn(self.placer, secs)
            recorder.record(self.placer)
            self.assertEqual(self.read_saved_updates(), saved)
            self.clock.now_secs += 1.5

    def test_the_policy_is_saved_at_the_end(self):
        recorder = self.open()
        learn(self.placer, 1.0, 2.0)
        recorder.record(self.placer)
        learn(self.placer, 2.0)
        recorder.record(self.placer)
        recorder.finish()
        self.assertEqual(self.read_saved_updates(), 3)

    def test_a_placer_that_has_not_learned_saves_nothing(self):
        recorder = self.open()
        recorder.record(self.placer)
        recorder.finish()
        self.assertIsNone(self.read_saved_updates())

    def test_a_policy_with_fewer_updates_than_the_log_is_not_saved(self):
        with TrainingLog(self.directory, {}) as log:
            recorder = TrainingRecorder(log, self.directory, self.lines.append)
            learn(self.placer, 1.0, 1.0, 1.0)
            recorder.record(self.placer)
        again = learning_placer()
        recorder = self.open()
        recorder.finish()
        for count in (1, 2):
            learn(again, 1.0)
            recorder.record(again)
            recorder.finish()
            self.assertEqual(self.read_saved_updates(), 3, count)
        learn(again, 1.0, 0.5)
        recorder.record(again)
        self.assertEqual(self.read_saved_updates(), 4)
        self.assertEqual(read_training_log(self.directory)[1], tuple(again.updates))

    def test_a_write_error_is_reported_once_and_does_not_end_the_search(self):
        for method in ("extend", "save"):
            self.lines.clear()
            recorder = self.open()
            target = TrainingLog if method == "extend" else doubles.LearningPlacer
            error = OSError(28, "No space left on device", "policy.weights.h5")
            with mock.patch.object(target, method, side_effect=error):
                for _ in range(2):
                    learn(self.placer, 1.0)
                    recorder.record(self.placer)
                recorder.finish()
            self.assertEqual(
                self.lines,
                [
                    "policy.weights.h5: No space left on device: further updates of the placer "
                    "will not be saved"
                ],
            )
            self.placer = learning_placer()
            self.directory = self.create_tempdir(method).full_path


if __name__ == "__main__":
    absltest.main()
