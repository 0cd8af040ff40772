"""Tests of protocol buffers as text."""

from __future__ import annotations

import tensorflow as tf
from google.protobuf import text_format

from tf_placer.inputs.message_text import parse_message_text

_GraphDef = tf.compat.v1.GraphDef


def nest(depth: int) -> bytes:
    """Returns the text of an operation with an attribute of this nesting depth."""
    start, end = "attr { key: 'a' value { func { name: 'f' ", "} } }"
    return f"node {{ name: 'n' op: 'NoOp' {start * depth}{end * depth} }}".encode()


class MessageTextTest(tf.test.TestCase):
    def test_a_message_is_read(self):
        for depth in (0, 5):
            node = parse_message_text(nest(depth), _GraphDef).node[0]
            self.assertEqual((node.name, len(node.attr)), ("n", min(depth, 1)))

    def test_deep_nesting_is_refused_also_where_only_the_binary_form_is_too_deep(self):
        text_format.Parse(nest(45).decode(), _GraphDef())  # The text alone can be read.
        for depth in (45, 5000):
            with self.assertRaisesRegex(ValueError, "^it is nested too deeply$"):
                parse_message_text(nest(depth), _GraphDef)

    def test_refuses_invalid_utf8(self):
        text = nest(0)
        for content in (text[:3] + b"\xff", text.decode().encode("utf-16"), b"node\xed\xa0\x80"):
            with self.assertRaisesRegex(ValueError, r"^it is not text in UTF-8, from byte \d on$"):
                parse_message_text(content, _GraphDef)

    def test_a_wrong_field_is_named(self):
        with self.assertRaisesRegex(text_format.ParseError, "1:1 .*nodes"):
            parse_message_text(b"nodes {}", _GraphDef)


if __name__ == "__main__":
    tf.test.main()
