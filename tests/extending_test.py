"""Tests that the examples of docs/extending.md work, in a copy of the source tree.

An example is told by the line above its code: "New file `PATH`:", "In `PATH`, after `TEXT`:", which
puts it behind the line that has the text, or "In `PATH`, instead of `TEXT`:".
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

from absl.testing import absltest

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "extending.md"
_CODE = r":\n\n((?:(?:    .*)?\n)+)"
_NEW = re.compile(r"^New file `([^`]+)`" + _CODE, re.M)
_CHANGE = re.compile(r"^In `([^`]+)`, (after|instead of) `([^`]+)`" + _CODE, re.M)
# Runs the tests of several modules, whose paths are its arguments, in one process.
_RUN = """
import importlib, sys
from absl.testing import absltest
for path in sys.argv[1:]:
    name = path.removesuffix(".py").replace("/", ".")
    for member, value in vars(importlib.import_module(name)).items():
        if isinstance(value, type) and issubclass(value, absltest.TestCase):
            globals()[f"{name}.{member}"] = value
absltest.main(argv=sys.argv[:1])
"""


def apply(page: str, root: pathlib.Path) -> list[str]:
    """Adds the examples of a page to a source tree; returns the paths of their tests."""
    tests = []
    for path, code in _NEW.findall(page):
        if (root / path).exists():
            raise ValueError(f"{path} is not new")
        (root / path).write_text(textwrap.dedent(code))
        if path.endswith("_test.py"):
            tests.append(path)
    for path, how, text, code in _CHANGE.findall(page):
        content = (root / path).read_text()
        if content.count(text) != 1:
            raise ValueError(f"{path} has {text!r} {content.count(text)} times")
        code = re.sub("^    ", "", code.rstrip(), flags=re.M)
        start, end = content.split(text)
        if how == "after":
            rest, _, end = end.partition("\n")
            start, code = start + text + rest + "\n", code + "\n"
        (root / path).write_text(start + code + end)
    return tests


class ExtendingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)

    def test_every_section_has_an_example_of_two_files_and_a_test(self):
        for section in PAGE.read_text().split("\n## ")[1:]:
            changed = {path for path, *_ in _NEW.findall(section) + _CHANGE.findall(section)}
            tests = {path for path in changed if path.endswith("_test.py")}
            self.assertLen(tests, 1, section[:40])
            self.assertBetween(len(changed - tests), 1, 2, section[:40])

    def test_examples_work_and_keep_the_architecture(self):
        ignored = shutil.ignore_patterns("__pycache__", "results")
        for folder in ("graph_passes", "tf_placer", "examples", "benchmarks", "tests"):
            shutil.copytree(ROOT / folder, self.root / folder, ignore=ignored)
        shutil.copy(ROOT / "BUILD", self.root)
        # Bazel's build of the core is beside the link to this file.
        built = pathlib.Path(__file__).absolute().parents[1] / "tf_placer" / "native" / "core.so"
        if built.exists():
            shutil.copy(built, self.root / "tf_placer" / "native")
        tests = apply(PAGE.read_text(), self.root)
        self.assertGreater(len(tests), 7)
        (self.root / "run.py").write_text(_RUN)
        done = subprocess.run(
            [sys.executable, "run.py", *tests, "tests/architecture_test.py"],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertGreater(int(re.search(r"Ran (\d+) tests", done.stderr)[1]), 40)

    def test_a_change_of_missing_text_is_an_error(self):
        (self.root / "a.py").write_text("x = 1\n")
        page = "In `a.py`, after `y`:\n\n    y = 2\n"
        with self.assertRaisesRegex(ValueError, "a.py has 'y' 0 times"):
            apply(page, self.root)
        apply(page.replace("`y`", "`x`"), self.root)
        self.assertEqual((self.root / "a.py").read_text(), "x = 1\ny = 2\n")


if __name__ == "__main__":
    absltest.main()
