"""Tests that the manual lists every file that commands write.

The commands run with an audit hook in all of their processes, which notes each file that Python
opens for writing. What TensorFlow writes is found by looking into the directories afterwards.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

from tests.faults.victims import VICTIMS

# Under Bazel this file is a link into the source tree.
PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "safety.md"
# Records the files that are opened for writing; on the path of all processes.
_HOOK = """\
import os, sys

_file = os.open(os.environ["NOTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def _note(event, args):
    if event == "open" and isinstance(args[0], str) and args[2] & (os.O_WRONLY | os.O_RDWR):
        os.write(_file, (os.path.abspath(args[0]) + "\\n").encode())

sys.addaudithook(_note)
"""
# Not files: devices, and what the kernel shows of processes.
_NO_FILES = ("/dev/", "/proc/")
# Python tests by such a file whether a directory is writable.
_TRIED = re.compile(r"/tmp/[a-z0-9_]{8}$")
# An atomic write uses another name at first.
_UNTIL_WHOLE = re.compile(r"^\.(.+)\.[0-9a-f]{16}\.tmp$")


def list_patterns() -> list[str]:
    """The patterns in the first column of the table, relative to where `log_dir` is."""
    section = PAGE.read_text().partition("## Files that are written")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    names = [name for row in rows[1:] for name in re.findall(r"`([^`]+)`", row)]
    return [name for name in names if not name.startswith("--")]


def _here(pattern: str) -> str:
    """Replaces the variables in a pattern by the directories that `run_and_list` sets."""
    return pattern.replace("$TMPDIR", "tmp").replace("~/.cache", "cache")


def is_listed(path: pathlib.Path, run: pathlib.Path, patterns: list[str]) -> bool:
    """Says whether a file or its directory is in the list."""
    parts = list(path.relative_to(run.parent).parts)
    if found := _UNTIL_WHOLE.match(parts[-1]):
        parts[-1] = found[1]
    names = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    names |= {name.replace(f"{run.name}/", "log_dir/", 1) for name in names}
    # Whatever is in log_dir is listed by its name alone.
    names |= {name.removeprefix("log_dir/") for name in names}
    return any(
        fnmatch.fnmatch(name.rstrip("/"), _here(pattern).rstrip("/"))
        for name in names - {"log_dir", run.name}
        for pattern in patterns
    )


class WrittenFilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        (self.directory / "hook").mkdir()
        (self.directory / "hook" / "sitecustomize.py").write_text(_HOOK)
        (self.directory / "tmp").mkdir()

    def run_and_list(self, command: list[str]) -> set[pathlib.Path]:
        """Runs a command, and lists the files that its processes have written, even if removed."""
        noted = self.directory / "noted"
        path = [str(self.directory / "hook"), *(each or os.getcwd() for each in sys.path)]
        environ = {
            "PYTHONPATH": os.pathsep.join(path),
            "NOTED": str(noted),
            "TMPDIR": str(self.directory / "tmp"),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        before = {each for each in self.directory.rglob("*") if not each.is_dir()}
        done = subprocess.run(
            [sys.executable, *command], env={**os.environ, **environ}, capture_output=True
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        names = {pathlib.Path(line) for line in noted.read_text().splitlines()}
        there = {each for each in self.directory.rglob("*") if not each.is_dir()} - before
        written = {each for each in names | there if not str(each).startswith(_NO_FILES)}
        # Libraries keep caches of their own, such as lists of fonts.
        caches = self.directory / "cache"
        of_libraries = {each for each in written if each.is_relative_to(caches)}
        written -= {each for each in of_libraries if not each.is_relative_to(caches / "tf_placer")}
        return {each for each in written if not _TRIED.search(str(each))} - {noted}

    def assert_listed(self, command: list[str], expected: set[str]):
        """Everything that is written lies where it should, and is in the list of the manual."""
        written = self.run_and_list(command)
        names = ("--output=", "--output_graph=")
        outputs = [
            pathlib.Path(text.partition("=")[2]) for text in command if text.startswith(names)
        ]
        for path in written:
            found = _UNTIL_WHOLE.match(path.name)
            if path in outputs or (found and path.parent / found[1] in outputs):
                continue
            self.assertTrue(path.is_relative_to(self.directory), f"written elsewhere: {path}")
            self.assertTrue(is_listed(path, self.directory / "run", list_patterns()), path)
        self.assertContainsSubset(expected, {path.name for path in written})

    def test_a_search_in_simulation(self):
        search = next(victim for victim in VICTIMS if victim.name == "search by hill climbing")
        names = {"out.json", "problem.json", "result.json", "search.json", "training.jsonl"}
        self.assert_listed(search.command(self.directory, 0), names)

    def test_a_live_search(self):
        optimize = next(victim for victim in VICTIMS if victim.name == "optimize on local:2")
        options = ("--max_trials=2", "--max_secs=30", "--answers=default")
        command = [*optimize.command(self.directory, 0), *options]
        names = {
            "placed.pb",
            "trials.jsonl",
            "result.json",
            "request.json",
            "graph.pb",
            "worker.log",
        }
        self.assert_listed(command, names)

    def test_finds_unlisted_files(self):
        run = self.directory / "run"
        for name, expected in (
            ("run/trials.jsonl", True),
            (f"run/.trials.jsonl.{'0' * 16}.tmp", True),
            ("run/tensorboard/events.out.tfevents.1", True),
            ("tmp/tf_placer_scratch_x/worker.log", True),
            ("run/another.jsonl", False),
            ("tmp/another", False),
            ("placement.json.bak", False),
        ):
            self.assertEqual(is_listed(self.directory / name, run, list_patterns()), expected, name)

    def test_the_list_is_read(self):
        self.assertIn("trials.jsonl", list_patterns())
        self.assertGreater(len(list_patterns()), 12)


if __name__ == "__main__":
    absltest.main()
