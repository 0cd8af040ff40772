"""How much processor time the page about a search takes, and how large it is.

The search is planned: an unrolled LSTM, split by layer, in a directory as `tf_placer search` leaves
it. Then the page is made once, in this process, which has imported nothing that draws.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import tempfile
import time

import numpy as np

from benchmarks.harness.provenance import package_versions
from benchmarks.harness.table_file import write_table
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.files import write_json
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.report.plan_directory import PlanDirectory, PlanRecord
from tf_placer.search.sampled_steps import Sample

__all__ = ["layered_lstm", "main", "page_secs", "write_plan"]

_LAYERS = 8
# Of a layer and step, about.
_OPERATIONS = 40
_SAMPLES = 2400


def layered_lstm(num_operations: int) -> PlacementProblem:
    """Makes an unrolled LSTM of eight layers and about so many operations, with its layers."""
    problem = unrolled_lstm(_LAYERS, max(1, round(num_operations / _OPERATIONS / _LAYERS)))
    # The groups are the weights of each layer, what all layers share, and the cells step by step.
    groups = problem.groups
    layers = np.where(groups <= _LAYERS, groups % _LAYERS, (groups - _LAYERS - 1) % _LAYERS)
    return dataclasses.replace(problem, layers=layers, coarse_groups=groups)


def write_plan(problem: PlacementProblem, directory: pathlib.Path) -> None:
    """Writes a search that found a split by layer."""
    plan = PlanDirectory(directory)
    write_problem(problem, plan.problem)
    of_groups = np.zeros(problem.num_groups, np.int64)
    assert problem.layers is not None
    of_groups[problem.groups] = problem.layers
    # The first device is the CPU.
    found = 1 + of_groups * (problem.num_devices - 1) // _LAYERS
    result = {"assignment": found.tolist(), "placer": "random", "seed": 0}
    write_json(plan.result, {**result, "trials": _SAMPLES, "elapsed_secs": 60.0})
    samples = tuple(Sample(i, i / 40, 1.0 + 1.0 / i) for i in range(1, _SAMPLES + 1))
    plan.write_record(
        PlanRecord(
            header={"placer": "random", "seed": 0, "versions": package_versions()},
            command="made up",
            time="",
            samples=samples,
            best=samples[-1:],
        )
    )


def page_secs(directory: pathlib.Path, path: pathlib.Path) -> float:
    """Makes the page about a search; returns the seconds of processor time that it takes."""
    start_secs = time.process_time()
    # All that the command imports counts.
    from tf_placer.report.page.page import write_page
    from tf_placer.runs.run_page import read_run_view

    write_page(read_run_view(directory), path)
    return time.process_time() - start_secs


def main() -> None:
    """Makes the page and prints what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=20000, help="about (default 20000)")
    args = parser.parse_args()
    problem = layered_lstm(args.operations)
    with tempfile.TemporaryDirectory() as directory:
        run, path = pathlib.Path(directory, "run"), pathlib.Path(directory, "report.html")
        run.mkdir()
        write_plan(problem, run)
        secs = page_secs(run, path)
        megabytes = path.stat().st_size / 1e6
    write_table(
        f"{problem.num_operations:,} operations, {problem.num_groups:,} groups: {secs:.2f} s of "
        f"processor time, {megabytes:.1f} MB"
    )


if __name__ == "__main__":
    main()
