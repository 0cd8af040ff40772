"""Runs commands on disks that take no files, and counts how they answer.

Each case makes a small file system in memory, in a mount namespace of its own, and has a command
write there. The file system is full, at once or after a while; or read-only; or somebody deletes
the directory while the command runs; or the output is a link onto another file system. The command
must work, or end with one sentence that names a file, without a traceback or a signal, and leave no
half of a file. Where the sentence says that the result is elsewhere, it must be there. A search is
then called again with room: it must keep the updates that it had logged.

    python -m tests.faults.disks --cases 200
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.faults.campaign import GOOD, Case, run_campaign
from tests.faults.command_answer import answer
from tests.faults.files import find_leftovers, half_files
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.problem.problem_file import write_problem

__all__ = ["WITHIN"]

#: The command prefix that gives a process file systems of its own.
WITHIN = ("unshare", "--user", "--map-root-user", "--mount")
_ROOM = f"size={64 * 2**20}"
_SIZES_KB = (4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)
_NUM_GROUPS = 12
_SIMULATE = "simulate"
# A placer that learns writes weights, curves and a log; the others a result and a record. Twice is
# as often.
_PLACERS = ("colocrl", *("hill_climbing", "auto", "single_device", _SIMULATE) * 2)
_FAULTS = ("full", "full", "full", "read-only", "deleted", "other file system")
_ELSEWHERE = re.compile(r"the result is in '(.*)'$")


def _make(number: int, word: str) -> Iterator[Case]:
    """Makes a case; file systems are gone with the namespace that this process is in."""
    draw = random.Random(number)
    placer = draw.choice([each for each in _PLACERS if word in each])
    fault = draw.choice(_FAULTS)
    root = pathlib.Path(tempfile.mkdtemp())
    _mount(_ROOM, root)
    disk, other, temporary = root / "disk", root / "other", root / "tmp"
    for directory in (disk, other, temporary):
        directory.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    _mount(f"size={draw.choice(_SIZES_KB)}k" if fault == "full" else _ROOM, disk)
    _mount(_ROOM, other)
    place = disk if fault == "full" else disk / "place"
    place.mkdir(exist_ok=True)
    command = _command(placer, number, root, place)
    if fault == "read-only":
        _mount("remount,ro", disk)
    if fault == "other file system":
        (other / "out.json").write_text("{}")
        (place / "out.json").symlink_to(other / "out.json")
    timer = threading.Timer(draw.uniform(0, 1.0), shutil.rmtree, [place])
    if fault == "deleted":
        timer.start()
    how, words = answer(command)
    timer.cancel()
    how, words = _check_disk(fault, how, words, root, place)
    if how in GOOD:
        _mount(f"remount,rw,{_ROOM}", disk)
        place.mkdir(exist_ok=True)
        how, words = _again(command, place) or (how, words)
    yield Case(number, placer, fault, how, words[-500:])
    subprocess.run(["umount", "--lazy", root], check=True)
    root.rmdir()


def _command(placer: str, number: int, inputs: pathlib.Path, place: pathlib.Path) -> list[str]:
    """Makes a command that reads what is in one directory and writes to another one."""
    write_problem(build_layered_problem(_NUM_GROUPS, 2, number), inputs / "problem.json")
    given = [f"--problem={inputs}/problem.json", f"--output={place}/out.json"]
    if placer == _SIMULATE:
        assignment = json.dumps({"assignment": [0] * _NUM_GROUPS})
        (inputs / "assignment.json").write_text(assignment)
        files = [f"--assignment={inputs}/assignment.json", f"--trace={place}/trace.json"]
        return [_SIMULATE, *given, *files]
    return ["search", *given, f"--placer={placer}", "--max_trials=60", f"--log_dir={place}/run"]


def _mount(options: str, disk: pathlib.Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    subprocess.run(command, check=True, capture_output=True)


def _check_disk(
    fault: str, how: str, words: str, root: pathlib.Path, place: pathlib.Path
) -> tuple[str, str]:
    """Looks at what a command that has answered has left."""
    if how == "sentence" and str(root / "disk") not in words:
        return "names no file", words
    if fault == "read-only" and how == "works":
        return "wrote to what is read-only", words
    if fault == "other file system" and not (place / "out.json").is_symlink():
        return "damaged", f"the link is gone: {words}"
    if (found := _ELSEWHERE.search(words)) and "assignment" not in _read(found[1]):
        return "lost", words
    if left := half_files(root) + find_leftovers(root):
        return "damaged", f"{left[0]} is not whole: {words}"
    return how, words


def _again(command: Sequence[str], place: pathlib.Path) -> tuple[str, str] | None:
    """Calls a command again where there is room; returns what is wrong then."""
    log = place / "run" / "training.jsonl"
    content = log.read_bytes() if log.exists() else b""
    kept = content[: content.rfind(b"\n") + 1]
    how, words = answer(command)
    if how != "works":
        return "does not go on", words
    if kept and not log.read_bytes().startswith(kept):
        return "lost", "lines of the log are not there any more"
    return None


def _read(path: str) -> Any:
    try:
        return json.loads(pathlib.Path(path).read_bytes())
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    run_campaign("disks", _make, within=WITHIN)
