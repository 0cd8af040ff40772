"""A campaign: cases in which something goes wrong at random, and a table of what came of them.

Each program of this folder is one, and is run by hand; see docs/safety.md.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

from tf_placer.text.markdown import markdown_table

__all__ = ["GOOD", "Case", "make_in_child", "run_campaign", "tables"]

#: Answers that are as they should be.
GOOD = ("survived", "works", "sentence")


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault, and what came of it.

    Attributes:
        number: from which all that is random follows; the faults of one search share it.
        victim: what was hit.
        fault: what was done to it.
        answer: one of `GOOD`, or what is wrong.
        words: what was said, or the details.
    """

    number: int
    victim: str
    fault: str
    answer: str
    words: str = ""


def run_campaign(
    name: str, make: Callable[[int, str], Iterable[Case]], within: Sequence[str] = ()
) -> None:
    """Makes cases in child processes, prints those that are not good, and tables of all.

    Args:
        name: of the module in this folder, which calls this when it is run.
        make: makes the cases of a number, of victims whose names have a word.
        within: a command that child processes run within, such as `unshare`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.faults.{name}")
    parser.add_argument("--cases", type=int, default=100, help="how many (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default 0)")
    parser.add_argument("--victims", default="", help="a word that the names of victims have")
    parser.add_argument("--only", type=int, help="make the cases of one number in this process")
    args = parser.parse_args()
    if args.only is not None:
        for case in make(args.only, args.victims):
            print(json.dumps(dataclasses.asdict(case)), flush=True)
        return
    cases: list[Case] = []
    number = args.first
    try:
        while len(cases) < args.cases:
            made = make_in_child(name, number, args.victims, within)
            for case in made:
                if case.answer not in GOOD:
                    print(json.dumps(dataclasses.asdict(case)), flush=True)
            cases += made
            number = made[-1].number + 1
    except KeyboardInterrupt:
        print(f"--first {number} resumes", file=sys.stderr)
    print(tables(cases))


def make_in_child(
    name: str, number: int, victims: str = "", within: Sequence[str] = ()
) -> list[Case]:
    """Makes the cases of a number in a process of their own; see `run_campaign`."""
    command = [sys.executable, "-m", f"tests.faults.{name}"]
    done = subprocess.run(
        [*within, *command, f"--only={number}", f"--victims={victims}"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
    )
    # Ray may print something, too.
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    cases = [Case(**json.loads(line)) for line in lines]
    if done.returncode and (cases or done.returncode < 0):
        cases.append(Case(number + len(cases), "?", "?", "crash", done.stderr[-2000:]))
    elif not cases:
        raise RuntimeError(f"the campaign itself fails: {done.stderr[-2000:]}")
    return cases


def tables(cases: Sequence[Case]) -> str:
    """Counts the answers by victim and by fault."""
    answers = sorted({case.answer for case in cases}, key=lambda each: (each not in GOOD, each))
    parts = []
    for title in ("victim", "fault"):
        counts = collections.Counter((getattr(case, title), case.answer) for case in cases)
        names = sorted({name for name, _ in counts})
        rows = [[name, *(str(counts[name, answer]) for answer in answers)] for name in names]
        totals = [sum(counts[name, answer] for name in names) for answer in answers]
        parts.append(markdown_table([title, *answers], [*rows, ["all", *map(str, totals)]]))
    return "\n\n".join(parts)
