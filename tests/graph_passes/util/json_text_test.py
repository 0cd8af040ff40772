"""Tests of reading JSON."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from graph_passes.util.json_text import format_value, parse_json


class ParseTest(parameterized.TestCase):
    def test_parses_text_and_bytes(self):
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
        ('{"a": [0, {"b": 1, "b": 1}]}', r'^a\[1\] has the entry "b" twice'),
        ('{"a": 1, "a": 1}', '^it has the entry "a" twice'),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" + "1" * 5000 + "]", "a number of thousands of digits"),
        (b"[\xff]", "not text in UTF-8, from byte 1 on"),
        ("[1", "line 1 column 3"),
    )
    def test_rejects_invalid_json(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            parse_json(text)

    def test_accepts_infinity_on_request(self):
        self.assertEqual(parse_json("[Infinity]", finite=False), [float("inf")])


class FormatValueTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, "null"),
        (True, "true"),
        ("a\nb", '"a\\nb"'),
        ("\ud800", '"\\ud800"'),
        ([1], "a list"),
        ({}, "an object"),
    )
    def test_formats_values_as_json(self, value, text):
        self.assertEqual(format_value(value), text)

    def test_cuts_long_values(self):
        for value in ("x" * 10**7, 10**400, 10**5000, "\ud800" * 1000):
            self.assertLessEqual(len(format_value(value)), 60)


if __name__ == "__main__":
    absltest.main()
