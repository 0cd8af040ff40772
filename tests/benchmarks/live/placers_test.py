"""Tests of what the live comparison of placers refuses."""

from __future__ import annotations

import contextlib
import io
from unittest import mock

from absl.testing import absltest

from benchmarks.live import placers as live_placers


class ArgumentsTest(absltest.TestCase):
    def _refusal(self, *arguments):
        """What the command says on the error stream when it exits without running anything."""
        errors = io.StringIO()
        with (
            mock.patch("sys.argv", ["live_placers", *arguments]),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as raised,
        ):
            live_placers.main()
        self.assertEqual(raised.exception.code, 2)
        return errors.getvalue()

    def test_an_unknown_placer_is_refused_with_the_nearest(self):
        self.assertIn("did you mean 'eagle'", self._refusal("--placers", "random,eagel"))

    def test_too_few_rounds_of_measuring_again_for_an_interval_are_refused(self):
        self.assertIn("--rounds at least 4", self._refusal("--rounds", "3"))

    def test_no_trials_are_refused(self):
        self.assertIn("--trials", self._refusal("--trials", "0"))


if __name__ == "__main__":
    absltest.main()
