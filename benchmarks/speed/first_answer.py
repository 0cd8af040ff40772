"""The time to the first answer of each command, with empty caches and with what that left.

Every command runs twice in a process of its own: cold, with empty folders for everything that the
package keeps between runs, and warm, with what the first run has left there. Not counted is what
belongs to the machine: the package is compiled to byte code before, as an installation is, and a
command has run, so that libraries come from memory rather than from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.table_file import write_table
from benchmarks.models import language_model
from benchmarks.problems.synthetic import unroll_lstm
from tf_placer.inputs.graph_files import write_graph
from tf_placer.problem.problem_file import write_problem
from tf_placer.text.markdown import markdown_table

__all__ = ["graph_commands", "main", "measure", "problem_commands"]

# Layers and steps of about 2,000 and 20,000 operations; steps of graphs of 500 and 2,000.
_PROBLEMS, _GRAPHS = ((4, 12), (4, 120)), (2, 13)
_HEADERS = ["command", "operations", "caches", "wall s", "processor s", "peak MB"]
_EXPLANATION = """\
Cold: nothing that the package keeps between runs is there. Warm: the run after that. Processor
seconds are those of the command and its child processes; the peak is that of the largest of them.
"""

Commands = tuple[int, dict[str, tuple[str, ...]]]


def problem_commands(folder: pathlib.Path, num_layers: int, num_steps: int) -> Commands:
    """Writes a problem and a placement of it.

    Args:
        folder: where they go.
        num_layers: of an LSTM.
        num_steps: how far it is unrolled.

    Returns:
        How many operations there are, and the arguments of commands by their names.
    """
    problem = unroll_lstm(num_layers, num_steps)
    files = {name: folder / f"{name}.json" for name in ("problem", "assignment", "result")}
    write_problem(problem, files["problem"])
    # Groups are in the order of the model, so each device has a contiguous part of it.
    num_groups, num_devices = problem.num_groups, problem.num_devices
    row = [group * num_devices // num_groups for group in range(num_groups)]
    files["assignment"].write_text(json.dumps({"assignment": row}))
    given = f"--problem={files['problem']}"
    until = ("--placer=auto", "--max_trials=2000", f"--output={files['result']}")
    return problem.num_operations, {
        "simulate": (given, f"--assignment={files['assignment']}"),
        "search": (given, *until),
    }


def graph_commands(folder: pathlib.Path, num_steps: int) -> Commands:
    """Writes a graph and what a step of it is fed; returns what `problem_commands` does."""
    # Small tensors: starting, reading and deciding are what is measured, not the steps.
    model = language_model.build(steps=num_steps, units=8, batch=2, vocabulary=20)
    write_graph(folder / "graph.pb", model.graph.as_graph_def())
    [tokens] = next(model.feeds()).values()
    np.savez(folder / "feeds.npz", tokens=tokens)
    return len(model.graph.get_operations()), {
        "profile": (
            f"--input_graph={folder / 'graph.pb'}",
            f"--feeds={folder / 'feeds.npz'}",
            f"--fetches={model.train_op},{model.loss}",
            "--machine=local:2",
            f"--output={folder / 'profile.json'}",
        )
    }


def measure(
    arguments: tuple[str, ...], caches: pathlib.Path
) -> tuple[float, resource.struct_rusage]:
    """Runs a command.

    Args:
        arguments: of `tf_placer`.
        caches: what it keeps between runs.

    Returns:
        Seconds of the clock, and what it used.

    Raises:
        SystemExit: the command failed; with what it said.
    """
    folders = {name: caches / name for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    environment = {**os.environ, **{name: str(folder) for name, folder in folders.items()}}
    with tempfile.TemporaryFile() as errors:
        start_secs = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "tf_placer", *arguments],
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
        raise SystemExit(f"`tf_placer {' '.join(arguments)}` failed:\n{said}")
    return wall_secs, usage


def _rows(commands: Commands) -> list[list[str]]:
    """Measures commands cold and warm, a line of the table each."""
    rows = []
    num_operations, arguments = commands
    for name, given in arguments.items():
        with tempfile.TemporaryDirectory() as caches:
            for state in ("cold", "warm"):
                wall_secs, usage = measure((name, *given), pathlib.Path(caches))
                used = [wall_secs, usage.ru_utime + usage.ru_stime]
                peak = f"{usage.ru_maxrss * 1024 / 1e6:.0f}"
                figures = [*(f"{secs:.2f}" for secs in used), peak]
                rows.append([name, f"{num_operations:,}", state, *figures])
                print(*rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Runs all commands and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out_dir", default="benchmarks/results/first_answer")
    args = parser.parse_args()
    compileall = [sys.executable, "-m", "compileall", "-q", "graph_passes", "tf_placer"]
    subprocess.run(compileall, check=True)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        count, first = problem_commands(folder, 1, 1)
        _rows((count, {"simulate": first["simulate"]}))
        for size in _PROBLEMS:
            rows += _rows(problem_commands(folder, *size))
        for num_steps in _GRAPHS:
            rows += _rows(graph_commands(folder, num_steps))
    text = markdown_table(_HEADERS, rows, "lrlrrr")
    write_table(
        f"# First answers\n\n{text}\n\n{_EXPLANATION}", pathlib.Path(args.out_dir, "table.md")
    )


if __name__ == "__main__":
    main()
