"""Hangs, slows down and kills the processes of live searches, and counts how they end.

Each case is a search by `optimize`, of the same graph with the same seed, so that all of them must
measure the same placements. Case 0 is left alone. In all others a process is disturbed now and
then, while it starts, in trials, or in the confirmation: stopped (SIGSTOP) for good, for a moment,
or until it is too late; slowed down to a twentieth; killed; crashed. What is hit again and again
may fail, so the next fault waits until the search has told of a trial or a round. In every fifth
case the machine is a TensorFlow cluster, whose servers also die and come back. The search must end
with a verdict, without a failed trial, a traceback or a process that is left. What is done is kept
in `--out_dir`, so the campaign goes on where it stopped:

    python -m benchmarks.campaigns.live_faults --cases 13 --out_dir runs/live_faults
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_placer.machines.lookup import find_machine
from tf_placer.private_network import PrivateNetwork
from tf_placer.processes import ChildProcess, environment_without_gpus
from tf_placer.search.trial_log import read_log
from tf_placer.text.markdown import markdown_table

__all__ = ["FAULTS", "GOOD", "Faults", "Search", "judged", "main", "run_case"]

#: Answers that are as they should be.
GOOD = ("works",)
#: What is done to a process, but for servers of a cluster that come back.
FAULTS = ("stopped", "stopped for a moment", "resumed too late", "slow", "killed", "crashed")
_RETURNS = "server gone and back"
# What is said of them.
_SAID = (
    ("stopped", r"was stopped by a signal"),
    ("killed", r"was killed by signal"),
    ("slow", r"times as long as at first"),
    ("gone", r"a server went away|answers again"),
)
# Processes by their command line; those that were made of a template have that of it.
_VICTIMS = {
    "tf_placer.process_template": "template, or made of it",
    "tf_placer.environments.worker": "worker started afresh",
    "tf_placer.machines.local_server": "server started afresh",
}
_PROGRESS = re.compile(r"\] trial \d|confirming: \d+ round")
_PORTS = (28471, 28472)
_LIMIT_SECS, _GONE_SECS = 900.0, 30.0
_CLUSTER_CASES = 5


@dataclasses.dataclass(frozen=True)
class Search:
    """The search that all cases make.

    Attributes:
        num_faults: how often a process is disturbed in it.
        max_trials: how many trials it has.
        units: width of the layers of its graph.
        gap_secs: seconds between two faults, at least and at most.
    """

    num_faults: int = 8
    max_trials: int = 12
    units: int = 512
    gap_secs: tuple[float, float] = (1.0, 6.0)


def run_case(number: int, search: Search, expected: Sequence[Any] | None = None) -> dict[str, Any]:
    """Makes a case, and describes how it ended.

    Args:
        number: of the case; everything random follows from it.
        search: what is searched.
        expected: the placements that must have been measured; None if they are not known.
    """
    draw = random.Random(number)
    on_cluster = number % _CLUSTER_CASES == _CLUSTER_CASES - 1
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _write_graph(directory / "graph.meta", search.units)
        cluster = stack.enter_context(_Cluster(directory)) if on_cluster else None
        command = [sys.executable, "-m", "tf_placer"]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        machine = "local:2"
        inherited: tuple[int, ...] = ()
        if cluster is not None:
            machine, inherited = f"grpc://localhost:{_PORTS[0]}", cluster.network.inherited
            command = cluster.network.command("tf_placer")
            environ |= {**cluster.network.environ(), "no_grpc_proxy": "localhost"}
        command += [
            *("optimize", f"--input_graph={directory}/graph.meta", f"--machine={machine}"),
            *(f"--log_dir={directory}/run", "--placer=random", "--max_secs=600"),
            *(f"--max_trials={search.max_trials}", f"--output_graph={directory}/placed.meta"),
        ]
        with open(directory / "words", "w+") as words:
            child = subprocess.Popen(
                command, env=environ, stdout=words, stderr=words, pass_fds=inherited
            )

            def progress() -> int:
                return len(_PROGRESS.findall((directory / "words").read_text()))

            faults = Faults(child.pid, search if number else None, draw, cluster, progress)
            try:
                code: int | None = child.wait(_LIMIT_SECS)
            except subprocess.TimeoutExpired:
                code = None
                child.kill()
                child.wait()
            seen = faults.end()
            words.seek(0)
            text = words.read()
        how, why = judged(code, text, seen, directory, search, expected)
        case = {"case": number, "machine": machine, "faults": faults.done, "answer": how}
        said = {kind: len(re.findall(pattern, text)) for kind, pattern in _SAID}
        return {**case, "said": said, "words": why[-1500:], "measured": _measured(directory)}


def _write_graph(path: pathlib.Path, units: int) -> None:
    import tensorflow as tf

    from benchmarks.models import branches
    from tf_placer.inputs.graph_files import write_graph

    model = branches.build(layers=3, units=units)
    with model.graph.as_default():
        meta_graph = tf.compat.v1.train.export_meta_graph()
    write_graph(path, model.graph.as_graph_def(), meta_graph)


def judged(
    code: int | None,
    text: str,
    seen: Sequence[_Process],
    directory: pathlib.Path,
    search: Search,
    expected: Sequence[Any] | None,
) -> tuple[str, str]:
    """Says how a search ended, and in which words."""
    left = [each.command for each in seen if not each.is_gone(_GONE_SECS)]
    if left:
        return "orphan", left[0][:300]
    if code is None:
        return "hang", text
    if "Traceback" in text:
        return "traceback", text
    if code:
        return "no verdict", text
    _, trials = read_log(directory / "run/trials.jsonl")
    if failed := [each.measurement.failure for each in trials if each.measurement.failure]:
        return "failed trial", f"{failed[0].kind.value}: {failed[0].message}"
    if len(trials) != search.max_trials:
        return "lost", f"{len(trials)} trials of {search.max_trials}"
    if expected is not None and _measured(directory) != expected:
        return "lost", "other placements than in the search that was left alone"
    return "works", text.strip().splitlines()[-1]


def _measured(directory: pathlib.Path) -> list[Any]:
    """The placements that were measured, in order."""
    try:
        _, trials = read_log(directory / "run/trials.jsonl")
    except (OSError, ValueError):
        return []
    return [each.assignment and [*each.assignment] for each in trials if each.repeats is None]


class _Process:
    """A process, which no other can be taken for, whatever numbers are used again."""

    def __init__(self, pid: int, command: str) -> None:
        self.command = command
        self._descriptor = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, unless it is gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def is_gone(self, timeout_secs: float = 0.0) -> bool:
        """Waits until it is gone, and says whether it is."""
        deadline = time.monotonic() + timeout_secs
        while True:
            try:
                signal.pidfd_send_signal(self._descriptor, 0)
            except ProcessLookupError:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)


def _below(pid: int) -> Iterator[tuple[int, str]]:
    """Lists the processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            stat = pathlib.Path(f"/proc/{int(entry)}/stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(stat[1]), []).append(int(entry))
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            waiting.append(child)
            with contextlib.suppress(OSError):
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                yield child, command.replace(b"\0", b" ").decode(errors="replace")


class Faults:
    """Disturbs the processes of a search, in a thread of its own.

    Attributes:
        done: what was done to which process, and when.
    """

    def __init__(
        self,
        pid: int,
        search: Search | None,
        draw: random.Random,
        cluster: _Cluster | None,
        progress: Callable[[], int],
    ) -> None:
        """Starts to disturb.

        Args:
            pid: of the search.
            search: how often; None for not at all.
            draw: draws when, how and what.
            cluster: whose servers may be restarted, too.
            progress: counts what the search has told of trials and rounds.
        """
        self.done: list[dict[str, Any]] = []
        self._pid = pid
        self._search = search
        self._draw = draw
        self._cluster = cluster
        self._progress = progress
        self._seen: dict[int, _Process] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> list[_Process]:
        """Stops to disturb, and returns all processes that were there."""
        self._ended.set()
        self._thread.join()
        return list(self._seen.values())

    def _run(self) -> None:
        start_secs = time.monotonic()
        waits = [] if self._search is None else [self._search.gap_secs] * self._search.num_faults
        before = -1
        kinds = (*FAULTS, _RETURNS, _RETURNS, _RETURNS) if self._cluster else FAULTS
        for gap in waits:
            victims = self._victims_after(self._draw.uniform(*gap), before)
            if not victims:
                return
            kind = self._draw.choice(kinds)
            victim = self._draw.choice(victims)
            name = "server of the cluster"
            if kind != _RETURNS:
                name = next(name for part, name in _VICTIMS.items() if part in victim.command)
            secs = round(time.monotonic() - start_secs, 1)
            self.done.append({"kind": kind, "victim": name, "secs": secs})
            if kind == _RETURNS:
                assert self._cluster is not None
                self._cluster.restart(self._draw.randrange(2), self._draw.uniform(1.0, 20.0))
            else:
                self._disturb(victim, kind)
            before = self._progress()
        while not self._ended.wait(0.2):
            self._look()

    def _victims_after(self, secs: float, before: int) -> list[_Process]:
        """Waits until processes have been there for so long, after progress; none at the end."""
        since_secs = None
        while not self._ended.wait(0.1):
            victims = self._look()
            if not victims or self._progress() <= before:
                since_secs = None
            elif since_secs is None:
                since_secs = time.monotonic()
            elif time.monotonic() - since_secs >= secs:
                return victims
        return []

    def _look(self) -> list[_Process]:
        """Notes all processes of the search; returns those that measure."""
        victims = []
        for pid, command in _below(self._pid):
            known = self._seen.get(pid)
            # Between its start and its own command line it has that of its parent.
            if known is None or known.is_gone() or known.command != command:
                with contextlib.suppress(ProcessLookupError):
                    self._seen[pid] = _Process(pid, command)
            if pid in self._seen and any(name in command for name in _VICTIMS):
                victims.append(self._seen[pid])
        return victims

    def _disturb(self, victim: _Process, kind: str) -> None:
        if kind in ("killed", "crashed"):
            victim.send(signal.SIGKILL if kind == "killed" else signal.SIGSEGV)
            return
        if kind == "slow":
            for _ in range(30):
                victim.send(signal.SIGSTOP)
                time.sleep(0.19)
                victim.send(signal.SIGCONT)
                time.sleep(0.01)
            return
        victim.send(signal.SIGSTOP)
        if kind != "stopped":
            moment = kind == "stopped for a moment"
            time.sleep(self._draw.uniform(0.5, 3.5) if moment else self._draw.uniform(6.0, 10.0))
            victim.send(signal.SIGCONT)


class _Cluster:
    """Two TensorFlow servers that can die and come back, in a network of their own."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.network = PrivateNetwork()
        self._directory = directory
        self._servers: dict[int, ChildProcess] = {}
        for task in range(2):
            self._start(task)

    def _start(self, task: int) -> None:
        cores = find_machine("local:2").devices[task].cores
        settings = {"task": task, "ports": _PORTS, "cores": cores, "placement": None}
        self._servers[task] = ChildProcess(
            f"server {task}",
            "tf_placer.machines.local_server",
            settings,
            log_path=self._directory / f"server_{task}.log",
            environ={**environment_without_gpus(), "no_grpc_proxy": "localhost"},
            network=self.network,
        )

    def restart(self, task: int, gone_secs: float) -> None:
        """Kills a server, and starts it again after some seconds."""
        self._servers[task].stop()
        time.sleep(gone_secs)
        self._start(task)

    def __enter__(self) -> _Cluster:
        for server in self._servers.values():
            while not server.read_messages():
                pass
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.stop()
        self.network.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the cases that are missing, and prints tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=13, help="how many there are to be")
    parser.add_argument("--out_dir", default="runs/live_faults", help="what is done is kept there")
    args = parser.parse_args(argv)
    path = pathlib.Path(args.out_dir, "answers.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    # A kill may have torn off the last one.
    answers = [json.loads(line) for line in lines if line.endswith("\n")]
    path.write_text("".join(json.dumps(each) + "\n" for each in answers))
    for number in range(len(answers), args.cases):
        answers.append(run_case(number, Search(), answers[0]["measured"] if answers else None))
        with open(path, "a") as file:
            file.write(json.dumps(answers[-1]) + "\n")
    print(_report(answers[: args.cases]))


def _report(answers: Sequence[Mapping[str, Any]]) -> str:
    """Counts the faults by kind, and the searches by their end."""

    def table(title: str, kind: Callable[[Any, Any], str]) -> str:
        rows = [(kind(a, fault), a["answer"]) for a in answers for fault in a["faults"]]
        counts = collections.Counter(rows)
        hows = sorted({how for _, how in rows}, key=lambda how: (how not in GOOD, how))
        names = [*sorted({name for name, _ in rows})]
        lines = [[name, *(str(counts[name, how]) for how in hows)] for name in names]
        totals = collections.Counter(how for _, how in rows)
        lines.append(["all", *(str(totals[how]) for how in hows)])
        return markdown_table([title, *(f"the search: {how}" for how in hows)], lines)

    ends = collections.Counter((a["machine"].partition(":")[0], a["answer"]) for a in answers)
    said: collections.Counter[str] = collections.Counter()
    for each in answers:
        said.update(each["said"])
    parts = [
        table("fault", lambda case, fault: fault["kind"]),
        table("process", lambda case, fault: f"{fault['victim']} of {case['machine']}"),
        "searches: " + ", ".join(f"{n} on {m}: {how}" for (m, how), n in sorted(ends.items())),
        "said of processes: " + ", ".join(f"{n} {kind}" for kind, n in said.items()),
    ]
    for each in answers:
        if each["answer"] not in GOOD:
            last = (each["words"].strip().splitlines() or [""])[-1]
            parts.append(f"case {each['case']}: {each['answer']}: {last[:300]}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
