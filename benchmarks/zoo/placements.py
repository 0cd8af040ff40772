"""Runs random legal placements of every kind of graph, and compares what they compute.

Each placement runs in a new session on logical CPU devices, or on the GPUs if there are any, as
behind `TF_ENABLE_ONEDNN_OPTS=0 python -m tf_placer emulate 2xK80,values --`, with soft placement
off: the initialisers that tf_placer finds, three steps, and a read of all variables. What was
fetched and the variables must be those of the graph as its script runs it, up to the tolerance of
`tf_placer.live.equal_values`. A kind whose values are up to chance only has to run. What is done is
kept in `--runs_dir`, so the command goes on where it stopped.
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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_pool import Call, run_calls
from benchmarks.zoo.counts import Counts, append_counts, placements_table, read_counts
from tf_placer.files import write_text

if TYPE_CHECKING:
    from benchmarks.zoo.placed_runs import PlacedGraph, Values

__all__ = ["count_kind", "main"]

_BATCH = 25
_LIMIT_SECS = 3600.0
# Batches take turns.
_GRANULARITIES = ("coarse", "fine")


def count_kind(kind: str, placements: int, path: str) -> None:
    """Runs the placements of a kind that are missing, and writes a line for each few of them.

    Args:
        kind: its name.
        placements: how many there are to be.
        path: of the file with a line of JSON for each batch.
    """
    import tensorflow as tf

    from benchmarks.zoo.catalogue import KINDS
    from benchmarks.zoo.placed_runs import PlacedGraph, script_values
    from graph_passes.errors import GraphError
    from graph_passes.fingerprint import graph_fingerprint

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    made = KINDS[kind]()
    graph_def = made.graph.as_graph_def()
    fresh = Counts(kind, graph_fingerprint(graph_def), len(graph_def.node))
    file = pathlib.Path(path)
    done = read_counts(file, fresh.fingerprint).placements
    try:
        placed = [PlacedGraph(made, granularity=each) for each in _GRANULARITIES]
    except GraphError as error:
        append_counts(file, dataclasses.replace(fresh, problem=f"refused: {error}"))
        return
    fresh = dataclasses.replace(
        fresh,
        operations=int(placed[0].source.op_graph.needed.sum()),
        groups=placed[0].grouped.num_decisions,
    )
    expected = None if made.is_racy else script_values(made)
    while done < placements:
        # A batch that was cut short by the number of placements begins one of its own.
        random = np.random.default_rng([0, zlib.crc32(kind.encode()), done])
        graph = placed[done // _BATCH % len(placed)]
        batch, start_secs = fresh, time.process_time()
        for number in range(done, min(done + _BATCH, placements)):
            batch = batch.plus(_run(graph, random, expected, f"placement {number}: "))
        batch = dataclasses.replace(batch, cpu_secs=time.process_time() - start_secs)
        append_counts(file, batch)
        done += batch.placements


def _run(
    graph: PlacedGraph, random: np.random.Generator, expected: Values | None, name: str
) -> Counts:
    """Runs one placement; a problem begins with its name."""
    from tf_placer.environments.loaded_graph import SessionFailed
    from tf_placer.live.equal_values import describe_difference

    try:
        values = graph.values(graph.random_placement(random))
    except SessionFailed as error:
        problem = f"{name}{error.stage}: {error.message.splitlines()[0]}"
        return Counts("", placements=1, problem=problem)
    different = None if expected is None else describe_difference(expected, values)
    problem = "" if different is None else f"{name}{different}"
    return Counts("", placements=1, accepted=1, equal=int(different is None), problem=problem)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the placements that are missing, each kind in a process, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--placements", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--kinds", help="by comma (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--runs_dir", default="runs/zoo", help="what is done (default %(default)s)")
    parser.add_argument("--output", default="benchmarks/results/zoo", metavar="DIR")
    args = parser.parse_args(argv)

    from benchmarks.zoo.catalogue import KINDS

    kinds = args.kinds.split(",") if args.kinds else [*KINDS]
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    output, runs = pathlib.Path(args.output), pathlib.Path(args.runs_dir)
    for directory in (output, runs):
        directory.mkdir(parents=True, exist_ok=True)
    each = math.ceil(args.placements / len(kinds))
    paths = [runs / f"{kind}.jsonl" for kind in kinds]
    calls = [
        Call(count_kind, (kind, each, str(path)), _LIMIT_SECS)
        for kind, path in zip(kinds, paths, strict=True)
    ]
    for ended in run_calls(calls, args.jobs):
        path = paths[ended.index]
        counts = read_counts(path)
        if ended.problem is not None:
            append_counts(path, Counts(counts.kind, counts.fingerprint, problem=ended.problem))
        problem = ended.problem or counts.problem
        line = f"{counts.kind}: {counts.equal} of {counts.placements} equal"
        print(", ".join(filter(None, (line, problem))), file=sys.stderr, flush=True)
    _write_page(output, [read_counts(path) for path in paths], provenance())


def _write_page(output: pathlib.Path, found: list[Counts], made_by: dict[str, Any]) -> None:
    """Prints the table and writes it, with how it was made."""
    per_sec = sum(c.placements for c in found) / max(sum(c.cpu_secs for c in found), 1e-9)
    text = (
        f"# Random placements of {len(found)} kinds of graphs\n\n{placements_table(found)}\n\n"
        "Each placement ran in a session of its own, with soft placement off: initialisers, three "
        f"steps, and a read of all variables. {_BATCH} placements of the groups take turns with "
        f"{_BATCH} of every colocation group by itself. Equal are those whose fetched values and "
        "variables are the ones of the graph as its script runs it, within 0.2 % of the largest "
        "value (5 % for types of two bytes); those of a race only have to run. "
        f"{per_sec:.0f} placements per second of processor time. Made by "
        f"`{made_by['command']}` at commit {made_by['commit'] or 'unknown'} on "
        f"{made_by['processor']}, {made_by['cores']} cores.\n"
    )
    print(text)
    write_text(output / "table.md", text)


if __name__ == "__main__":
    main()
