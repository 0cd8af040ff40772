"""Published task graphs with known optimal schedules: the lengths that are found and proved.

The graphs are in `--graphs_dir`, one GXL file each: tasks with a weight (how long they run), edges
with a weight (how long the message takes between different processors), and as attributes of the
graph "Number of processors" and "Total schedule length", the optimum, which a search with A* found.
Each task has "Start time" and "Processor" in an optimal schedule, which is checked when the file is
read. The repository that publishes the files has no license, so they are not kept here.

Their rules are those of `schedule_lengths`. For each graph, in this order:

- `auto` places the closest problem of this project: links have no contention under their rules,
  but here each pair of processors has a link that carries one message at a time;
- simulated annealing changes placement and order under their rules, from that placement on. Both
  together take at most 10 s of processor time. The search ends when it reaches the published
  optimum, of which it makes no other use: a proof would be all that was left to look for;
- the same annealing changes placements alone, in the order of the simulator, for some rounds;
- CP-SAT tries, for at most 10 s of processor time, to prove that nothing is shorter than that.

What is done is kept in `--out_dir`, so a later run resumes the benchmark.

    python -m benchmarks.search_quality.published_optima --graphs_dir DIR
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import lzma
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.provenance import commit
from benchmarks.harness.table_file import write_table
from benchmarks.search_quality.optimality_proofs import (
    find_best_order_length,
    prove_optimal,
    require_solver,
)
from benchmarks.search_quality.published_graphs import TaskGraph, read_task_graph
from benchmarks.search_quality.schedule_lengths import fifo_length
from benchmarks.search_quality.schedule_search import SearchLimits, search_schedule
from tf_placer.files import write_bytes
from tf_placer.machines.machine import Link
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import group_graph
from tf_placer.text.markdown import markdown_table

__all__ = ["OptimumRun", "main", "make_problem", "page_of_runs", "run_graph"]

_SEED = 0
_SEARCH_SECS = 10.0
_AUTO_SECS, _AUTO_PLACEMENTS = 2.0, 20_000
_FIFO_SECS, _FIFO_ROUNDS = 5.0, 4
_PROOF_SECS = 10.0
_TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class OptimumRun:
    """The outcome for one graph; lengths are in units of time of the publication.

    Attributes:
        name: the name of the graph.
        tasks: how many tasks it has.
        processors: how many processors.
        optimal: the published length.
        says_solver_time: whether the file says how long the search for it took.
        auto_fifo: the length of the placement by `auto`, in the order of the simulator.
        auto_ordered: of the same placement in its best order; None if that is not known.
        auto_secs: processor time of `auto`.
        found: the shortest length that was found.
        found_secs: processor time until it was found, with that of `auto`.
        found_fifo: the length of its placement in the order of the simulator.
        best_fifo: the shortest length that was found in the order of the simulator.
        proof: the outcome of the proof that `found` is optimal.
        proof_secs: processor time of the proof.
        commit: of the code that made this.
    """

    name: str
    tasks: int
    processors: int
    optimal: int
    says_solver_time: bool
    auto_fifo: int
    auto_ordered: int | None
    auto_secs: float
    found: int
    found_secs: float
    found_fifo: int
    best_fifo: int
    proof: str
    proof_secs: float
    commit: str


def make_problem(graph: TaskGraph) -> PlacementProblem:
    """Makes the placement problem that is closest to a graph; a unit of time is a second.

    Each edge is a tensor of its own, because messages of one task differ. Each pair of processors
    has links of its own, which carry one tensor at a time.
    """
    devices = tuple(ProblemDevice(f"GPU:{d}", "GPU", 2**50) for d in range(graph.num_processors))
    edges = np.array(graph.edges, np.int64).reshape(-1, 3)
    return PlacementProblem(
        devices=devices,
        links=tuple(
            Link(source.name, destination.name, 0.0, 1.0)
            for source, destination in itertools.permutations(devices, 2)
        ),
        operation_names=tuple(f"task_{task}" for task in range(graph.num_tasks)),
        compute_secs=np.tile(np.array(graph.lengths, np.float64)[:, None], len(devices)),
        resident_bytes=np.zeros(graph.num_tasks, np.int64),
        temp_bytes=np.zeros(graph.num_tasks, np.int64),
        groups=np.arange(graph.num_tasks),
        tensor_producers=edges[:, 0],
        tensor_bytes=edges[:, 2],
        consumer_start=np.arange(len(edges) + 1),
        consumers=edges[:, 1],
        control_edges=np.zeros([0, 2], np.int64),
    )


def run_graph(
    graph: TaskGraph, search_secs: float = _SEARCH_SECS, proof_secs: float = _PROOF_SECS
) -> OptimumRun:
    """Places and schedules one graph, and tries to prove that nothing is shorter.

    Args:
        graph: the graph.
        search_secs: processor time of `auto` and the search.
        proof_secs: processor time of the proof.

    Raises:
        ImportError: OR-Tools is not installed.
    """
    start_secs = time.process_time()
    problem = make_problem(graph)
    result = auto_search(
        problem,
        group_graph(problem),
        max_secs=_AUTO_SECS,
        max_simulated=_AUTO_PLACEMENTS,
        seed=_SEED,
        threads=1,
    )
    placement = result.best.placement.tolist()
    auto_secs = time.process_time() - start_secs
    limits = SearchLimits(max_secs=search_secs - auto_secs, enough=graph.optimal_length)
    best = search_schedule(graph, placement, limits, seed=_SEED)
    found_fifo = fifo_length(graph, best.placement)
    auto_fifo = fifo_length(graph, placement)
    fifo_limits = SearchLimits(_FIFO_SECS, _FIFO_ROUNDS, enough=best.length)
    fifo_start = placement if auto_fifo < found_fifo else best.placement
    best_fifo = search_schedule(graph, fifo_start, fifo_limits, is_fifo=True, seed=_SEED)
    proof = prove_optimal(graph, best.length, max_secs=proof_secs, seed=_SEED)
    return OptimumRun(
        name=graph.name,
        tasks=graph.num_tasks,
        processors=graph.num_processors,
        optimal=graph.optimal_length,
        says_solver_time=graph.says_solver_time,
        auto_fifo=auto_fifo,
        auto_ordered=find_best_order_length(graph, placement, max_secs=proof_secs, seed=_SEED),
        auto_secs=round(auto_secs, 4),
        found=best.length,
        found_secs=round(auto_secs + best.found_secs, 4),
        found_fifo=found_fifo,
        best_fifo=best_fifo.length,
        proof=proof.outcome,
        proof_secs=round(proof.secs, 4),
        commit=commit(),
    )


def page_of_runs(runs: Sequence[OptimumRun]) -> str:
    """Writes the page in Markdown."""
    commits = sorted({run.commit for run in runs})
    unlike = [
        run
        for run in runs
        if run.found < run.optimal or (run.found == run.optimal and run.proof == "shorter")
    ]
    lines = [
        "# Published optima",
        "## Search",
        _tabulate(runs, _SEARCH_HEADERS, _search_cells),
        "found: the shortest length after at most 10 s of processor time for `auto` and the search "
        "together, as a multiple of the published optimum. until found: processor time. A search "
        "was stopped when it reached the published optimum, of which it makes no other use.",
        "## Order",
        _tabulate(runs, _ORDER_HEADERS, _order_cells),
        "Mean and greatest ratios. FIFO: processors run tasks in the order in which their inputs "
        "arrive, as in the simulator. best FIFO: the shortest schedule in that order that "
        f"{_FIFO_ROUNDS} rounds of annealing of placements found. `auto` places for links that "
        "carry one message at a time, and its placement runs here without contention; its best "
        "order is exact, by CP-SAT. found: the placement of the first table.",
        "## Proofs",
        _tabulate(runs, _PROOF_HEADERS, _proof_cells),
        "by bound: the longest chain of tasks or the work takes as long. by solver: CP-SAT with "
        "one worker excluded every shorter schedule in at most 10 s of processor time. shorter: it "
        "found a shorter one. Times are of the proofs by solver that succeeded.",
        f"{sum(run.says_solver_time for run in runs)} of {len(runs)} files say how long the search "
        f"for the optimum took; of the others, "
        f"{sum(_is_proved_as_published(run) for run in runs if not run.says_solver_time)} of "
        f"{sum(not run.says_solver_time for run in runs)} optima are proved here.",
        *(
            f"`{run.name}` has {run.optimal} as its published optimum, found {run.found}, proof: "
            f"{run.proof}."
            for run in unlike
        ),
        f"Runs were made at commit {', '.join(commits)}.",
    ]
    return "\n\n".join(lines)


_SEARCH_HEADERS = (
    *("tasks", "graphs", "to the optimum", "within 2 %", "found, mean", "worst"),
    *("until found, median", "95 %", "longest"),
)
_ORDER_HEADERS = (
    *(
        "tasks",
        "best FIFO is optimal",
        "best FIFO / optimum",
        "`auto`, FIFO / optimum",
        "`auto`, best order / optimum",
    ),
    *("`auto`, FIFO / best order", "found, FIFO / its order"),
)
_PROOF_HEADERS = (
    *("tasks", "graphs", "proved", "by bound", "by solver", "shorter", "unknown"),
    *("median", "longest"),
)


def _tabulate(
    runs: Sequence[OptimumRun],
    headers: Sequence[str],
    cells: Callable[[Sequence[OptimumRun]], list[str]],
) -> str:
    """Tabulates the runs by the number of tasks, and all of them."""
    sizes = sorted({run.tasks for run in runs})
    rows = [[str(size), *cells([run for run in runs if run.tasks == size])] for size in sizes]
    rows.append(["all", *cells(runs)])
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _search_cells(runs: Sequence[OptimumRun]) -> list[str]:
    ratios = np.array([run.found / run.optimal for run in runs])
    secs = [run.found_secs for run in runs]
    return [
        f"{len(runs)}",
        f"{np.mean(ratios <= 1.0):.1%}",
        f"{np.mean(ratios <= 1.0 + _TOLERANCE):.1%}",
        f"{ratios.mean():.4f}",
        f"{ratios.max():.4f}",
        *(f"{np.quantile(secs, share):.2f} s" for share in (0.5, 0.95, 1.0)),
    ]


def _order_cells(runs: Sequence[OptimumRun]) -> list[str]:
    ordered = [(run, run.auto_ordered) for run in runs if run.auto_ordered is not None]
    columns = [
        [run.best_fifo / run.optimal for run in runs],
        [run.auto_fifo / run.optimal for run in runs],
        [best / run.optimal for run, best in ordered],
        [run.auto_fifo / best for run, best in ordered],
        [run.found_fifo / run.found for run in runs],
    ]
    return [
        f"{np.mean([ratio <= 1.0 for ratio in columns[0]]):.1%}",
        *(f"{np.mean(ratios):.3f}, {max(ratios):.3f}" if ratios else "" for ratios in columns),
    ]


def _proof_cells(runs: Sequence[OptimumRun]) -> list[str]:
    outcomes = ("bound", "solver", "shorter", "unknown")
    counts = [sum(run.proof == outcome for run in runs) for outcome in outcomes]
    secs = [run.proof_secs for run in runs if run.proof == "solver"]
    return [
        f"{len(runs)}",
        f"{sum(counts[:2]) / len(runs):.1%}",
        *(f"{count}" for count in counts),
        *((f"{np.median(secs):.2f} s", f"{max(secs):.2f} s") if secs else ("", "")),
    ]


def _is_proved_as_published(run: OptimumRun) -> bool:
    return run.found == run.optimal and run.proof in ("bound", "solver")


def _list_graphs(directory: str) -> list[pathlib.Path]:
    return sorted(pathlib.Path(directory).glob("*.gxl"))


def _read(path: pathlib.Path) -> dict[str, OptimumRun]:
    """Reads the runs that are kept, by the names of their graphs."""
    if not path.exists():
        return {}
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    runs = [OptimumRun(**json.loads(line)) for line in lines]
    return {run.name: run for run in runs}


def _write(path: pathlib.Path, runs: Sequence[OptimumRun]) -> None:
    """Keeps all runs, whole or not at all."""
    lines = "".join(json.dumps(dataclasses.asdict(run)) + "\n" for run in runs)
    write_bytes(path, lzma.compress(lines.encode(), preset=9))


def main() -> None:
    """Runs what has not run yet, and writes the page."""
    parser = run_parser(__doc__, "published_optima")
    parser.add_argument(
        "--graphs_dir",
        help="GXL files with task weights, edge weights as communication delays, and as attributes "
        'of the graph "Number of processors" and "Total schedule length", the optimum',
    )
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    runs = _read(out / "runs.jsonl.xz")
    if not args.only_kept:
        if args.graphs_dir is None:
            parser.error("--graphs_dir is missing")
        if not pathlib.Path(args.graphs_dir).is_dir():
            parser.error(f"{args.graphs_dir} is no directory")
        graphs = [read_task_graph(path) for path in _list_graphs(args.graphs_dir)]
        if not graphs:
            parser.error(f"{args.graphs_dir} has no *.gxl")
        require_solver()
        for number, graph in enumerate(graphs, 1):
            if graph.name not in runs:
                run = runs[graph.name] = run_graph(graph)
                print(f"{number} of {len(graphs)}: {run}", file=sys.stderr, flush=True)
                _write(out / "runs.jsonl.xz", list(runs.values()))
    if not runs:
        parser.error(f"{out} has no runs")
    write_table(page_of_runs([runs[name] for name in sorted(runs)]), out / "table.md")


if __name__ == "__main__":
    main()
