"""Runs random legal placements of every kind of graph, and compares what they compute.

Each placement runs in a new session on logical CPU devices, or on the GPUs if there are any, as
behind `TF_ENABLE_ONEDNN_OPTS=0 python -m tf_placer emulate 2xK80,values --`, with soft placement
off: the initializers that tf_placer finds, three steps, and a read of all variables. What was
fetched and the variables must be those of the graph as its script runs it, up to the tolerance of
`tf_placer.confirmation.equal_values`. A kind whose values are up to chance only has to run. Kinds
that are in `--runs_dir` with so many placements are not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_pool import Call, run_calls
from tf_placer.files import read_json, write_json, write_text
from tf_placer.text.markdown import markdown_table

__all__ = ["Counts", "count_kind", "main", "placements_table"]

_LIMIT_SECS = 3600.0
# They take turns.
_GRANULARITIES = ("coarse", "fine")


@dataclasses.dataclass(frozen=True)
class Counts:
    """The outcomes of placements of one kind.

    Attributes:
        kind: its name.
        operations: how many a step needs.
        groups: how many coarse groups of them may be placed.
        placements: how many were run.
        accepted: how many of them ran without an error.
        equal: how many of these computed the same.
        cpu_secs: processor time that they took.
        problem: the first error or difference; empty without one.
    """

    kind: str
    operations: int = 0
    groups: int = 0
    placements: int = 0
    accepted: int = 0
    equal: int = 0
    cpu_secs: float = 0.0
    problem: str = ""


def count_kind(kind: str, placements: int, path: str) -> None:
    """Runs placements of a kind and writes their counts.

    Args:
        kind: its name.
        placements: how many.
        path: of the file of JSON.
    """
    import tensorflow as tf

    from benchmarks.zoo.catalog import KINDS
    from benchmarks.zoo.placed_runs import PlacedGraph, script_values
    from graph_passes.errors import GraphError
    from tf_placer.confirmation.equal_values import describe_difference
    from tf_placer.environments.loaded_graph import SessionFailed

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    made = KINDS[kind]()
    try:
        graphs = [PlacedGraph(made, granularity=each) for each in _GRANULARITIES]
    except GraphError as error:
        write_json(path, dataclasses.asdict(Counts(kind, problem=f"refused: {error}")))
        return
    expected = script_values(made)
    random = np.random.default_rng(zlib.crc32(kind.encode()))
    accepted, problems = 0, []
    start_secs = time.process_time()
    for number in range(placements):
        graph = graphs[number % len(graphs)]
        try:
            values = graph.values(graph.random_placement(random))
        except SessionFailed as error:
            message = error.message.splitlines()[0]
            problems.append(f"placement {number}: {error.stage}: {message}")
            continue
        accepted += 1
        different = None if made.is_racy else describe_difference(expected, values)
        if different is not None:
            problems.append(f"placement {number}: {different}")
    counts = Counts(
        kind,
        operations=int(graphs[0].workload.op_graph.needed.sum()),
        groups=graphs[0].grouped.num_decisions,
        placements=placements,
        accepted=accepted,
        equal=placements - len(problems),
        cpu_secs=time.process_time() - start_secs,
        problem=next(iter(problems), ""),
    )
    write_json(path, dataclasses.asdict(counts))


def placements_table(found: Sequence[Counts]) -> str:
    """Formats the outcomes of all placements, in Markdown; the last row adds up."""
    sums = {
        name: sum(getattr(counts, name) for counts in found)
        for name in ("placements", "accepted", "equal")
    }
    rows = [
        [
            counts.kind,
            *(f"{number:,}" if number else "" for number in (counts.operations, counts.groups)),
            *(f"{n:,}" for n in (counts.placements, counts.accepted, counts.equal)),
            counts.problem,
        ]
        for counts in (*found, Counts("all", **sums))
    ]
    headers = ["kind", "operations", "groups", "placements", "accepted", "equal", "problem"]
    return markdown_table(headers, rows, "lrrrrrl")


def _count_all(
    kinds: Iterable[str], placements: int, runs: pathlib.Path, jobs: int
) -> list[Counts]:
    """Runs the kinds that are not done, each in a process, and says how each of them ended."""
    found = {kind: Counts(kind) for kind in kinds}
    for kind in found:
        if (path := runs / f"{kind}.json").exists():
            found[kind] = Counts(**read_json(path))
    missing = [kind for kind, counts in found.items() if counts.placements < placements]
    calls = [
        Call(count_kind, (kind, placements, str(runs / f"{kind}.json")), _LIMIT_SECS)
        for kind in missing
    ]
    for ended in run_calls(calls, jobs):
        kind = missing[ended.index]
        if ended.problem is None:
            found[kind] = Counts(**read_json(runs / f"{kind}.json"))
        else:
            found[kind] = Counts(kind, problem=ended.problem)
        line = f"{kind}: {found[kind].equal} of {found[kind].placements} equal"
        print(", ".join(filter(None, (line, found[kind].problem))), file=sys.stderr, flush=True)
    return list(found.values())


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the placements that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--placements", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--kinds", help="by comma (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--runs_dir", default="runs/zoo", help="what is done (default %(default)s)")
    parser.add_argument("--output", default="benchmarks/results/zoo", metavar="DIR")
    args = parser.parse_args(argv)

    from benchmarks.zoo.catalog import KINDS

    kinds = args.kinds.split(",") if args.kinds else [*KINDS]
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    output, runs = pathlib.Path(args.output), pathlib.Path(args.runs_dir)
    for directory in (output, runs):
        directory.mkdir(parents=True, exist_ok=True)
    found = _count_all(kinds, math.ceil(args.placements / len(kinds)), runs, args.jobs)
    page = _page(found, provenance())
    print(page)
    write_text(output / "table.md", page)


def _page(found: Sequence[Counts], made_by: dict[str, Any]) -> str:
    per_sec = sum(c.placements for c in found) / max(sum(c.cpu_secs for c in found), 1e-9)
    return (
        f"# Random placements of {len(found)} kinds of graphs\n\n{placements_table(found)}\n\n"
        "Each placement ran in a session of its own, with soft placement off: initializers, three "
        "steps, and a read of all variables. Placements of the groups take turns with those of "
        "every colocation group by itself. Equal are those whose fetched values and variables are "
        "the ones of the graph as its script runs it, within 0.2 % of the largest value (5 % for "
        f"types of two bytes); those of a race only have to run. {per_sec:.0f} placements per "
        f"second of processor time. Made by `{made_by['command']}` at commit "
        f"{made_by['commit'] or 'unknown'} on {made_by['processor']}, {made_by['cores']} cores.\n"
    )


if __name__ == "__main__":
    main()
