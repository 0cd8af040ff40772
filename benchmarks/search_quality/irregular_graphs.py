"""Quality of `auto` on irregular graphs, against plain annealing and another checkout.

Eight families of layer graphs; all methods have the same seconds of cores, and all of their
placements are simulated again by this checkout before they count. What is done is kept in
`--out_dir`, so a later run resumes the benchmark; runs of another version of a method are made
again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import lzma
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.table_file import write_table
from benchmarks.search_quality import search_file
from benchmarks.search_quality.irregular_families import FAMILIES, irregular_problem
from benchmarks.search_quality.plain_annealer import ANNEALER_SOURCE, anneal
from tf_placer.files import write_bytes
from tf_placer.native import digest
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.simulation.simulator import Simulator
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.markdown import markdown_table

__all__ = [
    "Case",
    "IrregularRun",
    "RunFile",
    "find_version",
    "main",
    "run_annealer",
    "run_auto",
    "table_of_runs",
]

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SEARCH_FOLDERS = ("tf_placer", "graph_passes")
_SIZES = (60, 250, 700)
_RIVALS = ("annealer", "other")
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem and a budget.

    Attributes:
        family: the family of the graph.
        size: the number of groups that was asked for.
        seed: seeds the problem and the search.
        core_secs: the budget, in seconds of cores.
        threads: the number of chains that may run at once.
    """

    family: str
    size: int
    seed: int
    core_secs: float
    threads: int

    def make_problem(self) -> PlacementProblem:
        """Draws the problem."""
        return irregular_problem(self.family, self.size, self.seed)


