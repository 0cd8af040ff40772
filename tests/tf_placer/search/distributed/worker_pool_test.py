"""Tests of a pool of workers: measurements, slow machines and lost workers."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import random

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tests.tf_placer.search.distributed import fake_backend
from tests.tf_placer.search.distributed.fake_backend import ORIGINAL_SECS, TRIAL_SECS, FakeBackend
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.search.budget import Budget
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.runner import SequentialRunner
from tf_placer.search.trial_log import TrialLog, best_trial


def row(number: int) -> tuple[int, ...]:
    """Makes a placement for each number, different for those below 729."""
    return tuple(number // 3**i % 3 for i in range(doubles.NUM_GROUPS))


class OneMachine:
    """Makes measurements as a worker does, but in this process."""

    def measure(self, placements):
        return [fake_backend.measurement_of(each) for each in placements.tolist()]


class PoolTestCase(absltest.TestCase):
    def pool(self, backend: FakeBackend, **changes) -> WorkerPool:
        self.lines: list[str] = []
        settings = {"timeout_secs": lambda: 60.0, "report": self.lines.append, **changes}
        return WorkerPool(backend, fake_backend.assign, clock=backend.clock, **settings)

    def measure_rows(self, pool: WorkerPool, count: int) -> dict[int, Measurement]:
        """Submits rows 0 to count - 1 to the pool at once, and returns their measurements."""
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
        backend = FakeBackend(4)
        pool = self.pool(backend)
        pool.measure_original()
        while pool.capacity < 4:
            pool._advance()
        began_secs = backend.now_secs
        self.measure_rows(pool, 20)
        self.assertAlmostEqual(backend.now_secs - began_secs, 5 * TRIAL_SECS, delta=0.1)
        self.assertEqual([len(worker.measured) for worker in backend.workers], [5] * 4)

    def test_machines_are_compared_by_ratios(self):
        backend = FakeBackend(3, lambda number: lambda now: 1.0 + 0.2 * number)
        measured = self.measure_rows(self.pool(backend), 30)
        for number, measurement in measured.items():
            expected_secs = ORIGINAL_SECS * fake_backend.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)
        drifts = {round(measurement.drift, 6) for measurement in measured.values()}
        self.assertEqual(drifts, {1.0, 1.2, 1.4})

    def test_a_placement_measured_alone_is_scaled_by_the_original_of_its_worker(self):
        class Alone(FakeBackend):
            def result(self, call):
                value = super().result(call)
                if call.method != "measure":
                    return value
                measurement, own_secs = value
                return Measurement(measurement.step_secs), own_secs

        backend = Alone(2, lambda number: lambda now: 1.0 + 0.25 * number)
        for number, measurement in self.measure_rows(self.pool(backend), 8).items():
            expected_secs = ORIGINAL_SECS * fake_backend.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)
            self.assertEqual(Measurement.from_json(measurement.to_json()), measurement)

    def test_a_resumed_search_scales_to_its_trial_0(self):
        backend = FakeBackend(1, lambda number: lambda now: 3.0)
        measured = self.measure_rows(self.pool(backend, reference_secs=ORIGINAL_SECS), 2)
        self.assertAlmostEqual(measured[1].median_secs, ORIGINAL_SECS * 0.6)
        self.assertAlmostEqual(measured[1].drift, 3.0)

    def test_the_best_time_is_scaled_to_the_machine_of_the_worker(self):
        asked = []

        class Asked(FakeBackend):
            def call(self, worker, method, *args):
                if method == "measure":
                    asked.append(args[1])
                return super().call(worker, method, *args)

        pool = self.pool(
            Asked(1, lambda number: lambda now: 2.0), reference_secs=0.1, best_secs=lambda: 0.05
        )
        self.measure_rows(pool, 1)
        self.assertEqual(asked, [0.1])

    def test_completed_trials_name_their_worker(self):
        self.measure_rows(self.pool(FakeBackend(2)), 6)
        self.assertEqual({each.worker for each in self.ended}, {"worker 1", "worker 2"})

    def test_a_machine_that_becomes_available_late_is_used(self):
        backend = FakeBackend(2, machine_secs=lambda number: 35.0 * number)
        self.measure_rows(self.pool(backend), 10)
        self.assertNotEmpty(backend.workers[1].measured)
        self.assertGreater(len(backend.workers[0].measured), len(backend.workers[1].measured))

    def test_a_cluster_that_grows_is_used(self):
        backend = FakeBackend(1)
        pool = self.pool(backend)
        pool.measure_original()
        backend.size = 3
        self.measure_rows(pool, 12)
        self.assertLen([worker for worker in backend.workers if worker.measured], 3)

    def test_statistics_count_the_trials_of_each_worker(self):
        backend = FakeBackend(2)
        backend.failing.add(row(3))
        pool = self.pool(backend)
        self.measure_rows(pool, 12)
        statistics = pool.list_statistics()
        self.assertEqual([each.trials for each in statistics], [6, 6])
        self.assertEqual(sum(each.failures for each in statistics), 1)
        self.assertEqual([each.place for each in statistics], ["host0", "host1"])
        for each in statistics:
            self.assertAlmostEqual(each.trials_per_minute(pool.now_secs()), 6.0, delta=0.1)
            self.assertAlmostEqual(each.idle_share(pool.now_secs()), 0.0, delta=0.02)


class UnlikeMachinesTest(PoolTestCase):
    def test_a_worker_that_becomes_slow_is_set_aside_and_reinstated(self):
        def slowness(number):
            return lambda now: 3.0 if number == 1 and 1100 <= now < 1400 else 1.0

        backend = FakeBackend(3, slowness)
        measured = self.measure_rows(self.pool(backend), 150)
        aside = [line for line in self.lines if "set aside" in line]
        self.assertLen(aside, 1)
        self.assertRegex(aside[0], "worker 2 on host1 .* 3.0x as slowly .* become 3.0x as slow")
        self.assertTrue(any("worker 2 on host1 is as fast" in line for line in self.lines))
        # Measurements from the slow phase are scaled by it.
        for number, measurement in measured.items():
            expected_secs = ORIGINAL_SECS * fake_backend.relative_secs(row(number))
            self.assertAlmostEqual(measurement.median_secs, expected_secs)

    def test_a_worker_that_is_slow_from_the_start_is_set_aside(self):
        backend = FakeBackend(2, lambda number: lambda now: 2.0 if number == 0 else 1.0)
        self.measure_rows(self.pool(backend), 20)
        [aside] = [line for line in self.lines if "set aside" in line]
        self.assertRegex(aside, "worker 1 on host0 .* 2.0x as slowly .* from the start")
        self.assertLess(len(backend.workers[0].measured), 5)

    def test_machines_that_become_slow_together_are_not_set_aside(self):
        backend = FakeBackend(3, lambda number: lambda now: 1.0 if now < 1050 else 2.5)
        self.measure_rows(self.pool(backend), 30)
        self.assertFalse(any("set aside" in line for line in self.lines))

    def test_a_worker_that_was_set_aside_measures_if_there_is_no_other(self):
        backend = FakeBackend(2, lambda number: lambda now: 2.0 if number == 0 else 1.0)
        pool = self.pool(backend)
        self.measure_rows(pool, 20)
        backend.size = 1
        backend.workers[1].dead_secs = backend.now_secs
        before = len(backend.workers[0].measured)
        self.measure_rows(pool, 3)
        self.assertGreaterEqual(len(backend.workers[0].measured), before + 2)


class LossTest(PoolTestCase):
    def test_the_placement_of_a_dead_worker_is_measured_by_another(self):
        backend = FakeBackend(2)
        pool = self.pool(backend)
        pool.measure_original()
        backend.workers[0].dead_secs = backend.now_secs + 15
        self.measure_rows(pool, 10)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertIn("worker 1 on host0 is lost: its process died; its placement is", lost)
        done = collections.Counter(
            each
            for worker in backend.workers
            for each in worker.measured[: 1 + len(worker.measured)]
        )
        self.assertEqual(sorted(done.values()), [1] * 9 + [2])
        self.assertEqual(pool.list_statistics()[0].state, "lost")
        self.assertLen(backend.workers, 3)

    def test_a_worker_that_hangs_is_killed_and_replaced(self):
        backend = FakeBackend(2)
        pool = self.pool(backend)
        pool.measure_original()
        backend.workers[1].hung_secs = backend.now_secs + 12
        self.measure_rows(pool, 30)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertRegex(lost, "worker 2 .* has not answered for")
        self.assertIn(backend.workers[1], backend.killed)

    def test_a_suspended_search_does_not_time_out_its_workers(self):
        class Stopping(FakeBackend):
            stops = 0

            def wait(self, calls, timeout_secs):
                if self.stops < 3 and any(call.method == "ping" for call in calls):
                    # No message was received during the pause; answers are still under way.
                    self.stops += 1
                    self.now_secs += 3600.0
                    return []
                return super().wait(calls, timeout_secs)

        backend = Stopping(2)
        self.measure_rows(self.pool(backend), 10)
        self.assertEqual(backend.stops, 3)
        self.assertEqual([line for line in self.lines if "is lost" in line], [])

    def test_a_worker_whose_measurement_never_ends_is_killed_although_it_answers(self):
        class Endless(FakeBackend):
            def call(self, worker, method, *args):
                call = super().call(worker, method, *args)
                if method == "measure" and worker.number == 0:
                    call.end_secs = float("inf")
                return call

        backend = Endless(1)
        self.measure_rows(self.pool(backend), 2)
        [lost] = [line for line in self.lines if "is lost" in line]
        self.assertRegex(lost, "has not ended a measurement within 720 s")

    def test_a_worker_may_be_idle_for_longer_than_a_measurement_may_take(self):
        backend = FakeBackend(1)
        pool = self.pool(backend)
        self.measure_rows(pool, 1)
        while backend.now_secs < 4_000.0:
            pool.wait(5.0)
        self.measure_rows(pool, 2)
        self.assertEqual([line for line in self.lines if "is lost" in line], [])
        self.assertLen(backend.workers, 1)

    def test_a_placement_that_kills_its_workers_fails(self):
        backend = FakeBackend(2)
        backend.fatal.add(row(4))
        measured = self.measure_rows(self.pool(backend), 8)
        self.assertIs(measured[4].failure.kind, FailureKind.WORKER_DIED)
        self.assertRegex(measured[4].failure.message, "3 workers were lost while they measured it")
        self.assertLen([m for m in measured.values() if m.failure is None], 7)

    def test_workers_that_cannot_start_end_the_search_with_the_reason(self):
        backend = FakeBackend(2)
        backend.start_failure = "it has other devices"
        with self.assertRaisesRegex(WorkerStartError, "no worker can start: it has other devices"):
            self.pool(backend).measure_original()

    def test_the_search_ends_if_no_machine_becomes_available(self):
        backend = FakeBackend(2, machine_secs=lambda number: 1e6)
        with self.assertRaisesRegex(WorkerStartError, "no machine with room for a worker .* 300 s"):
            self.pool(backend).measure_original()

    def test_an_original_that_fails_on_one_machine_only_loses_that_worker(self):
        class Broken(FakeBackend):
            def result(self, call):
                value = super().result(call)
                if call.method == "begin" and call.worker.number == 1:
                    failed = fake_backend.measurement_of((1,), failing=[(1,)])
                    return dataclasses.replace(value, original=failed)
                return value

        backend = Broken(2)
        self.measure_rows(self.pool(backend), 12)
        self.assertTrue(
            any("worker 2 on host1 is lost: the original" in each for each in self.lines)
        )
        self.assertEmpty(backend.workers[1].measured)

    def test_failed_starts_on_one_machine_do_not_end_the_search_when_another_worker_dies(self):
        good = {0}

        class HalfBroken(FakeBackend):
            def result(self, call):
                if call.method == "begin" and call.worker.number not in good:
                    raise WorkerLostError("it has other devices", has_failed=True)
                return super().result(call)

        backend = HalfBroken(2)
        pool = self.pool(backend)
        self.measure_rows(pool, 30)
        self.assertGreater(len(backend.workers), 6)
        backend.workers[0].dead_secs = backend.now_secs + 15
        good.update((len(backend.workers), len(backend.workers) + 1))
        self.measure_rows(pool, 10)

    def test_late_answers_of_a_lost_worker_are_ignored(self):
        class Late(FakeBackend):
            def call(self, worker, method, *args):
                call = super().call(worker, method, *args)
                # The machine is cut off: the ping fails just when the measurement arrives.
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

        backend = Late(2)
        self.measure_rows(self.pool(backend), 6)
        self.assertTrue(any("cannot be reached" in line for line in self.lines))

    def test_canceled_placements_are_failures(self):
        interrupted = []
        backend = FakeBackend(2)
        pool = self.pool(backend, should_cancel=lambda: bool(interrupted))
        pool.measure_original()
        for number in range(4):
            pool.submit(number, np.array(row(number), np.int32))
        interrupted.append(True)
        ended = pool.wait()
        self.assertCountEqual([each.key for each in ended], range(4))
        self.assertEqual({each.measurement.failure.message for each in ended}, {"canceled"})
        interrupted.clear()
        self.measure_rows(pool, 2)


class CallOneTest(PoolTestCase):
    def test_the_same_worker_runs_all_calls(self):
        pool = self.pool(FakeBackend(3))
        pool.measure_original()
        self.assertEqual({pool.call_one("profile", ()) for _ in range(4)}, {"profile by 0"})

    def test_the_other_workers_are_released_for_a_call_alone(self):
        released = []

        class Asked(FakeBackend):
            def call(self, worker, method, *args):
                if method == "release":
                    released.append(worker.number)
                return super().call(worker, method, *args)

        backend = Asked(3, machine_secs=lambda number: 100.0 * (number == 2))
        pool = self.pool(backend)
        self.measure_rows(pool, 4)
        self.assertEqual(pool.call_one("confirm", "restart", alone=True), "confirm by 0")
        self.assertEqual(released, [1])
        self.assertEqual(backend.killed, [backend.workers[2]])

    def test_the_loss_of_the_worker_is_raised_and_another_takes_over(self):
        backend = FakeBackend(2)
        pool = self.pool(backend)
        self.measure_rows(pool, 4)
        pool.call_one("confirm", "restart", alone=True)
        backend.workers[0].dead_secs = backend.now_secs
        with self.assertRaisesRegex(WorkerLostError, "worker 1 is lost: its process died"):
            pool.call_one("confirm", "run_steps", alone=True)
        self.assertEqual(pool.call_one("confirm", "restart", alone=True), "confirm by 1")

    def test_an_error_of_the_method_is_raised_and_the_worker_stays(self):
        backend = FakeBackend(1)
        pool = self.pool(backend)
        pool.measure_original()
        with self.assertRaisesRegex(WorkerLostError, "nothing to trace") as raised:
            pool.call_one("fail")
        self.assertTrue(raised.exception.has_failed)
        self.assertEqual(pool.call_one("profile", ()), "profile by 0")


class SearchTest(PoolTestCase):
    """Tests whole searches: the loop, its log and a pool."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")

    def search(self, measure_original, runner, placers, max_trials=30, path=None, **changes):
        with TrialLog(path or self.path, doubles.HEADER) as log:
            budget = Budget(max_trials, 1e9)
            return doubles.drive_placers(placers, runner, log, budget, measure_original, **changes)

    def test_one_worker_gives_the_same_trials_as_a_search_without_workers(self):
        def stages():
            return [
                doubles.ScriptedPlacer("first", [[row(1), row(2)], [row(2)], [row(3)]]),
                doubles.AdaptivePlacer("second", 4),
            ]

        pool = self.pool(FakeBackend(1))
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

    def test_a_placer_observes_batches_in_its_own_order(self):
        backend = FakeBackend(3, lambda number: lambda now: 1.0)
        real_call = backend.call

        def call(worker, method, *args):
            made = real_call(worker, method, *args)
            if method == "measure":
                made.end_secs += {0: 9.0, 1: 5.0, 2: 1.0}[worker.number % 3]
            return made

        backend.call = call
        pool = self.pool(backend)
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

    def test_a_placement_that_is_twice_in_a_batch_is_measured_once(self):
        backend = FakeBackend(3)
        pool = self.pool(backend)
        placer = doubles.ScriptedPlacer("p", [[row(1), row(2), row(1), row(3)]])
        trials = self.search(pool.measure_original, pool, [placer])
        measured = [each for worker in backend.workers for each in worker.measured]
        self.assertCountEqual(measured, [row(1), row(2), row(3)])
        [repeat] = [trial for trial in trials if trial.repeats is not None]
        self.assertEqual(trials[repeat.repeats].assignment, row(1))

    def test_no_more_trials_start_than_the_budget_allows(self):
        for max_trials in (1, 2, 6, 9):
            backend = FakeBackend(4)
            pool = self.pool(backend)
            path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")
            placers = [doubles.AdaptivePlacer("p", 5)]
            trials = self.search(pool.measure_original, pool, placers, max_trials, path)
            self.assertLen(trials, max_trials)
            self.assertEqual(sum(len(w.measured) for w in backend.workers), max_trials - 1)

    def test_no_trial_is_lost_or_counted_twice_when_processes_die(self):
        """Kills workers sixty times, while they start and while they measure, and the search."""
        rng = random.Random(7)
        batches = [[row(6 * n + i) for i in range(6)] for n in range(40)]
        backend = FakeBackend(4)
        deaths = drivers = 0
        trials: list = []

        class Killed(Exception):
            pass

        while True:
            pool = self.pool(backend, reference_secs=ORIGINAL_SECS if trials else None)
            lives = rng.randrange(5, 30) if drivers < 10 else 10**6
            started = itertools.count()

            def driver_may_die(_trial, _progress, lives=lives, started=started):
                if next(started) >= lives:
                    raise Killed

            def worker_may_die(pool=pool):
                nonlocal deaths
                if deaths < 50 and rng.random() < 0.01:
                    living = [w for w in backend.workers if w.dead_secs > backend.now_secs]
                    rng.choice(living).dead_secs = backend.now_secs + rng.uniform(0, 2 * TRIAL_SECS)
                    deaths += 1
                return False

            pool._should_cancel = worker_may_die
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
                # The machines are free again, even if their old workers are still busy.
                backend.workers, backend.killed = [], []
        self.assertEqual((deaths, drivers), (50, 10))
        self.assertEqual([trial.index for trial in trials], list(range(241)))
        logged = [trial.assignment for trial in trials[1:]]
        self.assertCountEqual(logged, list(itertools.chain(*batches)))
        for trial in trials[1:]:
            self.assertIsNone(trial.measurement.failure)
            expected_secs = ORIGINAL_SECS * fake_backend.relative_secs(trial.assignment)
            self.assertAlmostEqual(trial.measurement.median_secs, expected_secs)
        best = best_trial(trials)
        least = min(map(fake_backend.relative_secs, itertools.chain(*batches)))
        self.assertAlmostEqual(best.measurement.median_secs, ORIGINAL_SECS * least)
        # The placer has observed the batches in the order of its proposals.
        self.assertEqual([rows for rows, _ in placer.observed], [[*map(list, b)] for b in batches])


if __name__ == "__main__":
    absltest.main()
