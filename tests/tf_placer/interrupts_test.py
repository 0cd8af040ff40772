"""Tests of being asked to end early."""

from __future__ import annotations

import os
import select
import signal
import threading
import time

from absl.testing import absltest

from tf_placer.interrupts import Interrupts, TimeIsOver


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

    def test_what_is_breakable_is_broken_off(self):
        with self.assertRaises(KeyboardInterrupt), self.interrupts.breakable():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.interrupts.count, 2)

    def test_what_came_before_breaks_off_at_once(self):
        signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt), self.interrupts.breakable():
            self.fail("it was begun")

    def test_what_takes_two_requests_stands_one(self):
        with self.interrupts.breakable(2):
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt), self.interrupts.breakable(2):
            signal.raise_signal(signal.SIGINT)

    def test_another_thread_wakes_one_that_waits(self):
        threading.Timer(0.05, self.interrupts.ask).start()
        with self.assertRaises(KeyboardInterrupt), self.interrupts.breakable():
            time.sleep(60)

    def test_what_is_breakable_is_broken_off_when_its_time_is_over(self):
        with self.assertRaises(TimeIsOver), self.interrupts.breakable(max_secs=0.05):
            time.sleep(60)
        # This is no request.
        self.assertEqual(self.interrupts.count, 0)

    def test_waiting_in_the_system_ends_when_the_time_is_over(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        with self.assertRaises(TimeIsOver), self.interrupts.breakable(max_secs=0.05):
            select.select([reader], [], [], 60)

    def test_nothing_is_broken_off_behind_what_ended_in_time(self):
        with self.interrupts.breakable(max_secs=60.0):
            pass
        self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0.0)
        signal.raise_signal(signal.SIGALRM)

    def test_without_time_nothing_begins(self):
        for interrupts in (self.interrupts, Interrupts()):
            for max_secs in (0.0, -1.0):
                with self.assertRaises(TimeIsOver), interrupts.breakable(max_secs=max_secs):
                    self.fail("it was begun")

    def test_who_does_not_listen_sets_no_alarm(self):
        with Interrupts().breakable(max_secs=60.0):
            self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0.0)


if __name__ == "__main__":
    absltest.main()
