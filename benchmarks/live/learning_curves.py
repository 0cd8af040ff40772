"""Learning curves of the papers' systems in TensorFlow's runtime, beside those in simulation.

Every system samples placements of the papers' models on a machine whose GPUs are emulated, and each
sample is measured alone in a session, as its paper measures. Then the same placements are
simulated, and the system searches again with the same seed, in simulation. The simulator knows the
costs of the machine: they are those that the emulated kernels and links take. So the difference is
that of TensorFlow's runtime (its executor, allocator and copies) from the rules of the simulator.

The CPU of an emulated machine is that of this computer, and not the described one. So samples are
placements on the GPUs; operations that have no kernel there are on the CPU.

A run that was stopped goes on from its log in `--log_dir`; what tables and pictures are made of is
kept in `--out_dir`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.live.learning_curves_report import (
    KeptCurves,
    LearningRun,
    draw_pictures,
    write_report,
)
from benchmarks.models.catalog import MODELS, build_model
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.pipeline import GroupedGraph
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.alone import AloneEnvironment
from tf_placer.environments.environment import Environment, Measurement
from tf_placer.environments.measuring_protocol import ALONE_PROTOCOLS
from tf_placer.environments.session import SessionEnvironment
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.machines.emulated_machine import PREFIX
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.placers import (
    Granularity,
    describe_placer,
    find_granularity,
    is_learned,
    make_placer,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.driver import SearchStage, drive
from tf_placer.search.log_header import search_header
from tf_placer.search.runner import SequentialRunner
from tf_placer.search.trial_log import LogError, Trial, TrialLog
from tf_placer.text.units import format_duration, format_step

__all__ = ["GpuChoices", "find_protocol", "main", "sample"]

_SYSTEMS = "eagle,hierarchical,post,spotlight,colocrl"
_MODELS = "rnnlm_2,nmt_2,inception_v3"
_MACHINE = "emulated:4xK80"
# A session that runs out of memory waits for it for 10 s and more, and builds its graph slowly.
_TIMEOUT_SECS = 600.0

# The measuring protocol by the beginning of a system's name, of the papers that print one.
_PAPER_PROTOCOLS = {"eagle": "eagle", "post": "post", "colocrl": "colocrl"}


def find_protocol(system: str) -> str:
    """Finds the protocol of a system's paper; that of ColocRL where the paper prints none."""
    beginning = system.partition(":")[0].partition("_")[0]
    return _PAPER_PROTOCOLS.get(beginning, "colocrl")


@dataclasses.dataclass(frozen=True, eq=False)
class GpuChoices:
    """The choice of a GPU for each group that has a kernel there.

    Attributes:
        legal: bool [num_groups, num_gpus]; groups without a choice have the first GPU only.
        fixed: int32 [num_groups], the device of groups without a choice; -1 for all others.
    """

    legal: np.ndarray
    fixed: np.ndarray

    @classmethod
    def of(cls, legal: np.ndarray) -> GpuChoices:
        """Makes the choices from bool [num_groups, num_devices], where device 0 is the CPU."""
        on_gpus = legal[:, 1:].copy()
        is_fixed = ~on_gpus.any(axis=1)
        on_gpus[is_fixed, 0] = True
        fixed = np.where(is_fixed, legal.argmax(axis=1), -1).astype(np.int32)
        return cls(on_gpus, fixed)

    def expand(self, placements: np.ndarray) -> np.ndarray:
        """Turns GPUs, int32 [num_placements, num_groups], into devices of the machine."""
        devices = np.where(self.fixed >= 0, self.fixed, placements + 1)
        return np.asarray(devices, np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class _Expanded:
    """An environment that measures the placements that choices of GPUs mean."""

    environment: Environment
    choices: GpuChoices

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        return self.environment.measure(self.choices.expand(placements))


@dataclasses.dataclass(frozen=True, eq=False)
class _Case:
    """A model on a machine, for systems that choose the same granularity."""

    model: str
    machine: Machine
    workload: Workload
    grouped: GroupedGraph
    problem: PlacementProblem
    choices: GpuChoices

    def assign(self, row: np.ndarray) -> dict[str, str]:
        """Lists device names by operation."""
        return self.grouped.assignment(row, tuple(each.name for each in self.machine.devices))


def _build_case(
    model: str, machine: Machine, workload: Workload, granularity: Granularity
) -> _Case:
    costed = cost_graph(workload, machine, steps=0, granularity=granularity)
    grouped = costed.grouped
    names = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, names)
    return _Case(model, machine, workload, grouped, costed.problem(), GpuChoices.of(legal))


