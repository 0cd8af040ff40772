"""Fitting a model into GPUs that are too small for it: rules, layer splits, METIS and "auto".

The memory of every GPU is a share of the memory that the whole model needs on one; all methods have
the same devices. The table has the fastest simulated step of all proposals of a method that fit, or
the bytes by which the nearest one exceeds the memory: each rule is tuned by the simulator, as its
user would do it by hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks.harness.table_file import write_table
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers import make_placer
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.placers.heuristics.contiguous import cut_equally
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.metis_partition import partition_graph
from tf_placer.placers.heuristics.weighted_graph import build_weighted_graph, scale_to_integers
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["RULES", "fill_like_accelerate", "main", "measure_row", "shrink_gpus"]

_MAX_PROPOSALS = 64
_METIS_TOTAL = 1 << 24
# Users leave a part of the memory free for what a rule does not count.
_LIMIT_SHARES = (1.0, 0.9, 0.75, 0.5)
# The share by which `get_balanced_memory` lets a GPU exceed its part of the weights, in layers.
_BALANCE_BUFFER = 1.25


def shrink_gpus(problem: PlacementProblem, share: float) -> PlacementProblem:
    """Leaves every GPU a share of the memory that the step needs with all on the first GPU."""
    gpu = int(_list_gpus(problem)[0])
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


def measure_row(
    problem: PlacementProblem, max_simulated: int, seeds: Sequence[int] = (0,)
) -> dict[str, list[Candidate]]:
    """Finds the best placement of each rule, and of `auto` with each seed.

    Args:
        problem: the problem, with the memory to fit into.
        max_simulated: the placements that `auto` may simulate, so that its result does not depend
            on the load of the computer.
        seeds: the seeds of `auto`.

    Returns:
        By method, its best placement: one that fits if there is one. None are listed for a rule
        that proposes nothing; `auto` has one for each seed.
    """
    groups = group_graph(problem)
    simulator = Simulator(problem)
    row = {}
    for name, propose in RULES.items():
        proposals = list(propose(problem, groups))
        found = []
        if proposals:
            placements = _obey(problem, np.stack(proposals))
            found = simulate_candidates(problem, simulator, placements)
        row[name] = sorted(found, key=lambda each: each.rank)[:1]
    row["auto"] = [
        coarse_to_fine_search(
            problem, groups, max_secs=np.inf, max_simulated=max_simulated, seed=seed
        ).best
        for seed in seeds
    ]
    return row


def fill_like_accelerate(
    layer_bytes: np.ndarray, gpu_bytes: Sequence[float], *, is_balanced: bool
) -> np.ndarray:
    """Fills the GPUs layer by layer, and then the CPU.

    Layers are never split, as if all were in `no_split_module_classes`. Room for the largest of the
    layers that follow stays free on the first GPU.

    Args:
        layer_bytes: int64 [num_layers], in the order of the model.
        gpu_bytes: the limit of each GPU, as `max_memory` gives it.
        is_balanced: whether each GPU but the last gets about an equal part, as "auto" does, or the
            first ones are filled, as "sequential" does.

    Returns:
        int64 [num_layers], the number of a GPU, or the number of GPUs for the CPU.

    References:
        Hugging Face Accelerate, `get_balanced_memory` and `infer_auto_device_map`.
    """
    limits = list(gpu_bytes)
    if is_balanced:
        part = layer_bytes.sum() / len(limits) + _BALANCE_BUFFER * layer_bytes.max()
        limits[:-1] = [min(part, limit) for limit in limits[:-1]]
    device, used = 0, 0.0
    devices = np.empty(len(layer_bytes), np.int64)
    for number, size in enumerate(layer_bytes.tolist()):
        while device < len(limits):
            reserved = layer_bytes[number:].max() if device == 0 else 0
            if used + size <= limits[device] - reserved:
                break
            device, used = device + 1, 0.0
        devices[number] = device
        used += size
    return devices


def _propose_device_maps(
    problem: PlacementProblem, groups: GroupGraph, *, by_hand: bool
) -> Iterator[np.ndarray]:
    """Yields the placements of `device_map="auto"`, which counts weights alone.

    By hand, limits are lowered, activations counted as weights, and the GPUs also filled in order.
    """
    gpus = _list_gpus(problem)
    hosts = np.setdiff1d(np.arange(problem.num_devices), gpus)
    weights = np.zeros(groups.num_groups, np.int64)
    np.add.at(weights, problem.groups, problem.resident_bytes)
    _, layers = np.unique(groups.layers, return_inverse=True)
    held = [weights, *([_estimate_bytes(problem)] if by_hand else [])]
    for bytes_of in held:
        layer_bytes = np.bincount(layers, bytes_of)
        for share in _LIMIT_SHARES if by_hand else _LIMIT_SHARES[:1]:
            limits = [share * problem.devices[gpu].memory_bytes for gpu in gpus]
            for is_balanced in (True, False) if by_hand else (True,):
                devices = fill_like_accelerate(layer_bytes, limits, is_balanced=is_balanced)
                yield np.append(gpus, hosts[:1])[devices][layers]


def _propose_layer_splits(problem: PlacementProblem, groups: GroupGraph) -> Iterator[np.ndarray]:
    """Yields contiguous parts of layers: equal in number, work or memory, also without tables."""
    yield from _propose("expert", problem, groups)
    gpus = _list_gpus(problem)
    _, layers = np.unique(groups.layers, return_inverse=True)
    parts = gpus[cut_equally(np.bincount(layers, _estimate_bytes(problem)), len(gpus))[layers]]
    yield from (parts, gpus[::-1][np.searchsorted(gpus, parts)])
    # As in llama.cpp, whose input layer stays on the CPU.
    yield from _propose("host_embeddings", problem, groups)


def _propose_metis(problem: PlacementProblem, groups: GroupGraph) -> Iterator[np.ndarray]:
    """Yields the parts of METIS, balanced by time and by memory."""
    yield from _propose("metis", problem, groups)
    gpus, legal = _list_gpus(problem), legal_devices(problem)
    graph = build_weighted_graph(groups, legal, problem, gpus)
    weights = scale_to_integers(_estimate_bytes(problem)[graph.members], _METIS_TOTAL)
    graph = dataclasses.replace(graph, work=weights, powers=np.ones(len(gpus)))
    for imbalance in (30, 100, 300):
        placement = legal.argmax(axis=1)
        parts = partition_graph(graph, imbalance=imbalance, recursive=True, seed=0)
        placement[graph.members] = gpus[parts]
        yield placement


def _propose(name: str, problem: PlacementProblem, groups: GroupGraph) -> np.ndarray:
    placer = make_placer(name, groups, legal_devices(problem), seed=0, problem=problem)
    return placer.propose(_MAX_PROPOSALS)


#: The rivals of `auto`: a name, and what generates their placements.
RULES: Mapping[str, Callable[[PlacementProblem, GroupGraph], Iterator[np.ndarray]]] = {
    "device_map": lambda problem, groups: _propose_device_maps(problem, groups, by_hand=False),
    "by hand": lambda problem, groups: _propose_device_maps(problem, groups, by_hand=True),
    "layers": _propose_layer_splits,
    "metis": _propose_metis,
}


def _list_gpus(problem: PlacementProblem) -> np.ndarray:
    return np.array([n for n, device in enumerate(problem.devices) if is_gpu(device)])


def _estimate_bytes(problem: PlacementProblem) -> np.ndarray:
    """Estimates the memory of groups with their activations, int64 [num_groups]."""
    return estimate_group_memories(problem)[0].kept_bytes


def _obey(problem: PlacementProblem, placements: np.ndarray) -> np.ndarray:
    """Moves groups that may not go to their device to the first that they may go to."""
    legal = legal_devices(problem)
    may_go = legal[np.arange(len(legal)), placements]
    return np.where(may_go, placements, legal.argmax(axis=1)).astype(np.int32)


def _format_cell(found: Sequence[Candidate]) -> str:
    """Formats the median step, and the longest if it differs; or the excess of what fits least."""
    if not found:
        return "no tables"
    ranked = sorted(found, key=lambda each: each.rank)
    last, median = ranked[-1], ranked[(len(ranked) - 1) // 2]
    if last.excess_bytes:
        return f"does not fit: {format_bytes(last.excess_bytes)} too much"
    return format_step(median.step_secs)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all rows, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="rnnlm_2,nmt_2,inception_v3,bert_base,two_towers")
    parser.add_argument("--machine", default="4xP100", help="a described machine (default 4xP100)")
    parser.add_argument("--shares", default="0.7,0.4,0.3,0.26", help="default 0.7,0.4,0.3,0.26")
    parser.add_argument("--max_trials", type=int, default=20_000, help="of auto (default 20000)")
    parser.add_argument("--seeds", type=int, default=3, help="of auto (default 3)")
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
            found = measure_row(problem, args.max_trials, range(args.seeds))
            own = max(found["auto"], key=lambda each: each.rank)
            others = [each.step_secs for n in RULES for each in found[n] if not each.excess_bytes]
            gain = "" if own.excess_bytes or not others else f"{min(others) / own.step_secs:.2f}x"
            memory = format_bytes(problem.devices[-1].memory_bytes)
            cells = [_format_cell(each) for each in found.values()]
            rows.append([key.model, f"{memory} ({share:.0%})", *cells, gain])
            print(*rows[-1], sep=" | ", flush=True)
    headers = ["model", "one GPU has", *RULES, "auto", "ahead by"]
    write_table(
        f"Simulated steps on {args.machine} whose GPUs have a share of the memory that the model "
        f"needs on one. `device_map`: the rule of Accelerate as it is; by hand: the best of it "
        "with activations counted, in order or balanced, at four limits; layers: the best split by "
        "layers, by number, operations, work or memory, with embeddings on the GPUs or on the CPU; "
        f"metis: the best of nine partitions, by time or by memory; `auto`: median of {args.seeds} "
        f"seeds with {args.max_trials:,} simulated placements each, ahead of the fastest other "
        "with the worst of its seeds.\n\n"
        + markdown_table(headers, rows, "l" + "r" * (len(headers) - 1)),
        pathlib.Path(args.out_dir, "table.md"),
    )


if __name__ == "__main__":
    main()