@dataclasses.dataclass(frozen=True)
class IrregularRun:
    """The result of a method.

    Attributes:
        case: the problem and the budget.
        method: "auto", "annealer", or "other" for `auto` of another checkout.
        version: that of `find_version`; for the annealer, the digest of it and of the compiled
            core.
        groups: the number of groups.
        devices: the number of devices.
        step_secs: the step time of the placement, simulated again.
        num_simulated: the steps that the method simulated.
        used_secs: the seconds of cores that it took.
    """

    case: Case
    method: str
    version: str
    groups: int
    devices: int
    step_secs: float
    num_simulated: int
    used_secs: float

    def to_line(self) -> str:
        """Makes a line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> IrregularRun:
        """Reads a line of JSON."""
        value: dict[str, Any] = json.loads(line)
        return cls(**{**value, "case": Case(**value["case"])})


class RunFile:
    """Runs kept in a file, the latest of each case and method.

    Attributes:
        runs: the runs, by case and method.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Reads the runs; none if there is no file."""
        self._path = path
        self.runs: dict[tuple[Case, str], IrregularRun] = {}
        if path.exists():
            lines = lzma.decompress(path.read_bytes()).decode().splitlines()
            for run in map(IrregularRun.from_line, lines):
                self.runs[run.case, run.method] = run

    def add(self, run: IrregularRun) -> None:
        """Keeps a run, and writes the file atomically."""
        self.runs[run.case, run.method] = run
        text = "".join(f"{each.to_line()}\n" for each in self.runs.values())
        write_bytes(self._path, lzma.compress(text.encode()))


def run_auto(case: Case, method: str, checkout: pathlib.Path) -> IrregularRun:
    """Searches with `auto` of a checkout, in a process of its own.

    Args:
        case: the problem and the budget.
        method: the name of the method.
        checkout: the folder of the checkout, with a compiled core.

    Raises:
        subprocess.CalledProcessError: the search failed; what it said is printed.
    """
    problem = case.make_problem()
    with temporary_directory() as directory:
        path = pathlib.Path(directory, "problem.json")
        write_problem(problem, path)
        command = [sys.executable, search_file.__file__, str(path), f"--seed={case.seed}"]
        command += [f"--core_secs={case.core_secs}", f"--threads={case.threads}"]
        # Under Bazel the packages that this checkout needs are not those of the interpreter.
        python_path = os.pathsep.join([str(checkout), *filter(None, sys.path)])
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": python_path},
        )
    found = json.loads(ended.stdout)
    return _check(
        case,
        problem,
        np.array(found["placement"], np.int32),
        method=method,
        version=find_version(checkout),
        num_simulated=found["num_simulated"],
        used_secs=found["core_secs"],
    )


def run_annealer(case: Case) -> IrregularRun:
    """Anneals on each thread with a seed of its own; the best placement counts."""
    problem = case.make_problem()
    with concurrent.futures.ThreadPoolExecutor(case.threads) as executor:
        anneal_one = functools.partial(anneal, problem, core_secs=case.core_secs / case.threads)
        seeds = [case.seed * case.threads + number for number in range(case.threads)]
        results = list(executor.map(lambda seed: anneal_one(seed=seed), seeds))
    best = min(results, key=lambda each: each.step_secs)
    return _check(
        case,
        problem,
        best.placement,
        method="annealer",
        version=_annealer_version(),
        num_simulated=sum(each.num_simulated for each in results),
        used_secs=sum(each.core_secs for each in results),
    )


def _check(
    case: Case, problem: PlacementProblem, placement: np.ndarray, *, used_secs: float, **effort: Any
) -> IrregularRun:
    """Simulates the placement that a method found.

    Raises:
        ValueError: the placement does not fit, or is not legal.
    """
    batch = Simulator(problem, threads=1).simulate(placement[np.newaxis])
    if not batch.feasible[0]:
        raise ValueError(f"{effort['method']} found a placement of {case} that does not fit")
    return IrregularRun(
        case=case,
        groups=problem.num_groups,
        devices=problem.num_devices,
        step_secs=float(batch.step_secs[0]),
        used_secs=used_secs,
        **effort,
    )


def find_version(checkout: pathlib.Path) -> str:
    """Finds the last commit of a checkout that changed the search, and a digest of later changes.

    Raises:
        subprocess.CalledProcessError: the folder is no Git checkout.
    """

    def ask(*command: str) -> str:
        git = ["git", "-C", str(checkout), *command, "--", *_SEARCH_FOLDERS]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout

    changes = ask("diff", "HEAD")
    digest_of_changes = f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else ""
    return ask("log", "-1", "--format=%h", "--abbrev=8").strip() + digest_of_changes


def _annealer_version() -> str:
    text = ANNEALER_SOURCE.read_bytes() + ANNEALER_SOURCE.with_suffix(".py").read_bytes()
    core = digest.compute_sources_digest(pathlib.Path(digest.__file__).parent)
    return hashlib.sha256(text + core.encode()).hexdigest()[:16]


def table_of_runs(runs: Mapping[tuple[Case, str], IrregularRun]) -> str:
    """Tabulates the ratio of steps by family, by size, and overall, in Markdown.

    Cases without a run of `auto` do not count.
    """
    cases = [case for case, method in runs if method == "auto"]
    rivals = [rival for rival in _RIVALS if any((case, rival) in runs for case in cases)]
    sizes = sorted({case.size for case in cases})
    parts = [(family, [case for case in cases if case.family == family]) for family in FAMILIES]
    parts += [(f"{size} groups", [case for case in cases if case.size == size]) for size in sizes]
    rows = []
    for name, those in [*parts, ("all", cases)]:
        if those:
            row = [name, str(len(those)), _format_speed(runs, those, "auto")]
            for rival in rivals:
                row += _compare(runs, those, rival)
            rows.append(row)
    headers = ["problems", "cases", "steps/s of auto"]
    for rival in rivals:
        headers += [f"auto / {rival}", "best", "worst", "longer in", f"steps/s of {rival}"]
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _compare(
    runs: Mapping[tuple[Case, str], IrregularRun], cases: Sequence[Case], rival: str
) -> list[str]:
    """Lists the cells that compare `auto` with a rival on the cases that both have run."""
    both = [case for case in cases if (case, rival) in runs]
    if not both:
        return [""] * 5
    ratios = np.array([runs[case, "auto"].step_secs / runs[case, rival].step_secs for case in both])
    return [
        f"{np.exp(np.log(ratios).mean()):.4f}",
        f"{ratios.min():.4f}",
        f"{ratios.max():.4f}",
        f"{np.count_nonzero(ratios > 1.0 + _ROUNDING)}",
        _format_speed(runs, both, rival),
    ]


def _format_speed(
    runs: Mapping[tuple[Case, str], IrregularRun], cases: Sequence[Case], method: str
) -> str:
    """Formats the number of simulated steps per second of a core."""
    those = [runs[case, method] for case in cases]
    used_secs = sum(run.used_secs for run in those)
    return f"{sum(run.num_simulated for run in those) / used_secs:,.0f}"


def _page(runs: Mapping[tuple[Case, str], IrregularRun]) -> str:
    budgets = sorted({(case.core_secs, case.threads) for case, _ in runs})
    budget = ", ".join(f"{secs:g} core seconds on {threads} threads" for secs, threads in budgets)
    others = {run.version for run in runs.values() if run.method == "other"}
    autos = {run.version for run in runs.values() if run.method == "auto"}
    names = f"auto: commit {', '.join(sorted(autos))}."
    if others:
        names += f" other: `auto` of commit {', '.join(sorted(others))}."
    return (
        f"{table_of_runs(runs)}\n\n"
        f"Each method has {budget} for a problem. auto / annealer: the geometric mean of the step "
        "of `auto` by that of the annealer; below 1 if `auto` is faster. best, worst: the least "
        "and the largest of these ratios. longer in: cases whose step by `auto` is longer. "
        f"steps/s: simulated steps per second of a core. {names}"
    )


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = run_parser(__doc__, "irregular_graphs")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="core seconds of a run (default 10)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of a run (default 1)")
    parser.add_argument("--seeds", type=int, default=1, help="problems of a kind (default 1)")
    parser.add_argument("--first_seed", type=int, default=0, help="default 0")
    parser.add_argument("--families", default=",".join(FAMILIES), help="default: all")
    parser.add_argument("--sizes", default=",".join(map(str, _SIZES)), help="default: 60,250,700")
    parser.add_argument(
        "--other_checkout", type=pathlib.Path, help="a folder with a compiled core, to compare with"
    )
    args = parser.parse_args(argv)
    args.families = args.families.split(",")
    unknown = sorted(set(args.families) - FAMILIES.keys())
    if unknown:
        parser.error(f"there is no family {unknown[0]!r}: there are {', '.join(FAMILIES)}")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Runs what has not run yet, and writes the table."""
    args = _parse_args(argv)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    kept = RunFile(out / "runs.jsonl.xz")
    methods: dict[str, tuple[str, Callable[[Case], IrregularRun]]] = {
        "auto": (find_version(_ROOT), lambda case: run_auto(case, "auto", _ROOT)),
        "annealer": (_annealer_version(), run_annealer),
    }
    if args.other_checkout is not None:
        other = args.other_checkout.resolve()
        methods["other"] = (find_version(other), lambda case: run_auto(case, "other", other))
    cases = [
        Case(family, size, seed, args.seconds, args.threads)
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for size in map(int, args.sizes.split(","))
        for family in args.families
    ]
    for case in [] if args.only_kept else cases:
        for method, (version, run) in methods.items():
            known = kept.runs.get((case, method))
            if known is None or known.version != version:
                kept.add(run(case))
        steps = [f"{method} {kept.runs[case, method].step_secs * 1e3:.3f} ms" for method in methods]
        print(case.family, case.size, case.seed, *steps, sep=" | ", flush=True)
    write_table(_page(kept.runs), out / "table.md")


if __name__ == "__main__":
    main()
