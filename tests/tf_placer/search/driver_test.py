import dataclasses
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer import doubles
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.errors import SearchError
from tf_placer.search import trial_recorder
from tf_placer.search.budget import Budget
from tf_placer.search.driver import GraphDoesNotRunError, SearchStage, drive
from tf_placer.search.runner import SequentialRunner
from tf_placer.search.trial_log import ORIGINAL, LogError, TrialLog, read_log


def make_failure(kind, message="it failed"):
    return Measurement(failure=Failure(kind, message))


def content(trials):
    """Extracts the fields that must be equal in two runs of one search: all but the clocks."""
    return [dataclasses.replace(trial, elapsed_secs=0.0, time="") for trial in trials]


def row(number):
    """Makes a placement for each number, different for those below 729."""
    return [number // 3**i % 3 for i in range(doubles.NUM_GROUPS)]


class FakeClock:
    """A fake module `time` whose clock stands still until a measurement advances it."""

    def __init__(self):
        self.now_secs = 1000.0

    def monotonic(self):
        return self.now_secs


class SearchTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.path = os.path.join(self.directory, "trials.jsonl")
        self.environment = doubles.FakeEnvironment()

    def run_search(
        self,
        stages,
        max_trials=30,
        max_secs=3600.0,
        original=doubles.ORIGINAL_MEASUREMENT,
        **kwargs,
    ):
        with TrialLog(self.path, doubles.HEADER) as log:
            return doubles.drive_placers(
                stages,
                SequentialRunner(self.environment),
                log,
                Budget(max_trials, max_secs),
                lambda: original,
                **kwargs,
            )


class SearchTest(SearchTestCase):
    def test_trial_0_is_the_original_graph(self):
        trials = self.run_search([])
        self.assertLen(trials, 1)
        self.assertEqual(
            (trials[0].index, trials[0].placer, trials[0].batch, trials[0].assignment),
            (0, ORIGINAL, 0, None),
        )
        self.assertEqual(trials[0].measurement, doubles.ORIGINAL_MEASUREMENT)

    def test_stages_propose_in_order_and_observe_their_own_batches(self):
        first = doubles.ScriptedPlacer("first", [[row(1), row(2)], [row(3)]])
        second = doubles.ScriptedPlacer("second", [[row(4)], [row(5), row(6)]])
        trials = self.run_search([first, second])
        self.assertEqual(
            [(trial.placer, trial.batch, trial.assignment) for trial in trials[1:]],
            [
                ("first", 0, tuple(row(1))),
                ("first", 0, tuple(row(2))),
                ("first", 1, tuple(row(3))),
                ("second", 0, tuple(row(4))),
                ("second", 1, tuple(row(5))),
                ("second", 1, tuple(row(6))),
            ],
        )
        self.assertEqual([trial.index for trial in trials], list(range(7)))
        self.assertEqual([rows for rows, _ in first.observed], [[row(1), row(2)], [row(3)]])
        self.assertEqual([rows for rows, _ in second.observed], [[row(4)], [row(5), row(6)]])
        self.assertEqual(
            second.observed[1][1], [doubles.measurement_of(row(5)), doubles.measurement_of(row(6))]
        )
        for trial in trials[1:]:
            self.assertEqual(trial.measurement, doubles.measurement_of(trial.assignment))

    def test_each_trial_is_in_the_log_before_the_next_is_measured(self):
        logged = []

        class Watching(doubles.FakeEnvironment):
            def measure(inner, placements):
                logged.append(len(read_log(self.path)[1]))
                return super().measure(placements)

        self.environment = Watching()
        self.run_search([doubles.ScriptedPlacer("p", [[row(1), row(2), row(3)]])])
        self.assertEqual(logged, [1, 2, 3])

    def test_the_log_file_has_the_trials_of_the_log(self):
        trials = self.run_search([doubles.AdaptivePlacer("p", 4)], max_trials=15)
        self.assertEqual(tuple(trials), read_log(self.path)[1])
        times = [datetime.datetime.fromisoformat(trial.time) for trial in trials]
        self.assertEqual(times, sorted(times))
        self.assertEqual({time.utcoffset() for time in times}, {datetime.timedelta(0)})
        elapsed = [trial.elapsed_secs for trial in trials]
        self.assertEqual(elapsed, sorted(elapsed))

    @parameterized.parameters(1, 2, 5, 6, 13)
    def test_the_budget_in_trials_counts_trial_0_and_cuts_batches(self, max_trials):
        placer = doubles.AdaptivePlacer("p", 4)
        trials = self.run_search([placer], max_trials=max_trials)
        self.assertLen(trials, max_trials)
        self.assertLen(placer.observed, (max_trials - 1) // 4)

    def test_the_budget_in_seconds_is_checked_before_each_trial(self):
        clock = FakeClock()

        class Slow(doubles.FakeEnvironment):
            def measure(inner, placements):
                clock.now_secs += 10
                return super().measure(placements)

        self.environment = Slow()
        with mock.patch.object(trial_recorder, "time", clock):
            trials = self.run_search([doubles.AdaptivePlacer("p", 8)], max_secs=35.0)
        self.assertEqual([trial.elapsed_secs for trial in trials], [0.0, 10.0, 20.0, 30.0, 40.0])

    def test_a_placement_measured_before_is_not_measured_again(self):
        first = doubles.ScriptedPlacer("first", [[row(1), row(2), row(1)]])
        second = doubles.ScriptedPlacer("second", [[row(2), row(3)], [row(3)]])
        trials = self.run_search([first, second])
        self.assertEqual([trial.repeats for trial in trials], [None, None, None, 1, 2, None, 5])
        self.assertEqual(self.environment.asked, [tuple(row(i)) for i in (1, 2, 3)])
        self.assertEqual(second.observed[0][1][0], doubles.measurement_of(row(2)))
        for trial in trials[1:]:
            self.assertEqual(trial.measurement, doubles.measurement_of(trial.assignment))

    def test_a_placer_that_repeats_itself_forever_ends_with_the_budget(self):
        class Settled(doubles.RecordingPlacer):
            def propose(self, count):
                return np.zeros((count, doubles.NUM_GROUPS), np.int32)

        trials = self.run_search([Settled("p", 3)], max_trials=20)
        self.assertLen(trials, 20)
        self.assertLen(self.environment.asked, 1)
        self.assertEqual({trial.repeats for trial in trials[2:]}, {1})

    @parameterized.parameters(FailureKind.RUNTIME_ERROR, FailureKind.INVALID_PLACEMENT)
    def test_ends_if_no_placement_can_avoid_the_failure_of_the_original(self, kind):
        stages = [doubles.AdaptivePlacer("p", 2)]
        with self.assertRaisesRegex(GraphDoesNotRunError, "Table not initialized"):
            self.run_search(stages, original=make_failure(kind, "Table not initialized"))
        self.assertEmpty(self.environment.asked)
        advice = "clear the graph's devices" if kind is FailureKind.INVALID_PLACEMENT else ""
        with self.assertRaisesRegex(
            GraphDoesNotRunError, f"Table not init.*{advice}.*trials.jsonl has it"
        ):
            self.run_search(stages)
        self.assertLen(read_log(self.path)[1], 1)

    @parameterized.parameters(
        FailureKind.OUT_OF_MEMORY, FailureKind.TIMEOUT, FailureKind.WORKER_DIED
    )
    def test_searches_if_another_placement_may_avoid_the_failure_of_the_original(self, kind):
        trials = self.run_search([doubles.AdaptivePlacer("p", 2)], original=make_failure(kind))
        self.assertLen(trials, 30)
        self.assertEqual(trials[0].measurement.failure.kind, kind)

    def test_failures_of_every_kind_are_logged_and_observed(self):
        measurements = {tuple(row(i)): make_failure(kind) for i, kind in enumerate(FailureKind)}
        self.environment.measure = lambda rows: [measurements[tuple(rows[0].tolist())]]
        placer = doubles.ScriptedPlacer("p", [[list(key) for key in measurements]])
        trials = self.run_search([placer])
        self.assertEqual([t.measurement for t in trials[1:]], list(measurements.values()))
        self.assertEqual(placer.observed[0][1], list(measurements.values()))

    def test_a_stop_ends_the_search_between_trials(self):
        reported = []
        trials = self.run_search(
            [doubles.AdaptivePlacer("p", 4), doubles.AdaptivePlacer("q", 4)],
            report=lambda trial, _: reported.append(trial),
            should_stop=lambda: len(reported) >= 7,
        )
        self.assertLen(trials, 7)
        self.assertEqual({trial.placer for trial in trials[1:]}, {"p"})

    def test_a_revoked_stop_still_ends_the_search(self):
        answers = iter([False, False, False, True])
        trials = self.run_search(
            [doubles.AdaptivePlacer("p", 4), doubles.AdaptivePlacer("q", 4)],
            should_stop=lambda: next(answers, False),
        )
        self.assertLess(len(trials), 5)
        self.assertNotIn("q", [trial.placer for trial in trials])

    def test_a_stop_before_trial_0_measures_nothing(self):
        self.assertEqual(self.run_search([], should_stop=lambda: True), [])
        self.assertLen(self.run_search([]), 1)

    def test_a_failure_measured_while_stopping_is_not_recorded(self):
        stopping = []

        def fail_interrupted(placements):
            stopping.append(True)
            return [make_failure(FailureKind.WORKER_DIED)]

        measure, self.environment.measure = self.environment.measure, fail_interrupted
        stages = [doubles.ScriptedPlacer("p", [[row(1)]])]
        self.assertLen(self.run_search(stages, should_stop=lambda: bool(stopping)), 1)
        self.environment.measure = measure
        trials = self.run_search([doubles.ScriptedPlacer("p", [[row(1)]])])
        self.assertEqual(trials[1].measurement, doubles.measurement_of(row(1)))

    def test_an_exception_of_the_environment_leaves_the_finished_trials_in_the_log(self):
        def raise_error(placements):
            raise OSError("machine lost")

        stages = [doubles.ScriptedPlacer("p", [[row(1)]])]
        self.environment.measure = raise_error
        with self.assertRaisesRegex(OSError, "machine lost"):
            self.run_search(stages)
        self.assertLen(read_log(self.path)[1], 1)

    def test_progress_has_count_best_elapsed_and_remaining_time(self):
        clock = FakeClock()
        secs = {tuple(row(1)): 0.5, tuple(row(2)): 0.05, tuple(row(3)): 0.05}

        def measure(placements):
            clock.now_secs += 10
            return [Measurement((secs[tuple(placements[0].tolist())],))]

        def measure_original():
            clock.now_secs += 30
            return make_failure(FailureKind.OUT_OF_MEMORY)

        self.environment.measure = measure
        reports = []
        with (
            mock.patch.object(trial_recorder, "time", clock),
            TrialLog(self.path, doubles.HEADER) as log,
        ):
            doubles.drive_placers(
                [doubles.ScriptedPlacer("p", [[row(1), row(2), row(3)]])],
                SequentialRunner(self.environment),
                log,
                Budget(11, 100.0),
                measure_original,
                report=lambda trial, progress: reports.append((trial, progress)),
            )
        self.assertEqual([trial.index for trial, _ in reports], [0, 1, 2, 3])
        progress = [progress for _, progress in reports]
        self.assertEqual([p.trial_count for p in progress], [1, 2, 3, 4])
        self.assertEqual([p.best and p.best.index for p in progress], [None, 1, 2, 2])
        self.assertEqual([p.elapsed_secs for p in progress], [30, 40, 50, 60])
        # The remaining trials would take 300, 180, 133 and 105 s; the time left is 70, 60, 50, 40.
        self.assertEqual([p.eta_secs for p in progress], [70, 60, 50, 40])

    def test_the_eta_follows_the_trials_when_they_end_first(self):
        clock = FakeClock()

        def measure(placements):
            clock.now_secs += 2
            return [Measurement((0.1,))]

        self.environment.measure = measure
        etas = []
        with mock.patch.object(trial_recorder, "time", clock):
            self.run_search(
                [doubles.AdaptivePlacer("p", 1)],
                max_trials=5,
                report=lambda _, progress: etas.append(progress.eta_secs),
            )
        np.testing.assert_allclose(etas, [0, 3 * 2 / 2, 2 * 4 / 3, 1 * 6 / 4, 0])

    def test_observed_is_called_after_each_batch(self):
        told = []
        first = doubles.ScriptedPlacer("first", [[row(1), row(2)], [row(3)]])
        second = doubles.AdaptivePlacer("second", 4)
        self.run_search(
            [first, second],
            max_trials=13,
            observed=lambda placer: told.append((placer.name, len(placer.observed))),
        )
        self.assertEqual(told, [("first", 1), ("first", 2), ("second", 1), ("second", 2)])

    def test_without_a_log_everything_is_measured_and_there_is_no_trial_0(self):
        placer = doubles.ScriptedPlacer("p", [[row(1), row(2), row(1)], [row(2)]])
        runner = SequentialRunner(self.environment)
        drive([SearchStage.of(placer)], runner, None, Budget(30, 3600.0))
        self.assertEqual(self.environment.asked, [tuple(row(i)) for i in (1, 2, 1, 2)])
        self.assertEqual(
            [rows for rows, _ in placer.observed], [[row(1), row(2), row(1)], [row(2)]]
        )

    def test_stages_need_distinct_names(self):
        for names in (["a", "a"], ["original"]):
            with self.assertRaisesRegex(ValueError, "names of their own"):
                self.run_search([doubles.AdaptivePlacer(name, 1) for name in names])

    def test_a_placer_that_breaks_its_contract_is_named(self):
        for proposal in (np.zeros((3, 4), np.int32), np.zeros(4, np.int32)):
            placer = doubles.AdaptivePlacer("greedy", 2)
            placer.propose = lambda count, proposal=proposal: proposal
            with self.assertRaisesRegex(SearchError, "'greedy' was asked for up to 2"):
                self.run_search([placer])

    def test_a_budget_must_allow_a_trial(self):
        for numbers in ((0, 1.0), (1, 0.0), (1, -1.0), (1, float("nan"))):
            with self.assertRaisesRegex(ValueError, "must be"):
                Budget(*numbers)


class ResumeTest(SearchTestCase):
    def make_stages(self):
        return [
            doubles.ScriptedPlacer("first", [[row(0)], [row(80)]]),
            doubles.ScriptedPlacer("second", [[row(1), row(80), row(2)]]),
            doubles.AdaptivePlacer("third", 4),
        ]

    def test_after_a_cut_anywhere_the_log_becomes_that_of_an_uninterrupted_search(self):
        expected = self.run_search(self.make_stages(), max_trials=16)
        with open(self.path, "rb") as file:
            whole = file.read()
        line_ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
        cuts = {*range(0, len(whole), 23), *line_ends, *(end + 1 for end in line_ends)}
        with mock.patch.object(os, "fsync"):
            for cut in sorted(cuts):
                with open(self.path, "wb") as file:
                    file.write(whole[:cut])
                self.environment = doubles.FakeEnvironment()
                trials = self.run_search(self.make_stages(), max_trials=16)
                self.assertEqual(content(trials), content(expected), cut)
                self.assertEqual(content(read_log(self.path)[1]), content(expected), cut)
                kept = sum(end <= cut for end in line_ends) - 1
                new = [
                    trial.assignment for trial in expected[max(1, kept) :] if not _repeats(trial)
                ]
                self.assertEqual(self.environment.asked, new, cut)

    def test_placers_observe_the_same_batches_as_without_the_interruption(self):
        uninterrupted = self.make_stages()
        self.run_search(uninterrupted, max_trials=15)
        for count in range(1, 15):
            os.remove(self.path)
            self.run_search(self.make_stages(), max_trials=count)
            stages = self.make_stages()
            self.run_search(stages, max_trials=15)
            for stage, expected in zip(stages, uninterrupted, strict=True):
                self.assertEqual(stage.observed, expected.observed, count)

    def test_resuming_with_a_larger_budget_gives_the_same_as_starting_with_it(self):
        expected = self.run_search(self.make_stages(), max_trials=20)
        os.remove(self.path)
        for max_trials in (3, 4, 9, 13, 20):
            trials = self.run_search(self.make_stages(), max_trials=max_trials)
            self.assertEqual(content(trials), content(expected[:max_trials]))

    def test_a_finished_search_returns_its_log_at_once(self):
        expected = self.run_search(self.make_stages(), max_trials=12)
        stages = self.make_stages()
        self.environment = doubles.FakeEnvironment()
        self.assertEqual(self.run_search(stages, max_trials=12), expected)
        self.assertEqual(self.run_search(stages, max_trials=5), expected)
        self.assertEmpty(self.environment.asked)
        self.assertEmpty(stages[0].observed)

    def test_only_new_trials_are_reported(self):
        self.run_search(self.make_stages(), max_trials=8)
        reports = []
        self.run_search(
            self.make_stages(),
            max_trials=11,
            report=lambda trial, progress: reports.append((trial.index, progress.trial_count)),
        )
        self.assertEqual(reports, [(8, 9), (9, 10), (10, 11)])

    def test_observed_is_called_after_each_logged_batch(self):
        told = []
        self.run_search(self.make_stages(), max_trials=12)
        self.run_search(
            self.make_stages(), max_trials=16, observed=lambda placer: told.append(placer.name)
        )
        self.assertEqual(told, ["first", "first", "second", "third", "third"])

    def test_time_before_the_interruption_counts_and_time_between_does_not(self):
        clock = FakeClock()

        class Slow(doubles.FakeEnvironment):
            def measure(inner, placements):
                clock.now_secs += 10
                return super().measure(placements)

        self.environment = Slow()
        with mock.patch.object(trial_recorder, "time", clock):
            self.run_search([doubles.AdaptivePlacer("p", 8)], max_trials=4, max_secs=55.0)
            clock.now_secs = 77.0  # another boot of the machine
            trials = self.run_search([doubles.AdaptivePlacer("p", 8)], max_secs=55.0)
        self.assertEqual([trial.elapsed_secs for trial in trials], [0, 10, 20, 30, 40, 50, 60])

    def test_logged_placements_are_kept_when_the_placer_proposes_others_now(self):
        self.run_search([doubles.ScriptedPlacer("p", [[row(1), row(2), row(3)]])], max_trials=3)
        changed = doubles.ScriptedPlacer("p", [[row(1), row(7), row(8)], [row(9)]])
        with self.assertLogs(level="WARNING") as logs:
            trials = self.run_search([changed])
        self.assertRegex(logs.output[0], "batch 0 of placer 'p'")
        self.assertEqual(
            [trial.assignment for trial in trials[1:]], [tuple(row(i)) for i in (1, 2, 8, 9)]
        )
        self.assertEqual(
            [rows for rows, _ in changed.observed], [[row(1), row(2), row(8)], [row(9)]]
        )

    def test_logged_placements_are_kept_when_the_placer_proposes_fewer_now(self):
        self.run_search([doubles.ScriptedPlacer("p", [[row(1), row(2), row(3)]])], max_trials=3)
        changed = doubles.ScriptedPlacer("p", [[row(1)], [row(9)]])
        with self.assertLogs(level="WARNING"):
            trials = self.run_search([changed])
        self.assertLen(trials, 4)
        self.assertEqual([rows for rows, _ in changed.observed], [[row(1), row(2)], [row(9)]])

    def test_a_log_of_other_stages_is_refused(self):
        self.run_search(self.make_stages(), max_trials=12)
        for order in ([0, 1], [2, 0, 1], [0, 2, 1]):
            stages = self.make_stages()
            with self.assertRaisesRegex(LogError, r"trials\.jsonl: trial \d+ is of placer"):
                self.run_search([stages[i] for i in order])

    @parameterized.parameters(
        (0, {"placer": "first"}, "trial 0 is not the original graph"),
        (0, {"assignment": [0, 0, 0, 0]}, "trial 0 is not the original graph"),
        (2, {"batch": 5}, "trial 2 is of batch 5"),
        (3, {"assignment": None}, "trial 3 and its batch lack"),
    )
    def test_a_log_that_no_search_writes_is_refused(self, index, changes, message):
        self.run_search(self.make_stages(), max_trials=12)
        with open(self.path) as file:
            lines = file.read().splitlines()
        lines[index + 1] = json.dumps(json.loads(lines[index + 1]) | changes)
        with open(self.path, "w") as file:
            file.write("\n".join(lines) + "\n")
        with self.assertRaisesRegex(LogError, message):
            self.run_search(self.make_stages())


class KillTest(SearchTestCase):
    def test_kill_9_at_random_points_neither_loses_nor_repeats_a_finished_trial(self):
        rng = random.Random(20)
        measured_path = os.path.join(self.directory, "measured.txt")
        logs = [b""]
        for _ in range(4):
            # Give each child enough trials that it cannot end before it is killed.
            with self.start_child(measured_path, max_trials=10**9) as child:
                target = logs[-1].count(b"\n") + rng.randint(1, 18)
                while self.log_bytes().count(b"\n") < target:
                    if child.poll() is not None:
                        self.fail(f"the child ended by itself: {child.stderr.read()}")
                    time.sleep(0.0005)
                time.sleep(rng.uniform(0, 0.006))
                child.kill()
            self.assertEqual(child.returncode, -signal.SIGKILL)
            logs.append(self.log_bytes())
            self.assertStartsWith(logs[-1], logs[-2][: logs[-2].rfind(b"\n") + 1])
        max_trials = logs[-1].count(b"\n") + 20
        with self.start_child(measured_path, max_trials) as child:
            _, errors = child.communicate()
        self.assertEqual(child.returncode, 0, errors)
        trials = read_log(self.path)[1]
        expected = doubles.run_search(
            os.path.join(self.directory, "uninterrupted.jsonl"),
            os.path.join(self.directory, "uninterrupted.txt"),
            max_trials,
        )
        self.assertEqual(content(trials), content(expected))
        self.assertLen(trials, max_trials)
        elapsed = [trial.elapsed_secs for trial in trials]
        self.assertEqual(elapsed, sorted(elapsed))
        with open(measured_path) as file:
            measured = len(file.readlines())
        # Each kill may have interrupted one measurement, which is then repeated.
        finished = sum(not _repeats(trial) for trial in trials[1:])
        self.assertBetween(measured, finished, finished + 4)

    def start_child(self, measured_path, max_trials):
        return subprocess.Popen(
            [sys.executable, doubles.__file__, self.path, measured_path, str(max_trials)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def log_bytes(self):
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""


def _repeats(trial):
    return trial.repeats is not None


if __name__ == "__main__":
    absltest.main()
