"""How long `optimize` takes to answer where the same search has ended before.

The graph is an unrolled language model of about 20,000 operations. A search of it is made up once:
it runs as always, but its measurements are invented. Then `optimize` is called in a fresh process
on the graph file, as a training script would: it recognises the graph and what is asked, reads the
result and puts the placement on the graph. Writes a table with the time of every phase.
"""

from __future__ import annotations

import argparse
import csv
import functools
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.provenance import provenance
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration

__all__ = ["PHASES", "answer_secs", "main", "prepare"]

_MACHINE = "local:2"
_SECS = 0.1
#: What an answer consists of: module, function, and what it does.
PHASES: Mapping[str, tuple[str, str, str]] = {
    "read": ("tf_placer.live.given_step", "read_source", "read the graph, and work out its step"),
    "machine": ("tf_placer.live.preparation", "find_machine", "look at the machine"),
    "fingerprint": (
        "tf_placer.live.optimization",
        "request_digest",
        "fingerprint of the graph and of what is asked",
    ),
    "log": (
        "tf_placer.live.optimization",
        "read_log",
        "read the trials, to check them",
    ),
    "placement": ("tf_placer.live.optimization", "read_placement", "read the placement"),
    "devices": ("tf_placer.live.optimization", "_annotated", "put the devices on the graph"),
    "write": ("tf_placer.inputs.graph_files", "write_graph", "write the graph with devices"),
}


class _MadeUp:
    """Stands in for an environment: two devices are twice as fast as one."""

    timeout_secs = 60.0

    def __init__(self, *_: Any, **__: Any) -> None:
        self._secs: dict[str, float] = {}

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float:
        self._secs[label] = _SECS / max(1, len(set(assignment.values())))
        return 0.0

    def has_session(self, label: str) -> bool:
        return label in self._secs

    def run_steps(
        self, label: str, count: int, *, timeout_secs: float | None = None
    ) -> tuple[float, ...]:
        del timeout_secs
        return (self._secs[label],) * count

    def close_session(self, label: str) -> None:
        del self._secs[label]

    def fetched_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = ()
    ) -> dict[str, Any]:
        del assignment, tensors
        return {}

    def restart(self) -> None:
        """Closes all sessions; there are no processes."""
        self._secs.clear()

    def __enter__(self) -> _MadeUp:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def prepare(directory: pathlib.Path, steps: int) -> int:
    """Writes a graph and makes up a search of it.

    Args:
        directory: where the graph, `graph.meta`, and the search, `run`, go.
        steps: how far the model is unrolled.

    Returns:
        How many operations the graph has.
    """
    import tensorflow as tf

    from benchmarks.models import language_model
    from tf_placer.inputs.graph_files import write_graph
    from tf_placer.live import optimization
    from tf_placer.live import run as live_run
    from tf_placer.live.run_directory import RunDirectory
    from tf_placer.live.run_result import Outcome

    model = language_model.build(layers=4, units=8, steps=steps, batch=2, vocabulary=50)
    with model.graph.as_default():
        meta = tf.compat.v1.train.export_meta_graph()
    path = directory / "graph.meta"
    write_graph(path, meta.graph_def, meta)

    def search_here(
        run: RunDirectory,
        given: str,
        report: Callable[[str], None],
        start_secs: float,
        host: object,
    ) -> Outcome:
        del host
        environment: Any = _MadeUp
        return live_run.run(RunDirectory(given), run, report, environment, start_secs=start_secs)

    with mock.patch.object(optimization, "run_search", search_here):
        result = optimization.optimize(
            path, machine=_MACHINE, placer="expert", log_dir=directory / "run"
        )
    if not result.changed:
        raise SystemExit(f"the search that was made up has found nothing: {result.reason}")
    return len(meta.graph_def.node)


