"""The wheel and the source distribution have all files that they need.

Builds neither: reads pyproject.toml and MANIFEST.in, and looks at the source tree.
"""

from __future__ import annotations

import contextlib
import pathlib
import tomllib

import setuptools
from absl.testing import absltest
from setuptools.command import egg_info

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("graph_passes", "tf_placer")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
# Files of the packages that are for the checkout only: rules of Bazel, and pages for developers.
_OF_THE_CHECKOUT = ("BUILD", "README.md")
_BUILT = (".pyc", ".so")


def list_files(*folders: str) -> set[pathlib.Path]:
    """Lists the files in folders of the source tree that no build has made."""
    return {
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in _BUILT
    }


class WheelTest(absltest.TestCase):
    def test_has_every_file_beside_the_modules(self):
        data = {
            path
            for package, patterns in SETTINGS["package-data"].items()
            for pattern in patterns
            for path in (ROOT / package).glob(pattern)
        }
        others = {
            path
            for path in list_files(*PACKAGES)
            if path.suffix != ".py" and path.name not in _OF_THE_CHECKOUT
        }
        self.assertGreater(len(others), 15)
        self.assertEqual({path for path in data if path.suffix not in _BUILT}, others)

    def test_has_every_module(self):
        found = setuptools.find_namespace_packages(str(ROOT), **SETTINGS["packages"]["find"])
        modules = {path for path in list_files(*PACKAGES) if path.suffix == ".py"}
        folders = {".".join(path.parent.relative_to(ROOT).parts) for path in modules}
        self.assertContainsSubset(folders, found)
        self.assertEqual({name.partition(".")[0] for name in found}, set(PACKAGES))

    def test_has_nothing_of_the_source_distribution(self):
        self.assertFalse(SETTINGS["include-package-data"])


class SourceDistributionTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(contextlib.chdir(ROOT))
        files = egg_info.FileList()
        for line in (ROOT / "MANIFEST.in").read_text().splitlines():
            if line and not line.startswith("#"):
                files.process_template_line(line)
        self.files = {ROOT / name for name in files.files}

    def test_has_the_manual_the_examples_the_benchmarks_and_the_tests(self):
        folders = ("docs", "examples", "benchmarks", "tests")
        self.assertContainsSubset(list_files(*folders), self.files)

    def test_has_the_rules_of_bazel(self):
        rules = [path for path in list_files(*PACKAGES) if path.name == "BUILD"]
        self.assertGreater(len(rules), 10)
        names = ("BUILD", "WORKSPACE", "WORKSPACE.bzlmod", "MODULE.bazel", ".bazelrc")
        self.assertContainsSubset([*rules, *(ROOT / name for name in names)], self.files)

    def test_has_nothing_that_was_built(self):
        self.assertEmpty([path for path in self.files if path.suffix in _BUILT])


if __name__ == "__main__":
    absltest.main()
