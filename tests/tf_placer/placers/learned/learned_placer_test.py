import itertools
import math
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced, run_eagerly
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers import make_placer
from tf_placer.placers.learned.learned_placer import WEIGHTS_FILE

_FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))
_SMALL = {"hidden_units": 8, "attention_units": 4, "device_units": 4, "batch_size": 4}

setUpModule = leave_graphs_as_traced


def _placer(name="colocrl", seed=0, **options):
    legal = np.ones([5, 2], np.bool_)
    return make_placer(name, graphs.chain(5), legal, seed=seed, options=_SMALL | options)


def _graph_neural(seed=0, **options):
    legal = np.ones([5, 2], np.bool_)
    options = {"batch_size": 4} | options
    return make_placer("graph_neural", graphs.chain(5), legal, seed=seed, options=options)


def _assert_same(test, weights, others):
    for one, other in zip(weights, others, strict=True):
        test.assertAllEqual(one, other)


def _learn(placer, batches, measure=placer_conformance.measure):
    for _ in range(batches):
        placements = placer.propose(placer.batch_size)
        placer.observe(placements, measure(placements))


class CompiledTest(tf.test.TestCase):
    # Other presets are in compose_test.py.
    def test_a_restored_placer_goes_on_exactly(self):
        small = {"initial_weights": "none", "message_rounds": 1, "state_units": 8}
        one, other = (_graph_neural(seed=3, **small) for _ in "ab")
        log = []
        for _ in range(3):
            placements = one.propose(one.batch_size)
            log.append((placements, placer_conformance.measure(placements)))
            one.observe(*log[-1])
        for placements, measurements in log:
            other.observe(placements, measurements)
        self.assertAllEqual(other.propose(4), one.propose(4))
        self.assertEqual(other.updates, one.updates)

    def test_a_placer_with_the_state_of_another_goes_on_as_that_one(self):
        # Post has elites, Spotlight an adaptive penalty, ColocRL a moving average.
        options = {"post": {"batch_size": 4}, "spotlight": _SMALL, "colocrl": _SMALL}
        for name, of_placer in options.items():
            one, other = (
                make_placer(
                    name, graphs.chain(5), np.ones([5, 2], np.bool_), seed=3, options=of_placer
                )
                for _ in "ab"
            )
            _learn(one, 2)
            other.restore(one.state())
            for _ in range(3):
                self.assertAllEqual(other.propose(4), one.propose(4), name)
                _learn(one, 1)
                _learn(other, 1)

    def test_has_no_state_within_a_batch(self):
        placer = _placer()
        placements = placer.propose(1)
        placer.observe(placements, placer_conformance.measure(placements))
        with self.assertRaisesRegex(ValueError, "only between two batches"):
            placer.state()

    def test_makes_better_placements_more_probable_and_is_compiled_once(self):
        def measure(placements):
            return [Measurement((0.1 + np.count_nonzero(row),)) for row in placements]

        placer = _placer(learning_rate=0.01)
        first = placer.propose(4)
        _learn(placer, 60, measure)
        self.assertLess(placer.propose(4).mean(), first.mean())
        self.assertEqual(placer.propose(4).sum(), 0)
        self.assertEqual(placer.agent.sample.experimental_get_tracing_count(), 1)

    def test_forgets_what_was_learned_elsewhere_if_nothing_of_it_runs(self):
        def fail(placements):
            return [_FAILED] * len(placements)

        trained, untrained = _graph_neural(), _graph_neural(initial_weights="none")
        first = trained.agent.policy.network.get_weights()
        _learn(trained, 3, fail)
        _assert_same(self, trained.agent.policy.network.get_weights(), first)
        _learn(trained, 1, fail)
        _learn(untrained, 4, fail)
        weights = untrained.agent.policy.network.get_weights()
        self.assertNotAllEqual(first[0], weights[0])
        _assert_same(self, trained.agent.policy.network.get_weights(), weights)
        self.assertAllEqual(trained.propose(4), untrained.propose(4))

    def test_goes_on_from_what_was_learned_elsewhere_once_something_ran(self):
        placer = _graph_neural()
        first = placer.agent.policy.network.get_weights()
        _learn(placer, 1, lambda placements: [_FAILED, *[Measurement((1.0,))] * 3])
        _learn(placer, 5, lambda placements: [_FAILED] * len(placements))
        for one, other in zip(placer.agent.policy.network.get_weights(), first, strict=True):
            self.assertAllClose(one, other, atol=0.2)


class LearnedPlacerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        run_eagerly(self)

    def test_waits_for_a_full_batch(self):
        placer = _placer(failure_reward=10.0, failure_factor="none")
        placements = placer.propose(9)
        self.assertLen(placements, 4)
        measurements = placer_conformance.measure(placements)
        placer.observe(placements[:3], measurements[:3])
        self.assertEmpty(placer.updates)
        self.assertAllEqual(placer.propose(6), placements[3:])
        placer.observe(placements[3:], measurements[3:])
        self.assertLen(placer.updates, 1)

    def test_learns_the_same_however_the_measurements_are_cut(self):
        whole, cut = _placer(), _placer()
        for _ in range(3):
            placements = whole.propose(4)
            measurements = placer_conformance.measure(placements)
            whole.observe(placements, measurements)
            for start, end in itertools.pairwise([0, 1, 2, 4]):
                cut.observe(placements[start:end], measurements[start:end])
        self.assertEqual(cut.updates, whole.updates)
        for one, other in zip(whole.agent.get_weights(), cut.agent.get_weights(), strict=True):
            self.assertAllEqual(one, other)

    def test_records_what_an_update_saw(self):
        constant = {"failure_reward": 10.0, "failure_factor": None, "baseline_failures": True}
        placer = _placer(baseline_start="failing", **constant)
        placements = placer.propose(4)
        times = [Measurement((4.0,)), _FAILED, Measurement((9.0,)), Measurement((1.0,))]
        placer.observe(placements, times)
        [record] = placer.updates
        self.assertEqual((record.update, record.samples, record.kind), (0, 4, "reinforce"))
        # Rewards -2, -10, -3 and -1; the baseline starts at that of a failure, and moves by a tenth
        # with each: -10, -9.2, -9.28, and -8.652 for the last.
        self.assertAllClose(record.mean_reward, -4.0)
        self.assertAllClose(record.baseline, -8.652)
        self.assertEqual((record.failures, record.batch_size), (1, 4))
        self.assertAllClose(record.best_step_secs, 1.0)
        self.assertAllClose(record.mean_step_secs, 14 / 3)
        self.assertBetween(record.entropy, 0.5, math.log(2) + 1e-6)
        self.assertGreater(record.gradient_norm, 0.0)
        self.assertGreaterEqual(record.divergence, 0.0)

    def test_learns_nothing_from_failures_while_none_has_run(self):
        placer = _placer()
        before = placer.agent.get_weights()
        _learn(placer, 2, lambda placements: [_FAILED] * len(placements))
        self.assertEmpty(placer.updates)
        for one, other in zip(before, placer.agent.get_weights(), strict=True):
            self.assertAllEqual(one, other)

    def test_learns_to_lack_less_memory_while_none_has_run(self):
        def lack(placements):
            # Device 1 has no memory at all.
            return [
                Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up", int(lacks)))
                for lacks in 100 * placements.sum(axis=1)
            ]

        placer = _placer(learning_rate=0.01)
        _learn(placer, 40, lack)
        self.assertLen(placer.updates, 40)
        self.assertEqual(placer.propose(4).sum(), 0)

    def test_refuses_placements_that_are_not_its_own(self):
        placer = _placer()
        placements = placer.propose(4)
        with self.assertRaisesRegex(ValueError, "placement 0 .*'colocrl'.*versions"):
            placer.observe(1 - placements, placer_conformance.measure(placements))
        with self.assertRaisesRegex(ValueError, r"placements must be \[4, 5\], not \[4, 3\]"):
            placer.observe(placements[:, :3], placer_conformance.measure(placements))

    def test_refuses_step_times_that_are_no_numbers(self):
        placer = _placer()
        placements = placer.propose(4)
        for secs in (math.nan, -1.0):
            with self.assertRaises(ValueError):
                _placer().observe(placements, [Measurement((secs,))] * 4)

    def test_saves_weights_that_make_another_placer_the_same(self):
        directory = pathlib.Path(self.create_tempdir())
        trained, other = _placer(), _placer(seed=9)
        _learn(trained, 3)
        trained.save(directory)
        self.assertEqual([path.name for path in directory.iterdir()], [WEIGHTS_FILE])
        other.agent.load_weights(directory / WEIGHTS_FILE)
        for one, same in zip(trained.agent.get_weights(), other.agent.get_weights(), strict=True):
            self.assertAllEqual(one, same)


if __name__ == "__main__":
    absltest.main()
