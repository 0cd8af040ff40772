"""The systems of the papers on their models, simulated on one CPU and four K80.

Every system places the full-size training graphs of RNNLM, NMT and Inception-V3 on the machine of
the papers, whose costs are computed, with several seeds. Each finished run is a file in
`--out_dir`; a run that is there already is not repeated, so the benchmark goes on where it was
stopped, and runs with more samples replace those with fewer. Then writes a table of all runs and a
picture of what was sampled.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import json
import os
import pathlib
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.run_pool import Call, run_calls
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.json_file import write_json
from tf_placer.placers import PLACERS, make_placer, units_of
from tf_placer.placers.systems import SYSTEMS
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.table import table
from tf_placer.report.units import format_duration, format_step
from tf_placer.simulation.lower_bounds import lower_bounds

__all__ = ["main"]

_MODELS = ("rnnlm", "nmt", "inception_v3")
_BASELINES = ("single_device", "random")
_WINDOW = 100
# Above `--max_secs`, for what a run does before and after, and for its last batch.
_GRACE_SECS = 60.0


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """A graph on the machine."""

    groups: GroupGraph
    legal: np.ndarray
    problem: PlacementProblem


@dataclasses.dataclass(frozen=True)
class _Run:
    """What one system found on one model with one seed.

    Attributes:
        samples: placements simulated.
        failures: of them, those that did not fit.
        best_secs: the fastest step; None if nothing fitted.
        samples_to_best: until a step within 2 % of that.
        search_secs: processor time on one core, which is the wall time where nothing else runs; and
            of it for proposing (`propose_secs`), learning (`observe_secs`) and simulating
            (`simulate_secs`).
        mean_secs: mean step of those of each 100 samples that fitted, None where none did.
        best_so_far_secs: the fastest step up to the end of each 100 samples.
    """

    model: str
    placer: str
    seed: int
    samples: int
    failures: int
    best_secs: float | None
    samples_to_best: int
    lower_bound_secs: float
    search_secs: float
    propose_secs: float
    observe_secs: float
    simulate_secs: float
    mean_secs: list[float | None]
    best_so_far_secs: list[float | None]


def _build(model: str) -> tuple[Any, Sequence[str]]:
    from benchmarks.models.catalogue import build_model

    entries = {"rnnlm": "rnnlm_2", "nmt": "nmt_2", "inception_v3": "inception_v3"}
    built = build_model(entries[model])
    return built.graph, [built.train_op, built.loss]


def _task(model: str, units: str, machine: str, runs_dir: pathlib.Path) -> _Task:
    """The graph, costed now or by an earlier run."""
    path = runs_dir / f"{model}_{units}.pickle"
    if not path.exists():
        from tf_placer.costed_graph import cost_graph
        from tf_placer.machine_lookup import find_machine
        from tf_placer.sources import read_source

        graph, fetches = _build(model)
        costed = cost_graph(
            read_source(graph, fetches), find_machine(machine), steps=1, grouping=units
        )
        grouped = costed.grouped
        devices = tuple(device.name for device in costed.machine.devices)
        legal = grouped.grouping.legal_devices(grouped.colocation, devices)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(pickle.dumps(_Task(grouped.group_graph, legal, costed.problem())))
        os.replace(temporary, path)
    task: _Task = pickle.loads(path.read_bytes())
    return task


def _search_to_file(
    path: str,
    model: str,
    placer_name: str,
    seed: int,
    samples: int,
    max_secs: float,
    task_path: str,
) -> None:
    """One run, in a process of its own with one thread for TensorFlow."""
    for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[variable] = "1"
    task: _Task = pickle.loads(pathlib.Path(task_path).read_bytes())
    environment = SimulatedEnvironment(task.problem, threads=1)
    environment.measure(np.zeros([1, task.groups.num_groups], np.int32))  # Compiles.
    bound_secs = float(lower_bounds(task.problem).step_secs)
    start = time.process_time()
    placer = make_placer(
        placer_name,
        task.groups,
        task.legal,
        seed=seed,
        problem=task.problem,
    )
    phases = {"propose": 0.0, "simulate": 0.0, "observe": 0.0}

    def timed(phase: str, call: Callable[[], Any]) -> Any:
        begin = time.process_time()
        result = call()
        phases[phase] += time.process_time() - begin
        return result

    secs: list[float] = []
    while len(secs) < samples and time.process_time() - start < max_secs:
        count = min(placer.batch_size, samples - len(secs))
        placements = timed("propose", functools.partial(placer.propose, count))
        if not len(placements):
            break
        measured = timed("simulate", functools.partial(environment.measure, placements))
        timed("observe", functools.partial(placer.observe, placements, measured))
        secs += [np.inf if m.median_secs is None else m.median_secs for m in measured]
    best = np.minimum.accumulate(secs)
    ends = range(_WINDOW, len(secs) + _WINDOW, _WINDOW)
    windows = [np.array(secs[end - _WINDOW : end]) for end in ends]
    run = _Run(
        model=model,
        placer=placer_name,
        seed=seed,
        samples=len(secs),
        failures=int(np.isinf(secs).sum()),
        best_secs=_finite(best[-1]),
        samples_to_best=int(np.argmax(best <= 1.02 * best[-1])) + 1,
        lower_bound_secs=bound_secs,
        search_secs=round(time.process_time() - start, 2),
        propose_secs=round(phases["propose"], 2),
        observe_secs=round(phases["observe"], 2),
        simulate_secs=round(phases["simulate"], 2),
        mean_secs=[
            _finite(np.mean(w[np.isfinite(w)])) if np.isfinite(w).any() else None for w in windows
        ],
        best_so_far_secs=[_finite(best[min(end, len(secs)) - 1]) for end in ends],
    )
    write_json(path, dataclasses.asdict(run))


def _finite(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _run_all(args: argparse.Namespace) -> list[_Run]:
    """Runs what is missing, `--jobs` at a time, and reads all."""
    out, runs_dir = pathlib.Path(args.out_dir, "runs"), pathlib.Path(args.runs_dir)
    out.mkdir(parents=True, exist_ok=True)
    wanted = []
    for seed in range(args.seeds):
        for model in args.models:
            for placer in args.placers:
                if placer == "single_device" and seed:
                    continue  # Nothing about it is random.
                path = out / f"{model}-{placer}-{seed}.json"
                done = json.loads(path.read_text())["samples"] if path.exists() else 0
                if done < (1 if placer == "single_device" else args.samples):
                    wanted.append((model, placer, seed, path))
    for model in args.models:
        for units in {units_of(placer) for name, placer, _, _ in wanted if name == model}:
            print(f"costs of {model}, {units} groups", flush=True)
            _task(model, units, args.machine, runs_dir)
    calls = [
        Call(
            _search_to_file,
            (
                os.fspath(path),
                model,
                placer,
                seed,
                args.samples,
                args.max_secs,
                str(runs_dir / f"{model}_{units_of(placer)}.pickle"),
            ),
            2 * args.max_secs + _GRACE_SECS,
        )
        for model, placer, seed, path in wanted
    ]
    start_secs = time.monotonic()
    for number, ended in enumerate(run_calls(calls, args.jobs), 1):
        model, placer, seed, path = wanted[ended.index]
        result = f"no result: {ended.problem}"
        if ended.problem is None:
            run = _read(path)
            search_time = format_duration(run.search_secs)
            result = f"{_step(run.best_secs)} in {run.samples} samples, {search_time}"
        eta_secs = (time.monotonic() - start_secs) / number * (len(calls) - number)
        print(
            f"[{number}/{len(calls)}] {model} {placer} (seed {seed}): {result} | "
            f"{format_duration(eta_secs)} left",
            flush=True,
        )
    return [_read(path) for path in sorted(out.glob("*.json"))]


def _read(path: pathlib.Path) -> _Run:
    return _Run(**json.loads(path.read_text()))


def _step(secs: float | None) -> str:
    return "nothing fits" if secs is None else format_step(secs)


def _table(runs: Sequence[_Run]) -> str:
    """One line per model and placer, over the seeds."""
    rows = []
    order = [*_BASELINES, *SYSTEMS]
    for model in _MODELS:
        of_model = [run for run in runs if run.model == model]
        for placer in [name for name in order if any(run.placer == name for run in of_model)]:
            found = [run for run in of_model if run.placer == placer]
            best = [np.inf if run.best_secs is None else run.best_secs for run in found]
            total_secs = sum(run.search_secs for run in found)
            shares = [
                sum(getattr(run, phase) for run in found) / total_secs if total_secs else 0.0
                for phase in ("propose_secs", "observe_secs", "simulate_secs")
            ]
            rows.append(
                [
                    model,
                    placer,
                    str(len(found)),
                    _range([run.samples for run in found]),
                    _step(_finite(min(best))),
                    _step(_finite(np.median(best))),
                    _step(_finite(max(best))),
                    f"{np.median(best) / found[0].lower_bound_secs:.2f}x",
                    f"{np.median([run.samples_to_best for run in found]):.0f}",
                    f"{sum(run.failures for run in found) / sum(run.samples for run in found):.0%}",
                    format_duration(float(np.median([run.search_secs for run in found]))),
                    " ".join(f"{share:.0%}" for share in shares),
                ]
            )
    headers = ["model", "placer", "seeds", "samples", "best", "median", "worst", "to bound"]
    headers += ["within 2 %", "failed", "core time", "propose, learn, simulate"]
    return table(headers, rows, "llrrrrrrrrrr")


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _write(args: argparse.Namespace, runs: Sequence[_Run]) -> str:
    out = pathlib.Path(args.out_dir)
    with open(out / "runs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        fields = [f.name for f in dataclasses.fields(_Run) if not f.name.endswith("_so_far_secs")]
        fields.remove("mean_secs")
        writer.writerow(fields)
        writer.writerows([[getattr(run, field) for field in fields] for run in runs])
    text = (
        f"machine: {args.machine}, simulated; on {platform.machine()}, one core per run\n"
        "best, median, worst: over the seeds. to bound: median by the lower bound. within 2 %: "
        "samples until\nthen, median. failed: share of samples that did not fit. core time: "
        "median; then its shares.\n\n" + _table(runs)
    )
    (out / "table.txt").write_text(text + "\n")
    _plot(out / "curves.png", runs)
    return text


def _plot(path: pathlib.Path, runs: Sequence[_Run]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    models = [model for model in _MODELS if any(run.model == model for run in runs)]
    placers = [name for name in SYSTEMS if any(run.placer == name for run in runs)]
    figure, panels = pyplot.subplots(
        2, len(models), figsize=(5.5 * len(models), 8), constrained_layout=True, squeeze=False
    )
    for column, model in enumerate(models):
        for row, (field, title) in enumerate(
            (("mean_secs", "mean step of what was sampled"), ("best_so_far_secs", "best so far"))
        ):
            axes = panels[row, column]
            for number, placer in enumerate(placers):
                curves = [
                    [np.nan if value is None else value for value in getattr(run, field)]
                    for run in runs
                    if (run.model, run.placer) == (model, placer)
                ]
                if not curves:
                    continue
                length = min(map(len, curves))
                curve = np.median([values[:length] for values in curves], axis=0)
                style = "-" if number < 10 else "--"
                axes.plot(
                    _WINDOW * np.arange(1, length + 1), curve, style, color=f"C{number % 10}",
                    label=placer,
                )  # fmt: skip
            for run in runs:
                if (run.model, run.placer) == (model, "single_device") and run.best_secs:
                    axes.axhline(run.best_secs, color="grey", linestyle=":", label="single device")
            axes.set_yscale("log")
            axes.set_xlabel("samples")
            axes.set_ylabel("s")
            axes.set_title(f"{model}: {title} (median of the seeds)", fontsize="medium")
    panels[0, -1].legend(fontsize="x-small", loc="upper right")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Runs what is missing, and writes the table, the CSV and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def names(known: Sequence[str]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            for name in text.split(","):
                if name not in known:
                    raise argparse.ArgumentTypeError(f"no {name!r}; there are: {', '.join(known)}")
            return text.split(",")

        return parse

    all_placers = [*_BASELINES, *SYSTEMS]
    parser.add_argument("--models", type=names(_MODELS), default=list(_MODELS))
    parser.add_argument("--placers", type=names(list(PLACERS)), default=all_placers)
    parser.add_argument("--samples", type=int, default=2400, help="per run (default 2400)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max_secs", type=float, default=3600.0, help="per run (default 3600)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--machine", default="4xK80")
    parser.add_argument("--runs_dir", default="runs/systems_on_k80", help="for costed graphs")
    parser.add_argument("--out_dir", default="benchmarks/results/systems_on_k80")
    args = parser.parse_args()
    print(_write(args, _run_all(args)))


if __name__ == "__main__":
    main()
