"""Simulated against TensorFlow's own steps on emulated GPUs, over many placements of models.

Every placement is simulated as a search would, and run by TensorFlow on emulated GPUs in the mode
"times": its executor, Placer, allocator and copies are real, and kernels and transfers take what
the same model of the machine says. So the errors are those of the rules of the simulator: what runs
when, what waits for what, and what is held in memory meanwhile.

All of a model is on GPUs, but for what has no kernel there. The placements are one GPU, the
experts', METIS', what `auto` finds, random ones, and ones between these.

Writes the measurements and a table. A later run resumes a stopped one.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.harness.statistics import spearman
from benchmarks.models.catalog import MODELS, build_model
from benchmarks.problems.experts import expert_placements
from benchmarks.simulator.fidelity import read_or_make_placements
from graph_passes.pipeline import GroupedGraph, group_operations
from tf_placer import emulated
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.costs.costed_graph import CostedGraph
from tf_placer.files import read_json, write_json
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.machines.emulated_machine import make_emulated_machine
from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["Agreement", "main"]

_MODELS = "rnnlm_2,nmt_2,inception_v3,resnet_50,bert_base"
_MACHINES = "2xK80,4xK80,2xP100,4xP100,4xV100"
_RESULTS = "benchmarks/results/emulated_agreement"
_SEARCH_SECS = 10
_MOST_METIS = 4
# Sessions that run out of memory wait for it for 10 s and more.
_TIMEOUT_SECS = 3600


@dataclasses.dataclass(frozen=True, eq=False)
class Agreement:
    """Simulated and measured steps of the placements of a model on a machine.

    Attributes:
        kinds: where each placement is from.
        simulated_secs: float64 [num_placements].
        simulated_bytes: int64 [num_placements, num_gpus], the peaks.
        accepted: bool [num_placements], whether it fits by the simulator.
        measured_secs: float64 [num_placements], by the clock of the machine; NaN where memory was
            short.
        processor_secs: float64 [num_placements], of a step on this computer; NaN likewise.
        measured_bytes: int64 [num_placements, num_gpus], the peaks of TensorFlow's allocator.
        num_operations: of a step.
    """

    kinds: Sequence[str]
    simulated_secs: np.ndarray
    simulated_bytes: np.ndarray
    accepted: np.ndarray
    measured_secs: np.ndarray
    processor_secs: np.ndarray
    measured_bytes: np.ndarray
    num_operations: int

    @property
    def ran(self) -> np.ndarray:
        """True where TensorFlow had the memory, bool [num_placements]."""
        return np.isfinite(self.measured_secs)

    def row(self, model: str, machine: str) -> list[str]:
        """Formats the line of the table."""
        compared = self._compare() if self.ran.any() else [""] * 8
        return [
            model,
            machine,
            str(len(self.kinds)),
            *compared[:-1],
            str(int((self.accepted & ~self.ran).sum())),
            str(int((~self.accepted & self.ran).sum())),
            str(int((~self.ran).sum())),
            compared[-1],
        ]

    def _compare(self) -> list[str]:
        """Formats how the placements that ran compare with the simulator."""
        simulated, measured = self.simulated_secs[self.ran], self.measured_secs[self.ran]
        errors = np.abs(simulated / measured - 1)
        bytes_ratios = self.simulated_bytes[self.ran].max(1) / self.measured_bytes[self.ran].max(1)
        per_operation = self.processor_secs[self.ran] / self.num_operations
        return [
            f"{format_step(measured.min())} to {format_step(measured.max())}",
            f"{spearman(simulated, measured):.3f}",
            f"{np.median(errors):.1%}",
            f"{np.percentile(errors, 90):.1%}",
            f"{np.median(simulated / measured):.3f}",
            f"{np.median(bytes_ratios):.3f}",
            f"{bytes_ratios.min():.3f}",
            f"{1e6 * np.median(per_operation):.0f}",
        ]


_HEADERS = ["model", "machine", "placements", "measured step", "rank correlation", "median error"]
_HEADERS += ["90 % below", "simulated / measured", "peak memory", "least"]
_HEADERS += ["accepted, out of memory", "refused, ran", "out of memory", "ms per 1,000"]
_NOTES = """\
peak memory: simulated by measured, of the GPU that holds most; the median, and the least.
ms per 1,000: milliseconds of this computer's processors per 1,000 operations of a step.
"""


def _placements(
    model: str, grouped: GroupedGraph, problem: PlacementProblem, folder: pathlib.Path, count: int
) -> list[tuple[str, np.ndarray]]:
    """Lists placements on GPUs alone, as far as operations have kernels there."""
    groups, random = grouped.group_graph, np.random.default_rng(0)
    devices = tuple(device.name for device in problem.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    on_gpus = legal.copy()
    on_gpus[:, 0] &= ~legal[:, 1:].any(axis=1)

    def uniform() -> np.ndarray:
        return np.array([random.choice(np.flatnonzero(row)) for row in on_gpus], np.int32)

    rows = [("single", np.where(legal[:, 1], 1, 0).astype(np.int32))]
    rules = expert_placements(
        model, problem.operation_names, problem.groups, legal, problem.num_devices - 1
    )
    rows += [("expert", row) for row in rules.values()]
    metis = make_placer("metis", groups, legal, seed=0, problem=problem)
    rows += [("METIS", row) for row in metis.propose(64)[:_MOST_METIS]]
    cpu_secs = np.where(on_gpus[problem.groups, 0], problem.compute_secs[:, 0], np.inf)
    compute_secs = np.column_stack([cpu_secs, problem.compute_secs[:, 1:]])
    only_gpus = dataclasses.replace(problem, compute_secs=compute_secs)
    rows.append(("auto", _search_with_auto(only_gpus, folder)))
    known = [row for _, row in rows]
    while len(rows) < count:
        if len(rows) % 3 == 0:
            rows.append(("random", uniform()))
            continue
        base = known[random.integers(len(known))]
        redrawn = random.random(len(base)) < random.uniform(0.02, 0.6)
        rows.append(("partly random", np.where(redrawn, uniform(), base).astype(np.int32)))
    return rows[:count]


def _search_with_auto(problem: PlacementProblem, folder: pathlib.Path) -> np.ndarray:
    write_problem(problem, folder / "problem.json")
    command = [sys.executable, "-m", "tf_placer", "search", "--problem", "problem.json"]
    command += ["--max_secs", str(_SEARCH_SECS), "--output", "found.json"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=_environment())
    return np.array(read_json(folder / "found.json")["assignment"], np.int32)


def _environment() -> dict[str, str]:
    """Lets processes that run elsewhere find the packages of this folder."""
    paths = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _write_request(
    workload: Workload,
    grouped: GroupedGraph,
    devices: Sequence[str],
    rows: Sequence[np.ndarray],
    folder: pathlib.Path,
) -> None:
    """Writes what the process with the emulated GPUs reads."""
    (folder / "graph.pb").write_bytes(workload.graph_def.SerializeToString())
    feeds = workload.step.feeds
    np.savez(folder / "feeds.npz", *feeds.values())
    numbers = {name: number for number, name in enumerate(devices)}
    assignments = [grouped.assignment(row, tuple(devices)) for row in rows]
    operations = list(assignments[0])
    write_json(
        folder / "request.json",
        {
            "devices": list(devices),
            "step": {
                "fetches": list(workload.step.fetches),
                "initializers": list(workload.step.initializers),
            },
            "feeds": list(feeds),
            "operations": operations,
            "assignments": [[numbers[each[name]] for name in operations] for each in assignments],
        },
    )


def _compare(model: str, machine_name: str, args: argparse.Namespace) -> Agreement:
    spec = f"emulated:{machine_name}"
    if args.slowdown != 1:
        spec += f",slowdown={args.slowdown:g}"
    machine = make_emulated_machine(spec)
    folder = pathlib.Path(args.log_dir, f"{model}-{machine_name}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    built = build_model(model)
    workload = read_workload(built.graph, [built.train_op], next(built.feeds()), built.initializer)
    grouped = group_operations(workload.op_graph)
    problem = CostedGraph(
        grouped, machine, compute_analytic_costs(workload.op_graph, machine)
    ).problem()
    rows = read_or_make_placements(
        folder / "placements.json",
        args.placements,
        lambda: _placements(model, grouped, problem, folder, args.placements),
    )
    devices = [device.name for device in machine.devices]
    _write_request(workload, grouped, devices, [row for _, row in rows], folder)
    command = [sys.executable, "-m", "benchmarks.simulator.emulated_steps", str(folder)]
    command += ["--steps", str(args.steps)]
    subprocess.run(
        command,
        check=True,
        env=emulated.make_environment(machine, _environment()),
        timeout=_TIMEOUT_SECS,
    )
    lines = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
    lines.sort(key=lambda line: line["placement"])
    nothing = [0] * (len(devices) - 1)
    batch = Simulator(problem).simulate(np.array([row for _, row in rows], np.int32))
    return Agreement(
        kinds=[kind for kind, _ in rows],
        simulated_secs=batch.step_secs,
        simulated_bytes=batch.peak_bytes[:, 1:],
        accepted=batch.feasible,
        measured_secs=np.array([line.get("step_secs", np.nan) for line in lines]) / args.slowdown,
        processor_secs=np.array([line.get("processor_secs", np.nan) for line in lines]),
        measured_bytes=np.array([line.get("peak_bytes", nothing) for line in lines]),
        num_operations=problem.num_operations,
    )


def _write(args: argparse.Namespace, found: dict[tuple[str, str], Agreement]) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    rows = [agreement.row(*pair) for pair, agreement in found.items()]
    text = table(_HEADERS, rows, "ll" + "r" * (len(_HEADERS) - 2))
    made_by = provenance()
    computer = f"{made_by['processor']}, {made_by['cores']} cores"
    line = f"command: {made_by['command']}\ncomputer: {computer}\n"
    (out / "table.txt").write_text(f"{text}\n\n{_NOTES}{line}")
    values = [
        {
            "model": model,
            "machine": machine,
            **{
                name: np.asarray(value).tolist()
                for name, value in dataclasses.asdict(agreement).items()
            },
        }
        for (model, machine), agreement in found.items()
    ]
    # NaN is not JSON.
    content = json.dumps(values).replace("NaN", "null")
    (out / "placements.json.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    return text


def main() -> None:
    """Measures, simulates, and writes the table and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=_MODELS, help=f"by comma (default {_MODELS})")
    parser.add_argument("--machines", default=_MACHINES, help=f"by comma (default {_MACHINES})")
    parser.add_argument("--placements", type=int, default=40, help="of each pair (default 40)")
    parser.add_argument("--steps", type=int, default=4, help="of each placement (default 4)")
    parser.add_argument(
        "--slowdown",
        type=float,
        default=1.0,
        help="factor on the clocks of the machines, for computers that are too slow (default 1)",
    )
    parser.add_argument("--log_dir", default="runs/emulated_agreement")
    parser.add_argument("--out_dir", default=_RESULTS)
    args = parser.parse_args()
    if args.placements < 8 or args.steps < 2 or args.slowdown < 1:
        parser.error("--placements must be at least 8, --steps 2, and --slowdown 1")
    models, machines = args.models.split(","), args.machines.split(",")
    for model in models:
        if model not in MODELS:
            parser.error(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    found: dict[tuple[str, str], Agreement] = {}
    for machine in machines:
        for model in models:
            found[model, machine] = _compare(model, machine, args)
            # Pairs that are done are kept if the others never come.
            print(_write(args, found), flush=True)


if __name__ == "__main__":
    main()
