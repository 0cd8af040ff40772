"""A share of the campaign of wrong files, and tests of the campaign itself."""

from __future__ import annotations

import json
import os
import random
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from benchmarks.campaigns import bad_inputs
from benchmarks.campaigns.bad_inputs import GOOD, answer, run_cases
from benchmarks.campaigns.mutations import mutated_bytes, mutated_json, mutated_lines

_CASES = 300


class BadInputsTest(parameterized.TestCase):
    def test_every_answer_is_good(self):
        path = os.path.join(self.create_tempdir().full_path, "answers.jsonl")
        run_cases(10**6, 10**6 + _CASES, path)
        with open(path) as file:
            answers = [json.loads(line) for line in file]
        self.assertLen(answers, _CASES)
        self.assertGreater(len({each["file"] for each in answers}), 8)
        self.assertEqual([each for each in answers if each["answer"] not in GOOD], [])
        self.assertGreater(sum(each["answer"] == "sentence" for each in answers), _CASES / 2)

    def test_other_answers_are_told_apart(self):
        def answered(action):
            with mock.patch("tf_placer.cli.main.main", side_effect=action):
                return answer(["log"])[0]

        def hang(_):
            while True:
                pass

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
            self.assertEqual(answered(error), kind)
        with mock.patch.object(bad_inputs, "_LIMIT_SECS", 1):
            self.assertEqual(answered(hang), "hang")

    def test_mutations_differ_by_their_seed_and_are_the_same_for_the_same_one(self):
        text = json.dumps({"a": [1, {"b": "text"}], "c": None})
        for change, content in (
            (mutated_json, text),
            (mutated_lines, f"{text}\n{text}\n"),
            (mutated_bytes, text.encode()),
        ):
            made = [change(content, random.Random(seed)) for seed in range(50)]
            self.assertEqual(made, [change(content, random.Random(seed)) for seed in range(50)])
            self.assertGreater(len(set(made)), 25)

    def test_a_campaign_goes_on_where_it_stopped(self):
        directory = self.create_tempdir().full_path
        path = os.path.join(directory, "answers.jsonl")
        line = {"case": 0, "file": "placement.json", "answer": "hang", "words": "stuck"}
        with open(path, "w") as file:
            file.write(json.dumps(line) + "\n" + '{"case": 1, "torn')
        with mock.patch.object(sys, "stdout") as output:
            bad_inputs.main(["--cases=1", f"--out_dir={directory}"])
        printed = "".join(call.args[0] for call in output.write.call_args_list)
        self.assertIn("case 0, placement.json: hang: stuck", printed)


if __name__ == "__main__":
    absltest.main()
