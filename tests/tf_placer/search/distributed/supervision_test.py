"""Tests of the replacement of lost actors, and of the clock that skips pauses."""

from __future__ import annotations

import random

from absl.testing import absltest

from tests.tf_placer.search.distributed.in_process_backend import InProcessBackend
from tf_placer.errors import SearchError
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.supervision import PauseAwareClock, SupervisedActor


class PauseAwareClockTest(absltest.TestCase):
    def test_the_clock_advances_while_it_is_read(self):
        now_secs = [100.0]
        clock = PauseAwareClock(lambda: now_secs[0])
        for _ in range(50):
            now_secs[0] += 0.2
            last_secs = clock()
        self.assertAlmostEqual(last_secs, 10.0)

    def test_a_long_pause_counts_as_one_second(self):
        now_secs = [100.0]
        clock = PauseAwareClock(lambda: now_secs[0])
        now_secs[0] += 3600.0
        self.assertEqual(clock(), 1.0)
        now_secs[0] += 0.5
        self.assertEqual(clock(), 1.5)


class _Doubling:
    """An actor that doubles numbers and raises an error for 0."""

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

    def run_call(self, backend: InProcessBackend, actor: SupervisedActor):
        while (done := actor.update(backend.wait(actor.calls, 0.0))) is None:
            pass
        return done[:2]

    def test_a_lost_call_is_repeated_by_another_actor(self):
        backend = InProcessBackend(_Doubling, random.Random(0), deaths=[0, 1, 4])
        actor = SupervisedActor(backend, "the actor", self.lines.append)
        for number in (1, 2, 3):
            actor.begin("double", number)
            self.assertEqual(self.run_call(backend, actor), ("double", 2 * number))
        self.assertEqual([number for (number,) in backend.asked], [1, 1, 1, 2, 3, 3])
        self.assertEqual(
            self.lines, ["the actor is lost: its process died; another one takes its place"] * 3
        )

    def test_a_method_that_raises_an_error_is_not_called_again(self):
        backend = InProcessBackend(_Doubling, random.Random(0))
        actor = SupervisedActor(backend, "the actor", self.lines.append)
        actor.begin("double", 0)
        with self.assertRaisesRegex(SearchError, "^the actor failed: there is nothing to"):
            self.run_call(backend, actor)
        self.assertEqual((backend.calls, self.lines), (["double"], []))


if __name__ == "__main__":
    absltest.main()
