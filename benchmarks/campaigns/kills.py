"""Kills searches at random moments, starts them again, and looks for what got lost.

A chain is one search in a directory of its own: it is started, killed by SIGKILL, SIGTERM, SIGINT
or SIGHUP, started again, and so on, and in the end left alone. After each kill no process of it may
be left, what it had written to a log and what it had printed of a trial must be in its log, and no
file may be half written. Controllers and their parameter server are killed, too, while the search
goes on. The end must be right: in simulation that of a search which nobody killed, with live steps
and with controllers one on trials of which none was measured twice. Neither a temporary file nor a
directory of the moment may be left then. What is done is kept in `--out_dir`, so the campaign goes
on where it stopped:

    python -m benchmarks.campaigns.kills --kills 500 --out_dir runs/kills
    python -m benchmarks.campaigns.kills --show 17
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import os
import pathlib
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import benchmarks
import graph_passes
import tf_placer
from benchmarks.campaigns.answers import append_answers, read_answers, report_answers
from benchmarks.campaigns.marked_process import MarkedProcess, marked
from benchmarks.campaigns.victims import VICTIMS, Victim

__all__ = ["GOOD", "lost", "main", "run_chain", "whole_lines"]

#: Answers that are as they should be.
GOOD = ("survived",)
_SIGNALS = (
    *(signal.SIGKILL, signal.SIGKILL, signal.SIGKILL),
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
)
_MOST_KILLS = 8
_MOST_PARTS = 3
_LIMIT_SECS = 300.0
_TRIAL = re.compile(r"\btrial (\d+) ")
# Of these files what is there stays, whatever comes behind it.
_LOGS = ("trials.jsonl", "training.jsonl", "workers.jsonl", "simulated_trials.jsonl")
_OF_THE_MOMENT = re.compile(r"\.tmp$|^tf_placer_scratch_|^tfp_ray_")


def whole_lines(directory: pathlib.Path) -> dict[str, bytes]:
    """Reads the logs, without a line that is not whole."""
    found = {}
    for name in _LOGS:
        path = directory / "run" / name
        content = path.read_bytes() if path.exists() else b""
        found[name] = content[: content.rfind(b"\n") + 1]
    return found


def lost(before: dict[str, bytes], now: dict[str, bytes], lines: Sequence[str]) -> str:
    """Says what is not in the logs any more, or was printed and is not there; "" for nothing."""
    for name, content in before.items():
        # A header alone is written anew by a search that has no trials.
        if content.count(b"\n") > 1 and not now[name].startswith(content):
            return f"lines of {name} have changed"
    printed = [int(found[1]) for line in lines if (found := _TRIAL.search(line))]
    trials = now["trials.jsonl"].count(b"\n") - 1
    if printed and max(printed) >= trials:
        return f"trial {max(printed)} was printed, and the log has {trials}"
    if len(printed) != len(set(printed)):
        return "a trial was printed twice"
    return ""


def _kill_part(search: MarkedProcess, pattern: str, draw: random.Random) -> str:
    """Kills one of its processes by SIGKILL, and names it; "" where there is none."""
    parts = [part for part in marked(search.mark) if re.match(pattern, part[1])]
    if not parts:
        return ""
    process, name = draw.choice(sorted(parts))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    return name.strip()


def _half(directory: pathlib.Path) -> str:
    """Names a file that should be whole and is not; "" for none."""
    for path in directory.rglob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            try:
                json.loads(path.read_bytes())
            except ValueError:
                return str(path.relative_to(directory))
    return ""


def _left(directory: pathlib.Path) -> list[str]:
    """Lists what should have been removed when a search has ended."""
    left = [path for path in (directory / "tmp").rglob("*") if not path.is_dir()]
    left += [path for path in directory.rglob("*") if _OF_THE_MOMENT.search(path.name)]
    return sorted({str(path.relative_to(directory)) for path in left})


def _has_traceback(text: str) -> bool:
    """Says whether there is a traceback, but for one of before Python has begun with a program."""
    if "Traceback (most recent call last)" not in text:
        return False
    return not text.strip().endswith("KeyboardInterrupt") or any(
        f'File "{pathlib.Path(module.__file__ or "").parent}/' in text
        for module in (benchmarks, graph_passes, tf_placer)
    )


def _answer_to_kill(
    victim: Victim,
    search: MarkedProcess,
    number: int,
    directory: pathlib.Path,
    before: dict[str, bytes],
) -> tuple[str, str]:
    """Looks at what a kill has left."""
    code = search.wait(_LIMIT_SECS)
    if code is None:
        search.kill(signal.SIGKILL, group=True)
        return "hang", f"it lives {_LIMIT_SECS:g} s after signal {number}"
    if orphans := search.orphans(victim.orphan_secs):
        return "orphans", "; ".join(orphans)
    text = "\n".join(search.lines)
    if _has_traceback(text) and not victim.is_script:
        return "traceback", text[text.index("Traceback") :][:1500]
    # Ray has handlers of its own while it starts: they exit with the signal, or abort.
    by_ray = (number, -signal.SIGABRT) if victim.needs == "ray" else ()
    # What a script does not catch ends as in a shell.
    by_script = (128 + number,) if victim.is_script else ()
    if code not in (0, 1, -number, *by_ray, *by_script):
        return "another end", f"exit code {code} after signal {number}: {text[-500:]}"
    if problem := lost(before, whole_lines(directory), search.lines):
        return "lost", problem
    if name := _half(directory):
        return "half a file", name
    return "survived", ""


def _answer_to_end(
    victim: Victim,
    search: MarkedProcess,
    number: int,
    directory: pathlib.Path,
    before: dict[str, bytes],
) -> tuple[str, str]:
    """Looks at what a search that was left alone has come to."""
    code = search.wait(_LIMIT_SECS)
    if code is None:
        search.kill(signal.SIGKILL, group=True)
        return "hang", f"it lives {_LIMIT_SECS:g} s after it was started again"
    if orphans := search.orphans(victim.orphan_secs):
        return "orphans", "; ".join(orphans)
    output = "\n".join(search.lines)
    if code:
        return "does not go on", output[-1500:]
    if problem := lost(before, whole_lines(directory), search.lines):
        return "lost", problem
    if problem := victim.problem(directory, number, output):
        return "wrong end", problem
    if left := _left(directory):
        return "left behind", ", ".join(left)
    return "survived", ""


def run_chain(number: int, victims: Sequence[Victim] = VICTIMS) -> list[dict[str, Any]]:
    """Starts and kills a search until it has ended; returns a line for each kill, and for the end.

    Args:
        number: what is drawn at random hangs on it.
        victims: what may be killed.
    """
    draw = random.Random(number)
    victim = draw.choices(victims, [each.share for each in victims])[0]
    kills = draw.randint(2, _MOST_KILLS)
    cases: list[dict[str, Any]] = []

    def add(how: str, words: str, by: str) -> None:
        case = {"case": number, "victim": victim.name, "signal": by, "answer": how, "words": words}
        cases.append(case)

    # Short, because sockets of Ray are in it.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="k"))

    def kill_parts(search: MarkedProcess) -> None:
        for _ in range(draw.randint(0, _MOST_PARTS) if victim.parts else 0):
            if search.wait(draw.uniform(0.2, 0.5) * victim.usual_secs) is not None:
                return
            if name := _kill_part(search, victim.parts, draw):
                # Whether it has survived is seen when it is killed, or ends.
                add("survived", "", f"SIGKILL of {name}")

    try:
        for _ in range(kills):
            before = whole_lines(directory)
            by, group = draw.choice(_SIGNALS), draw.random() < 0.5
            search = MarkedProcess(victim.command(directory, number), directory)
            kill_parts(search)
            if victim.lines and draw.random() < 0.6:
                search.wait_for_lines(draw.randint(1, victim.lines))
                time.sleep(draw.uniform(0, 0.02 * victim.usual_secs))
            elif search.wait(draw.uniform(0, victim.usual_secs)) is not None:
                pass  # It was faster.
            if not search.kill(by, group=group and by != signal.SIGKILL):
                how, words = _answer_to_end(victim, search, number, directory, before)
                add(how, words, "end")
                return cases
            add(*_answer_to_kill(victim, search, by, directory, before), signal.Signals(by).name)
        before = whole_lines(directory)
        search = MarkedProcess(victim.command(directory, number), directory)
        kill_parts(search)
        add(*_answer_to_end(victim, search, number, directory, before), "end")
        return cases
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the kills that are missing, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="how many there are to be")
    parser.add_argument("--out_dir", default="runs/kills", help="what is done is kept there")
    parser.add_argument("--show", type=int, help="make one chain, and print its answers")
    args = parser.parse_args(argv)
    victims = [victim for victim in VICTIMS if victim.is_here]
    if args.show is not None:
        for case in run_chain(args.show, victims):
            print(case)
        return
    path = pathlib.Path(args.out_dir, "answers.jsonl")
    answers = read_answers(path)
    while sum(each["signal"] != "end" for each in answers) < args.kills:
        answers += (cases := run_chain(1 + max((a["case"] for a in answers), default=-1), victims))
        append_answers(path, cases)
    print(report_answers(answers, GOOD, operator.itemgetter("victim"), "killed"), end="\n\n")
    print(report_answers(answers, GOOD, operator.itemgetter("signal"), "by"))


if __name__ == "__main__":
    main()
