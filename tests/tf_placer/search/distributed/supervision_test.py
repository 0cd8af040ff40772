"""The clock that skips pauses of this process."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.search.distributed.supervision import PauseAwareClock


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


if __name__ == "__main__":
    absltest.main()
