"""Actors that are replaced, and the clock that skips pauses of this process."""

from __future__ import annotations

import random

from absl.testing import absltest

from tests.tf_placer.search.distributed.process_fleet import ProcessFleet
from tf_placer.errors import SearchError
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.supervision import PauseAwareClock, SupervisedActor


class PauseAwareClockTest(absltest.TestCase):
    def test_time_goes_by_while_somebody_looks(self):
        now_secs = [100.0]
        clock = PauseAwareClock(lambda: now_secs[0])
        for _ in range(50):
            now_secs[0] += 0.2
            last_secs = clock()
        self.assertAlmostEqual(last_secs, 10.0)

    def test_of_a_long_pause_one_second_counts(self):
        now_secs = [100.0]
        clock = PauseAwareClock(lambda: now_secs[0])
        now_secs[0] += 3600.0
        self.assertEqual(clock(), 1.0)
        now_secs[0] += 0.5
        self.assertEqual(clock(), 1.5)


class _Doubling:
    """An actor that cannot double nothing."""

    def ping(self) -> bool:
        return True

    def double(self, number: int) -> int:
        if not number:
            raise WorkerLostError("there is nothing to double", has_failed=True)
        return 2 * number


class SupervisedActorTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.lines: list[str] = []

    def outcome(self, fleet: ProcessFleet, actor: SupervisedActor):
        while (done := actor.outcome(fleet.ended(actor.calls, 0.0))) is None:
            pass
        return done[:2]

    def test_a_call_that_is_lost_is_done_by_another_actor(self):
        fleet = ProcessFleet(_Doubling, random.Random(0), deaths=[0, 1, 4])
        actor = SupervisedActor(fleet, "the actor", self.lines.append)
        for number in (1, 2, 3):
            actor.begin("double", number)
            self.assertEqual(self.outcome(fleet, actor), ("double", 2 * number))
        self.assertEqual([number for (number,) in fleet.asked], [1, 1, 1, 2, 3, 3])
        self.assertEqual(
            self.lines, ["the actor is lost: its process died; another one takes its place"] * 3
        )

    def test_a_method_that_raises_an_error_is_not_called_again(self):
        fleet = ProcessFleet(_Doubling, random.Random(0))
        actor = SupervisedActor(fleet, "the actor", self.lines.append)
        actor.begin("double", 0)
        with self.assertRaisesRegex(SearchError, "^the actor cannot go on: there is nothing to"):
            self.outcome(fleet, actor)
        self.assertEqual((fleet.calls, self.lines), (["double"], []))


if __name__ == "__main__":
    absltest.main()
