"""The speed-up of searches by more workers and controllers, with workers that only wait.

Simulates the steps of an unrolled LSTM; a worker waits as long as a trial of the placement would
take, in proportion to its step. Measured are

- trials per minute of 1 to 16 workers, with proposals that wait for nothing;
- ColocRL with 4 controllers of 4 samples on 16 workers, and Post with 12 workers in step, beside
  the same placers in one process with one worker and the same number of samples.

With one worker the waits are skipped, and the clock is put forward by them. What is done is kept in
`--out_dir`, so a later run resumes the benchmark.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import lzma
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.distributed.report import write_report
from benchmarks.distributed.waiting_backend import SkippingClock, WaitingBackend
from benchmarks.harness.arguments import run_parser
from benchmarks.harness.provenance import provenance
from benchmarks.problems.synthetic import unroll_lstm
from tf_placer.files import write_bytes
from tf_placer.placers.heuristics.uniform_random import UniformRandom
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_backend import connect_to_ray
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.distributed.workers import Workers, require_ray
from tf_placer.search.driver import SearchStage, drive
from tf_placer.search.trial_log import Trial, TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds

__all__ = ["CASES", "Case", "main", "run_case"]

_MAX_SECS = 3600.0
_LAYERS, _STEPS = 4, 8
# Networks small enough for all controllers to learn on the cores of one computer.
_SMALL = {"hidden_units": 32, "attention_units": 32, "learning_rate": 0.005, "batch_size": 4}
_SAMPLES, _TRIAL_SECS = 480, 12.0
_SEEDS = (0, 1, 2)
_RANDOM_TRIALS_PER_WORKER = 40


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to search.

    Attributes:
        name: what it is called.
        placer: name of the placer.
        workers: how many measure.
        controllers: how many share weights; 1 for the placer itself.
        options: of the placer.
        skips: whether waits are skipped, because nothing happens meanwhile.
    """

    name: str
    placer: str
    workers: int
    controllers: int = 1
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    skips: bool = False


CASES = (
    *(Case(f"random, {n} workers", "random", n) for n in (1, 2, 4, 8, 16)),
    Case("ColocRL, one process", "colocrl", 1, 1, _SMALL, skips=True),
    Case("ColocRL, 4 controllers of 4", "colocrl", 16, 4, _SMALL),
    Case("Post, one process", "post", 1, skips=True),
    Case("Post, 12 workers in step", "post", 12),
)


def run_case(
    case: Case, problem: PlacementProblem, *, samples: int, trial_secs: float, seed: int
) -> dict[str, Any]:
    """Searches once.

    Args:
        case: how.
        problem: what is placed.
        samples: how many placements.
        trial_secs: how long a trial of the original takes.
        seed: of everything random.

    Returns:
        What came out; for a JSON file. Each trial has when it ended, in seconds from the begin of
        the first one, how long it took (0 for what had been measured before), its step, its
        controller and its batch.
    """
    setup = PlacerSetup(
        case.placer, group_graph(problem), legal_devices(problem), seed, dict(case.options)
    )
    original = np.argmax(setup.legal, axis=1).astype(np.int32)
    skipping = SkippingClock()
    clock, sleep = (skipping, skipping.sleep) if case.skips else (time.monotonic, time.sleep)
    backend = WaitingBackend(problem, original, case.workers, trial_secs, clock, sleep)
    trials: list[tuple[float, float, float | None, int, int]] = []
    updates: Sequence[UpdateRecord] = ()

    def report(trial: Trial, progress: Progress) -> None:
        del progress
        if trial.index:
            took_secs = backend.trial_secs(trial.measurement) if trial.repeats is None else 0.0
            secs = trial.measurement.median_secs
            step_secs = None if secs is None else round(secs, 7)
            trials.append((clock(), took_secs, step_secs, trial.controller or 1, trial.batch))

    def remember_updates(placer: Placer | ConcurrentPlacer) -> None:
        nonlocal updates
        updates = placer.updates

    with contextlib.ExitStack() as stack:
        pool = WorkerPool(backend, _assign, timeout_secs=lambda: _MAX_SECS, clock=clock)
        stack.callback(pool.close)
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(TrialLog(pathlib.Path(directory, "trials.jsonl"), {}))
        placer = stack.enter_context(_placer(case, setup, samples))
        while pool.capacity < case.workers:
            pool.wait(0.0)
        budget = Budget(1 + samples, _MAX_SECS)
        drive(
            [SearchStage.of(placer)],
            pool,
            log,
            budget,
            original=pool.measure_original,
            report=report,
            observed=remember_updates,
        )
    # Without what it takes until the first trial begins: processes start then.
    begin_secs = min(end_secs - took_secs for end_secs, took_secs, *_ in trials)
    # An algorithm may update twice after a batch.
    stale = {each.samples: each.staleness for each in updates if each.staleness is not None}
    return {
        "case": case.name,
        "workers": case.workers,
        "batch_size": getattr(placer, "batch_size", case.options.get("batch_size")),
        "seed": seed,
        "lower_bound_secs": float(lower_bounds(problem).step_secs),
        "staleness": list(stale.values()),
        "trials": [
            (round(end - begin_secs, 3), round(took, 3), *more) for end, took, *more in trials
        ],
    }


class _AllAtOnce(UniformRandom):
    """Proposes all placements in one batch, so that no worker waits for a batch to end."""

    def __init__(self, setup: PlacerSetup, count: int) -> None:
        super().__init__(setup.groups, setup.legal, seed=setup.seed)
        self.batch_size = count


@contextlib.contextmanager
def _placer(case: Case, setup: PlacerSetup, samples: int) -> Iterator[Placer | ConcurrentPlacer]:
    """Makes the placer of a case."""
    if case.controllers > 1:
        workers = Workers("ray", case.workers, case.controllers)
        with (
            connect_to_ray(workers),
            ray_controllers(workers, setup, directory=None) as controllers,
        ):
            yield controllers
    elif case.placer == "random":
        yield _AllAtOnce(setup, samples)
    else:
        yield setup.make_placer()


def _assign(row: np.ndarray) -> Mapping[str, Any]:
    return {"row": tuple(row.tolist())}


def main() -> None:
    """Makes the runs that are missing, and writes the page."""
    args = run_parser(__doc__, "distributed").parse_args()
    path = pathlib.Path(args.out_dir, "runs.jsonl.xz")
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = []
    if path.exists():
        runs = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    done = {(run["case"], run["seed"]) for run in runs}
    wanted = [
        (seed, case)
        for seed in _SEEDS
        for case in CASES
        # One seed is enough for the speed of workers.
        if not (case.placer == "random" and seed) and (case.name, seed) not in done
    ]
    for seed, case in [] if args.only_kept else wanted:
        require_ray()
        print(f"{case.name}, seed {seed}", file=sys.stderr, flush=True)
        samples = case.workers * _RANDOM_TRIALS_PER_WORKER if case.placer == "random" else _SAMPLES
        run = run_case(
            case, unroll_lstm(_LAYERS, _STEPS), samples=samples, trial_secs=_TRIAL_SECS, seed=seed
        )
        budget = {"samples": _SAMPLES, "trial_secs": _TRIAL_SECS}
        runs.append({**run, "budget": budget, "made_by": provenance()})
        lines = "".join(json.dumps(each) + "\n" for each in runs)
        write_bytes(path, lzma.compress(lines.encode(), preset=9))
    print(write_report(path.parent, runs))


if __name__ == "__main__":
    main()
