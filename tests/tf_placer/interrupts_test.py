"""Tests of stop requests and time limits."""

from __future__ import annotations

import os
import select
import signal
import threading
import time

from absl.testing import absltest

from tf_placer.interrupts import Interrupts, TimeLimitReached


class InterruptsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        for number in (signal.SIGINT, signal.SIGALRM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.interrupts = Interrupts()
        self.interrupts.listen()

    def test_a_request_is_counted_and_raises_nothing(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.interrupts.count, 2)

    def test_a_request_interrupts_an_interruptible_block(self):
        with self.assertRaises(KeyboardInterrupt), self.interrupts.interruptible():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.interrupts.count, 2)

    def test_an_earlier_request_interrupts_at_once(self):
        signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt), self.interrupts.interruptible():
            self.fail("it was begun")

    def test_a_block_can_take_two_requests(self):
        with self.interrupts.interruptible(2):
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt), self.interrupts.interruptible(2):
            signal.raise_signal(signal.SIGINT)

    def test_another_thread_can_interrupt_waiting(self):
        threading.Timer(0.05, self.interrupts.request_stop).start()
        with self.assertRaises(KeyboardInterrupt), self.interrupts.interruptible():
            time.sleep(60)

    def test_the_time_limit_interrupts_an_interruptible_block(self):
        with self.assertRaises(TimeLimitReached), self.interrupts.interruptible(max_secs=0.05):
            time.sleep(60)
        # This is no request.
        self.assertEqual(self.interrupts.count, 0)

    def test_the_time_limit_interrupts_system_calls(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        with self.assertRaises(TimeLimitReached), self.interrupts.interruptible(max_secs=0.05):
            select.select([reader], [], [], 60)

    def test_the_alarm_is_cancelled_at_the_end_of_the_block(self):
        with self.interrupts.interruptible(max_secs=60.0):
            pass
        self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0.0)
        signal.raise_signal(signal.SIGALRM)

    def test_a_zero_time_limit_interrupts_at_once(self):
        for interrupts in (self.interrupts, Interrupts()):
            for max_secs in (0.0, -1.0):
                with (
                    self.assertRaises(TimeLimitReached),
                    interrupts.interruptible(max_secs=max_secs),
                ):
                    self.fail("it was begun")

    def test_without_handlers_no_alarm_is_set(self):
        with Interrupts().interruptible(max_secs=60.0):
            self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0.0)


if __name__ == "__main__":
    absltest.main()
