"""Tests of shortening and escaping messages."""

from __future__ import annotations

from absl.testing import absltest

from graph_passes.errors import GraphError
from graph_passes.util.messages import plain_text, quote, shorten_text


class MessagesTest(absltest.TestCase):
    def test_short_text_is_unchanged(self):
        self.assertEqual(shorten_text("the graph is empty"), "the graph is empty")
        for value in ("a", "a'b", b"a", 3, None, ["a"], float("nan")):
            self.assertEqual(quote(value), repr(value))

    def test_long_text_is_cut(self):
        text = f"begin{'-' * 10**6}end"
        self.assertRegex(shorten_text(text), r"^begin-+ … -+end$")
        self.assertRegex(quote(text), r"^'begin-+'…$")
        for value in (text, text.encode(), [text], 10**5000):
            self.assertLess(len(quote(value)), 130)
        self.assertLess(len(str(GraphError(text))), 1300)

    def test_control_and_invisible_characters_are_escaped(self):
        for text, expected in (
            ("\x1b[31mred", r"\x1b[31mred"),
            ("\x9b31m", r"\x9b31m"),
            ("a\rb\b\x07\x7f\0", r"a\rb\x08\x07\x7f\x00"),
            ("user\u202egpj.exe\u2066", r"user\u202egpj.exe\u2066"),
            ("zero\u200bwidth\ufeff\u00ad", r"zero\u200bwidth\ufeff\xad"),
            ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
            ("half \ud800", r"half \ud800"),
            ("none \ufffe", r"none \ufffe"),
            ("a\nb\tc", r"a\nb\tc"),
        ):
            self.assertEqual(plain_text(text), expected)
            self.assertEqual(plain_text(expected), expected)
        self.assertEqual(plain_text("a\x1b\nb", lines=True), "a\\x1b\nb")

    def test_printable_text_is_unchanged(self):
        for text in ("", "Größe 3 µs", "模型/层_1", "a b\u202fc", "Ω→∞ 🙂", r"a\b$c$"):
            self.assertEqual(plain_text(text), text)


if __name__ == "__main__":
    absltest.main()
