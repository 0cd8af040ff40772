"""Tests of the second try for what failed because a process died."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.retry import run_with_retry

_DIED = Failure(FailureKind.WORKER_DIED, "task 1 was killed")
_AGAIN = Failure(FailureKind.WORKER_DIED, "at the second try, too: task 1 was killed")
_TIMEOUT = Failure(FailureKind.TIMEOUT, "too long")
_RAN = Measurement((1.0,))


class SecondTryTest(absltest.TestCase):
    def run_attempts(self, *results: object) -> object:
        """Runs attempts with these results, all of which must be used, and returns the last one."""
        left, self.lines = list(results), []
        result = run_with_retry(lambda: left.pop(0), self.lines.append)
        self.assertEmpty(left)
        return result

    def test_successes_and_other_failures_are_not_retried(self):
        for result in (_RAN, _TIMEOUT, Measurement(failure=_TIMEOUT), {"answer": 1}):
            self.assertIs(self.run_attempts(result), result)
            self.assertEmpty(self.lines)

    def test_after_a_death_there_is_a_second_try(self):
        for died in (_DIED, Measurement(failure=_DIED)):
            for result in (_RAN, _TIMEOUT, {"answer": 1}):
                self.assertIs(self.run_attempts(died, result), result)
                self.assertEqual(self.lines, ["task 1 was killed: trying once more"])

    def test_there_is_no_third_attempt(self):
        self.assertEqual(self.run_attempts(_DIED, _DIED), _AGAIN)
        died = Measurement(failure=_DIED, setup_secs=2.0)
        self.assertEqual(self.run_attempts(died, died), Measurement(failure=_AGAIN, setup_secs=2.0))
        self.assertEqual(self.run_attempts(("label", _DIED), ("label", _DIED)), ("label", _AGAIN))


if __name__ == "__main__":
    absltest.main()
