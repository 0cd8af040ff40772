"""Tests of lines for people on standard error."""

from __future__ import annotations

import contextlib
import io

from absl.testing import absltest

from tf_placer.text.say import say


class SayTest(absltest.TestCase):
    def test_a_line_is_one_line_whatever_is_in_it(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            say("operation 'a\x1b]0;title\x07\nb' failed")
        self.assertEqual(
            errors.getvalue(), "tf_placer: operation 'a\\x1b]0;title\\x07\\nb' failed\n"
        )


if __name__ == "__main__":
    absltest.main()
