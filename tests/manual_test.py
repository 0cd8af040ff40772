"""Tests that the links, files and modules that the manual names exist.

Reads the pages and looks at the source tree; runs only what prints a page.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

from tf_placer.machines.backends import BACKENDS

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "benchmarks" / "results").rglob("README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
FOLDERS = ("graph_passes", "tf_placer", "examples", "benchmarks", "tests")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MODULE = re.compile(r"python3? -m ([\w.]+)")
# Examples make new files: tests/extending_test.py sees to them.
_PATH = re.compile(rf"(?<!New file )`((?:{'|'.join(FOLDERS)}|docs)/[\w./]+)`")


def anchors(page: pathlib.Path) -> set[str]:
    """The places in a page that a link can name."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def entries(value: object) -> set[str]:
    """All names of entries in a JSON value, but those that are no names of this project."""
    if isinstance(value, list):
        return set().union(*map(entries, value))
    if not isinstance(value, dict):
        return set()
    # These entries have devices as keys, or are a header, which is described with its log.
    outside = {"groups_by_device", "memory_bytes_by_device", "header", "feeds", "refused"}
    inner = (entries(item) for name, item in value.items() if name not in outside)
    return set(value).union(*inner)


def in_words(fact: bool | tuple[float, float] | None) -> str:
    """A fact of a kind of machine, as the manual has it."""
    if not isinstance(fact, tuple):
        return {True: "yes", False: "no", None: "-"}[fact]
    latency_secs, bandwidth = fact
    return f"{latency_secs * 1e6:g} µs, {bandwidth / 1e9:g} GB/s"


class ManualTest(absltest.TestCase):
    def test_there_are_pages(self):
        self.assertGreater(len(PAGES), 10)

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in _LINK.findall(page.read_text()):
                if re.match(r"\w+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (page.parent / name).resolve() if name else page
                self.assertTrue(target.exists(), f"{page.name}: {link}")
                if anchor:
                    self.assertIn(anchor, anchors(target), f"{page.name}: {link}")

    def test_modules_that_commands_run_exist(self):
        for page in PAGES:
            for module in _MODULE.findall(page.read_text()):
                path = ROOT / module.rstrip(".").replace(".", "/")
                if module.split(".")[0] in FOLDERS:
                    runs = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
                    self.assertTrue(runs, f"{page.name}: python -m {module}")

    def test_files_that_it_names_exist(self):
        for page in PAGES:
            for path in _PATH.findall(page.read_text()):
                made_up = any(word in path for word in ("NAME", "ROOM", "/x_test", "/x.py"))
                self.assertTrue(made_up or (ROOT / path).exists(), f"{page.name}: {path}")

    def test_the_settings_are_those_that_there_are(self):
        page = subprocess.run(
            [sys.executable, "-m", "tf_placer", "placers", "--markdown"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        self.assertEqual(
            (ROOT / "docs" / "settings.md").read_text(),
            page,
            "python -m tf_placer placers --markdown >docs/settings.md",
        )

    def test_explains_all_json_entries(self):
        page = (ROOT / "docs" / "programs.md").read_text() + (
            ROOT / "docs" / "files_and_logs.md"
        ).read_text()
        for path in sorted((ROOT / "tests" / "tf_placer" / "cli" / "testdata").glob("*.json")):
            for name in entries(json.loads(path.read_text())):
                self.assertIn(f"`{name}`", page, f"{path.name}: {name}")

    def test_the_facts_of_kinds_of_machines_are_those_that_there_are(self):
        page = (ROOT / "docs" / "machines.md").read_text().partition("## Kinds of machines")[2]
        titles, _, *rows = re.findall(r"^\|(.*)\|$", page, re.M)
        self.assertEqual(re.findall(r"`(\w+)`", titles), [*BACKENDS])
        said = {}
        for row in rows:
            title, *cells = (cell.strip() for cell in row.split("|"))
            said[title.split("`")[1]] = cells
        kinds = [dataclasses.asdict(backend) for backend in BACKENDS.values()]
        shown = [name for name in kinds[0] if name not in ("names", "module")]
        facts = {name: [in_words(kind[name]) for kind in kinds] for name in shown}
        self.assertEqual(said, facts)

    def test_the_first_page_is_short(self):
        lines = (ROOT / "README.md").read_text().splitlines()
        self.assertLessEqual(len(lines), 150)


if __name__ == "__main__":
    absltest.main()
