"""Searches with a log of trials that are simulated: a program to be killed.

python -m benchmarks.campaigns.simulated_trials --problem problem.json --log_dir runs/simulated
"""

from __future__ import annotations

import signal

# A program that is to be killed says nothing of it, not even while it imports the rest.
signal.signal(signal.SIGINT, signal.SIG_DFL)

# ruff: noqa: E402
import argparse
import os
import time
from collections.abc import Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import make_placer
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.log_header import search_header
from tf_placer.search.loop import Budget, Progress, search
from tf_placer.search.measuring import InTurn
from tf_placer.search.trial_log import Trial, TrialLog

__all__ = ["main"]

_MAX_SECS = 600.0
# About as long as a log takes to write a trial, so that a kill hits the one or the other.
_PAUSE_SECS = 0.002
_STAGES = ("single_device", "hill_climbing")


def main(argv: Sequence[str] | None = None) -> None:
    """Searches, and prints a line for each trial that is in the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", required=True, help="what is placed")
    parser.add_argument("--log_dir", required=True, help="where trials.jsonl goes")
    parser.add_argument("--max_trials", type=int, default=60, help="default %(default)s")
    args = parser.parse_args(argv)
    problem = read_problem(args.problem)
    environment = SimulatedEnvironment(problem)
    groups, legal = group_graph(problem), legal_devices(problem)
    stages = [make_placer(name, groups, legal, seed=0, problem=problem) for name in _STAGES]
    header = search_header({"problem": os.path.basename(args.problem)}, _STAGES[-1], {}, 0)

    def original() -> Measurement:
        [measurement] = environment.measure(np.argmax(legal, axis=1).astype(np.int32)[None])
        return measurement

    def report(trial: Trial, progress: Progress) -> None:
        del progress
        print(f"trial {trial.index} {trial.measurement.median_secs}", flush=True)
        time.sleep(_PAUSE_SECS)

    with TrialLog(os.path.join(args.log_dir, "trials.jsonl"), header) as log:
        budget = Budget(args.max_trials, _MAX_SECS)
        search(original, InTurn(environment), stages, log, budget, report=report)
    print("done", flush=True)


if __name__ == "__main__":
    main()
