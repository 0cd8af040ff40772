"""Fitting a model into GPUs that are too small for it: hand rules, partitioners and "auto".

The memory of every GPU is a share of the memory that the whole model needs on one. The table has
the fastest simulated step of all proposals of a placer that fit, and of `auto` after some seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.table_file import write_table
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers import make_placer
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["RULES", "main", "measure_row", "shrink_gpus"]

#: The rule of `device_map="auto"`, splits by layer, a partitioner, and tables on the CPU.
RULES = ("greedy_fill", "expert", "metis", "host_embeddings")
_MAX_PROPOSALS = 64
_MISSING = "does not fit"


def shrink_gpus(problem: PlacementProblem, share: float) -> PlacementProblem:
    """Leaves every GPU a share of the memory that the step needs with all on the first GPU."""
    gpu = next(n for n, device in enumerate(problem.devices) if is_gpu(device))
    legal = legal_devices(problem)
    alone = np.where(legal[:, gpu], gpu, legal.argmax(axis=1)).astype(np.int32)
    needed_bytes = int(Simulator(problem).simulate(alone[None]).peak_bytes[0, gpu])
    devices = tuple(
        dataclasses.replace(device, memory_bytes=int(share * needed_bytes))
        if is_gpu(device)
        else device
        for device in problem.devices
    )
    return dataclasses.replace(problem, devices=devices)


def measure_row(problem: PlacementProblem, max_secs: float, seed: int = 0) -> dict[str, float]:
    """Finds the fastest step of each rule and of `auto`, in seconds; infinite if nothing fits.

    Args:
        problem: the problem, with the memory to fit into.
        max_secs: the time of `auto`.
        seed: the seed of `auto`.
    """
    groups = group_graph(problem)
    row = {name: _find_fastest(name, problem, groups) for name in RULES}
    found = coarse_to_fine_search(problem, groups, max_secs=max_secs, seed=seed).best
    row["auto"] = np.inf if found.excess_bytes else found.step_secs
    return row


def _find_fastest(name: str, problem: PlacementProblem, groups: GroupGraph) -> float:
    placer = make_placer(name, groups, legal_devices(problem), seed=0, problem=problem)
    proposals = placer.propose(_MAX_PROPOSALS)
    if not len(proposals):
        return float("inf")
    batch = Simulator(problem).simulate(proposals)
    return float(batch.step_secs[batch.feasible].min(initial=np.inf))


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all rows, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="rnnlm_2,nmt_2,inception_v3,bert_base,two_towers")
    parser.add_argument("--machine", default="4xP100", help="a described machine (default 4xP100)")
    parser.add_argument("--shares", default="0.7,0.4,0.3", help="default 0.7,0.4,0.3")
    parser.add_argument("--max_secs", type=float, default=20.0, help="of auto (default 20)")
    parser.add_argument("--small", action="store_true", help="models of small size")
    parser.add_argument("--problems_dir", default="runs/tables/problems")
    parser.add_argument("--out_dir", default="benchmarks/results/short_memory")
    args = parser.parse_args(argv)
    keys = [ProblemKey(m, args.machine, "fine", args.small) for m in args.models.split(",")]
    failures = make_problems(keys, args.problems_dir)
    rows = []
    for key in keys:
        if key.model in failures:
            continue
        whole = read_paper_problem(key, args.problems_dir).problem
        for share in map(float, args.shares.split(",")):
            problem = shrink_gpus(whole, share)
            found = measure_row(problem, args.max_secs)
            rows.append(
                [
                    key.model,
                    f"{share:.0%}",
                    format_bytes(problem.devices[-1].memory_bytes),
                    *(format_step(s) if np.isfinite(s) else _MISSING for s in found.values()),
                ]
            )
            print(*rows[-1], sep=" | ", flush=True)
    headers = ["model", "memory of one GPU", "bytes", *RULES, "auto"]
    write_table(
        f"Simulated steps on {args.machine} whose GPUs have a share of the memory that the model "
        f"needs on one; `auto` has {args.max_secs:g} s.\n\n"
        + markdown_table(headers, rows, "lrr" + "r" * (len(headers) - 3)),
        pathlib.Path(args.out_dir, "table.md"),
    )


if __name__ == "__main__":
    main()