def sample(
    environment: Environment,
    groups: GroupGraph,
    choices: GpuChoices,
    system: str,
    log: TrialLog,
    *,
    samples: int,
    seed: int,
    report: Callable[[Trial, Progress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Lets a system sample placements and learn from their measurements; resumes its log.

    Before the samples, trial 0 of the log is everything on the first GPU.

    Args:
        environment: measures placements of the machine's devices.
        groups: the groups to place.
        choices: the GPUs that groups may be on.
        system: the name of the learned placer.
        log: gets every sample.
        samples: how many are wanted in all.
        seed: of the system.
        report: called after each sample.
        should_stop: called before each sample; true ends the search.
    """
    placer = make_placer(system, groups, choices.legal, seed=seed, max_samples=samples)
    expanded = _Expanded(environment, choices)
    first_gpu = choices.legal.argmax(axis=1)
    drive(
        [SearchStage.of(placer)],
        SequentialRunner(expanded),
        log,
        Budget(1 + samples, float("inf")),
        original=lambda: expanded.measure(first_gpu[np.newaxis])[0],
        report=report,
        should_stop=should_stop,
    )


def _make_run(
    case: _Case, system: str, args: argparse.Namespace, stop_secs: float
) -> LearningRun | None:
    """Samples until the end or that moment of the monotonic clock; None without samples."""
    protocol = find_protocol(system)
    settings = {"model": case.model, "small": args.small, "samples": args.samples}
    settings |= {"machine": case.machine.spec, "protocol": protocol}
    header = search_header(settings, system, {}, args.seed)
    size = "-small" if args.small else ""
    folder = pathlib.Path(args.log_dir, case.machine.spec.replace(":", "-"))
    name = f"{case.model}{size}-{system.replace(':', '-')}-{args.samples}-samples-{args.seed}"
    folder.mkdir(parents=True, exist_ok=True)

    searched_by = (case.grouped.group_graph, case.choices, system)
    budget = {"samples": args.samples, "seed": args.seed}

    def say(trial: Trial, progress: Progress) -> None:
        secs, failure = trial.measurement.median_secs, trial.measurement.failure
        outcome = format_step(secs) if secs is not None else str(failure and failure.kind.value)
        left = format_duration(progress.eta_secs)
        number = f"[{trial.index}/{args.samples}]"
        print(f"{number} {case.model} {system}: {outcome} | {left} left", flush=True)

    with (
        tempfile.TemporaryDirectory() as work_dir,
        TrialLog(folder / f"{name}.jsonl", header) as log,
    ):
        graph_path = pathlib.Path(work_dir) / "graph.pb"
        graph_path.write_bytes(case.workload.graph_def.SerializeToString())
        with SessionEnvironment(
            graph_path,
            case.workload.step,
            case.machine,
            case.assign,
            protocol=ALONE_PROTOCOLS[protocol],
            timeout_secs=_TIMEOUT_SECS,
        ) as sessions:
            sample(
                AloneEnvironment(sessions, case.assign),
                *searched_by,
                log,
                **budget,
                report=say,
                should_stop=lambda: time.monotonic() >= stop_secs,
            )
        one_gpu, *live = log.trials or (None,)
    if one_gpu is None or not live:
        return None
    simulated = SimulatedEnvironment(case.problem)
    with TrialLog(folder / f"{name}-simulated.jsonl", header) as log:
        sample(simulated, *searched_by, log, **budget)
        simulated_one_gpu, *searched = log.trials[: 1 + len(live)]
    placements = np.array([trial.assignment for trial in live], np.int32)
    again = simulated.measure(case.choices.expand(placements))
    measured = [trial for trial in live if trial.repeats is None]
    return LearningRun(
        model=case.model + size,
        machine=case.machine.spec,
        system=system,
        protocol=protocol,
        seed=args.seed,
        wanted=args.samples,
        one_gpu_secs=one_gpu.measurement.median_secs,
        simulated_one_gpu_secs=simulated_one_gpu.measurement.median_secs,
        live_secs=[trial.measurement.median_secs for trial in live],
        simulated_secs=[each.median_secs for each in again],
        searched_secs=[trial.measurement.median_secs for trial in searched],
        measured=len(measured),
        elapsed_secs=live[-1].elapsed_secs - one_gpu.elapsed_secs,
    )


def _make_runs(args: argparse.Namespace, kept: KeptCurves) -> None:
    """Makes the runs, model by model; each gets its share of the time that is left."""
    end_secs = time.monotonic() + args.stop_after_secs
    machine = find_machine(args.machine)
    left = len(args.models) * len(args.systems)
    for model in args.models:
        built = build_model(model, small=args.small)
        feeds = next(built.feeds())
        workload = read_workload(built.graph, [built.train_op], feeds, built.initializer)
        cases: dict[Granularity, _Case] = {}
        for system in args.systems:
            granularity = find_granularity(system, {})
            if granularity not in cases:
                cases[granularity] = _build_case(model, machine, workload, granularity)
            now_secs = time.monotonic()
            share_secs = max(0.0, end_secs - now_secs) / left
            left -= 1
            run = _make_run(cases[granularity], system, args, now_secs + share_secs)
            if run is not None:
                kept.add(run)


def _read_arguments() -> argparse.Namespace:
    parser = run_parser(__doc__, "learning_curves")
    parser.add_argument("--systems", default=_SYSTEMS, help=f"by comma (default {_SYSTEMS})")
    parser.add_argument("--models", default=_MODELS, help=f"by comma (default {_MODELS})")
    parser.add_argument(
        "--machine",
        default=_MACHINE,
        help=f"emulated machine (default {_MACHINE}); that of EAGLE is emulated:eagle-4xP100",
    )
    parser.add_argument("--samples", type=int, default=600, help="of each system (default 600)")
    parser.add_argument("--seed", type=int, default=0, help="of all systems (default 0)")
    parser.add_argument(
        "--stop_after_secs",
        type=float,
        default=float("inf"),
        help="stop sampling after this time, of which every run has an equal share; a later call "
        "goes on (default: no limit)",
    )
    parser.add_argument("--small", action="store_true", help="the models' small sizes")
    parser.add_argument("--log_dir", default="runs/learning_curves", help="for logs of runs")
    args = parser.parse_args()
    args.systems, args.models = args.systems.split(","), args.models.split(",")
    if unknown := [model for model in args.models if model not in MODELS]:
        parser.error(f"there is no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    for system in args.systems:
        try:
            describe_placer(system)
        except ValueError as error:
            parser.error(f"--systems: {error}")
        if not is_learned(system):
            parser.error(f"--systems: {system} does not learn: name a learned placer")
    if not args.machine.startswith(PREFIX):
        parser.error(f"--machine is an emulated one, such as {_MACHINE}, not {args.machine}")
    if args.samples < 1 or not args.stop_after_secs > 0:
        parser.error("--samples must be at least 1, and --stop_after_secs positive")
    return args


def main() -> None:
    """Makes the runs that are missing, and writes the page and its pictures."""
    args = _read_arguments()
    out_dir = pathlib.Path(args.out_dir)
    kept = KeptCurves(out_dir / "runs.json.gz")
    if not args.only_kept:
        try:
            _make_runs(args, kept)
        except (LogError, MachineError) as error:
            raise SystemExit(str(error)) from None
    if not kept.runs:
        raise SystemExit(f"no runs are kept in {kept.path}: leave out --only_kept")
    write_report(out_dir / "README.md", kept.runs)
    for path in draw_pictures(out_dir, kept.runs):
        print(path)


if __name__ == "__main__":
    main()
