"""Tests of dataclasses that are read from JSON."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Literal

from absl.testing import absltest, parameterized

from graph_passes.json_records import read_record, wrong_value


class Colour(enum.Enum):
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
    colour: Colour
    kind: Literal["a", "b"]
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = dataclasses.field(default_factory=dict)
    anything: Any = None


_VALUE = {"name": "x", "count": 3, "is_done": False, "colour": "red", "kind": "b"}


class ReadRecordTest(parameterized.TestCase):
    def test_every_kind_of_field_is_read(self):
        value = {
            **_VALUE,
            "parts": [{"secs": 1}, {"secs": 0.5, "pair": [2, 3]}],
            "by_name": {"y": {"secs": 2.5, "pair": None}},
            "anything": [{}],
        }
        self.assertEqual(
            read_record(Whole, value),
            Whole(
                *("x", 3, False, Colour.RED, "b"),
                parts=(Part(1.0), Part(0.5, (2, 3.0))),
                by_name={"y": Part(2.5)},
                anything=[{}],
            ),
        )

    def test_tuples_are_read_as_lists_are(self):
        self.assertEqual(read_record(Part, {"secs": 1.0, "pair": (2, 3.0)}), Part(1.0, (2, 3.0)))

    def test_entries_may_be_missing_where_there_is_a_default_and_others_are_ignored(self):
        self.assertEqual(
            read_record(Whole, {**_VALUE, "of_a_later_version": 1}),
            Whole("x", 3, False, Colour.RED, "b"),
        )

    @parameterized.parameters(
        ({"name": 3}, "'name' is 3: it must be a text"),
        ({"name": "\ud800"}, "'name' is \"\\ud800\", which is half a character"),
        ({"count": 1.5}, "'count' is 1.5: it must be a whole number from 0 on"),
        ({"count": True}, "'count' is true: it must be a whole number from 0 on"),
        ({"is_done": 1}, "'is_done' is 1: it must be true or false"),
        ({"colour": "green"}, '\'colour\' is "green": it must be "red" or "blue"'),
        ({"colour": []}, '\'colour\' is a list: it must be "red" or "blue"'),
        ({"kind": None}, '\'kind\' is null: it must be "a" or "b"'),
        ({"parts": {}}, "'parts' is an object: it must be a list"),
        ({"parts": [1]}, "an item of 'parts' is 1: it must be an object"),
        ({"parts": [{}]}, "an item of 'parts' has no entry 'secs'"),
        ({"parts": [{"secs": float("inf")}]}, "'secs' is Infinity: it must be finite"),
        ({"parts": [{"secs": 1, "pair": [1]}]}, "'pair' has 1 items: it must have 2"),
        ({"by_name": [1]}, "'by_name' is a list: it must be an object"),
        ({"by_name": {"z": None}}, "'z' of 'by_name' is null: it must be an object"),
    )
    def test_what_is_wrong_is_named_in_words_of_json(self, changes, message):
        with self.assertRaises(ValueError) as raised:
            read_record(Whole, {**_VALUE, **changes})
        self.assertEqual(wrong_value(raised.exception), message)

    def test_what_is_no_object_is_called_as_the_caller_does(self):
        with self.assertRaisesRegex(ValueError, "^the result is 7: it must be an object$"):
            read_record(Whole, 7, "the result")

    def test_other_errors_are_said_in_such_words_too(self):
        self.assertEqual(wrong_value(KeyError("x")), "it has no entry 'x'")
        self.assertEqual(wrong_value(TypeError("'int'")), "an entry is of the wrong kind")


if __name__ == "__main__":
    absltest.main()
