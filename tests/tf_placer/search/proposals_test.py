"""Tests of the batches of one placer: its proposals and its observations."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tf_placer.errors import SearchError
from tf_placer.search.proposals import PlacerBatches, propose_checked
from tf_placer.search.trial_log import Trial


def row(number):
    return [number // 3**i % 3 for i in range(doubles.NUM_GROUPS)]


def trial(number, batch, position=None):
    assignment = tuple(row(number))
    measurement = doubles.measurement_of(assignment)
    return Trial(number, "p", batch, assignment, measurement, None, 0.0, "", position)


def make_batches(placer, logged=(), is_past=False, min_count=1, propose=propose_checked, told=None):
    return PlacerBatches(
        placer,
        logged,
        is_past=is_past,
        min_count=lambda: min_count,
        propose=propose,
        observed=lambda placer: None if told is None else told.append(len(placer.observed)),
    )


def make_measurements(batch):
    return [doubles.measurement_of(each) for each in batch.placements.tolist()]


class PlacerBatchesTest(absltest.TestCase):
    def test_each_batch_follows_the_observation_of_the_last_until_none_is_proposed(self):
        placer = doubles.ScriptedPlacer("p", [[row(1), row(2)], [row(3)]])
        told: list[int] = []
        batches = make_batches(placer, told=told)
        [first] = batches.sample(False)
        self.assertEqual(first.placements.tolist(), [row(1), row(2)])
        self.assertEqual(batches.sample(True), [])
        batches.observe(first, make_measurements(first))
        [second] = batches.sample(False)
        self.assertEqual((first.batch, second.batch), (0, 1))
        batches.observe(second, make_measurements(second))
        self.assertIsNone(batches.sample(False))
        self.assertEqual([rows for rows, _ in placer.observed], [[row(1), row(2)], [row(3)]])
        self.assertEqual(told, [1, 2])

    def test_asks_for_as_many_placements_as_can_be_measured_at_once(self):
        asked = []

        def propose(placer, count):
            asked.append(count)
            return propose_checked(placer, count)

        for min_count in (1, 7):
            placer = doubles.AdaptivePlacer("p", 4)
            make_batches(placer, min_count=min_count, propose=propose).sample(False)
        self.assertEqual(asked, [4, 7])

    def test_batches_of_the_log_are_observed_and_the_last_is_completed(self):
        placer = doubles.ScriptedPlacer("p", [[row(1), row(2)], [row(3), row(4)]])
        batches = make_batches(placer, [[trial(1, 0), trial(2, 0)], [trial(4, 1, 1)]])
        self.assertEqual(batches.sample(False), [])
        self.assertLen(placer.observed, 1)
        [batch] = batches.sample(False)
        self.assertEqual((batch.batch, batch.placements.tolist()), (1, [row(3), row(4)]))
        self.assertEqual(batches.find_logged(batch), {1: doubles.measurement_of(row(4))})
        batches.observe(batch, make_measurements(batch))
        self.assertIsNone(batches.sample(False))

    def test_a_placer_of_a_past_stage_proposes_nothing_more(self):
        placer = doubles.AdaptivePlacer("p", 2)
        batches = make_batches(placer, [[trial(1, 0), trial(2, 0)]], is_past=True)
        self.assertEqual(batches.sample(False), [])
        self.assertIsNone(batches.sample(False))
        self.assertLen(placer.observed, 1)

    def test_more_placements_than_requested_are_refused(self):
        placer = doubles.AdaptivePlacer("p", 2)
        placer.propose = lambda count: np.zeros([count + 1, 2], np.int32)
        with self.assertRaisesRegex(SearchError, "'p' was asked for up to 2 .* shape"):
            propose_checked(placer, 2)

    def test_placements_of_other_groups_or_devices_are_refused(self):
        placer = doubles.AdaptivePlacer("p", 2)
        placer.legal = placer.legal.copy()
        placer.legal[1, 0] = False
        groups, devices = placer.legal.shape
        legal = np.ones([1, groups], np.int32)
        for proposal, message in (
            (legal[:, 1:], f"'p' was asked for .* of {groups} groups .* shape"),
            (legal[0], "'p' was asked for .* shape"),
            (
                legal * devices,
                f"'p' proposed device {devices} for group '.*', which may go to 0, 1",
            ),
            (-legal, "'p' proposed device -1 for group"),
            (legal * 0, f"proposed device 0 for group {placer.groups.names[1]!r}, .* to 1.* only"),
        ):
            placer.propose = lambda count, proposal=proposal: proposal
            with self.assertRaisesRegex(SearchError, message):
                propose_checked(placer, 2)
        placer.propose = lambda count: legal
        np.testing.assert_array_equal(propose_checked(placer, 2), legal)


class _FailingPlacer(doubles.ScriptedPlacer):
    """A placer whose methods raise errors."""

    def propose(self, count):
        raise KeyError("no table")

    def observe(self, placements, measurements):
        raise ZeroDivisionError("no mean")


class ErrorsTest(absltest.TestCase):
    def test_an_error_of_a_placer_of_the_user_names_it_with_the_method_and_the_line(self):
        placer = _FailingPlacer("mine:Placer", [])
        with self.assertRaisesRegex(
            SearchError,
            r"placer 'mine:Placer' failed in propose: KeyError: 'no table' \(.*_test.py:\d+\)",
        ) as raised:
            propose_checked(placer, 1)
        self.assertIsInstance(raised.exception.__cause__, KeyError)
        batches = make_batches(placer, propose=lambda placer, count: np.array([row(1)]))
        [batch] = batches.sample(False)
        with self.assertRaisesRegex(SearchError, "failed in observe: ZeroDivisionError: no mean"):
            batches.observe(batch, make_measurements(batch))

    def test_devices_are_whole_numbers(self):
        placer = doubles.ScriptedPlacer("p", [])
        placer.propose = lambda count: np.array([row(1)]) + 0.5
        with self.assertRaisesRegex(SearchError, "'p' proposed an array of float64: devices are"):
            propose_checked(placer, 1)


if __name__ == "__main__":
    absltest.main()
