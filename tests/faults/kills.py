"""Kills and disturbs searches at random moments, starts them again, and looks for what got lost.

Each case is one search in a directory of its own. It is started, disturbed, started again if the
disturbance has ended it, and so on, and finally runs undisturbed. Faults kill, stop or slow down
the search or one of its processes: a worker, a server, a controller, the parameter server, a node
of the cluster. When the search has ended, no process of it may be
left, what it had written to a log and what it had printed of a trial must be in its log, and no
file may be half written. The end must be right: in simulation that of a search which nobody killed,
with live steps and with controllers one on trials of which none was measured twice and none failed.

    python -m tests.faults.kills --cases 500
    python -m tests.faults.kills --cases 80 --victims Ray
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence

import tf_placer
from tests.faults.campaign import Case, run_campaign
from tests.faults.fault import NODES, Fault
from tests.faults.files import find_leftovers, half_files
from tests.faults.ray_nodes import RayNodes
from tests.faults.victim_process import VictimProcess
from tests.faults.victims import VICTIMS, Victim
from tests.tf_placer.process_tree import descendants
from tf_placer.cli.answer import NO_VERDICT

__all__ = ["END", "run_search"]

#: The fault of a search that is left alone.
END = "none to the end"
_MOST_FAULTS = 8
_LIMIT_SECS = 300.0
# Between two faults of parts of a search; it must have told of a trial or a round meanwhile,
# because what is hit again and again may fail.
_GAP_SECS = (1.0, 6.0)
_TRIAL = re.compile(r"\btrial (\d+) ")
_ROUND = "confirming: "
# Append-only files: their lines must survive every fault.
_LOGS = ("trials.jsonl", "training.jsonl", "workers.jsonl", "simulated_trials.jsonl")
_ROOT = pathlib.Path(tf_placer.__file__).parents[1]


def run_search(number: int, victims: Sequence[Victim] = VICTIMS) -> Iterator[Case]:
    """Disturbs a search until it has ended; yields a case for each fault, and for the end.

    Args:
        number: what is drawn at random hangs on it.
        victims: one of them is drawn.
    """
    draw = random.Random(number)
    [victim] = draw.choices(victims, [each.share for each in victims])
    with contextlib.ExitStack() as stack:
        directory = _new_directory(stack)
        nodes = None
        if victim.on_nodes:
            nodes = stack.enter_context(RayNodes(_new_directory(stack)))
        yield from _Disturbed(number, victim, directory, draw, nodes).run()


def _new_directory(stack: contextlib.ExitStack) -> pathlib.Path:
    # A short name, because sockets of Ray are in it.
    temporary = tempfile.TemporaryDirectory(prefix="k", ignore_cleanup_errors=True)
    return pathlib.Path(stack.enter_context(temporary))


@dataclasses.dataclass
class _Disturbed:
    """A search, and what is done to it."""

    number: int
    victim: Victim
    directory: pathlib.Path
    draw: random.Random
    nodes: RayNodes | None

    def _start(self) -> None:
        self._before = _whole_lines(self.directory)
        self._told = -1
        command = self.victim.command(self.directory, self.number)
        environ = self.nodes.environ if self.nodes else {}
        self._process = VictimProcess(command, self.directory, environ)

    def run(self) -> Iterator[Case]:
        """Disturbs it, and looks at what is left after each end."""
        self._start()
        try:
            for _ in range(self.draw.randint(2, _MOST_FAULTS)):
                fault = self.draw.choice(self.victim.faults)
                if not self._wait_for_moment(fault):
                    break  # It was faster.
                if not self._hit(fault):
                    continue
                if fault.ends_search:
                    yield self._case(fault.name, self._problem(fault))
                    self._start()
                else:
                    # The end of the search tells whether it really survived.
                    yield self._case(fault.name, ("survived", ""))
            yield self._case(END, self._problem(None))
        finally:
            self._process.end()

    def _case(self, fault: str, problem: tuple[str, str]) -> Case:
        return Case(self.number, self.victim.name, fault, *problem)

    def _wait_for_moment(self, fault: Fault) -> bool:
        """Waits for a random moment; says whether the search still runs."""
        if not fault.part:
            return self._process.wait(self.draw.uniform(0, self.victim.usual_secs)) is None
        end_secs = time.monotonic() + _LIMIT_SECS
        while self._process.wait(0.1) is None and time.monotonic() < end_secs:
            if self._progress() > self._told:
                return self._process.wait(self.draw.uniform(*_GAP_SECS)) is None
        return False

    def _progress(self) -> int:
        """Counts what the search has told of trials and rounds."""
        lines = sum(each.count(b"\n") for each in _whole_lines(self.directory).values())
        return lines + self._process.output().count(_ROUND)

    def _hit(self, fault: Fault) -> bool:
        """Sends the signals of a fault; False where there is nothing to send them to."""
        targets = [[self._process.pid]]
        if fault.part == NODES and self.nodes:
            targets = self.nodes.processes()
        elif fault.part:
            commands = descendants(os.getpid()).items()
            targets = [[pid] for (pid, _), text in commands if re.search(fault.part, text)]
        if not targets or self._process.wait(0.0) is not None:
            return False
        self._told = self._progress()
        fault.hit(self.draw.choice(targets), self.draw)
        if fault.part == NODES and self.nodes:
            self.nodes.add()
        return True

    def _problem(self, fault: Fault | None) -> tuple[str, str]:
        """Looks at what has ended by a fault, or by itself."""
        victim, process, directory = self.victim, self._process, self.directory
        code = process.wait(_LIMIT_SECS)
        if code is None:
            process.end()
            return "hang", f"it still lives after {_LIMIT_SECS:g} s: {process.output()[-1000:]}"
        if orphans := process.end(victim.orphan_secs):
            return "orphans", "; ".join(orphans)
        output = process.output()
        if _has_traceback(output):
            return "traceback", output[output.index("Traceback") :][:1500]
        if code not in _good_codes(victim, fault):
            return "another end", f"exit code {code}: {output[-1500:]}"
        if problem := _find_lost(self._before, _whole_lines(directory), output):
            return "lost", problem
        if half := half_files(directory):
            return "half a file", ", ".join(half)
        if fault is None and (problem := victim.problem(directory, self.number, output)):
            return "wrong end", problem
        if fault is None and (left := find_leftovers(directory, directory / "tmp")):
            return "left behind", ", ".join(left)
        return "survived", ""


def _good_codes(victim: Victim, fault: Fault | None) -> set[int]:
    """Lists the exit codes that a search may have."""
    if fault is None:
        return {0, NO_VERDICT}
    number = fault.signals[-1][0].value
    codes = {0, 1, NO_VERDICT, -number}
    if victim.by_ray:
        codes |= {number, -signal.SIGABRT}  # Ray has handlers of its own while it starts.
    return codes


def _whole_lines(directory: pathlib.Path) -> dict[str, bytes]:
    """Reads the logs, without a line that is not whole."""
    found = {}
    for name in _LOGS:
        path = directory / "run" / name
        content = path.read_bytes() if path.exists() else b""
        found[name] = content[: content.rfind(b"\n") + 1]
    return found


def _find_lost(before: dict[str, bytes], now: dict[str, bytes], output: str) -> str:
    """Says what is not in the logs any more, or was printed and is not there; "" for nothing."""
    for name, content in before.items():
        # A header alone is written anew by a search that has no trials.
        if content.count(b"\n") > 1 and not now[name].startswith(content):
            return f"lines of {name} have changed"
    printed = [int(number) for number in _TRIAL.findall(output)]
    trials = now["trials.jsonl"].count(b"\n") - 1
    if printed and max(printed) >= trials:
        return f"trial {max(printed)} was printed, and the log has {trials}"
    if len(printed) != len(set(printed)):
        return "a trial was printed twice"
    return ""


def _has_traceback(text: str) -> bool:
    """Says whether there is a traceback, but for one of before Python has begun with a program."""
    is_ours = any(
        f'File "{_ROOT}/{name}/' in text for name in ("graph_passes", "tests", "tf_placer")
    )
    is_early = text.strip().endswith("KeyboardInterrupt") and not is_ours
    return "Traceback (most recent call last)" in text and not is_early


def _make(number: int, word: str) -> Iterator[Case]:
    victims = [each for each in VICTIMS if word in each.name and each.is_here]
    return run_search(number, victims)


if __name__ == "__main__":
    run_campaign("kills", _make)
