"""A search by controllers with workers of Ray that only wait: a program to be killed.

All is real but the trials: workers, controllers and the parameter server are processes of a Ray
cluster, and a worker simulates the step of a placement and waits for as long as a trial is to take:

    python -m benchmarks.campaigns.waiting_search --problem problem.json --log_dir runs/waiting
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.distributed.fleet import Greeting
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.distributed.ray_fleet import RayFleet, connected
from tf_placer.search.distributed.tallies import num_workers
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.distributed.workers import Workers
from tf_placer.search.log_header import search_header
from tf_placer.search.loop import Budget, Progress, search
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import Trial, TrialLog

__all__ = ["SimulatingWorker", "main"]

_MAX_SECS = 3600.0
_PLACER, _OPTIONS = "post", {"batch_size": 4, "ce_samples": 20}


class SimulatingWorker:
    """Simulates placements, and waits."""

    def __init__(self, problem: PlacementProblem, trial_secs: float) -> None:
        """Measures nothing yet.

        Args:
            problem: whose steps are simulated.
            trial_secs: how long a trial takes.
        """
        self._environment = SimulatedEnvironment(problem)
        self._original = np.argmax(legal_devices(problem), axis=1).astype(np.int32)
        self._trial_secs = trial_secs

    def ping(self) -> bool:
        """Answers, also while something else runs."""
        return True

    def begin(self, timeout_secs: float) -> Greeting:
        """Measures the graph as it came."""
        return Greeting(socket.gethostname(), os.getpid(), {}, self._measured(self._original))

    def measure(
        self, assignment: Mapping[str, Sequence[int]], best_secs: float | None, timeout_secs: float
    ) -> tuple[Measurement, float | None]:
        """Measures a placement; see `MeasuringWorker.measure`."""
        measurement = self._measured(np.array(assignment["row"], np.int32))
        return measurement, self.measure_original(timeout_secs)

    def measure_original(self, timeout_secs: float) -> float | None:
        """Measures the graph as it came, and does not wait."""
        [measurement] = self._environment.measure(self._original[np.newaxis])
        return measurement.median_secs

    def _measured(self, row: np.ndarray) -> Measurement:
        time.sleep(self._trial_secs)
        [measurement] = self._environment.measure(row[np.newaxis])
        return measurement


def _assign(row: np.ndarray) -> Mapping[str, Any]:
    return {"row": tuple(row.tolist())}


def main(argv: Sequence[str] | None = None) -> None:
    """Searches, and prints a line for each trial that is in the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", required=True, help="what is placed")
    parser.add_argument("--log_dir", required=True, help="where the logs go")
    parser.add_argument("--max_trials", type=int, default=300, help="default %(default)s")
    parser.add_argument("--trial_secs", type=float, default=0.5, help="default %(default)s")
    parser.add_argument("--workers", default="ray", help="see `tf_placer search --help`")
    parser.add_argument("--num_workers", type=int, help="default: as many as a cluster has")
    parser.add_argument("--controllers", type=int, default=2, help="default %(default)s")
    args = parser.parse_args(argv)
    problem = read_problem(args.problem)
    setup = PlacerSetup(_PLACER, group_graph(problem), legal_devices(problem), 0, _OPTIONS)
    workers = Workers(args.workers, args.num_workers, args.controllers)
    subject = {"problem": os.path.basename(args.problem), "controllers": args.controllers}
    header = search_header(subject, _PLACER, _OPTIONS, 0)

    def say(line: str) -> None:
        print(line, flush=True)

    def report(trial: Trial, progress: Progress) -> None:
        del progress
        say(f"trial {trial.index} {trial.measurement.median_secs}")

    with contextlib.ExitStack() as stack:
        log = stack.enter_context(TrialLog(os.path.join(args.log_dir, "trials.jsonl"), header))
        training = stack.enter_context(TrainingLog(args.log_dir, header))
        if not log.trials:
            training.restart()
        stack.enter_context(connected(workers))
        pool = WorkerPool(
            RayFleet(workers, SimulatingWorker, problem, args.trial_secs),
            _assign,
            timeout_secs=lambda: 60.0,
            reference_secs=log.trials[0].measurement.median_secs if log.trials else None,
            num_before=num_workers(log.trials),
            report=say,
        )
        stack.callback(pool.close)
        controllers = stack.enter_context(
            ray_controllers(
                workers, setup, directory=args.log_dir, updates=training.updates, say=say
            )
        )
        recorder = TrainingRecorder(training, args.log_dir, say)
        search(
            pool.measure_original,
            pool,
            [controllers],
            log,
            Budget(args.max_trials, _MAX_SECS),
            report=report,
            observed=recorder.observed,
        )
        recorder.finish()
    say("done")


if __name__ == "__main__":
    main()
