"""Runs all tests in and below a folder in one process.

Importing TensorFlow takes longer than most tests.

Bazel names the folder in the environment variable TEST_TARGET. Without Bazel:

    TEST_TARGET=//tests/tf_placer/problem PYTHONPATH=. python tests/suite.py
"""

from __future__ import annotations

import gc
import importlib
import os
import pathlib
import unittest

from absl.testing import absltest

# Not resolved: under Bazel this file is a link, and what is beside the link belongs to the target.
ROOT = pathlib.Path(__file__).parents[1]


def load_tests(
    loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None
) -> unittest.TestSuite:
    """Loads the test cases of every module of the folder; called by unittest."""
    del tests, pattern
    folder = os.environ["TEST_TARGET"].partition(":")[0].removeprefix("//")
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*_test.py"))
    if not paths:
        raise ValueError(f"there are no tests in {folder}")
    suite = unittest.TestSuite()
    for path in paths:
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        suite.addTests(loader.loadTestsFromModule(module))
    # Imported modules stay, and graphs are many objects that live as long as their test. Collecting
    # garbage among them would take a tenth of the time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    return suite


if __name__ == "__main__":
    absltest.main()
