"""Tests of searches with several controllers, in one process, whose actors may die."""

from __future__ import annotations

import collections
import os
import random

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tests.tf_placer.placers.learned.eagerly import run_eagerly
from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.search.distributed import fake_backend
from tests.tf_placer.search.distributed.fake_backend import FakeBackend
from tests.tf_placer.search.distributed.in_process_backend import InProcessBackend
from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.errors import SearchError
from tf_placer.placers import make_placer
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.budget import Budget
from tf_placer.search.distributed.controllers import Controllers
from tf_placer.search.distributed.learners import Controller, ParameterServer
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.training_checkpoint import CONTROLLERS_FILE, read_checkpoint
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.replay import index_by_position
from tf_placer.search.runner import SequentialRunner
from tf_placer.search.trial_log import TrialLog

_OPTIONS = {"batch_size": 4, "ascent_steps": 2, "ce_samples": 8}


def sort_by_proposal(trials):
    """Sorts the placements of trials by the order in which they were proposed."""
    by_place = sorted(trials[1:], key=lambda trial: (trial.batch, trial.position))
    return [trial.assignment for trial in by_place]


class _Stopped(Exception):
    """Ends a search as a kill would."""


class ControllersTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Run eagerly: every replacement actor would compile its own functions.
        run_eagerly(self)
        edges = [(n, n + 1, 1) for n in range(7)]
        self.problem = build_task_problem([(2, 1, 1)] * 8, edges)
        self.groups, self.legal = group_graph(self.problem), legal_devices(self.problem)
        self.directory = self.create_tempdir().full_path
        self.lines: list[str] = []

    def make_setup(self, name: str = "post") -> PlacerSetup:
        return PlacerSetup(name, self.groups, self.legal, 5, _OPTIONS, self.problem)

    def controllers(self, count: int, deaths=(), server_deaths=(), seed=0, updates=()):
        rng, setup = random.Random(seed), self.make_setup()
        self.backends = [
            InProcessBackend(lambda: Controller(setup), rng, deaths),
            InProcessBackend(lambda: ParameterServer(setup), rng, server_deaths),
        ]
        return Controllers(
            "post",
            *self.backends,
            count,
            directory=self.directory,
            updates=updates,
            say=self.lines.append,
        )

    def search(self, placer, max_trials: int, report=None, runner=None, observed=None):
        environment = SimulatedEnvironment(self.problem)

        def original() -> Measurement:
            [measurement] = environment.measure(np.zeros([1, 8], np.int32))
            return measurement

        with TrialLog(os.path.join(self.directory, "trials.jsonl"), {"seed": 5}) as log:
            return doubles.drive_placers(
                [placer],
                runner or SequentialRunner(environment),
                log,
                Budget(max_trials, 600.0),
                original,
                report=report,
                observed=observed,
            )

    def check(self, trials, max_trials: int) -> None:
        """Checks that no trial is lost or measured twice, and that batches are complete."""
        self.assertLen(trials, max_trials)
        self.assertEqual([trial.index for trial in trials], list(range(max_trials)))
        places = [(t.controller, t.batch, t.position) for t in trials[1:]]
        self.assertLen(set(places), len(places))
        measured = [trial.assignment for trial in trials[1:] if trial.repeats is None]
        self.assertLen(set(measured), len(measured))

    def test_one_controller_searches_as_the_placer_does(self):
        trials = self.search(self.controllers(1), 41)
        placer = make_placer("post", self.groups, self.legal, seed=5, options=_OPTIONS)
        environment = SimulatedEnvironment(self.problem)
        for first in range(1, 41, 4):
            proposed = placer.propose(100)
            # Trials that repeat an earlier one are logged before the batch is measured.
            batch = sorted(trials[first : first + 4], key=lambda trial: trial.position)
            got = [trial.assignment for trial in batch]
            self.assertEqual(got, [tuple(row) for row in proposed.tolist()])
            placer.observe(proposed, environment.measure(proposed))

    def test_controllers_have_separate_batches_and_share_the_weights(self):
        placer = self.controllers(3)
        self.check(trials := self.search(placer, 61), 61)
        self.assertEqual({trial.controller for trial in trials[1:]}, {1, 2, 3})
        for update in placer.updates:
            self.assertGreaterEqual(update.staleness, 0)
        # The weights of a batch lack the updates that other controllers made since.
        self.assertGreater(max(update.staleness for update in placer.updates), 0)
        by_batch = collections.defaultdict(set)
        for trial in trials[1:]:
            by_batch[trial.controller, trial.batch].add(trial.version)
        self.assertTrue(all(len(versions) == 1 for versions in by_batch.values()))
        self.assertEqual([update.update for update in placer.updates], list(range(15)))
        self.assertEqual(placer.version, 15)
        self.assertEqual(placer.updates[-1].samples, 60)

    def test_every_update_is_applied_once_when_processes_die(self):
        for seed in range(3):
            rng = random.Random(seed)
            self.directory = self.create_tempdir().full_path
            deaths, server_deaths = (sorted(rng.sample(range(50), 4)) for _ in range(2))
            placer = self.controllers(2, deaths, server_deaths, seed)
            self.check(self.search(placer, 61), 61)
            batches = collections.Counter(u.controller for u in placer.updates)
            self.assertEqual(sum(batches.values()), 15)
            self.assertEqual(placer.version, 15)
            self.assertGreater(self.backends[0].started + self.backends[1].started, 3 + 2)
            self.assertTrue(any("takes its place" in line for line in self.lines))

    def test_one_controller_learns_the_same_when_processes_die(self):
        whole = self.controllers(1)
        trials = self.search(whole, 41)
        self.directory = self.create_tempdir().full_path
        broken = self.controllers(1, [0, 3, 4, 9], [0, 1, 2, 5, 9, 10], seed=3)
        again = self.search(broken, 41)
        self.assertEqual(sort_by_proposal(again), sort_by_proposal(trials))
        self.assertEqual(
            [update.mean_reward for update in broken.updates],
            [update.mean_reward for update in whole.updates],
        )

    def test_an_unapplied_update_survives_the_death_of_its_controller(self):
        whole = self.controllers(1)
        trials = self.search(whole, 21)
        self.directory = self.create_tempdir().full_path
        broken = self.controllers(1, server_deaths=[1])
        # The controller dies while the parameter server restarts.
        call = self.backends[1].call

        def kill_before_the_update_is_applied(actor, method, *args):
            if method == "apply" and self.backends[1].started == 2:
                self.backends[0].kill(self.backends[0].actors[0])
            return call(actor, method, *args)

        self.backends[1].call = kill_before_the_update_is_applied
        self.assertEqual(sort_by_proposal(self.search(broken, 21)), sort_by_proposal(trials))
        controllers, server = self.backends
        self.assertEqual((controllers.started, server.started), (2, 2))
        self.assertEqual(server.calls[:4], ["initial", "apply", "apply", "apply"])
        self.assertEqual(controllers.calls[:4], ["sample", "learn", "sample", "sample"])

    def test_a_killed_search_resumes_from_its_log_and_checkpoint(self):
        for number in (1, 18, 45):
            self.directory = self.create_tempdir().full_path
            killed = self.controllers(2, seed=number)

            def kill(trial, progress, last=number):
                if trial.index == last:
                    raise _Stopped

            with self.assertRaises(_Stopped):
                self.search(killed, 61, kill)
            kept = read_checkpoint(os.path.join(self.directory, CONTROLLERS_FILE))
            on = self.controllers(2, seed=number + 1, updates=killed.updates)
            trials = self.search(on, 61)
            self.check(trials, 61)
            if kept is not None:
                self.assertIn(f"weights that have had {kept.version} updates", self.lines[-1])
                self.assertGreaterEqual(on.version, kept.version)
            self.assertEqual([update.update for update in on.updates], list(range(len(on.updates))))

    def test_a_larger_budget_resumes_with_the_same_batches(self):
        self.search(self.controllers(2), 30)
        kept = read_checkpoint(os.path.join(self.directory, CONTROLLERS_FILE))
        pending = {(n + 1, b.number) for n, b in enumerate(kept.batches) if b is not None}
        trials = self.search(self.controllers(2, seed=1), 61)
        self.check(trials, 61)
        for controller, batch in pending:
            of_batch = [t for t in trials if (t.controller, t.batch) == (controller, batch)]
            self.assertLen(of_batch, 4)

    def test_controllers_that_die_repeatedly_end_the_search(self):
        with self.assertRaisesRegex(SearchError, r"controller 1 was lost 5 times in a row"):
            self.search(self.controllers(1, range(1000)), 20)

    def test_the_saved_policy_has_the_weights_of_the_server(self):
        placer = self.controllers(2)
        self.search(placer, 21)
        placer.save(self.directory)
        reader = make_placer("post", self.groups, self.legal, seed=9, options=_OPTIONS)
        reader.agent.load_weights(os.path.join(self.directory, "policy.weights.h5"))
        kept = read_checkpoint(os.path.join(self.directory, CONTROLLERS_FILE))
        for mine, weights in zip(
            reader.agent.trainable_variables, kept.parameters.weights, strict=True
        ):
            np.testing.assert_array_equal(mine.numpy(), weights)

    def test_controllers_share_workers_of_a_pool(self):
        """Two controllers of four samples keep more than four workers busy."""
        backend = FakeBackend(8)
        pool = WorkerPool(
            backend, fake_backend.assign, timeout_secs=lambda: 60.0, clock=backend.clock
        )
        pool.measure_original()
        while pool.capacity < 8:
            pool._advance()
        began_secs = backend.now_secs
        trials = self.search(self.controllers(2), 61, runner=pool)
        self.check(trials, 61)
        measured = sum(trial.repeats is None for trial in trials[1:])
        # Four workers at a time would take this long even without learning.
        self.assertLess(backend.now_secs - began_secs, measured / 4 * fake_backend.TRIAL_SECS)
        expected = [
            fake_backend.ORIGINAL_SECS * fake_backend.relative_secs(trial.assignment)
            for trial in trials[1:]
        ]
        for trial, secs in zip(trials[1:], expected, strict=True):
            self.assertAlmostEqual(trial.measurement.median_secs, secs)

    def test_post_is_trained_in_step_by_twelve_workers(self):
        """Trains as Post does: one distribution, twelve workers that wait for each other."""
        options = {"total_samples": 240}

        def search_with(runner, original, path):
            placer = make_placer("post", self.groups, self.legal, seed=5, options=options)
            with TrialLog(path, {"seed": 5}) as log:
                doubles.drive_placers([placer], runner, log, Budget(121, 600.0), original)
                return placer, log.trials

        class OneMachine:
            def measure(self, placements):
                return [fake_backend.measurement_of(each) for each in placements.tolist()]

        backend = FakeBackend(12)
        pool = WorkerPool(
            backend, fake_backend.assign, timeout_secs=lambda: 60.0, clock=backend.clock
        )
        pool.measure_original()
        while pool.capacity < 12:
            pool._advance()
        placer, trials = search_with(pool, pool.measure_original, f"{self.directory}/twelve")
        original = Measurement((fake_backend.ORIGINAL_SECS,) * 2)
        alone, expected = search_with(
            SequentialRunner(OneMachine()), lambda: original, f"{self.directory}/alone"
        )
        for first in range(1, 121, 12):
            batches = [index_by_position(each[first : first + 12]) for each in (trials, expected)]
            rows = [[trial.assignment for trial in batch.values()] for batch in batches]
            self.assertEqual(*rows)
        self.assertEqual(
            [(update.kind, update.samples) for update in placer.updates],
            [("ce" if n % 60 == 0 else "ppo_kl", n) for n in range(12, 121, 12)],
        )
        self.assertEqual(
            [update.mean_reward for update in placer.updates],
            [update.mean_reward for update in alone.updates],
        )
        self.assertGreater(sum(bool(worker.measured) for worker in backend.workers), 9)

    def test_an_invalid_checkpoint_is_named(self):
        path = os.path.join(self.directory, CONTROLLERS_FILE)
        with open(path, "w") as file:
            file.write("nothing")
        with self.assertRaisesRegex(SearchError, "controllers.npz' is no checkpoint"):
            read_checkpoint(path)


if __name__ == "__main__":
    absltest.main()
