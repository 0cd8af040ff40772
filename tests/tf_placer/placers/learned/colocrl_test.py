import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.learned.colocrl import ColocRL, ColocRLConfig

_SMALL = {
    **{"type_units": 4, "hidden_units": 16, "attention_units": 8, "device_units": 4},
    **{"batch_size": 4, "learning_rate": 1e-3, "failing_signal": 10.0},
}
# With these, each of the seeds 0 to 7 solves both problems below.
_LEARNING = _SMALL | {"hidden_units": 32, "attention_units": 32, "failing_signal": 4.0}
_FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))


def _placer(num_groups=5, num_devices=2, seed=0, **options):
    legal = np.ones([num_groups, num_devices], np.bool_)
    config = ColocRLConfig(**_SMALL | options)
    return ColocRL(graphs.chain(num_groups), legal, seed=seed, config=config)


def _proposal(placer):
    """A batch as proposed, and its log-probabilities."""
    placements = placer.propose(placer.batch_size)
    seed = tf.constant([placer.seed, placer._num_observed], tf.int64)
    return placements, placer._policy.sample(placer.batch_size, seed)[1].numpy()


def _weights(placer):
    return placer._policy.get_weights()


class ColocRLConfigTest(parameterized.TestCase):
    def test_defaults_are_the_published_settings(self):
        config = ColocRLConfig()
        self.assertIn(config.batch_size, (4, 8))
        self.assertEqual(config.ignore_failures_after, 5000)

    @parameterized.parameters(
        {"batch_size": 0},
        {"learning_rate": -1.0},
        {"failing_signal": 0.0},
        {"baseline_decay": 1.0},
        {"baseline_decay": -0.1},
        {"ignore_failures_after": -1},
        {"clip_norm": float("nan")},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            ColocRLConfig(**options)


class ColocRLConformanceTest(placer_conformance.PlacerConformance, parameterized.TestCase):
    def new_placer(self, groups, legal, seed):
        return ColocRL(groups, legal, seed=seed, config=ColocRLConfig(**_SMALL))


class ColocRLTest(tf.test.TestCase):
    def test_updates_by_hand_worked_signals_and_baseline(self):
        placer = _placer(batch_size=2)
        placements, log_probs = _proposal(placer)
        placer.observe(placements, [Measurement((4.0,)), _FAILED])
        # Signals 2 and 10, baseline 10 before the batch.
        update = placer.last_update
        self.assertAllClose(update.mean_signal, 6.0)
        self.assertAllClose(update.baseline, 10.0)
        self.assertAllClose(update.loss, ((2 - 10) * log_probs[0] + 0) / 2, rtol=1e-5)

        placements, log_probs = _proposal(placer)
        placer.observe(placements, [Measurement((9.0,)), Measurement((1.0,))])
        update = placer.last_update
        self.assertAllClose(update.mean_signal, 2.0)
        self.assertAllClose(update.baseline, 0.9 * 10 + 0.1 * 6)
        expected = ((3 - 9.6) * log_probs[0] + (1 - 9.6) * log_probs[1]) / 2
        self.assertAllClose(update.loss, expected, rtol=1e-5)
        self.assertAllClose(placer._baseline.value, 0.9 * 9.6 + 0.1 * 2)

    def test_without_a_failing_signal_takes_twice_the_worst_of_the_first_batch_that_ran(self):
        placer = _placer(failing_signal=None)
        weights = _weights(placer)
        placer.observe(placer.propose(4), [_FAILED] * 4)
        self.assertIsNone(placer.last_update)
        for left, right in zip(weights, _weights(placer), strict=True):
            self.assertAllEqual(left, right)

        ran = [Measurement((4.0,)), Measurement((9.0,)), Measurement((1.0,))]
        placer.observe(placer.propose(4), [*ran, _FAILED])
        self.assertAllClose(placer.last_update.baseline, 6.0)
        self.assertAllClose(placer.last_update.mean_signal, (2 + 3 + 1 + 6) / 4)

        placer.observe(placer.propose(4), [Measurement((16.0,))] * 3 + [_FAILED])
        self.assertAllClose(placer.last_update.mean_signal, (4 + 4 + 4 + 6) / 4)

    def test_ignores_failures_after_the_given_number_of_updates(self):
        placer = _placer(ignore_failures_after=1, failing_signal=5.0)
        placer.observe(placer.propose(4), [_FAILED] * 4)
        self.assertAllClose(placer.last_update.mean_signal, 5.0)

        placements, log_probs = _proposal(placer)
        placer.observe(placements, [_FAILED, Measurement((4.0,)), _FAILED, Measurement((1.0,))])
        update = placer.last_update
        self.assertAllClose(update.mean_signal, 1.5)
        self.assertAllClose(update.baseline, 5.0)
        expected = ((2 - 5) * log_probs[1] + (1 - 5) * log_probs[3]) / 2
        self.assertAllClose(update.loss, expected, rtol=1e-5)
        self.assertAllClose(placer._baseline.value, 0.9 * 5 + 0.1 * 1.5)

        weights = _weights(placer)
        placer.observe(placer.propose(4), [_FAILED] * 4)
        self.assertIs(placer.last_update, update)
        self.assertAllClose(placer._baseline.value, 0.9 * 5 + 0.1 * 1.5)
        for left, right in zip(weights, _weights(placer), strict=True):
            self.assertAllEqual(left, right)

    def test_waits_for_a_full_batch(self):
        placer = _placer()
        placements = placer.propose(9)
        measurements = placer_conformance.measure(placements)
        weights = _weights(placer)
        placer.observe(placements[:3], measurements[:3])
        self.assertIsNone(placer.last_update)
        for left, right in zip(weights, _weights(placer), strict=True):
            self.assertAllEqual(left, right)
        self.assertAllEqual(placer.propose(6), placements[3:])
        placer.observe(placements[3:], measurements[3:])
        self.assertEqual(placer._num_updates, 2)

    def test_learns_the_same_however_the_measurements_are_cut(self):
        whole, cut = _placer(), _placer()
        placements = whole.propose(12)
        measurements = placer_conformance.measure(placements)
        whole.observe(placements, measurements)
        for start, end in itertools.pairwise([0, 1, 2, 6, 7, 12]):
            cut.observe(placements[start:end], measurements[start:end])
        self.assertEqual(cut.last_update, whole.last_update)
        self.assertAllEqual(cut.propose(7), whole.propose(7))
        for left, right in zip(_weights(whole), _weights(cut), strict=True):
            self.assertAllEqual(left, right)

    def test_is_compiled_once(self):
        placer = _placer()
        for size in (4, 4, 3, 9, 4):
            placements = placer.propose(size)
            placer.observe(placements, placer_conformance.measure(placements))
        self.assertEqual(placer._num_updates, 6)
        self.assertEqual(placer._policy.sample.experimental_get_tracing_count(), 1)
        self.assertEqual(placer._reinforce.step.experimental_get_tracing_count(), 1)

    def test_refuses_measurements_that_do_not_fit(self):
        legal = np.ones([3, 2], np.bool_)
        legal[1, 1] = False
        placer = ColocRL(graphs.chain(3), legal, config=ColocRLConfig(**_SMALL))
        timed = Measurement((1.0,))
        with self.assertRaisesRegex(ValueError, r"\[1, 3\], not \[2, 3\]"):
            placer.observe(np.zeros([2, 3], np.int32), [timed])
        with self.assertRaisesRegex(ValueError, r"\[1, 3\], not \[1, 4\]"):
            placer.observe(np.zeros([1, 4], np.int32), [timed])
        for placement in ([0, 1, 0], [0, 0, 2], [0, -1, 0]):
            with self.assertRaisesRegex(ValueError, "not legal"):
                placer.observe(np.array([placement], np.int32), [timed])


def _samples_to_reach(least, placer, cost):
    """How many placements a placer has measured when it has found one of the least cost."""
    num_samples = 0
    while num_samples < 1000:
        placements = placer.propose(placer.batch_size)
        costs = cost(placements)
        placer.observe(placements, [Measurement((float(secs),)) for secs in costs])
        num_samples += len(placements)
        if costs.min() <= least:
            break
    return num_samples


def _all_costs(cost, num_groups, num_devices):
    everything = itertools.product(range(num_devices), repeat=num_groups)
    placements = np.array(list(everything), np.int32)
    return np.concatenate([cost(part) for part in np.array_split(placements, 16)])


class ColocRLLearnsTest(tf.test.TestCase):
    def test_puts_a_chain_on_one_device_within_500_samples_as_random_search_hardly_would(self):
        def cost(placements):
            return 1.0 + np.count_nonzero(placements[:, 1:] != placements[:, :-1], axis=1)

        costs = _all_costs(cost, 12, 3)
        # A placer that is no better than random search would pass with this probability.
        false_alarm = 1 - (1 - np.mean(costs == costs.min())) ** 500
        self.assertLess(false_alarm, 0.003)
        placer = _placer(12, 3, **_LEARNING)
        self.assertLessEqual(_samples_to_reach(costs.min(), placer, cost), 500)

    def test_puts_two_chains_on_two_devices_within_400_samples(self):
        def cost(placements):
            chains = placements.reshape(-1, 2, 6)
            crossings = np.count_nonzero(chains[:, :, 1:] != chains[:, :, :-1], axis=(1, 2))
            load = np.maximum(placements.sum(axis=1), (1 - placements).sum(axis=1))
            return 1.0 * load + crossings

        legal = np.ones([12, 2], np.bool_)
        placer = ColocRL(graphs.two_chains(6), legal, config=ColocRLConfig(**_LEARNING))
        least = _all_costs(cost, 12, 2).min()
        self.assertEqual(least, 6)
        self.assertLessEqual(_samples_to_reach(least, placer, cost), 400)


if __name__ == "__main__":
    tf.test.main()
