"""How long the first answer of each command takes, beside another source tree.

Every command runs twice in a process of its own: cold, with empty folders for everything that the
package and numba keep between runs, and warm, with what the first run has left there. What does not
differ is left out: both trees are compiled to byte code before, as an installation is, and one
command of each has run, so that libraries come from memory rather than from the disk. Both trees
take turns, so their ratios are of one run on one machine. What is done is kept in `--out_dir`, so
the benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

# TensorFlow and NumPy are imported only where inputs are made, in a process of their own: Linux
# counts what a process holds when it starts a command as memory of the command.
from benchmarks.harness.numbered_runs import read_runs, write_runs
from benchmarks.harness.provenance import commit, provenance
from tf_placer.text.markdown import markdown_table

__all__ = [
    "PHASES",
    "THIS_TREE",
    "Case",
    "CommandRun",
    "first_answer_table",
    "graph_cases",
    "main",
    "measure",
    "problem_cases",
]

PHASES = ("simulate", "search", "profile", "optimize")
#: Not resolved: under Bazel a source file is a link, and what is compiled lies beside the link.
THIS_TREE = pathlib.Path(__file__).absolute().parents[2]
_STATES = ("cold", "warm")


@dataclasses.dataclass(frozen=True)
class Case:
    """A command and its inputs.

    Attributes:
        phase: one of `PHASES`.
        operations: how many were asked for.
        num_operations: how many there are.
        arguments: of the command, which both trees understand and mean the same by.
    """

    phase: str
    operations: int
    num_operations: int
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CommandRun:
    """What one command took.

    Attributes:
        commit: of the source tree; "+" behind it if files differ from it.
        phase: see `Case`.
        operations: see `Case`.
        num_operations: see `Case`.
        number: which run of several.
        state: "cold" or "warm".
        wall_secs: from its start to its end.
        processor_secs: of the command and of all processes that it waited for.
        peak_bytes: the most memory that one of these processes held.
        confirmed: whether `optimize` measured placements again beside the original. Noise decides
            about that where nothing is clearly faster, and it takes longer than all else.
    """

    commit: str
    phase: str
    operations: int
    num_operations: int
    number: int
    state: str
    wall_secs: float
    processor_secs: float
    peak_bytes: int
    confirmed: bool


def problem_cases(folder: pathlib.Path, operations: int) -> list[Case]:
    """Writes a problem of about so many operations and a placement of it.

    Args:
        folder: where they go.
        operations: how many.

    Returns:
        The cases of `simulate` and `search`.
    """
    from benchmarks.problems.synthetic import unrolled_lstm
    from tf_placer.problem.problem_file import write_problem

    num_layers = 1 if operations < 1_000 else 4
    counts = [unrolled_lstm(num_layers, steps).num_operations for steps in (1, 2)]
    problem = unrolled_lstm(num_layers, _fitting_steps(operations, counts))
    problem_file = folder / f"problem_{operations}.json"
    write_problem(problem, problem_file)
    # Groups are in the order of the model, so each device has a contiguous part of it.
    row = [
        group * len(problem.devices) // problem.num_groups for group in range(problem.num_groups)
    ]
    assignment_file = folder / f"assignment_{operations}.json"
    assignment_file.write_text(json.dumps({"assignment": row}))
    given = f"--problem={problem_file}"
    arguments = {
        "simulate": (given, f"--assignment={assignment_file}"),
        # The number of placements ends the search, so that both trees do the same.
        "search": (
            *(given, "--placer=auto", "--max_trials=2000"),
            f"--output={folder / 'result.json'}",
        ),
    }
    return [
        Case(phase, operations, problem.num_operations, (phase, *those))
        for phase, those in arguments.items()
    ]


def graph_cases(folder: pathlib.Path, operations: int) -> list[Case]:
    """Writes a graph of about so many operations and what a step of it is fed.

    Args:
        folder: where they go.
        operations: how many; the smallest model has some hundreds.

    Returns:
        The cases of `profile` and `optimize`.
    """
    import numpy as np

    from benchmarks.models import language_model
    from tf_placer.inputs.graph_files import write_graph

    def model(steps: int) -> language_model.LanguageModel:
        # Small tensors: starting, reading and deciding are what is measured, not the steps.
        return language_model.build(steps=steps, units=8, batch=2, vocabulary=20)

    counts = [len(model(steps).graph.get_operations()) for steps in (1, 2)]
    made = model(_fitting_steps(operations, counts))
    graph_file, feeds_file = folder / f"graph_{operations}.pb", folder / f"feeds_{operations}.npz"
    write_graph(graph_file, made.graph.as_graph_def())
    np.savez(feeds_file, tokens=next(made.batches()))
    given = (
        f"--input_graph={graph_file}",
        f"--feeds={feeds_file}",
        f"--fetches={made.train_op},{made.loss}",
        "--machine=local:2",
    )
    # Trees differ in the name of the option for the granularity, but not in its default.
    arguments = {
        "profile": (f"--output={folder / 'profile.json'}",),
        "optimize": (
            # About four trials come before `auto`, which the graph is profiled for.
            *("--max_trials=8", "--max_secs=120"),
            f"--output_graph={folder / 'placed.pb'}",
        ),
    }
    num_operations = len(made.graph.get_operations())
    return [
        Case(phase, operations, num_operations, (phase, *given, *those))
        for phase, those in arguments.items()
    ]


def _fitting_steps(operations: int, counts: Sequence[int]) -> int:
    """Finds how far to unroll a model for so many operations, from its sizes at 1 and 2 steps."""
    return max(1, 1 + round((operations - counts[0]) / (counts[1] - counts[0])))


def measure(tree: pathlib.Path, case: Case, name: str, number: int = 0) -> list[CommandRun]:
    """Runs a command cold, and warm after that.

    Args:
        tree: the source tree that it is of.
        case: the command.
        name: the commit of the tree.
        number: which run of several.

    Returns:
        The cold and the warm run.

    Raises:
        SystemExit: the command failed; with what it said.
    """
    runs = []
    with tempfile.TemporaryDirectory() as caches:
        for state in _STATES:
            wall_secs, usage, said = _run(tree, case, pathlib.Path(caches))
            runs.append(
                CommandRun(
                    commit=name,
                    phase=case.phase,
                    operations=case.operations,
                    num_operations=case.num_operations,
                    number=number,
                    state=state,
                    wall_secs=wall_secs,
                    processor_secs=usage.ru_utime + usage.ru_stime,
                    peak_bytes=usage.ru_maxrss * 1024,
                    confirmed=re.search(r"^tf_placer: confirming\b", said, re.MULTILINE)
                    is not None,
                )
            )
    return runs


def _run(
    tree: pathlib.Path, case: Case, caches: pathlib.Path
) -> tuple[float, resource.struct_rusage, str]:
    """Runs a command; seconds of the clock, what it used, and what it said on standard error."""
    paths = [str(tree), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    folders = {
        "NUMBA_CACHE_DIR": caches / "numba",
        "XDG_CACHE_HOME": caches / "xdg",
        "TMPDIR": caches / "tmp",  # Where `optimize` leaves its log.
    }
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        **{name: str(folder) for name, folder in folders.items()},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with tempfile.TemporaryFile() as errors:
        start_secs = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "tf_placer", *case.arguments],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall_secs = time.perf_counter() - start_secs
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if process.returncode:
        command = " ".join(["tf_placer", *case.arguments])
        raise SystemExit(f"{tree}: `{command}` ended with {process.returncode}:\n{said}")
    return wall_secs, usage, said


def first_answer_table(this: Sequence[CommandRun], other: Sequence[CommandRun]) -> str:
    """Formats the minima of several runs, in Markdown.

    Args:
        this: runs of this tree.
        other: runs of the same cases of the other tree; none if there is no other.
    """
    measures: Mapping[str, tuple[Callable[[CommandRun], float], str]] = {
        "processor s": (lambda run: run.processor_secs, ".2f"),
        "wall s": (lambda run: run.wall_secs, ".2f"),
        "peak MB": (lambda run: run.peak_bytes / 1e6, ".0f"),
    }
    headers = ["command", "operations", "caches"]
    for name in measures:
        headers += [f"{name}, this", "other", "this / other"] if other else [name]
    sides = [this, other] if other else [this]
    rows = []
    for key in sorted({_row_key(run) for runs in sides for run in runs}):
        chosen = [[run for run in runs if _row_key(run) == key] for runs in sides]
        some = next(run for runs in chosen for run in runs)
        command = some.phase + (", confirmed" if some.confirmed else "")
        row = [command, f"{some.num_operations:,}", some.state]
        for value, form in measures.values():
            least = [min(map(value, runs), default=math.nan) for runs in chosen]
            ratio = [f"{least[0] / least[1]:.3g}"] if other else []
            row += [*(format(each, form) for each in least), *ratio]
        rows.append([cell.replace("nan", "–") for cell in row])
    return markdown_table(headers, rows, "lrl" + "r" * (len(headers) - 3))


def _row_key(run: CommandRun) -> tuple[int, int, bool, int]:
    """Tells which row of the table a run belongs to; in the order of the rows."""
    return PHASES.index(run.phase), run.operations, run.confirmed, _STATES.index(run.state)


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the runs that are missing and writes the table.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="DIR", help="the other source tree (default: none)")
    parser.add_argument("--phases", default=",".join(PHASES), help="by comma (default %(default)s)")
    parser.add_argument(
        "--operations",
        type=int,
        nargs="+",
        default=[60, 2_000, 20_000],
        help="sizes of the problems and graphs, about (default 60 2000 20000)",
    )
    parser.add_argument(
        "--max_profile_operations",
        type=int,
        default=2_000,
        help="no `profile` of larger sizes (default 2000)",
    )
    parser.add_argument(
        "--max_optimize_operations",
        type=int,
        help="no `optimize` of larger sizes, which takes minutes (default: the smallest size)",
    )
    parser.add_argument("--rounds", type=int, default=1, help="of everything (default 1)")
    parser.add_argument("--out_dir", default="benchmarks/results/first_answer")
    args = parser.parse_args(argv)
    phases = args.phases.split(",")
    if unknown := set(phases) - set(PHASES):
        parser.error(f"--phases {','.join(sorted(unknown))}: these are not of {','.join(PHASES)}")
    if args.rounds < 1 or min(args.operations) < 1:
        parser.error("--rounds and --operations must be at least 1")
    trees = [THIS_TREE]
    if args.against:
        trees.append(pathlib.Path(args.against).absolute())
        if not (trees[1] / "tf_placer" / "__main__.py").is_file():
            # Python would find this tree, or an installed package, and measure that.
            parser.error(f"--against {args.against}: this is not a source tree of tf_placer")
    largest = dict.fromkeys(PHASES, max(args.operations))
    largest["profile"] = args.max_profile_operations
    largest["optimize"] = args.max_optimize_operations or min(args.operations)
    wanted = [
        (phase, operations)
        for phase in PHASES
        for operations in args.operations
        if phase in phases and operations <= largest[phase]
    ]
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    commits = [commit(tree) for tree in trees]
    runs = _all_runs(trees, commits, wanted, args.rounds, out / "runs.csv")
    made_by = provenance()
    beside = f" beside {commits[1] or 'unknown'}" if args.against else ""
    text = (
        f"# First answers at commit {commits[0] or 'unknown'}{beside}\n\n"
        f"{first_answer_table(runs[0], runs[1] if args.against else [])}\n\n"
        "Cold: nothing that the package or numba keeps between runs is there. Warm: the run after "
        "that. Processor seconds are those of the command and its child processes; the peak is "
        "that of the largest one of these processes, not of all together. Confirmed: `optimize` "
        "has measured placements again beside the original, about which noise decides. Least of "
        f"{args.rounds} {'round' if args.rounds == 1 else 'rounds'}, each column by itself. "
        f"Made by `{made_by['command']}` on {made_by['processor']}, {made_by['cores']} cores."
    )
    print(text)
    (out / "table.md").write_text(text + "\n")


def _all_runs(
    trees: Sequence[pathlib.Path],
    commits: Sequence[str],
    wanted: Sequence[tuple[str, int]],
    rounds: int,
    path: pathlib.Path,
) -> list[list[CommandRun]]:
    """Makes the runs that the file lacks, and returns all that are wanted, of each tree."""
    kept = {_key(run): run for run in read_runs(CommandRun, path)}

    def keys(tree: int, case: tuple[str, int], number: int) -> list[tuple[str, str, int, int, str]]:
        return [(commits[tree], *case, number, state) for state in _STATES]

    # Both trees are measured again if one lacks a run, so that a ratio is of one time.
    missing = [
        (number, case)
        for number in range(rounds)
        for case in wanted
        if any(key not in kept for tree in range(len(trees)) for key in keys(tree, case, number))
    ]
    with tempfile.TemporaryDirectory() as temporary:
        cases = _prepare(pathlib.Path(temporary), {case for _, case in missing})
        if missing:
            smallest = min(
                cases.values(), key=lambda case: (PHASES.index(case.phase), case.operations)
            )
            for tree in trees:
                _make_ready(tree, smallest)
        for done, (number, wanted_case) in enumerate(missing, 1):
            for tree, name in zip(trees, commits, strict=True):
                for run in measure(tree, cases[wanted_case], name, number):
                    kept[_key(run)] = run
                    print(f"{done}/{len(missing)}: {run}", file=sys.stderr, flush=True)
            write_runs(CommandRun, path, list(kept.values()))
    return [
        [
            kept[key]
            for case in wanted
            for number in range(rounds)
            for key in keys(tree, case, number)
        ]
        for tree in range(len(trees))
    ]


def _key(run: CommandRun) -> tuple[str, str, int, int, str]:
    return run.commit, run.phase, run.operations, run.number, run.state


def _prepare(folder: pathlib.Path, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], Case]:
    """Writes the inputs of what is wanted."""
    cases = {}
    makers = {problem_cases: PHASES[:2], graph_cases: PHASES[2:]}
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        for make, phases in makers.items():
            for operations in sorted({size for phase, size in wanted if phase in phases}):
                print(f"making inputs of {operations} operations", file=sys.stderr, flush=True)
                for case in executor.submit(make, folder, operations).result():
                    cases[case.phase, case.operations] = case
    return cases


def _make_ready(tree: pathlib.Path, case: Case) -> None:
    """Compiles a source tree to byte code and runs a command once, without measuring it."""
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "graph_passes", "tf_placer"],
        cwd=tree,
        check=True,
    )
    with tempfile.TemporaryDirectory() as caches:
        _run(tree, case, pathlib.Path(caches))


if __name__ == "__main__":
    main()
