"""Tests of messages for people."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

from absl.testing import absltest

from tf_placer.text.notes import say, write_note
from tf_placer.text.progress_line import ProgressLine


class NotesTest(absltest.TestCase):
    def test_notes_go_to_standard_error(self):
        written = io.StringIO()
        with contextlib.redirect_stderr(written):
            say("one")
            write_note("two", end="\n\n")
        self.assertEqual(written.getvalue(), "tf_placer: one\ntwo\n\n")

    def test_nothing_ends_because_a_note_cannot_be_written(self):
        closed = io.StringIO()
        closed.close()
        with open("/dev/full", "w") as full:
            for stream in (full, closed, None):
                with self.subTest(stream), mock.patch.object(sys, "stderr", stream):
                    say("one")
            # Closing the file tries to write the line again.
            with contextlib.suppress(OSError):
                full.close()

    def test_without_standard_error_nothing_goes_to_standard_output(self):
        written = io.StringIO()
        with contextlib.redirect_stdout(written), mock.patch.object(sys, "stderr", None):
            say("one")
        self.assertEqual(written.getvalue(), "")

    def test_nothing_ends_because_a_progress_line_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            for stream in (full, None):
                line = ProgressLine(stream)
                line._is_terminal = True
                line._shown_secs = float("-inf")
                line.show("half of it")
                line.clear()
            with contextlib.suppress(OSError):
                full.close()

    def test_escapes_control_characters(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            say("operation 'a\x1b]0;title\x07\nb' failed")
        self.assertEqual(
            errors.getvalue(), "tf_placer: operation 'a\\x1b]0;title\\x07\\nb' failed\n"
        )


if __name__ == "__main__":
    absltest.main()
