"""Runs commands on disks that take no files, and counts how they answer.

Each case makes a small file system in memory, in a mount namespace of its own, and has a command
write there. The file system is full, at once or after a while; or read-only; or somebody deletes
the directory while the command runs; or the output is a link onto another file system. The command
must work, or end with one sentence that names a file, without a traceback or a signal, and leave no
half of a file. Where the sentence says that the result is elsewhere, it must be there. A search is
then called again with room: it must keep the updates that it had logged. What is done is kept in
`--out_dir`, so the campaign goes on where it stopped:

    python -m benchmarks.campaigns.full_disks --cases 200 --out_dir runs/full_disks
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.campaigns.answers import append_answers, read_answers, report_answers
from benchmarks.search_quality.random_steps import random_step
from tf_placer.problem.problem_file import write_problem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["GOOD", "can_mount", "main", "run_case"]

#: Answers that are as they should be.
GOOD = ("works", "sentence")
_INSIDE = ("unshare", "--user", "--map-root-user", "--mount")
_ROOM_BYTES = 64 * 2**20
_LIMIT_SECS = 600
_SIMULATE = "simulate"
# A placer that learns writes weights, curves and a log; the others a result and a record. Twice is
# as often.
_PLACERS = ("colocrl", *("hill_climbing", "auto", "single_device", _SIMULATE) * 2)
_FAULTS = ("full", "full", "full", "read-only", "deleted", "other file system")
_ELSEWHERE = re.compile(r"the result is in '(.*)'$")


def can_mount() -> bool:
    """Says whether this user can have file systems of its own."""
    with tempfile.TemporaryDirectory() as directory:
        mount = f"mount -t tmpfs -o size=8k none {directory}"
        try:
            done = subprocess.run([*_INSIDE, "sh", "-c", mount], capture_output=True)
        except OSError:
            return False
        return done.returncode == 0


def run_case(number: int, placers: Sequence[str] = _PLACERS) -> dict[str, Any]:
    """Makes a case in a mount namespace of its own, and describes how it was answered."""
    command = [sys.executable, "-m", "benchmarks.campaigns.full_disks"]
    done = subprocess.run(
        [*_INSIDE, *command, f"--inside={number}", f"--placers={','.join(placers)}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=4 * _LIMIT_SECS,
    )
    if done.returncode:
        raise RuntimeError(f"the campaign itself fails: {done.stderr[-1000:]}")
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


def _inside(number: int, placers: Sequence[str]) -> dict[str, Any]:
    draw = random.Random(number)
    with tempfile.TemporaryDirectory() as outside:
        disk, other, temporary = (pathlib.Path(outside, name) for name in ("disk", "other", "tmp"))
        for directory in (disk, other, temporary):
            directory.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        placer, fault = draw.choice(list(placers)), draw.choice(_FAULTS)
        size = draw.choice((4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)) * 2**10
        _mount(f"size={size if fault == 'full' else _ROOM_BYTES}", disk)
        _mount(f"size={_ROOM_BYTES}", other)
        place = disk / "place"
        if fault != "full":
            place.mkdir()
        else:
            place = disk
        command = _command(placer, number, pathlib.Path(outside), place)
        if fault == "read-only":
            _mount("remount,ro", disk)
        if fault == "other file system":
            (other / "out.json").write_text("{}")
            (place / "out.json").symlink_to(other / "out.json")
        timer = threading.Timer(draw.uniform(0, 2.0), shutil.rmtree, [place])
        if fault == "deleted":
            timer.start()
        how, words = _answer(command)
        timer.cancel()
        log = place / "run" / "training.jsonl"
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        kept = [line for line in lines if line.endswith(b"\n")]
        if how == "sentence" and str(disk) not in words:
            how = "names no file"
        if fault == "read-only" and how == "works":
            how = "wrote to what is read-only"
        if fault == "other file system" and not (place / "out.json").is_symlink():
            how, words = "damaged", f"the link is gone: {words}"
        if (found := _ELSEWHERE.search(words)) and "assignment" not in _read(found[1]):
            how, words = "lost", words
        left = [path for path in pathlib.Path(outside).rglob("*") if _is_half(path)]
        if left:
            how, words = "damaged", f"{left[0].name} is half a file: {words}"
        _mount(f"remount,rw,size={_ROOM_BYTES}", disk)
        place.mkdir(exist_ok=True)
        again, told = _answer(command)
        if again != "works":
            how, words = "does not go on", told
        elif kept and not log.read_bytes().startswith(b"".join(kept)):
            how, words = "lost", f"{len(kept)} lines of the log are not there any more"
        for directory in (disk, other):
            subprocess.run(["umount", directory], check=True)
    case = {"case": number, "placer": placer, "fault": fault, "room_bytes": size}
    return {**case, "answer": how, "words": words[-500:]}


def _command(placer: str, number: int, inputs: pathlib.Path, place: pathlib.Path) -> list[str]:
    """Makes a command that reads what is in one directory and writes to another one."""
    problem = random_step(np.random.default_rng(number), 12, 2)
    write_problem(problem, inputs / "problem.json")
    given = [f"--problem={inputs}/problem.json", f"--output={place}/out.json"]
    if placer == _SIMULATE:
        assignment = np.argmax(legal_devices(problem), axis=1).tolist()
        (inputs / "assignment.json").write_text(json.dumps({"assignment": assignment}))
        files = [f"--assignment={inputs}/assignment.json", f"--trace={place}/trace.json"]
        return [_SIMULATE, *given, *files]
    return ["search", *given, f"--placer={placer}", "--max_trials=60", f"--log_dir={place}/run"]


def _read(path: str) -> Any:
    try:
        return json.loads(pathlib.Path(path).read_bytes())
    except (OSError, ValueError):
        return {}


def _mount(options: str, disk: pathlib.Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    subprocess.run(command, check=True, capture_output=True)


def _is_half(path: pathlib.Path) -> bool:
    """Says whether a file that is written whole is not, or should be gone."""
    if path.is_dir():
        return path.name.startswith("tf_placer_scratch_")
    if path.name.endswith(".tmp") or "tf_placer_scratch_" in str(path):
        return True
    if path.suffix != ".json":
        return False
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return True
    return False


def _answer(command: Sequence[str]) -> tuple[str, str]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tf_placer", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_SECS,
        )
    except subprocess.TimeoutExpired:
        return "hang", ""
    words = done.stderr.strip()
    if "Traceback" in words:
        return "traceback", words
    if done.returncode < 0:
        return "signal", f"{-done.returncode}: {words}"
    if done.returncode == 0:
        return "works", words
    last = words.splitlines()[-1] if words else ""
    is_sentence = last.startswith("tf_placer: ") and not re.search(r"\[Errno", last)
    return ("sentence" if is_sentence else "no sentence"), last


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the cases that are missing, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=50, help="how many there are to be")
    parser.add_argument("--out_dir", default="runs/full_disks", help="what is done is kept there")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--placers", default=",".join(_PLACERS), help="who searches")
    args = parser.parse_args(argv)
    placers = args.placers.split(",")
    if args.inside is not None:
        print(json.dumps(_inside(args.inside, placers)))
        return
    if not can_mount():
        sys.exit("users cannot have file systems of their own here (unshare --user --mount)")
    path = pathlib.Path(args.out_dir, "answers.jsonl")
    answers = read_answers(path)
    for number in range(len(answers), args.cases):
        answers.append(run_case(number, placers))
        append_answers(path, answers[-1:])
    print(report_answers(answers[: args.cases], GOOD, _kind, "command"))


def _kind(answer: Mapping[str, Any]) -> str:
    return f"{answer['placer']}, {answer['fault']}"


if __name__ == "__main__":
    main()
