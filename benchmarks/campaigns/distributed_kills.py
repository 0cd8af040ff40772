"""Kills, hangs and cuts off parts of searches by workers and controllers at random moments.

Each search has a Ray cluster of its own, of several nodes on this computer, with three workers that
only wait (`waiting_search`), two controllers and a parameter server. A part that was killed is
replaced by the search; a node is followed by a new one some seconds later; the driver, which is the
search itself, is started again with the same log. What is hung was stopped by SIGSTOP; the driver
goes on later, or is killed. Where this is root, each node has a network of its own, which is cut:
for ever, or for a while. After each kill of the driver what it had written must be there, and at
the end the log must have every trial once, with what the simulator says of its placement, and every
update once. What is done is kept in `--out_dir`, so the campaign goes on where it stopped:

    python -m benchmarks.campaigns.distributed_kills --out_dir runs/distributed_kills
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import operator
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.campaigns.answers import append_answers, read_answers, report_answers
from benchmarks.campaigns.cuttable_network import why_not
from benchmarks.campaigns.kills import GOOD, lost, whole_lines
from benchmarks.campaigns.marked_process import MarkedProcess, marked
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.search.distributed.workers import LOOPBACK_ENVIRONMENT, QUIET_ENVIRONMENT
from tf_placer.search.training_log import read_training_log
from tf_placer.search.trial_log import read_log
from tf_placer.simulation.simulator import Simulator

__all__ = ["FAULTS", "main", "problem_with", "run_search"]

#: How often which part is disturbed in which way.
FAULTS: Mapping[tuple[str, str], int] = {
    ("killed", "worker"): 20,
    ("killed", "controller"): 15,
    ("killed", "parameter server"): 10,
    ("killed", "node"): 5,
    ("killed", "driver"): 10,
    ("hung", "worker"): 3,
    ("hung", "controller"): 2,
    ("hung", "parameter server"): 2,
    ("hung", "node"): 2,
    ("hung for a while", "driver"): 3,
    ("hung and killed", "driver"): 2,
    ("cut off", "node"): 2,
    ("cut off for a while", "node"): 3,
    ("cut off for a while", "driver"): 2,
}
_PARTS = {
    "worker": "ray::SimulatingWorker",
    "controller": "ray::Controller",
    "parameter server": "ray::ParameterServer",
}
_NUM_WORKERS, _TRIALS = 3, 300
# What a search is left alone after, so that it comes to its end.
_MOST_FAULTS = 12
# How long it may take to start, and to end after the last fault.
_START_SECS, _LIMIT_SECS = 120.0, 300.0
# Between two faults, after the search has gone on.
_GAP_SECS = 6.0
# How long what hangs or is cut off for a while stays so: the least and the most. A search takes for
# lost what has not answered for 30 seconds, and Ray a node.
_HANG_SECS, _CUT_SECS = (5.0, 60.0), (2.0, 60.0)
# After which a node that was cut off for a while is gone, if it goes.
_SETTLE_SECS = 15.0


class _Cluster:
    """A Ray cluster of nodes that can be killed, and cut off where that can be done here.

    Attributes:
        is_cuttable: whether it can.
        environ: variables of a process that connects to it.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        """Starts the head, which has no room for workers."""
        self.environ = {
            **QUIET_ENVIRONMENT,
            **LOOPBACK_ENVIRONMENT,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(directory),
        }
        self.is_cuttable = not why_not()
        arguments = ["-m", "benchmarks.campaigns.ray_nodes"]
        arguments += ["--cuttable"] if self.is_cuttable else []
        self._process = MarkedProcess(arguments, directory, self.environ)
        self._told: list[Mapping[str, Any]] = []
        self._next_node()
        self.environ["RAY_ADDRESS"] = self._told[0]["cluster"]

    def add_node(self) -> None:
        """Starts a node with room for one worker."""
        self._process.tell("")
        self._next_node()

    def _next_node(self) -> None:
        end_secs = time.monotonic() + _START_SECS
        while len(told := self._nodes()) <= len(self._told):
            if time.monotonic() > end_secs or self._process.wait(0.1) is not None:
                raise RuntimeError("no node starts: " + "\n".join(self._process.lines[-20:]))
        self._told = told

    def _nodes(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in list(self._process.lines) if line.startswith("{")]

    def start(self, arguments: Sequence[str], directory: pathlib.Path) -> MarkedProcess:
        """Starts Python beside the head."""
        network = f"--net=/proc/{self._told[0]['raylet']}/ns/net"
        within = ["nsenter", network] if self.is_cuttable else []
        return MarkedProcess(arguments, directory, self.environ, within)

    def processes(self, part: str) -> list[list[int]]:
        """Lists those of a part, each with all that end with it; nodes but for the head."""
        there = dict(marked(self._process.mark))
        if part == "node":
            raylets = [node["raylet"] for node in self._told[1:]]
            return [[raylet, *_children(raylet)] for raylet in raylets if raylet in there]
        return [[each] for each, command in there.items() if command.startswith(_PARTS[part])]

    def is_there(self, raylet: int) -> bool:
        """Says whether the process of a node is there."""
        return raylet in dict(marked(self._process.mark))

    def cut(self, raylets: Collection[int]) -> Callable[[], None]:
        """Cuts nodes off; returns what connects them again."""
        addresses = [each["address"] for each in self._told if each["raylet"] in raylets]

        def tell(word: str) -> None:
            for address in addresses:
                self._process.tell(f"{word} {address}")

        tell("cut")
        return lambda: tell("mend")

    def end(self) -> None:
        """Ends the cluster, and what stays of it."""
        self._process.end_input()
        self._process.wait(_START_SECS)
        self._process.orphans(5.0)


