"""What more workers and more controllers bring, with workers that only wait.

Simulates the steps of an unrolled LSTM; a worker waits as long as a trial of the placement would
take, in proportion to its step. Measured are

- trials per minute of 1 to 16 workers, with proposals that wait for nothing;
- ColocRL with 4 controllers of 4 samples on 16 workers, and Post with 12 workers in step, beside
  the same placers in one process with one worker and the same number of samples.

What is done is kept in `--out_dir`, so the benchmark goes on where it stopped:

    python -m benchmarks.distributed.waiting_workers --samples 480 --seeds 0,1,2
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.distributed.report import write_report
from benchmarks.distributed.waiting_fleet import WaitingFleet
from benchmarks.harness.provenance import provenance
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.placers.heuristics.uniform_random import UniformRandom
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.distributed.ray_fleet import connected
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.distributed.workers import Workers, require_ray
from tf_placer.search.loop import Budget, search
from tf_placer.search.trial_log import TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds

__all__ = ["CASES", "Case", "main", "run_case"]

_MAX_SECS = 3600.0
# Networks small enough for all controllers to learn on the cores of one computer.
_SMALL = {"hidden_units": 32, "attention_units": 32, "learning_rate": 0.003}


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to search.

    Attributes:
        name: what it is called.
        placer: name of the placer.
        workers: how many measure.
        controllers: how many share weights; 1 for the placer itself.
        options: of the placer.
    """

    name: str
    placer: str
    workers: int
    controllers: int = 1
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


CASES = (
    *(Case(f"random, {n} workers", "random", n) for n in (1, 2, 4, 8, 16)),
    Case("ColocRL, one process", "colocrl", 1, 1, {**_SMALL, "batch_size": 4}),
    Case("ColocRL, 4 controllers of 4", "colocrl", 16, 4, {**_SMALL, "batch_size": 4}),
    Case("Post, one process", "post", 1),
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
        What came out; for a JSON file.
    """
    setup = PlacerSetup(
        case.placer, group_graph(problem), legal_devices(problem), seed, dict(case.options)
    )
    original = np.argmax(setup.legal, axis=1).astype(np.int32)
    fleet = WaitingFleet(problem, original, case.workers, trial_secs)
    updates: Sequence[UpdateRecord] = ()

    def observed(placer: Any) -> None:
        nonlocal updates
        updates = placer.updates

    with contextlib.ExitStack() as stack:
        pool = WorkerPool(fleet, _assign, timeout_secs=lambda: _MAX_SECS)
        stack.callback(pool.close)
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(TrialLog(pathlib.Path(directory, "trials.jsonl"), {}))
        placer = stack.enter_context(_placer(case, setup, samples))
        pool.measure_original()
        while pool.capacity < case.workers:
            pool.finished(0.0)
        began_secs = time.monotonic()
        trials = search(
            pool.measure_original,
            pool,
            [placer],
            log,
            Budget(1 + samples, _MAX_SECS),
            observed=observed,
        )
        # Without what it takes until the first trial begins: processes start then.
        first_secs = trials[1].elapsed_secs - fleet.trial_secs(trials[1].measurement)
        wall_secs = time.monotonic() - began_secs - max(0.0, first_secs)
    measured = [trial for trial in trials[1:] if trial.repeats is None]
    secs = [trial.measurement.median_secs for trial in trials[1:]]
    last = [each for each in secs[-max(1, samples // 10) :] if each is not None]
    stale = list({each.samples: each.staleness or 0 for each in updates}.values())
    return {
        "case": case.name,
        "workers": case.workers,
        "seed": seed,
        "samples": len(trials) - 1,
        "measured": len(measured),
        "wall_secs": round(wall_secs, 3),
        "waited_secs": round(fleet.waited_secs, 3),
        "idle_share": round(1.0 - fleet.waited_secs / case.workers / wall_secs, 4),
        "best_secs": min(each for each in secs if each is not None),
        "last_secs": statistics.fmean(last) if last else None,
        "lower_bound_secs": float(lower_bounds(problem).step_secs),
        "updates": len(stale),
        "staleness": statistics.fmean(stale) if stale else None,
        "largest_staleness": max(stale, default=None),
    }


class _AllAtOnce(UniformRandom):
    """Proposes all placements in one batch, so that no worker waits for a batch to end."""

    def __init__(self, setup: PlacerSetup, count: int) -> None:
        super().__init__(setup.groups, setup.legal, seed=setup.seed)
        self.batch_size = count


@contextlib.contextmanager
def _placer(case: Case, setup: PlacerSetup, samples: int) -> Any:
    """Makes what proposes."""
    if case.controllers > 1:
        workers = Workers("ray", case.workers, case.controllers)
        with connected(workers), ray_controllers(workers, setup, directory=None) as controllers:
            yield controllers
    elif case.placer == "random":
        yield _AllAtOnce(setup, samples)
    else:
        yield setup.make_placer()


def _assign(row: np.ndarray) -> Mapping[str, Any]:
    return {"row": tuple(row.tolist())}


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the runs that are missing, and writes the table and the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=480, help="placements per search")
    parser.add_argument("--trial_secs", type=float, default=1.0, help="of a trial of the original")
    parser.add_argument("--seeds", default="0", help="comma-separated")
    parser.add_argument("--cases", default="", help="words that the names of the cases have")
    parser.add_argument("--out_dir", default="runs/waiting_workers", help="what is done is kept")
    args = parser.parse_args(argv)
    require_ray()
    problem = unrolled_lstm(2, 8)
    directory = pathlib.Path(args.out_dir)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "runs.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    budget = {"samples": args.samples, "trial_secs": args.trial_secs}
    done = {(run["case"], run["seed"]) for run in runs if run["budget"] == budget}
    for seed in map(int, args.seeds.split(",")):
        for case in CASES:
            if (case.name, seed) in done or args.cases not in case.name:
                continue
            if case.placer == "random" and seed:
                continue  # How fast workers are does not hang on it.
            print(f"{case.name}, seed {seed}", file=sys.stderr, flush=True)
            run = run_case(case, problem, seed=seed, **budget)
            runs.append({**run, "budget": budget, "made_by": provenance()})
            with path.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    print(write_report(directory, [run for run in runs if run["budget"] == budget]))


if __name__ == "__main__":
    main()
