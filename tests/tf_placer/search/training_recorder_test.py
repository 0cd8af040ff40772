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
    """Stands in for the module `time`."""

    def __init__(self):
        self.now_secs = 1000.0

    def monotonic(self):
        return self.now_secs


def learning_placer() -> doubles.LearningPlacer:
    legal = np.ones((doubles.NUM_GROUPS, doubles.NUM_DEVICES), bool)
    return doubles.LearningPlacer(doubles.group_graph(), legal)


def learn(placer: doubles.LearningPlacer, *step_secs: float) -> None:
    """Shows the placer one batch for each of these step times."""
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

    def saved(self) -> int | None:
        """After how many updates the policy was saved that there is."""
        path = os.path.join(self.directory, "policy.weights.h5")
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return int(file.read())

    def test_updates_are_in_the_log_when_they_have_been_observed(self):
        recorder = self.open()
        for count in (1, 2, 3):
            learn(self.placer, 1.0)
            recorder.observed(self.placer)
            self.assertEqual(
                read_training_log(self.directory)[1], tuple(self.placer.updates[:count])
            )

    def test_the_policy_is_saved_when_the_best_improves(self):
        recorder = self.open()
        for secs, saved in ((3.0, 1), (2.0, 2), (2.0, 2), (2.5, 2), (1.0, 5)):
            learn(self.placer, secs)
            recorder.observed(self.placer)
            self.assertEqual(self.saved(), saved)
            self.clock.now_secs += 60

    def test_the_policy_is_saved_at_most_every_few_seconds(self):
        recorder = self.open()
        for secs, saved in ((3.0, 1), (2.0, 1), (2.0, 1), (2.0, 1), (2.0, 5), (2.0, 5)):
            learn(self.placer, secs)
            recorder.observed(self.placer)
            self.assertEqual(self.saved(), saved)
            self.clock.now_secs += 1.5

    def test_the_policy_is_saved_at_the_end(self):
        recorder = self.open()
        learn(self.placer, 1.0, 2.0)
        recorder.observed(self.placer)
        learn(self.placer, 2.0)
        recorder.observed(self.placer)
        recorder.finish()
        self.assertEqual(self.saved(), 3)

    def test_a_placer_that_has_not_learned_saves_nothing(self):
        recorder = self.open()
        recorder.observed(self.placer)
        recorder.finish()
        self.assertIsNone(self.saved())

    def test_a_policy_that_has_learned_less_than_the_log_replaces_nothing(self):
        with TrainingLog(self.directory, {}) as log:
            recorder = TrainingRecorder(log, self.directory, self.lines.append)
            learn(self.placer, 1.0, 1.0, 1.0)
            recorder.observed(self.placer)
        again = learning_placer()
        recorder = self.open()
        recorder.finish()
        for count in (1, 2):
            learn(again, 1.0)
            recorder.observed(again)
            recorder.finish()
            self.assertEqual(self.saved(), 3, count)
        learn(again, 1.0, 0.5)
        recorder.observed(again)
        self.assertEqual(self.saved(), 4)
        self.assertEqual(read_training_log(self.directory)[1], tuple(again.updates))

    def test_what_cannot_be_written_is_said_once_and_ends_nothing(self):
        for method in ("extend", "save"):
            self.lines.clear()
            recorder = self.open()
            target = TrainingLog if method == "extend" else doubles.LearningPlacer
            error = OSError(28, "No space left on device", "policy.weights.h5")
            with mock.patch.object(target, method, side_effect=error):
                for _ in range(2):
                    learn(self.placer, 1.0)
                    recorder.observed(self.placer)
                recorder.finish()
            self.assertEqual(
                self.lines,
                [
                    "policy.weights.h5: No space left on device: what the placer learns from now "
                    "on is not written"
                ],
            )
            self.placer = learning_placer()
            self.directory = self.create_tempdir(method).full_path


if __name__ == "__main__":
    absltest.main()
