"""Why placements take as long as they do: the cells of the tables, taken apart.

Every model of the tables on its machine, under the placements that take seconds to find, and under
the fastest that a run in `--runs_dir` has found: the simulated step, how far it is from the lower
bound, and what it loses where (see `benchmarks.paper_tables.step_causes`). Nothing is measured, so
that the result does not depend on what else the computer does. Writes causes.md.

Why partitions do so much worse in the papers it cannot tell. Cutting colocation groups instead of
groups sends 5 to 7 times as many tensors: that Scotch and MinCut then lose to one GPU is explained,
but not by how much. For the published ratios, transfers would have to take 17 to 406 times as long.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time

from benchmarks.comparison.comparison import PROBLEMS
from benchmarks.harness.placement_runs import Run
from benchmarks.harness.table_file import write_table
from benchmarks.paper_tables.cause_placements import ONE_GPU, Placed, place_all
from benchmarks.paper_tables.cause_report import causes_markdown
from benchmarks.paper_tables.published_tables import TABLES
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from tf_placer.files import read_json
from tf_placer.text.units import format_duration

__all__ = ["PLACERS", "main", "problem_keys"]

PLACERS = (
    ONE_GPU,
    "single_cpu",
    "model_expert",
    "expert",
    "topological",
    "scotch",
    "mincut",
    "metis",
    "heft",
    "m_etf",
    "greedy_fill",
    "random",
)
"""The placers whose placements are taken apart; of those that propose several, the fastest."""


def problem_keys() -> list[ProblemKey]:
    """Lists every problem of the tables and of the default comparison."""
    pairs = [(row.model, row.machine) for table in TABLES.values() for row in table.rows]
    pairs += [(model, machine) for model, _, machine in (text.partition(":") for text in PROBLEMS)]
    return [ProblemKey(model, machine) for model, machine in dict.fromkeys(pairs)]


def _best_run(runs_dir: pathlib.Path, key: ProblemKey, digest: str) -> Run | None:
    """Finds the run with the fastest step of a problem, if there is any."""
    runs: list[tuple[float, Run]] = []
    size = "-small" if key.small else ""
    for path in sorted(runs_dir.glob(f"*-secs/{key.model}{size}-{key.machine}-*.json")):
        try:
            run = Run.from_json(read_json(path))
        except (OSError, KeyError, TypeError, ValueError, json.JSONDecodeError):
            continue
        if (
            run.problem_digest == digest
            and run.found is not None
            and run.found.best_secs is not None
        ):
            runs.append((run.found.best_secs, run))
    return min(runs, key=lambda each: each[0])[1] if runs else None


def main() -> None:
    """Takes all placements apart and writes what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems and placements")
    parser.add_argument("--out_dir", default="benchmarks/results/table_causes")
    args = parser.parse_args()
    keys = problem_keys()
    problems_dir = pathlib.Path(args.runs_dir, "problems")
    broken = make_problems(keys, problems_dir)
    keys = [key for key in keys if key.model not in broken]
    placed: list[Placed] = []
    start_secs = time.monotonic()
    for number, key in enumerate(keys, 1):
        problem = read_paper_problem(key, problems_dir)
        found = _best_run(pathlib.Path(args.runs_dir), key, problem.digest)
        placed += place_all(key, problem, PLACERS, found)
        eta_secs = (time.monotonic() - start_secs) / number * (len(keys) - number)
        print(f"[{number}/{len(keys)}] {key.folder} | {format_duration(eta_secs)} left", flush=True)
    write_table(causes_markdown(placed), pathlib.Path(args.out_dir, "causes.md"))


if __name__ == "__main__":
    main()