def answer_secs(directory: pathlib.Path) -> dict[str, float]:
    """Answers in this process.

    Args:
        directory: as `prepare` left it.

    Returns:
        Seconds by phase, of `PHASES` and "import"; and "other" for the rest of the call.
    """
    secs = dict.fromkeys(["import", *PHASES], 0.0)
    start_secs = time.perf_counter()
    for module, _, _ in PHASES.values():
        importlib.import_module(module)
    secs["import"] = time.perf_counter() - start_secs

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **settings: Any) -> Any:
            start_secs = time.perf_counter()
            try:
                return function(*arguments, **settings)
            finally:
                secs[name] += time.perf_counter() - start_secs

        return call

    for name, (module, function, _) in PHASES.items():
        home = importlib.import_module(module)
        setattr(home, function, timed(name, getattr(home, function)))
    optimization, graph_files = (
        importlib.import_module(f"tf_placer.{name}")
        for name in ("live.optimization", "inputs.graph_files")
    )
    start_secs = time.perf_counter()
    result = optimization.optimize(
        directory / "graph.meta", machine=_MACHINE, placer="expert", log_dir=directory / "run"
    )
    graph_files.write_graph(directory / "placed.pb", result.graph_def)
    total_secs = time.perf_counter() - start_secs
    if not result.changed:
        raise SystemExit(f"the placement was not found: {result.reason}")
    secs["other"] = total_secs - sum(secs[name] for name in PHASES)
    return secs


def _answers(directory: pathlib.Path, runs: int) -> list[dict[str, float]]:
    """Answers in fresh processes; "process" is what the interpreter takes to start and to end."""
    code = (
        "import json, pathlib, sys; from benchmarks.speed.saved_placement import answer_secs; "
        "print(json.dumps(answer_secs(pathlib.Path(sys.argv[1]))))"
    )
    answers = []
    for number in range(runs):
        start_secs = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code, str(directory)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        whole_secs = time.perf_counter() - start_secs
        secs: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        secs["process"] = whole_secs - sum(secs.values())
        answers.append(secs)
        left = format_duration((runs - 1 - number) * whole_secs)
        print(f"answer {number + 1}/{runs}: {whole_secs:.1f} s, ETA {left}", flush=True)
    return answers


def _text(answers: Sequence[Mapping[str, float]], num_operations: int) -> str:
    whats = {
        "import": "import TensorFlow and tf_placer",
        **{name: what for name, (_, _, what) in PHASES.items()},
        "other": "the rest of the call",
        "process": "start and end of the interpreter",
    }
    rows = [
        [name, f"{statistics.median(a[name] for a in answers):.2f} s", what]
        for name, what in whats.items()
    ]
    call = statistics.median(
        sum(secs for name, secs in a.items() if name not in ("import", "process")) for a in answers
    )
    whole = statistics.median(sum(a.values()) for a in answers)
    rows += [
        ["the call", f"{call:.2f} s", "from `optimize` to the graph with devices on disk"],
        ["all", f"{whole:.2f} s", "the whole process"],
    ]
    made_by = provenance()
    return f"""\
# A placement that is there already

From the call of `optimize` to the graph with devices, where the same search of a graph of
{num_operations:,} operations has ended before; medians of {len(answers)} fresh processes.

{markdown_table(["phase", "time", "what"], rows, "lrl")}

Made by `{made_by["command"]}` on {made_by["processor"]}, {made_by["cores"]} cores.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Prepares, measures and writes.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=68, help="of the model (default 68: 20,000 operations)"
    )
    parser.add_argument("--runs", type=int, default=5, help="fresh processes (default 5)")
    parser.add_argument("--out_dir", default="benchmarks/results/saved_placement")
    args = parser.parse_args(argv)
    if args.steps < 1 or args.runs < 1:
        parser.error("--steps and --runs must be at least 1")
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        print(f"building the graph: {args.steps} steps of the model", flush=True)
        num_operations = prepare(directory, args.steps)
        answers = _answers(directory, args.runs)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "saved_placement.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["answer", *answers[0]])
        writer.writeheader()
        writer.writerows({"answer": number, **secs} for number, secs in enumerate(answers))
    text = _text(answers, num_operations)
    (out / "saved_placement.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
