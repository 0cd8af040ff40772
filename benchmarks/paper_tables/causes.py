"""Why placements take as long as they do: the cells of the tables, taken apart.

Every model of the tables on its machine, under the placements that take seconds to find, and under
the fastest that a run in `--runs_dir` has found: the simulated step, how far it is from the lower
bound, and what it loses where (see `benchmarks.paper_tables.step_causes`). Nothing is measured, so
that the result does not depend on what else the computer does. Writes causes.md, causes.csv, a
picture of all causes (causes.png), and what made them (provenance.json).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import time

from benchmarks.comparison.comparison import PROBLEMS
from benchmarks.harness.placement_runs import Run
from benchmarks.harness.provenance import provenance
from benchmarks.paper_tables.cause_picture import plot_causes
from benchmarks.paper_tables.cause_placements import (
    ONE_GPU,
    Against,
    Placed,
    against_published,
    backward_on_first,
    place_all,
    single_operations,
)
from benchmarks.paper_tables.cause_report import causes_markdown, write_causes_csv
from benchmarks.paper_tables.published_tables import TABLES
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from tf_placer.files import read_json, write_json
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

_PARTITIONERS = ("scotch", "mincut", "metis")
# The problems whose partitions are also made of finer parts, to see what that changes.
_CUT_FINER = ("rnnlm_2:4xK80", "nmt_2:4xK80", "inception_v3:4xK80")


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--problems", help="MODEL:MACHINE by comma (default: all of the tables and comparisons)"
    )
    parser.add_argument(
        "--placers", default=",".join(PLACERS), help="by comma (default: %(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="models of small size")
    parser.add_argument(
        "--runs_dir",
        default="runs/tables",
        help="where problems are kept, and found placements are",
    )
    parser.add_argument("--out_dir", default="benchmarks/results/table_causes")
    args = parser.parse_args()
    keys = [dataclasses.replace(key, small=args.small) for key in problem_keys()]
    if args.problems:
        pairs = [text.partition(":")[::2] for text in args.problems.split(",")]
        keys = [ProblemKey(model, machine, small=args.small) for model, machine in pairs]
    problems_dir = pathlib.Path(args.runs_dir, "problems")
    finer: list[ProblemKey] = [
        dataclasses.replace(key, granularity="fine")
        for key in keys
        if f"{key.model}:{key.machine}" in _CUT_FINER
    ]
    broken = make_problems([*keys, *finer], problems_dir)
    keys = [key for key in [*keys, *finer] if key.model not in broken]
    placed: list[Placed] = []
    cut: list[Placed] = []
    against: list[Against] = []
    start_secs = time.monotonic()
    for number, key in enumerate(keys, 1):
        problem = read_paper_problem(key, problems_dir)
        if key.granularity == "coarse":
            found = _best_run(pathlib.Path(args.runs_dir), key, problem.digest)
            placed += place_all(key, problem, args.placers.split(","), found)
            against += against_published(key, problem)
            if dataclasses.replace(key, granularity="fine") in finer:
                cut += [each for each in placed if each.of(key) and each.placer in _PARTITIONERS]
        else:
            cut += place_all(key, problem, _PARTITIONERS, parts="colocation groups")
            alone = single_operations(problem)
            cut += place_all(key, alone, _PARTITIONERS, parts="single operations")
            cut.append(backward_on_first(key, problem, alone))
        eta_secs = (time.monotonic() - start_secs) / number * (len(keys) - number)
        print(f"[{number}/{len(keys)}] {key.folder} | {format_duration(eta_secs)} left", flush=True)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    made_by = provenance()
    write_json(out / "provenance.json", made_by)
    page = causes_markdown(placed, cut, against, made_by)
    (out / "causes.md").write_text(page, encoding="utf-8")
    write_causes_csv(out / "causes.csv", [*placed, *(each for each in cut if each not in placed)])
    plot_causes(out / "causes.png", placed)
    print(page)


if __name__ == "__main__":
    main()
