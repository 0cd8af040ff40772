"""Tests that the documentation of problems agrees with the data of tests."""

from __future__ import annotations

import json
import pathlib
import re

from absl.testing import absltest

from tf_placer.problem.problem_file import problem_from_json

_TESTDATA = pathlib.Path(__file__).parent / "testdata"
# Under Bazel this file is a link into the source tree.
_ROOT = pathlib.Path(__file__).resolve().parents[3]
_README = (_ROOT / "tf_placer" / "problem" / "README.md").read_text()


def read_worked_cases() -> list[dict]:
    return json.loads((_TESTDATA / "worked_cases.json").read_text())


def table_rows(name: str, columns: str) -> list[list[str]]:
    """Finds the rows of the table with these columns under the heading of a case."""
    section = re.search(rf"^### {name}\n(.*?)(?=^### |\Z)", _README, re.MULTILINE | re.DOTALL)
    table = re.search(rf"^\| {re.escape(columns)} \|\n.*\n((?:\|.*\n)*)", section[1], re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


class ReadmeTest(absltest.TestCase):
    def test_the_example_is_the_one_that_tests_read(self):
        blocks = re.findall(r"(?:^    .*\n)+", _README, re.MULTILINE)
        example = (_TESTDATA / "two_devices.json").read_text()
        self.assertEqual(blocks[0], "".join(f"    {line}\n" for line in example.splitlines()))
        self.assertEqual(read_worked_cases()[0]["problem"], json.loads(example))

    def test_every_entry_of_the_format_is_in_the_table(self):
        example = json.loads((_TESTDATA / "two_devices.json").read_text())
        for name, value in example.items():
            self.assertIn(f"`{name}`", _README)
            for item in value if isinstance(value, list) and name != "control_edges" else []:
                for entry in item:
                    self.assertIn(f"`{name}[].{entry}`", _README)

    def test_every_case_has_its_tables(self):
        headings = re.findall(r"^### (.*)$", _README, re.MULTILINE)
        self.assertEqual(headings, [case["name"] for case in read_worked_cases()])

    def test_the_tables_agree_with_the_cases(self):
        for case in read_worked_cases():
            problem = problem_from_json(case["problem"])
            devices = [problem.devices[case["assignment"][group]].name for group in problem.groups]
            expected = zip(
                problem.operation_names, devices, case["start_secs"], case["end_secs"], strict=True
            )
            self.assertEqual(
                table_rows(case["name"], "operation | device | start | end"),
                [[name, device, f"{start:g}", f"{end:g}"] for name, device, start, end in expected],
                case["name"],
            )
            peaks = table_rows(case["name"], "device | peak bytes | held then")
            self.assertEqual(
                [row[:2] for row in peaks],
                [
                    [device.name, str(peak)]
                    for device, peak in zip(problem.devices, case["peak_bytes"], strict=True)
                ],
                case["name"],
            )

    def test_the_other_results_of_a_case_follow_from_its_tables(self):
        for case in read_worked_cases():
            problem = problem_from_json(case["problem"])
            self.assertEqual(case["step_secs"], max(case["end_secs"]), case["name"])
            fits = all(
                peak <= device.memory_bytes
                for peak, device in zip(case["peak_bytes"], problem.devices, strict=True)
            )
            self.assertEqual(case["feasible"], fits, case["name"])


if __name__ == "__main__":
    absltest.main()
