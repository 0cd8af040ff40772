"""Tests of being asked to end early."""

from __future__ import annotations

import signal
import threading
import time

from absl.testing import absltest

from tf_placer.interrupts import Interrupts


class InterruptsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
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


if __name__ == "__main__":
    absltest.main()