def _state(process: int) -> str:
    """Finds the state of a process, such as "T" for stopped; "" if there is none."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _children(parent: int) -> list[int]:
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def problem_with(
    directory: str | os.PathLike[str], problem: PlacementProblem, num_trials: int
) -> str:
    """Says what is wrong with a search by controllers that has ended; "" if nothing is.

    Args:
        directory: its logs.
        problem: what it searched.
        num_trials: how many trials there must be.
    """
    _, trials = read_log(os.path.join(directory, "trials.jsonl"))
    if len(trials) != num_trials:
        return f"{len(trials)} trials instead of {num_trials}"
    places = [(trial.controller, trial.batch, trial.position) for trial in trials[1:]]
    if len(places) != len(set(places)):
        return "two trials have one place in one batch of one controller"
    first: dict[Any, int] = {}
    for trial in trials[1:]:
        if trial.repeats is None and trial.assignment in first:
            return f"trial {trial.index} measures what trial {first[trial.assignment]} measured"
        first.setdefault(trial.assignment, trial.index)
    original = tuple(np.argmax(legal_devices(problem), axis=1).tolist())
    rows = np.array([trial.assignment or original for trial in trials], np.int32)
    for trial, secs in zip(trials, Simulator(problem).simulate(rows).step_secs, strict=True):
        if trial.measurement.median_secs != secs:
            return f"trial {trial.index} says {trial.measurement.median_secs} s, and not {secs} s"
    _, updates = read_training_log(directory)
    by_samples = {update.samples: update for update in updates}
    if sum(update.batch_size for update in by_samples.values()) != max(by_samples, default=0):
        return "updates are of other numbers of samples than they say"
    if not updates or max(by_samples) >= len(trials):
        return f"{len(updates)} updates, from more samples than there are trials"
    ages = [update.staleness for update in updates if update.staleness is not None]
    if len(ages) != len(updates) or min(ages) < 0:
        return "an update was of weights that were not there yet"
    return ""


def run_search(number: int, faults: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Disturbs one search until it has ended, and looks at what came out.

    Args:
        number: what is drawn at random hangs on it.
        faults: how often which part may be disturbed in which way.

    Returns:
        A line for each fault, and one for the end.
    """
    draw = random.Random(number)
    # Short, because sockets of Ray are in it.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="k"))
    search = _Disturbed(number, directory, draw, collections.Counter(faults))
    try:
        return search.run()
    finally:
        search.end()
        shutil.rmtree(directory, ignore_errors=True)


