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
from benchmarks.harness.csv_runs import read_runs, write_runs
from benchmarks.harness.provenance import commit
from benchmarks.harness.table_file import write_table
from tf_placer.text.markdown import markdown_table

__all__ = [
    "PHASES",
    "THIS_TREE",
    "Case",
    "CommandRun",
    "first_answer_table",
    "main",
    "make_case",
    "measure",
]

PHASES = ("simulate", "search", "profile", "optimize")
#: Not resolved: under Bazel a source file is a link, and what is compiled lies beside the link.
THIS_TREE = pathlib.Path(__file__).absolute().parents[2]
_STATES = ("cold", "warm")
# Both run steps, so of larger graphs they take minutes.
_MOST_OPERATIONS = {"profile": 2_000, "optimize": 500}
_EXPLANATION = """\
Cold: nothing that the package or numba keeps between runs is there. Warm: the run after that.
Processor seconds are those of the command and its child processes; the peak is that of the largest
one of these processes, not of all together. Confirmed: `optimize` has measured placements again
beside the original, about which noise decides."""


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
        number: 0; the kept files have this column.
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


_MEASURES: Mapping[str, tuple[Callable[[CommandRun], float], str]] = {
    "processor s": (lambda run: run.processor_secs, ".2f"),
    "wall s": (lambda run: run.wall_secs, ".2f"),
    "peak MB": (lambda run: run.peak_bytes / 1e6, ".0f"),
}


def make_case(folder: pathlib.Path, phase: str, operations: int) -> Case:
    """Writes the inputs of a command.

    Args:
        folder: where they go.
        phase: one of `PHASES`.
        operations: about how many; the smallest graph has some hundreds.
    """
    write = _write_problem if phase in ("simulate", "search") else _write_graph
    num_operations, arguments = write(folder, operations)
    return Case(phase, operations, num_operations, (phase, *arguments[phase]))


