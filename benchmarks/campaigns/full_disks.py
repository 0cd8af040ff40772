"""Runs commands on disks without room or that cannot be written, and counts how they answer.

Each case makes a file system of a few KiB in memory, in a mount namespace of its own, and has a
command write there: all of it, or until it is full; or makes it read-only. The command must work,
or end with one sentence that names a file, without a traceback or a signal, and leave no half of a
file. A search is then called again with room: it must keep the updates that it had logged. What is
done is kept in `--out_dir`, so the campaign goes on where it stopped:

    python -m benchmarks.campaigns.full_disks --cases 200 --out_dir runs/full_disks
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.campaigns.answers import append_answers, read_answers, report_answers
from benchmarks.search_quality.random_steps import random_step
from tf_placer.problem.problem_file import write_problem

__all__ = ["GOOD", "can_mount", "main", "run_case"]

#: Answers that are as they should be.
GOOD = ("works", "sentence")
_INSIDE = ("unshare", "--user", "--map-root-user", "--mount")
_ROOM_BYTES = 64 * 2**20
_LIMIT_SECS = 600
# A placer that learns writes weights, curves and a log; the others only a result.
_PLACERS = ("colocrl", "hill_climbing", "single_device")


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
        disk, problem = pathlib.Path(outside, "disk"), pathlib.Path(outside, "problem.json")
        disk.mkdir()
        write_problem(random_step(np.random.default_rng(number), 12, 2), problem)
        placer, fault = draw.choice(list(placers)), draw.choice(("full", "full", "read-only"))
        size = draw.choice((4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)) * 2**10
        _mount(f"size={size if fault == 'full' else _ROOM_BYTES}", disk)
        if fault == "read-only":
            _mount("remount,ro", disk)
        logged = ["--log_dir", f"{disk}/run"] if placer == "colocrl" else []
        command = [
            *("search", f"--problem={problem}", f"--placer={placer}", f"--output={disk}/out.json"),
            *("--max_trials=60", *logged),
        ]
        how, words = _answer(command)
        log = disk / "run" / "training.jsonl"
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        kept = [line for line in lines if line.endswith(b"\n")]
        if how == "sentence" and str(disk) not in words:
            how = "names no file"
        if fault == "read-only" and how == "works":
            how = "wrote to what is read-only"
        left = [path for path in disk.rglob("*") if path.is_file() and _is_half(path)]
        if left:
            how, words = "damaged", f"{left[0].name} is half a file: {words}"
        _mount(f"remount,rw,size={_ROOM_BYTES}", disk)
        again, told = _answer(command)
        if again != "works":
            how, words = "does not go on", told
        elif kept and not log.read_bytes().startswith(b"".join(kept)):
            how, words = "lost", f"{len(kept)} lines of the log are not there any more"
        subprocess.run(["umount", disk], check=True)
    case = {"case": number, "placer": placer, "fault": fault, "room_bytes": size}
    return {**case, "answer": how, "words": words[-500:]}


def _mount(options: str, disk: pathlib.Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    subprocess.run(command, check=True, capture_output=True)


def _is_half(path: pathlib.Path) -> bool:
    """Says whether a file that is written whole is not."""
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