class _Disturbed:
    """One search and what is done to it."""

    def __init__(
        self,
        number: int,
        directory: pathlib.Path,
        draw: random.Random,
        faults: collections.Counter[tuple[str, str]],
    ) -> None:
        self._number = number
        self._directory = directory
        self._draw = draw
        self._faults = faults
        self._num_faults = 0
        self._problem = unrolled_lstm(4, 8)
        write_problem(self._problem, directory / "problem.json")
        self._cluster = _Cluster(directory)
        for _ in range(_NUM_WORKERS):
            self._cluster.add_node()
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._cases: list[dict[str, Any]] = []
        self._stopped: list[int] = []
        self._before = whole_lines(directory)
        self._driver = self._start()

    def run(self) -> list[dict[str, Any]]:
        """Disturbs it until it has ended."""
        seen, fault_secs = -1, self._next_secs()
        end_secs = time.monotonic() + _LIMIT_SECS
        while self._driver.wait(0.1) is None:
            now_secs = time.monotonic()
            if now_secs > end_secs:
                self._add("end", "search", "hang", self._last_words())
                return self._cases
            for due in [each for each in self._later if each[0] <= now_secs]:
                self._later.remove(due)
                due[1]()
            trials = self._num_trials()
            if trials <= seen:
                fault_secs = max(fault_secs, now_secs + 0.1)  # It has not gone on yet.
            elif now_secs >= fault_secs and self._disturb():
                seen, fault_secs = self._num_trials(), self._next_secs()
                end_secs = time.monotonic() + _LIMIT_SECS
        self._add("end", "search", *self._answer())
        return self._cases

    def end(self) -> None:
        """Ends everything."""
        self._driver.kill(signal.SIGKILL, group=True)
        self._driver.wait(10.0)
        # Some of Ray's processes have written their names over the mark by which they are found.
        for process in self._stopped:
            if _state(process) == "T":
                os.kill(process, signal.SIGKILL)
        self._cluster.end()

    def _start(self) -> MarkedProcess:
        arguments = [
            *("-m", "benchmarks.campaigns.waiting_search", "--workers=auto"),
            *(f"--problem={self._directory}/problem.json", f"--log_dir={self._directory}/run"),
            f"--max_trials={_TRIALS}",
        ]
        return self._cluster.start(arguments, self._directory)

    def _next_secs(self) -> float:
        return time.monotonic() + self._draw.uniform(0.0, _GAP_SECS)

    def _num_trials(self) -> int:
        return max(0, whole_lines(self._directory)["trials.jsonl"].count(b"\n") - 1)

    def _disturb(self) -> bool:
        """Does something to some part; False where that is not there now."""
        kinds = [
            (how, part)
            for how, part in self._faults.elements()
            if self._cluster.is_cuttable or not how.startswith("cut")
        ]
        if not kinds or self._num_faults == _MOST_FAULTS:
            return False
        how, part = self._draw.choice(kinds)
        there = [] if part == "driver" else self._cluster.processes(part)
        if part != "driver" and not there:
            return False
        self._faults[how, part] -= 1
        self._num_faults += 1
        if how == "hung for a while":
            self._driver.kill(signal.SIGSTOP, group=False)
            self._do_later(_HANG_SECS, lambda: self._driver.kill(signal.SIGCONT, group=False))
        elif how == "hung and killed":
            self._driver.kill(signal.SIGSTOP, group=False)
            self._do_later(_HANG_SECS, lambda: self._kill_driver(how))
            return True  # What it has lost is seen then.
        elif how == "cut off for a while" and part == "driver":
            # With the head, from all workers.
            raylets = [raylet for raylet, *_ in self._cluster.processes("node")]
            secs = self._do_later(_CUT_SECS, self._cluster.cut(raylets))
            for raylet in raylets:
                self._replace_later(raylet, secs)
        elif part == "driver":
            self._kill_driver(how)
            return True
        else:
            self._harm(how, part, self._draw.choice(sorted(there)))
        # Whether the search survives is seen at its end.
        self._add(how, part, "survived", "")
        return True

    def _harm(self, how: str, part: str, victims: Sequence[int]) -> None:
        """Does something to a part that the search or a new node replaces."""
        raylet = victims[0]
        if how == "cut off for a while":
            self._replace_later(raylet, self._do_later(_CUT_SECS, self._cluster.cut([raylet])))
            return
        if how == "cut off":
            self._cluster.cut([raylet])
        else:
            for process in victims[:1] if how == "killed" else victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                if how == "hung":
                    self._stopped.append(process)
        if part == "node":
            self._do_later((1.0, 10.0), self._cluster.add_node)

    def _do_later(self, between_secs: tuple[float, float], what: Callable[[], object]) -> float:
        """Does something some seconds later; returns after how many."""
        secs = self._draw.uniform(*between_secs)
        self._later.append((time.monotonic() + secs, what))
        return secs

    def _replace_later(self, raylet: int, secs: float) -> None:
        """Starts a node in place of one that has gone after so long and some seconds."""

        def replace() -> None:
            if not self._cluster.is_there(raylet):
                self._cluster.add_node()

        self._later.append((time.monotonic() + secs + _SETTLE_SECS, replace))

    def _kill_driver(self, how: str) -> None:
        """Kills the search, looks at what it has left, and starts it again."""
        self._driver.kill(signal.SIGKILL, group=False)
        self._driver.wait(10.0)
        now = whole_lines(self._directory)
        problem = lost(self._before, now, self._driver.lines)
        orphans = self._driver.orphans(20.0)
        answer, words = ("lost", problem) if problem else ("orphans", "; ".join(orphans))
        self._add(how, "driver", answer if words else "survived", words)
        self._before = now
        self._driver = self._start()

    def _answer(self) -> tuple[str, str]:
        """Looks at a search that has ended by itself."""
        code = self._driver.wait(0.0)
        if code:
            return "does not go on", self._last_words()
        if "Traceback" in "\n".join(self._driver.lines):
            return "traceback", self._last_words()
        if problem := lost(self._before, whole_lines(self._directory), self._driver.lines):
            return "lost", problem
        problem = problem_with(self._directory / "run", self._problem, _TRIALS)
        return ("wrong end", problem) if problem else ("survived", "")

    def _last_words(self) -> str:
        lines = [line for line in self._driver.lines if not re.match(r"trial \d+ ", line)]
        return "\n".join(lines)[-1500:]

    def _add(self, how: str, part: str, answer: str, words: str) -> None:
        case = {"case": self._number, "how": how, "part": part, "answer": answer, "words": words}
        self._cases.append(case)


def _kind(case: Mapping[str, Any]) -> str:
    return f"{case['part']} {case['how']}" if case["how"] != "end" else "search left to its end"


def main(argv: Sequence[str] | None = None) -> None:
    """Disturbs searches until every fault that is wanted was done, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out_dir", default="runs/distributed_kills", help="what is done is kept")
    args = parser.parse_args(argv)
    path = pathlib.Path(args.out_dir, "answers.jsonl")
    answers = read_answers(path)
    if why := why_not():
        print(f"no network is cut: {why}", file=sys.stderr)
    wanted = {kind: n for kind, n in FAULTS.items() if not (why and kind[0].startswith("cut"))}
    while True:
        done = collections.Counter((each["how"], each["part"]) for each in answers)
        missing = collections.Counter(wanted) - done
        if not missing:
            break
        cases = run_search(1 + max((each["case"] for each in answers), default=-1), missing)
        answers += cases
        append_answers(path, cases)
    print(report_answers(answers, GOOD, _kind, "disturbed"), end="\n\n")
    print(report_answers(answers, GOOD, operator.itemgetter("how"), "by"))


if __name__ == "__main__":
    main()
