"""Tests of reading dataclasses from JSON."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from absl.testing import absltest, parameterized

from graph_passes.util.json_records import (
    POSITIVE,
    Rule,
    check_format,
    read_record,
    read_value,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Part:
    secs: float
    pair: tuple[int, float] | None = None


@dataclasses.dataclass(frozen=True)
class Whole:
    name: str
    count: int
    is_done: bool
    color: Color
    kind: Literal["a", "b"]
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = dataclasses.field(default_factory=dict)
    anything: Any = None


@dataclasses.dataclass(frozen=True)
class Outer:
    class_: str | Part
    inner: Part | None = None


_VALUE = {"name": "x", "count": 3, "is_done": False, "color": "red", "kind": "b"}


class ReadRecordTest(parameterized.TestCase):
    def test_reads_every_kind_of_field(self):
        value = {
            **_VALUE,
            "parts": [{"secs": 1}, {"secs": 0.5, "pair": [2, 3]}],
            "by_name": {"y": {"secs": 2.5, "pair": None}},
            "anything": [{}],
        }
        self.assertEqual(
            read_record(Whole, value),
            Whole(
                *("x", 3, False, Color.RED, "b"),
                parts=(Part(1.0), Part(0.5, (2, 3.0))),
                by_name={"y": Part(2.5)},
                anything=[{}],
            ),
        )

    def test_reads_tuples_as_lists(self):
        self.assertEqual(read_record(Part, {"secs": 1.0, "pair": (2, 3.0)}), Part(1.0, (2, 3.0)))

    def test_uses_defaults_and_ignores_unknown_entries(self):
        self.assertEqual(
            read_record(Whole, {**_VALUE, "of_a_later_version": 1}),
            Whole("x", 3, False, Color.RED, "b"),
        )

    @parameterized.parameters(
        ({"name": 3}, "name is 3: it must be a text"),
        ({"name": "\ud800"}, 'name is "\\ud800", which is half a character'),
        ({"count": 1.5}, "count is 1.5: it must be a whole number from 0 on"),
        ({"count": True}, "count is true: it must be a whole number from 0 on"),
        ({"is_done": 1}, "is_done is 1: it must be true or false"),
        ({"color": "green"}, 'color is "green": it must be "red" or "blue"'),
        ({"color": []}, 'color is a list: it must be "red" or "blue"'),
        ({"kind": None}, 'kind is null: it must be "a" or "b"'),
        ({"parts": {}}, "parts is an object: it must be a list"),
        ({"parts": [1]}, "parts[0] is 1: it must be an object"),
        ({"parts": [{"secs": 1}, {}]}, 'parts[1] has no entry "secs"'),
        ({"parts": [{"secs": float("inf")}]}, "parts[0].secs is Infinity: it must be finite"),
        ({"parts": [{"secs": 1, "pair": [1]}]}, "parts[0].pair has 1 items: it must have 2"),
        ({"by_name": [1]}, "by_name is a list: it must be an object"),
        ({"by_name": {"a/z": None}}, 'by_name["a/z"] is null: it must be an object'),
        ({"by_name": {"\ud800": None}}, 'by_name["\\ud800"] is "\\ud800", which is half a char'),
    )
    def test_error_names_the_entry(self, changes, message):
        with self.assertRaises(ValueError) as raised:
            read_record(Whole, {**_VALUE, **changes})
        self.assertStartsWith(str(raised.exception), message)

    def test_error_uses_the_callers_name_for_the_value(self):
        with self.assertRaisesRegex(ValueError, "^the result is 7: it must be an object$"):
            read_record(Whole, 7, "the result")
        with self.assertRaisesRegex(ValueError, '^the result has no entry "name"$'):
            read_record(Whole, {}, "the result")

    def test_errors_can_be_pickled(self):
        with self.assertRaises(ValueError) as raised:
            read_record(Whole, {**_VALUE, "parts": [3]})
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual(str(again), "parts[0] is 3: it must be an object")


class ExactTest(absltest.TestCase):
    def test_exact_rejects_unknown_entries_at_every_depth(self):
        for value, message in (
            ({"y": 1}, 'it has an unknown entry "y": expected class, inner'),
            ({"class": "x", "inner": {"secs": 1, "y": 1}}, "inner has an unknown entry"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                read_record(Outer, value, exact=True)

    def test_reads_keyword_names_and_unions_with_text(self):
        for value in ("x", {"secs": 1.0}):
            read = read_record(Outer, {"class": value}, exact=True)
            self.assertEqual(read.class_, value if value == "x" else Part(1.0))


class ValueTest(parameterized.TestCase):
    @parameterized.parameters(True, "1", None, float("nan"), float("inf"), 10**400)
    def test_rejects_invalid_floats(self, value):
        with self.assertRaisesRegex(ValueError, "^x is .*: it must be "):
            read_value(float, value, "x")

    @parameterized.parameters(True, 1.5, -1, -1.0, float("inf"), "1", None)
    def test_rejects_invalid_ints(self, value):
        with self.assertRaisesRegex(ValueError, "x is .* must be a whole number from 0 on"):
            read_value(int, value, "x")

    def test_ints_may_have_an_exponent_and_must_fit_into_int64(self):
        number = read_value(int, 12e9, "x")
        self.assertEqual((number, type(number)), (12_000_000_000, int))
        for value in (2**63, 1e300):
            with self.assertRaisesRegex(ValueError, r"x is .*: it must be less than 2\*\*63"):
                read_value(int, value, "x")

    def test_checks_rules(self):
        kind = Annotated[float, POSITIVE]
        self.assertEqual(read_value(tuple[kind, ...], [1, 2], "x"), (1.0, 2.0))
        with self.assertRaisesRegex(ValueError, r"^\[1\] is 0: it must be greater than 0$"):
            read_value(tuple[kind, ...], [1, 0], "x")
        with self.assertRaisesRegex(ValueError, '^x is "": it must be a name$'):
            read_value(Annotated[str, Rule(len, "a name")], "", "x")

    def test_annotated_function_reads_the_value(self):
        self.assertEqual(read_value(Annotated[int, len], "abc", "x"), 3)

    def test_checks_the_format_number(self):
        check_format({"format": 2, "more": 1}, 2)
        check_format({"format": 2.0}, 2)
        for value, message in (
            ({"format": 1}, "^format is 1: it must be 2"),
            ({"format": True}, "^format is true: it must be 2"),
            ({}, '^the file has no entry "format"'),
            ([], "^the file is a list: it must be an object"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                check_format(value, 2, "the file")


if __name__ == "__main__":
    absltest.main()
