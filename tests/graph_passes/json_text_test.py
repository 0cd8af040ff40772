"""Tests of reading JSON."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from graph_passes.json_text import (
    list_entry,
    number,
    object_entry,
    parse_json,
    shown,
    text_entry,
    whole,
)


class ParseTest(parameterized.TestCase):
    def test_json_is_read_as_text_and_as_bytes(self):
        for text in (
            '\ufeff{"a": [1, 2.5, null, true, "µ"]}',
            '\ufeff{"a": [1, 2.5, null, true, "µ"]}'.encode(),
            '{"a": [1, 2.5, null, true, "µ"]}',
            '{"a": [1, 2.5, null, true, "µ"]}'.encode(),
        ):
            self.assertEqual(parse_json(text), {"a": [1, 2.5, None, True, "µ"]})

    @parameterized.parameters(
        ("[NaN]", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ('{"a": {"b": 1, "b": 1}}', 'an object has the entry "b" twice'),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" + "1" * 5000 + "]", "a number of thousands of digits"),
        (b"[\xff]", "not text in UTF-8, from byte 1 on"),
        ("[1", "line 1 column 3"),
    )
    def test_what_is_none_is_said_in_words_of_json(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            parse_json(text)

    def test_who_checks_numbers_may_take_those_that_are_not_finite(self):
        self.assertEqual(parse_json("[Infinity]", finite=False), [float("inf")])


class EntriesTest(parameterized.TestCase):
    @parameterized.parameters(True, "1", None, float("nan"), float("inf"), 10**400)
    def test_what_is_no_number_is_refused(self, value):
        with self.assertRaisesRegex(ValueError, "^'x' is .*: it must be "):
            number(value, "'x'")

    @parameterized.parameters(True, 1.0, -1, 2**63, "1", None)
    def test_what_is_no_whole_number_is_refused(self, value):
        with self.assertRaisesRegex(ValueError, "'x' is .* must be a whole number from 0 on"):
            whole(value, "'x'")

    def test_entries_are_of_their_kind(self):
        value = {"text": "µ", "list": [1], "object": {"a": 1}, "half": "\ud800"}
        self.assertEqual(text_entry(value, "text"), "µ")
        self.assertEqual(list_entry(value, "list"), [1])
        self.assertEqual(object_entry(value, "object"), {"a": 1})
        for read, name in ((text_entry, "list"), (list_entry, "object"), (object_entry, "text")):
            with self.assertRaisesRegex(ValueError, f"^'{name}' is "):
                read(value, name)
        with self.assertRaisesRegex(ValueError, "'half' is .*half a character"):
            text_entry(value, "half")
        with self.assertRaises(KeyError):
            text_entry(value, "none")


class ShownTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, "null"),
        (True, "true"),
        ("a\nb", '"a\\nb"'),
        ("\ud800", '"\\ud800"'),
        ([1], "a list"),
        ({}, "an object"),
    )
    def test_values_look_as_in_the_file(self, value, text):
        self.assertEqual(shown(value), text)

    def test_nothing_long_is_shown(self):
        for value in ("x" * 10**7, 10**400, 10**5000, "\ud800" * 1000):
            self.assertLessEqual(len(shown(value)), 60)


if __name__ == "__main__":
    absltest.main()