def _write_problem(folder: pathlib.Path, operations: int) -> tuple[int, dict[str, tuple[str, ...]]]:
    """Writes a problem and a placement of it.

    Returns:
        How many operations it has, and the arguments of commands that read it.
    """
    from benchmarks.problems.synthetic import unrolled_lstm
    from tf_placer.problem.problem_file import write_problem

    num_layers = 1 if operations < 1_000 else 4
    counts = [unrolled_lstm(num_layers, steps).num_operations for steps in (1, 2)]
    problem = unrolled_lstm(num_layers, _fitting_steps(operations, counts))
    files = {name: folder / f"{name}.json" for name in ("problem", "assignment", "result")}
    write_problem(problem, files["problem"])
    # Groups are in the order of the model, so each device has a contiguous part of it.
    num_groups, num_devices = problem.num_groups, problem.num_devices
    row = [group * num_devices // num_groups for group in range(num_groups)]
    files["assignment"].write_text(json.dumps({"assignment": row}))
    given = f"--problem={files['problem']}"
    # The number of placements ends the search, so that both trees do the same.
    until = ("--placer=auto", "--max_trials=2000")
    return problem.num_operations, {
        "simulate": (given, f"--assignment={files['assignment']}"),
        "search": (given, *until, f"--output={files['result']}"),
    }


def _write_graph(folder: pathlib.Path, operations: int) -> tuple[int, dict[str, tuple[str, ...]]]:
    """Writes a graph and what a step of it is fed; returns what `_write_problem` does."""
    import numpy as np

    from benchmarks.models import language_model
    from benchmarks.models.training_model import TrainingModel
    from tf_placer.inputs.graph_files import write_graph

    def model(steps: int) -> TrainingModel:
        # Small tensors: starting, reading and deciding are what is measured, not the steps.
        return language_model.build(steps=steps, units=8, batch=2, vocabulary=20)

    counts = [len(model(steps).graph.get_operations()) for steps in (1, 2)]
    made = model(_fitting_steps(operations, counts))
    write_graph(folder / "graph.pb", made.graph.as_graph_def())
    [tokens] = next(made.feeds()).values()
    np.savez(folder / "feeds.npz", tokens=tokens)
    given = (
        f"--input_graph={folder / 'graph.pb'}",
        f"--feeds={folder / 'feeds.npz'}",
        f"--fetches={made.train_op},{made.loss}",
        "--machine=local:2",
    )
    # About four trials come before `auto`, which the graph is profiled for.
    until = ("--max_trials=8", "--max_secs=120")
    # Trees differ in the name of the option for the granularity, but not in its default.
    return len(made.graph.get_operations()), {
        "profile": (*given, f"--output={folder / 'profile.json'}"),
        "optimize": (*given, *until, f"--output_graph={folder / 'placed.pb'}"),
    }


def _fitting_steps(operations: int, counts: Sequence[int]) -> int:
    """Finds how far to unroll a model for so many operations, from its sizes at 1 and 2 steps."""
    return max(1, 1 + round((operations - counts[0]) / (counts[1] - counts[0])))


def measure(tree: pathlib.Path, case: Case, name: str) -> list[CommandRun]:
    """Runs a command cold, and warm after that.

    Args:
        tree: the source tree that it is of.
        case: the command.
        name: the commit of the tree.

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
                    number=0,
                    state=state,
                    wall_secs=wall_secs,
                    processor_secs=usage.ru_utime + usage.ru_stime,
                    peak_bytes=usage.ru_maxrss * 1024,
                    confirmed=bool(re.search(r"^tf_placer: confirming\b", said, re.MULTILINE)),
                )
            )
    return runs


def _run(
    tree: pathlib.Path, case: Case, caches: pathlib.Path
) -> tuple[float, resource.struct_rusage, str]:
    """Runs a command; seconds of the clock, what it used, and what it said on standard error."""
    paths = [str(tree), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # In the last one `optimize` leaves its log.
    folders = {name: caches / name for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")}
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


def first_answer_table(this: Sequence[CommandRun], other: Sequence[CommandRun] = ()) -> str:
    """Formats what commands took, in Markdown.

    Args:
        this: runs of this tree.
        other: runs of the same cases of the other tree; none if there is no other.
    """
    headers = ["command", "operations", "caches"]
    for name in _MEASURES:
        headers += [f"{name}, this", "other", "this / other"] if other else [name]
    sides = [{_row_key(run): run for run in runs} for runs in (this, other) if runs]
    rows = []
    for key in sorted(set().union(*sides)):
        run = next(side[key] for side in sides if key in side)
        command = run.phase + (", confirmed" if run.confirmed else "")
        row = [command, f"{run.num_operations:,}", run.state]
        for value, form in _MEASURES.values():
            values = [value(side[key]) if key in side else math.nan for side in sides]
            row += [format(each, form) for each in values]
            row += [f"{values[0] / values[1]:.3g}"] if other else []
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
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument(
        "--operations",
        type=int,
        nargs="+",
        default=[60, 2_000, 20_000],
        help="sizes of the problems and graphs, about (default 60 2000 20000)",
    )
    parser.add_argument("--out_dir", default="benchmarks/results/first_answer")
    args = parser.parse_args(argv)
    trees = {commit(THIS_TREE): THIS_TREE}
    if args.against:
        other = pathlib.Path(args.against).absolute()
        if not (other / "tf_placer" / "__main__.py").is_file():
            # Python would find this tree, or an installed package, and measure that.
            parser.error(f"--against {args.against}: this is not a source tree of tf_placer")
        trees[commit(other)] = other
    cases = [
        (phase, operations)
        for phase in args.phases
        for operations in args.operations
        if operations <= _MOST_OPERATIONS.get(phase, operations)
    ]
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    runs = _all_runs(trees, cases, out / "runs.csv")
    title = f"# First answers at commit {' beside '.join(name or 'unknown' for name in trees)}"
    write_table(f"{title}\n\n{first_answer_table(*runs)}\n\n{_EXPLANATION}", out / "table.md")


def _all_runs(
    trees: Mapping[str, pathlib.Path], cases: Sequence[tuple[str, int]], path: pathlib.Path
) -> list[list[CommandRun]]:
    """Makes the runs that the file lacks; returns those of each tree, which are by commit."""
    kept = {_key(run): run for run in read_runs(CommandRun, path)}
    keys = {case: [(name, *case, state) for name in trees for state in _STATES] for case in cases}
    # Both trees are measured again if one lacks a run, so that a ratio is of one time.
    missing = [case for case in cases if any(key not in kept for key in keys[case])]
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool,
    ):
        for done, wanted in enumerate(missing, 1):
            case = pool.submit(make_case, pathlib.Path(folder), *wanted).result()
            if done == 1:
                for tree in trees.values():
                    _make_ready(tree, case)
            for name, tree in trees.items():
                for run in measure(tree, case, name):
                    kept[_key(run)] = run
                    print(f"{done}/{len(missing)}: {run}", file=sys.stderr, flush=True)
            write_runs(CommandRun, path, list(kept.values()))
    return [[kept[key] for case in cases for key in keys[case] if key[0] == name] for name in trees]


def _key(run: CommandRun) -> tuple[str, str, int, str]:
    return run.commit, run.phase, run.operations, run.state


def _make_ready(tree: pathlib.Path, case: Case) -> None:
    """Compiles a source tree to byte code and runs a command once, without measuring it."""
    compileall = [sys.executable, "-m", "compileall", "-q", "graph_passes", "tf_placer"]
    subprocess.run(compileall, cwd=tree, check=True)
    with tempfile.TemporaryDirectory() as caches:
        _run(tree, case, pathlib.Path(caches))


if __name__ == "__main__":
    main()
