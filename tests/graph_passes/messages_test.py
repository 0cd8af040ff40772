"""Tests of messages that stay short."""

from __future__ import annotations

from absl.testing import absltest

from graph_passes.errors import GraphError
from graph_passes.messages import quoted, shortened


class MessagesTest(absltest.TestCase):
    def test_what_is_short_stays_as_it_is(self):
        self.assertEqual(shortened("the graph is empty"), "the graph is empty")
        for value in ("a", "a'b", b"a", 3, None, ["a"], float("nan")):
            self.assertEqual(quoted(value), repr(value))

    def test_of_what_is_long_only_a_part_is_told(self):
        text = f"begin{'-' * 10**6}end"
        self.assertRegex(shortened(text), r"^begin-+ … -+end$")
        self.assertRegex(quoted(text), r"^'begin-+'…$")
        for value in (text, text.encode(), [text], 10**5000):
            self.assertLess(len(quoted(value)), 130)
        self.assertLess(len(str(GraphError(text))), 1300)


if __name__ == "__main__":
    absltest.main()
