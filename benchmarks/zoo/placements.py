"""Runs random legal placements of every kind of graph, and compares what they compute.

Each placement runs in a new session on logical CPU devices, with soft placement off: the
initialisers that tf_placer finds, three steps, and a read of all variables. What was fetched and
the variables must be those of the graph as its script runs it, up to the tolerance of
`tf_placer.live.equal_values`. A kind whose values are up to chance only has to run. What is done is
kept in `--output`, so the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import statistics
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_pool import Call, run_calls
from tf_placer.files import write_text
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration, format_step

if TYPE_CHECKING:
    from benchmarks.zoo.graph_parts import StepGraph

__all__ = ["Counts", "count_kind", "count_kinds", "main", "placements_table", "read_counts"]

_BATCH = 25
_LIMIT_SECS = 6 * 3600.0
# Its first device is a CPU.
_MACHINE = "2xK80"
_TIMED_STEPS = 15
_REFUSED = "refused: "


@dataclasses.dataclass(frozen=True)
class Counts:
    """What became of the placements of one kind.

    Attributes:
        kind: its name.
        fingerprint: of its graph.
        operations: how many a step needs.
        groups: how many groups of them may be placed.
        placements: how many were run.
        accepted: how many of them ran without an error.
        equal: how many of these computed the same.
        secs: what they took.
        problem: the first error or difference; empty without one.
        planned_secs: a step on one CPU as the costs of a described machine have it; 0 if unknown.
        measured_secs: a step on one CPU of this computer; 0 if unknown.
    """

    kind: str
    fingerprint: str = ""
    operations: int = 0
    groups: int = 0
    placements: int = 0
    accepted: int = 0
    equal: int = 0
    secs: float = 0.0
    problem: str = ""
    planned_secs: float = 0.0
    measured_secs: float = 0.0

    def plus(self, other: Counts) -> Counts:
        """Adds later placements of the same graph."""
        return dataclasses.replace(
            self,
            operations=other.operations or self.operations,
            groups=other.groups or self.groups,
            placements=self.placements + other.placements,
            accepted=self.accepted + other.accepted,
            equal=self.equal + other.equal,
            secs=self.secs + other.secs,
            problem=self.problem or other.problem,
            planned_secs=other.planned_secs or self.planned_secs,
            measured_secs=other.measured_secs or self.measured_secs,
        )


def read_counts(path: pathlib.Path, fingerprint: str | None = None) -> Counts:
    """Adds up what `count_kind` wrote.

    Args:
        path: the file; its name is that of the kind.
        fingerprint: of the graph that counts; None for that of the last line.

    Returns:
        The counts; those of other graphs, and a line that was cut short, are left out. A problem
        without placements counts only if nothing came after it.
    """
    total, last_problem = Counts(path.stem, fingerprint or ""), ""
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        try:
            counts = Counts(**json.loads(line))
        except (TypeError, ValueError):
            continue
        if fingerprint is None and counts.fingerprint != total.fingerprint:
            total = Counts(path.stem, counts.fingerprint)
        if counts.fingerprint == total.fingerprint:
            last_problem = "" if counts.placements else counts.problem
            total = total.plus(counts if counts.placements else _without_problem(counts))
    return dataclasses.replace(total, problem=total.problem or last_problem)


def _without_problem(counts: Counts) -> Counts:
    return dataclasses.replace(counts, problem="")


def count_kind(kind: str, placements: int, path: str, seed: int = 0) -> None:
    """Runs the placements of a kind that are missing, and writes a line for each few of them.

    Args:
        kind: its name.
        placements: how many there are to be.
        path: of the file with a line of JSON for each batch.
        seed: of the placements.
    """
    import tensorflow as tf

    from benchmarks.zoo.catalogue import KINDS
    from benchmarks.zoo.placed_runs import PlacedGraph, script_values
    from graph_passes.errors import GraphError
    from graph_passes.fingerprint import graph_fingerprint
    from tf_placer.environments.loaded_graph import SessionFailed
    from tf_placer.live.equal_values import describe_difference

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    made = KINDS[kind]()
    graph_def = made.graph.as_graph_def()
    fingerprint = graph_fingerprint(graph_def)
    file = pathlib.Path(path)
    before = read_counts(file, fingerprint)
    done = before.placements
    try:
        placed = PlacedGraph(made)
    except GraphError as error:
        _append(file, Counts(kind, fingerprint, len(graph_def.node), problem=f"{_REFUSED}{error}"))
        return
    expected = script_values(made)
    fresh = Counts(
        kind,
        fingerprint,
        operations=int(placed.source.op_graph.needed.sum()),
        groups=placed.grouped.num_decisions,
    )
    while done < placements:
        # A batch that was cut short by the number of placements begins one of its own.
        random = np.random.default_rng([seed, zlib.crc32(kind.encode()), done])
        batch, start_secs = fresh, time.monotonic()
        for number in range(done, min(done + _BATCH, placements)):
            placement = placed.random_placement(random)
            problem = ""
            accepted, equal = 0, 0
            try:
                values = placed.values(placement)
                accepted = 1
                different = None if made.is_racy else describe_difference(expected, values)
                equal = int(different is None)
                problem = f"placement {number}: {different}" if different else ""
            except SessionFailed as error:
                problem = f"placement {number}: {error.stage}: {error.message.splitlines()[0]}"
            one = Counts(kind, placements=1, accepted=accepted, equal=equal, problem=problem)
            batch = batch.plus(one)
        batch = dataclasses.replace(batch, secs=time.monotonic() - start_secs)
        _append(file, batch)
        done += batch.placements
    if not before.planned_secs:
        _append(file, _planned(made, fresh))


def count_kinds(kinds: Sequence[str], placements: int, runs: str, seed: int = 0) -> None:
    """Runs the placements of several kinds that are missing, and says where it stands.

    Args:
        kinds: their names.
        placements: how many there are to be of each.
        runs: the directory with a file for each kind.
        seed: of the placements.
    """
    start_secs = time.monotonic()
    for done, kind in enumerate(kinds, 1):
        path = pathlib.Path(runs, f"{kind}.jsonl")
        count_kind(kind, placements, str(path), seed)
        counts = read_counts(path)
        left_secs = (time.monotonic() - start_secs) / done * (len(kinds) - done)
        parts = [
            f"{done}/{len(kinds)}",
            f"{format_duration(left_secs)} left",
            f"{kind}: {counts.equal} of {counts.placements} equal",
            counts.problem,
        ]
        print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)


def _planned(made: StepGraph, counts: Counts) -> Counts:
    """Adds what a step takes on one CPU, as planned and as measured."""
    try:
        planned_secs, measured_secs = _step_secs(made)
    except Exception as error:  # What fails is to be counted, whatever it is.
        return dataclasses.replace(counts, problem=f"not planned: {type(error).__name__}: {error}")
    return dataclasses.replace(counts, planned_secs=planned_secs, measured_secs=measured_secs)


def _step_secs(made: StepGraph) -> tuple[float, float]:
    """Computes what a step takes on one CPU of a described machine, and measures it on this one."""
    from benchmarks.zoo.placed_runs import PlacedGraph
    from tf_placer.costs.costed_graph import cost_graph
    from tf_placer.machines.lookup import find_machine
    from tf_placer.simulation.simulator import Simulator

    placed = PlacedGraph(made, num_devices=1)
    problem = cost_graph(placed.source, find_machine(_MACHINE), steps=0).problem()
    on_first = np.zeros(problem.num_groups, np.int32)
    planned_secs = float(Simulator(problem, threads=1).simulate(on_first[None]).step_secs[0])
    on_first = np.zeros(len(placed.legal), np.int32)
    return planned_secs, statistics.median(placed.traced(on_first, _TIMED_STEPS)["step_secs"])


def _append(path: pathlib.Path, counts: Counts) -> None:
    """Writes a line, on a line of its own even if the last one was cut short."""
    text = json.dumps(dataclasses.asdict(counts), allow_nan=False)
    cut_short = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        file.write(f"\n{text}\n" if cut_short else f"{text}\n")


def placements_table(all_counts: Iterable[Counts]) -> str:
    """Formats what became of all placements, in Markdown; the last row adds up."""
    found = list(all_counts)
    total = Counts("all")
    for counts in found:
        total = total.plus(counts)
    total = Counts("all", placements=total.placements, accepted=total.accepted, equal=total.equal)
    rows = [
        [
            counts.kind,
            *(f"{number:,}" if number else "" for number in (counts.operations, counts.groups)),
            *(f"{n:,}" for n in (counts.placements, counts.accepted, counts.equal)),
            *(format_step(s) if s else "" for s in (counts.planned_secs, counts.measured_secs)),
            counts.problem,
        ]
        for counts in (*found, total)
    ]
    headers = ["kind", "operations", "groups", "placements", "accepted", "equal"]
    return markdown_table([*headers, "planned", "measured", "problem"], rows, "lrrrrrrrl")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the placements that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--placements", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--kinds", help="by comma (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the placements (default 0)")
    parser.add_argument("--output", default="benchmarks/results/zoo", metavar="DIR")
    args = parser.parse_args(argv)

    from benchmarks.zoo.catalogue import KINDS

    kinds = args.kinds.split(",") if args.kinds else [*KINDS]
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    output = pathlib.Path(args.output)
    runs = output / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    each = math.ceil(args.placements / len(kinds))
    paths = {kind: runs / f"{kind}.jsonl" for kind in kinds}
    shares = [kinds[job :: args.jobs] for job in range(args.jobs)]
    while shares:
        calls = [
            Call(count_kinds, (share, each, str(runs), args.seed), _LIMIT_SECS) for share in shares
        ]
        left = []
        for ended in run_calls(calls, args.jobs):
            if ended.problem is None:
                continue
            # The process has died of the first kind that is not done.
            found = [read_counts(paths[kind]) for kind in shares[ended.index]]
            first, *others = [counts for counts in found if not _is_done(counts, each)]
            print(f"{first.kind}: {ended.problem}", file=sys.stderr, flush=True)
            _append(paths[first.kind], Counts(first.kind, first.fingerprint, problem=ended.problem))
            left.append([counts.kind for counts in others])
        shares = [share for share in left if share]
    _write_page(output, [read_counts(path) for path in paths.values()], provenance())


def _is_done(counts: Counts, placements: int) -> bool:
    """Whether nothing is to be done for a kind, or nothing can be."""
    return counts.placements >= placements or counts.problem.startswith(_REFUSED)


def _write_page(output: pathlib.Path, found: list[Counts], made_by: dict[str, Any]) -> None:
    """Prints the table and writes it, with how it was made."""
    per_sec = sum(c.placements for c in found) / max(sum(c.secs for c in found), 1e-9)
    text = (
        f"# Random placements of {len(found)} kinds of graphs\n\n{placements_table(found)}\n\n"
        "Each placement ran in a session of its own, with soft placement off: initialisers, three "
        "steps, and a read of all variables. Equal are those whose fetched values and variables "
        "are the ones of the graph as its script runs it, within 0.2 % of the largest value (5 % "
        "for types of two bytes); those of a race only have to run. Planned is a step on one CPU "
        f"of {_MACHINE}, measured the same on this computer. "
        f"{per_sec:.0f} placements per second and process. Made by `{made_by['command']}` at "
        f"commit {made_by['commit'] or 'unknown'} on {made_by['processor']}, "
        f"{made_by['cores']} cores.\n"
    )
    print(text)
    write_text(output / "table.md", text)


if __name__ == "__main__":
    main()
