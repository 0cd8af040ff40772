"""What a pool of workers measures, and what it does about all that machines do."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import random

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tests.tf_placer.search.distributed import fake_fleet
from tests.tf_placer.search.distributed.fake_fleet import ORIGINAL_SECS, TRIAL_SECS, FakeFleet
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.search.budget import Budget
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.runner import SequentialRunner
from tf_placer.search.trial_log import TrialLog, best_trial


def row(number: int) -> tuple[int, ...]:
    """A placement for each number, different for those below 729."""
    return tuple(number // 3**i % 3 for i in range(doubles.NUM_GROUPS))


class OneMachine:
    """Measures what a worker measures, without one."""

    def measure(self, placements):
        return [fake_fleet.measurement_of(each) for each in placements.tolist()]


class PoolTestCase(absltest.TestCase):
    def pool(self, fleet: FakeFleet, **changes) -> WorkerPool:
        self.lines: list[str] = []
        settings = {"timeout_secs": lambda: 60.0, "report": self.lines.append, **changes}
        return WorkerPool(fleet, fake_fleet.assign, clock=fleet.clock, **settings)

    def measured(self, pool: WorkerPool, count: int) -> dict[int, Measurement]:
        """Measures rows, all of which are given to the pool at once."""
        pool.measure_original()
        for number in range(count):
            pool.submit(number, np.array(row(number), np.int32))
        ended = []
        while len(ended) < count:
            ended += pool.wait()
        self.assertCountEqual([each.key for each in ended], range(count))
        self.ended = ended
        return {each.key: each.measurement for each in ended}


class WorkerPoolTest(PoolTestCase):
    def test_workers_measure_at_the_same_time(self):
        fleet = FakeFleet(4)
        pool = self.pool(fleet)
        pool.measure_original()
        while pool.capacity < 4:
            pool._advance()
        began_secs = fleet.now_secs
        self.measured(pool, 20)
        self.assertAlmostEqual(fleet.now_secs - began_secs, 5 * TRIAL_SECS, delta=0.1)
        self.assertEqual([len(worker.measured) for worker in fleet.workers], [5] * 4)

    def test_machines_are_compared_by_ratios(self):
        fleet = FakeFleet(3, lambda number: lambda now: 1.0 + 0.2 * number)
        measured = self.measured(self.pool(fleet), 30)
        for number, measurement in measured.items():
            expected_secs = ORIGINAL_SECS * fake_fleet.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)
        drifts = {round(measurement.drift, 6) for measurement in measured.values()}
        self.assertEqual(drifts, {1.0, 1.2, 1.4})

    def test_a_worker_that_is_measured_alone_is_compared_by_its_original(self):
        class Alone(FakeFleet):
            def result(self, call):
                value = super().result(call)
                if call.method != "measure":
                    return value
                measurement, own_secs = value
                return Measurement(measurement.step_secs), own_secs

        fleet = Alone(2, lambda number: lambda now: 1.0 + 0.25 * number)
        for number, measurement in self.measured(self.pool(fleet), 8).items():
            expected_secs = ORIGINAL_SECS * fake_fleet.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)
            self.assertEqual(Measurement.from_json(measurement.to_json()), measurement)

    def test_a_search_that_goes_on_compares_with_its_trial_0(self):
        fleet = FakeFleet(1, lambda number: lambda now: 3.0)
        measured = self.measured(self.pool(fleet, reference_secs=ORIGINAL_SECS), 2)
        self.assertAlmostEqual(measured[1].median_secs, ORIGINAL_SECS * 0.6)
        self.assertAlmostEqual(measured[1].drift, 3.0)

    def test_a_worker_is_told_the_best_in_its_own_seconds(self):
        asked = []

        class Asked(FakeFleet):
            def call(self, worker, method, *args):
                if method == "measure":
                    asked.append(args[1])
                return super().call(worker, method, *args)

        pool = self.pool(
            Asked(1, lambda number: lambda now: 2.0), reference_secs=0.1, best_secs=lambda: 0.05
        )
        self.measured(pool, 1)
        self.assertEqual(asked, [0.1])

    def test_who_measured_is_told(self):
        self.measured(self.pool(FakeFleet(2)), 6)
        self.assertEqual({each.worker for each in self.ended}, {"worker 1", "worker 2"})

    def test_a_machine_that_comes_late_is_used(self):
        fleet = FakeFleet(2, machine_secs=lambda number: 35.0 * number)
        self.measured(self.pool(fleet), 10)
        self.assertNotEmpty(fleet.workers[1].measured)
        self.assertGreater(len(fleet.workers[0].measured), len(fleet.workers[1].measured))

    def test_a_cluster_that_grows_is_used(self):
        fleet = FakeFleet(1)
        pool = self.pool(fleet)
        pool.measure_original()
        fleet.size = 3
        self.measured(pool, 12)
        self.assertLen([worker for worker in fleet.workers if worker.measured], 3)

    def test_tallies_say_what_each_has_done(self):
        fleet = FakeFleet(2)
        fleet.failing.add(row(3))
        pool = self.pool(fleet)
        self.measured(pool, 12)
        tallies = pool.tallies()
        self.assertEqual([tally.trials for tally in tallies], [6, 6])
        self.assertEqual(sum(tally.failures for tally in tallies), 1)
        self.assertEqual([tally.place for tally in tallies], ["host0", "host1"])
        for tally in tallies:
            self.assertAlmostEqual(tally.trials_per_minute(pool.now_secs()), 6.0, delta=0.1)
            self.assertAlmostEqual(tally.idle_share(pool.now_secs()), 0.0, delta=0.02)


class UnlikeMachinesTest(PoolTestCase):
    def test_one_that_becomes_slow_is_set_aside_and_named_and_comes_back(self):
        def slowness(number):
            return lambda now: 3.0 if number == 1 and 1100 <= now < 1400 else 1.0

        fleet = FakeFleet(3, slowness)
        measured = self.measured(self.pool(fleet), 150)
        aside = [line for line in self.lines if "set aside" in line]
        self.assertLen(aside, 1)
        self.assertRegex(aside[0], "worker 2 on host1 .* 3.0x as slowly .* become 3.0x as slow")
        self.assertTrue(any("worker 2 on host1 is as fast" in line for line in self.lines))
        # What it measured meanwhile is told without its slowness.
        for number, measurement in measured.items():
            expected_secs = ORIGINAL_SECS * fake_fleet.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)

    def test_one_that_is_slow_from_the_start_is_set_aside(self):
        fleet = FakeFleet(2, lambda number: lambda now: 2.0 if number == 0 else 1.0)
        self.measured(self.pool(fleet), 20)
        [aside] = [line for line in self.lines if "set aside" in line]
        self.assertRegex(aside, "worker 1 on host0 .* 2.0x as slowly .* from the start")
        self.assertLess(len(fleet.workers[0].measured), 5)

    def test_machines_that_all_become_slow_together_stay(self):
        fleet = FakeFleet(3, lambda number: lambda now: 1.0 if now < 1050 else 2.5)
        self.measured(self.pool(fleet), 30)
        self.assertFalse(any("set aside" in line for line in self.lines))

    def test_one_that_was_set_aside_is_better_than_none(self):
        fleet = FakeFleet(2, lambda number: lambda now: 2.0 if number == 0 else 1.0)
        pool = self.pool(fleet)
        self.measured(pool, 20)
        fleet.size = 1
        fleet.workers[1].dead_secs = fleet.now_secs
        before = len(fleet.workers[0].measured)
        self.measured(pool, 3)
        self.assertGreaterEqual(len(fleet.workers[0].measured), before + 2)


class LossTest(PoolTestCase):
    def test_what_a_dead_worker_measured_is_measured_by_another(self):
        fleet = FakeFleet(2)
        pool = self.pool(fleet)
        pool.measure_original()
        fleet.workers[0].dead_secs = fleet.now_secs + 15
        self.measured(pool, 10)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertIn("worker 1 on host0 is lost: its process died; its placement is", lost)
        done = collections.Counter(
            each for worker in fleet.workers for each in worker.measured[: 1 + len(worker.measured)]
        )
        self.assertEqual(sorted(done.values()), [1] * 9 + [2])
        self.assertEqual(pool.tallies()[0].state, "lost")
        self.assertLen(fleet.workers, 3)

    def test_one_that_hangs_is_ended_and_replaced(self):
        fleet = FakeFleet(2)
        pool = self.pool(fleet)
        pool.measure_original()
        fleet.workers[1].hung_secs = fleet.now_secs + 12
        self.measured(pool, 30)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertRegex(lost, "worker 2 .* has not answered for")
        self.assertIn(fleet.workers[1], fleet.killed)

    def test_a_search_that_was_stopped_does_not_take_its_workers_for_silent(self):
        class Stopping(FakeFleet):
            stops = 0

            def ended(self, calls, timeout_secs):
                if self.stops < 3 and any(call.method == "ping" for call in calls):
                    # Nothing was heard meanwhile, and answers are still on their way.
                    self.stops += 1
                    self.now_secs += 3600.0
                    return []
                return super().ended(calls, timeout_secs)

        fleet = Stopping(2)
        self.measured(self.pool(fleet), 10)
        self.assertEqual(fleet.stops, 3)
        self.assertEqual([line for line in self.lines if "is lost" in line], [])

    def test_one_whose_measurement_never_ends_is_ended_although_it_answers(self):
        class Endless(FakeFleet):
            def call(self, worker, method, *args):
                call = super().call(worker, method, *args)
                if method == "measure" and worker.number == 0:
                    call.end_secs = float("inf")
                return call

        fleet = Endless(1)
        self.measured(self.pool(fleet), 2)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertRegex(lost, "has not ended a measurement within 720 s")

    def test_a_placement_that_kills_whoever_measures_it_fails(self):
        fleet = FakeFleet(2)
        fleet.fatal.add(row(4))
        measured = self.measured(self.pool(fleet), 8)
        self.assertIs(measured[4].failure.kind, FailureKind.WORKER_DIED)
        self.assertRegex(measured[4].failure.message, "3 workers were lost while they measured it")
        self.assertLen([m for m in measured.values() if m.failure is None], 7)

    def test_workers_that_cannot_begin_end_the_search_with_the_reason(self):
        fleet = FakeFleet(2)
        fleet.start_failure = "it has other devices"
        with self.assertRaisesRegex(WorkerStartError, "no worker can begin: it has other devices"):
            self.pool(fleet).measure_original()

    def test_where_no_machine_comes_the_search_ends(self):
        fleet = FakeFleet(2, machine_secs=lambda number: 1e6)
        with self.assertRaisesRegex(WorkerStartError, "no machine with room for a worker .* 300 s"):
            self.pool(fleet).measure_original()

    def test_an_original_that_fails_on_one_machine_only_loses_that_worker(self):
        class Broken(FakeFleet):
            def result(self, call):
                value = super().result(call)
                if call.method == "begin" and call.worker.number == 1:
                    failed = fake_fleet.measurement_of((1,), failing=[(1,)])
                    return dataclasses.replace(value, original=failed)
                return value

        fleet = Broken(2)
        self.measured(self.pool(fleet), 12)
        self.assertTrue(any("worker 2 on host1 is lost: the graph" in each for each in self.lines))
        self.assertEmpty(fleet.workers[1].measured)

    def test_a_machine_that_never_begins_does_not_end_the_search_when_another_dies(self):
        good = {0}

        class HalfBroken(FakeFleet):
            def result(self, call):
                if call.method == "begin" and call.worker.number not in good:
                    raise WorkerLostError("it has other devices", has_failed=True)
                return super().result(call)

        fleet = HalfBroken(2)
        pool = self.pool(fleet)
        self.measured(pool, 30)
        self.assertGreater(len(fleet.workers), 6)
        fleet.workers[0].dead_secs = fleet.now_secs + 15
        good.update((len(fleet.workers), len(fleet.workers) + 1))
        self.measured(pool, 10)

    def test_what_a_worker_answers_after_it_was_given_up_is_not_heard(self):
        class Late(FakeFleet):
            def call(self, worker, method, *args):
                call = super().call(worker, method, *args)
                # Its machine is cut off: the ping fails just when the measurement comes.
                if method == "ping" and worker.number == 0 and worker.measured:
                    call.method = "cut off"
                    call.end_secs = self.measurement.end_secs
                elif method == "measure" and worker.number == 0:
                    self.measurement = call
                return call

            def result(self, call):
                if call.method == "cut off":
                    raise WorkerLostError("its machine cannot be reached")
                return super().result(call)

        fleet = Late(2)
        self.measured(self.pool(fleet), 6)
        self.assertTrue(any("cannot be reached" in line for line in self.lines))

    def test_what_is_broken_off_ends_as_a_failure(self):
        interrupted = []
        fleet = FakeFleet(2)
        pool = self.pool(fleet, should_break=lambda: bool(interrupted))
        pool.measure_original()
        for number in range(4):
            pool.submit(number, np.array(row(number), np.int32))
        interrupted.append(True)
        ended = pool.wait()
        self.assertCountEqual([each.key for each in ended], range(4))
        self.assertEqual({each.measurement.failure.message for each in ended}, {"broken off"})
        interrupted.clear()
        self.measured(pool, 2)


class AskTest(PoolTestCase):
    def test_the_same_worker_does_all_that_is_asked_for(self):
        pool = self.pool(FakeFleet(3))
        pool.measure_original()
        self.assertEqual({pool.ask("profile", ()) for _ in range(4)}, {"profile by 0"})

    def test_the_others_are_quiet_where_one_needs_the_computer_for_itself(self):
        released = []

        class Asked(FakeFleet):
            def call(self, worker, method, *args):
                if method == "release":
                    released.append(worker.number)
                return super().call(worker, method, *args)

        fleet = Asked(3, machine_secs=lambda number: 100.0 * (number == 2))
        pool = self.pool(fleet)
        self.measured(pool, 4)
        self.assertEqual(pool.ask("confirm", "restart", alone=True), "confirm by 0")
        self.assertEqual(released, [1])
        self.assertEqual(fleet.killed, [fleet.workers[2]])

    def test_the_loss_of_the_worker_is_told_and_another_takes_over(self):
        fleet = FakeFleet(2)
        pool = self.pool(fleet)
        self.measured(pool, 4)
        pool.ask("confirm", "restart", alone=True)
        fleet.workers[0].dead_secs = fleet.now_secs
        with self.assertRaisesRegex(WorkerLostError, "worker 1 is lost: its process died"):
            pool.ask("confirm", "run_steps", alone=True)
        self.assertEqual(pool.ask("confirm", "restart", alone=True), "confirm by 1")

    def test_an_error_of_what_is_asked_for_is_told_and_the_worker_stays(self):
        fleet = FakeFleet(1)
        pool = self.pool(fleet)
        pool.measure_original()
        with self.assertRaisesRegex(WorkerLostError, "nothing to trace") as raised:
            pool.ask("fail")
        self.assertTrue(raised.exception.has_failed)
        self.assertEqual(pool.ask("profile", ()), "profile by 0")


class SearchTest(PoolTestCase):
    """Whole searches: the loop, its log and a pool."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")

    def search(self, measure_original, runner, placers, max_trials=30, path=None, **changes):
        with TrialLog(path or self.path, doubles.HEADER) as log:
            budget = Budget(max_trials, 1e9)
            return doubles.drive_placers(placers, runner, log, budget, measure_original, **changes)

    def test_one_worker_gives_what_a_search_without_workers_gives(self):
        def stages():
            return [
                doubles.ScriptedPlacer("first", [[row(1), row(2)], [row(2)], [row(3)]]),
                doubles.AdaptivePlacer("second", 4),
            ]

        pool = self.pool(FakeFleet(1))
        trials = self.search(pool.measure_original, pool, stages())
        original = Measurement((ORIGINAL_SECS, ORIGINAL_SECS))
        path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")
        alone = self.search(lambda: original, SequentialRunner(OneMachine()), stages(), path=path)

        def content(trials):
            return [
                dataclasses.replace(trial, elapsed_secs=0.0, time="", worker=None)
                for trial in trials
            ]

        self.assertEqual(content(trials), content(alone))

    def test_a_placer_observes_batches_in_its_own_order_whoever_was_first(self):
        fleet = FakeFleet(3, lambda number: lambda now: 1.0)
        real_call = fleet.call

        def call(worker, method, *args):
            made = real_call(worker, method, *args)
            if method == "measure":
                made.end_secs += {0: 9.0, 1: 5.0, 2: 1.0}[worker.number % 3]
            return made

        fleet.call = call
        pool = self.pool(fleet)
        pool.measure_original()
        while pool.capacity < 3:
            pool._advance()
        rows = [row(n) for n in range(6)]
        placer = doubles.ScriptedPlacer("p", [rows])
        trials = self.search(pool.measure_original, pool, [placer])
        self.assertEqual([each for each, _ in placer.observed], [[list(r) for r in rows]])
        logged = [trial.assignment for trial in trials[1:]]
        self.assertNotEqual(logged, rows)
        self.assertCountEqual(logged, rows)

    def test_a_placement_that_comes_twice_in_a_batch_is_measured_once(self):
        fleet = FakeFleet(3)
        pool = self.pool(fleet)
        placer = doubles.ScriptedPlacer("p", [[row(1), row(2), row(1), row(3)]])
        trials = self.search(pool.measure_original, pool, [placer])
        measured = [each for worker in fleet.workers for each in worker.measured]
        self.assertCountEqual(measured, [row(1), row(2), row(3)])
        [repeat] = [trial for trial in trials if trial.repeats is not None]
        self.assertEqual(trials[repeat.repeats].assignment, row(1))

    def test_no_more_trials_are_started_than_the_budget_has(self):
        for max_trials in (1, 2, 6, 9):
            fleet = FakeFleet(4)
            pool = self.pool(fleet)
            path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")
            placers = [doubles.AdaptivePlacer("p", 5)]
            trials = self.search(pool.measure_original, pool, placers, max_trials, path)
            self.assertLen(trials, max_trials)
            self.assertEqual(sum(len(w.measured) for w in fleet.workers), max_trials - 1)

    def test_whatever_dies_no_trial_is_lost_or_counted_twice(self):
        """Sixty deaths: of workers, while they start and while they measure, and of the search."""
        rng = random.Random(7)
        batches = [[row(6 * n + i) for i in range(6)] for n in range(40)]
        fleet = FakeFleet(4)
        deaths = drivers = 0
        trials: list = []

        class Killed(Exception):
            pass

        while True:
            pool = self.pool(fleet, reference_secs=ORIGINAL_SECS if trials else None)
            lives = rng.randrange(5, 30) if drivers < 10 else 10**6
            started = itertools.count()

            def driver_may_die(_trial, _progress, lives=lives, started=started):
                if next(started) >= lives:
                    raise Killed

            def worker_may_die(pool=pool):
                nonlocal deaths
                if deaths < 50 and rng.random() < 0.01:
                    living = [w for w in fleet.workers if w.dead_secs > fleet.now_secs]
                    rng.choice(living).dead_secs = fleet.now_secs + rng.uniform(0, 2 * TRIAL_SECS)
                    deaths += 1
                return False

            pool._should_break = worker_may_die
            placer = doubles.ScriptedPlacer("p", batches)
            try:
                trials = self.search(
                    pool.measure_original, pool, [placer], 1000, report=driver_may_die
                )
                break
            except Killed:
                drivers += 1
                trials = [None]
                pool.close()
                # The machines are free again, whatever their old workers still do.
                fleet.workers, fleet.killed = [], []
        self.assertEqual((deaths, drivers), (50, 10))
        self.assertEqual([trial.index for trial in trials], list(range(241)))
        logged = [trial.assignment for trial in trials[1:]]
        self.assertCountEqual(logged, list(itertools.chain(*batches)))
        for trial in trials[1:]:
            self.assertIsNone(trial.measurement.failure)
            expected_secs = ORIGINAL_SECS * fake_fleet.relative_secs(trial.assignment)
            self.assertAlmostEqual(trial.measurement.median_secs, expected_secs)
        best = best_trial(trials)
        least = min(map(fake_fleet.relative_secs, itertools.chain(*batches)))
        self.assertAlmostEqual(best.measurement.median_secs, ORIGINAL_SECS * least)
        # The placer has seen the batches as they were proposed.
        self.assertEqual([rows for rows, _ in placer.observed], [[*map(list, b)] for b in batches])


if __name__ == "__main__":
    absltest.main()
