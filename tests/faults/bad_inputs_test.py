"""A share of the campaign of wrong files, and what it finds wrong."""

from __future__ import annotations

import json
import random
from unittest import mock

from absl.testing import absltest

from tests.faults.bad_inputs import make_cases
from tests.faults.campaign import GOOD
from tests.faults.command_answer import answer
from tests.faults.mutations import mutate_bytes, mutate_json, mutate_lines

_CASES = 300


class BadInputsTest(absltest.TestCase):
    def test_every_answer_is_good(self):
        cases = list(make_cases(10**6, count=_CASES))
        self.assertLen(cases, _CASES)
        self.assertGreater(len({case.victim for case in cases}), 8)
        self.assertEqual([case for case in cases if case.answer not in GOOD], [])
        self.assertGreater(sum(case.answer == "sentence" for case in cases), _CASES / 2)

    def test_other_answers_are_told_apart(self):
        for error, kind in (
            (SystemExit("tf_placer: x.json: it is 7, not an object"), "sentence"),
            (SystemExit("tf_placer: 'int' object is not iterable"), "words of Python"),
            (SystemExit("tf_placer: [Errno 2] No such file"), "words of Python"),
            (SystemExit("x" * 2000), "too long"),
            (SystemExit("one\ntwo"), "several lines"),
            (SystemExit(1), "silent"),
            (SystemExit(0), "works"),
            (KeyError("x"), "traceback"),
        ):
            with mock.patch("tf_placer.cli.main.main", side_effect=error):
                self.assertEqual(answer(["log"])[0], kind)

    def test_mutations_are_many_and_follow_from_their_seed(self):
        text = json.dumps({"a": [1, {"b": "text"}], "c": None}).encode()
        for change, content in (
            (mutate_json, text),
            (mutate_lines, b"\n".join([text, text, b""])),
            (mutate_bytes, text),
        ):
            made = [change(content, random.Random(seed)) for seed in range(50)]
            self.assertEqual(made, [change(content, random.Random(seed)) for seed in range(50)])
            self.assertGreater(len(set(made)), 25)


if __name__ == "__main__":
    absltest.main()
