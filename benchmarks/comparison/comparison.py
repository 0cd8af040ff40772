"""Every placer against every other on every problem, with equal time or with equal samples.

A problem is a model of the catalogue on a described machine, such as "nmt_2:4xK80". Writes NAME.md
with the winner of each problem and every placer's distance to it, NAME.csv with a line for each
run, what the placers that learn sampled (NAME_learning.png), and with --curves how fast a step was
found when (a picture for each problem in NAME_curves/). NAME_runs.jsonl.gz keeps every run that
ended, with its curve: those that are there are not repeated, nor are those of another budget in the
same folder that would be the same with this one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.comparison.report import comparison_markdown, write_comparison_csv
from benchmarks.harness.kept_runs import kept_or_made
from benchmarks.harness.placement_runs import Run, RunKey
from benchmarks.harness.provenance import provenance, provenance_line
from benchmarks.harness.run_placers import ALL_PLACERS, check_placer, uses_seed
from benchmarks.harness.search_curves import plot_learning_curves, plot_search_curves
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.models.catalogue import MODELS
from benchmarks.paper_tables.report import Cell
from tf_placer.files import write_json
from tf_placer.machines.machine import MachineError
from tf_placer.placers import is_learned

__all__ = ["PROBLEMS", "main"]

PROBLEMS = (
    "rnnlm_2:4xK80",
    "rnnlm_4:post-2xK80",
    "rnnlm_large:4xK80",
    "nmt_2:4xK80",
    "nmt_4:post-4xK80",
    "nmt_8:post-8xK80",
    "nmt_large:4xK80",
    "gnmt_4:eagle-4xP100",
    "gnmt_4_wide:eagle-4xP100",
    "inception_v3:4xK80",
    "inception_v3_batch_1:eagle-4xP100",
    "inception_v3_towers:4xK80",
    "inception_v3_async_towers:4xK80",
    "resnet_50:post-4xK80",
    "resnet_101:post-8xK80",
    "resnet_200:post-2xK80",
    "bert_base:eagle-4xP100",
    "decoder_only:4xV100",
    "mixture_of_experts:4xA100",
    "nasnet_a:4xV100",
    "two_towers:4xA100",
)
"""The models of the papers on their machines, and the others on machines of their time."""


def main() -> None:
    """Makes the runs that are missing and writes tables and curves."""
    parser = _parser()
    args = parser.parse_args()
    try:
        problems = [_problem(text) for text in args.problems.split(",")]
        placers = [_placer(text) for text in args.placers.split(",")]
        budget = _budget(args)
    except ValueError as error:
        parser.error(str(error))
    keys = {
        (problem, placer): [
            RunKey(*problem, *placer, seed=seed, small=args.small)
            for seed in (args.seeds if uses_seed(placer[0]) else args.seeds[:1])
        ]
        for problem in problems
        for placer in placers
    }
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    try:
        runs = kept_or_made(
            list(itertools.chain.from_iterable(keys.values())),
            budget,
            out / f"{budget.folder}_runs.jsonl.gz",
            args.runs_dir,
            jobs=1 if budget.is_wall else args.jobs,
            only_kept=args.only_kept,
        )
    except (MachineError, ValueError) as error:
        parser.error(str(error))
    labels = {key.label for key in runs}
    comparison = {
        f"{model} on {machine}": {
            label: Cell(
                None, tuple(runs[key] for key in keys[(model, machine), placer] if key in runs)
            )
            for placer in placers
            if (label := keys[(model, machine), placer][0].label) in labels
        }
        for model, machine in problems
    }
    made_by = provenance()
    write_json(out / f"{budget.folder}_provenance.json", made_by)
    page = comparison_markdown(
        f"Placers compared: {budget}", comparison, provenance_line(made_by, budget, args.seeds)
    )
    (out / f"{budget.folder}.md").write_text(page, encoding="utf-8")
    write_comparison_csv(out / f"{budget.folder}.csv", comparison)
    _draw_curves(out, budget, problems, list(runs.values()), each=args.curves)
    print(page)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--problems", default=",".join(PROBLEMS), help="MODEL:MACHINE by comma (default: all)"
    )
    parser.add_argument(
        "--placers",
        default=",".join(ALL_PLACERS),
        help="by comma, each with its options behind it, as in hierarchical:grouper=metis "
        "(default: all)",
    )
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--wall_secs", type=float, help="time on the clock of each run, which has all cores"
    )
    limit.add_argument(
        "--core_secs", type=float, help="processor time of each run, which has one core"
    )
    limit.add_argument(
        "--samples", type=int, default=2400, help="of each run, which has one core (default 2400)"
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=600.0,
        help="with --samples: processor time of each run (default 600)",
    )
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[0],
        help="by comma; the best of them counts (default 0)",
    )
    parser.add_argument(
        "--curves", action="store_true", help="draw the curves of every problem, too"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="runs at a time, where each has one core (default 2)"
    )
    parser.add_argument(
        "--only_kept",
        action="store_true",
        help="make no runs: tables of those that are kept, without placers that have none",
    )
    parser.add_argument("--small", action="store_true", help="models of small size")
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems and runs")
    parser.add_argument("--out_dir", default="benchmarks/results/comparison")
    return parser


def _budget(args: argparse.Namespace) -> SearchBudget:
    if args.wall_secs is not None:
        return SearchBudget(args.wall_secs, is_wall=True)
    if args.core_secs is not None:
        return SearchBudget(args.core_secs)
    return SearchBudget(args.max_secs, args.samples)


def _draw_curves(
    out: pathlib.Path,
    budget: SearchBudget,
    problems: list[tuple[str, str]],
    runs: list[Run],
    *,
    each: bool,
) -> None:
    runs_of: dict[tuple[str, str], list[Run]] = {problem: [] for problem in problems}
    for run in runs:
        runs_of[run.key.model, run.key.machine].append(run)
    if each:
        pictures = out / f"{budget.folder}_curves"
        pictures.mkdir(exist_ok=True)
        for (model, machine), of_problem in runs_of.items():
            path = pictures / f"{model}-{machine}.png"
            plot_search_curves(path, f"{model} on {machine}: {budget}", of_problem)
    plot_learning_curves(
        out / f"{budget.folder}_learning.png",
        f"What was sampled: {budget}",
        [
            [run for run in of_problem if is_learned(run.key.placer)]
            for of_problem in runs_of.values()
        ],
    )


def _problem(text: str) -> tuple[str, str]:
    """Splits "MODEL:MACHINE" into the model and the machine."""
    model, colon, machine = text.partition(":")
    if not (model and colon and machine):
        raise ValueError(f"--problems: {text!r} is not MODEL:MACHINE")
    if model not in MODELS:
        raise ValueError(f"--problems: there is no model {model!r}; there are {', '.join(MODELS)}")
    return model, machine


def _placer(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Splits "NAME:OPTION=VALUE:OPTION=VALUE", where NAME may have ":", into name and options."""
    name, *options = re.split(":(?=[^:]*=)", text)
    pairs = sorted(option.partition("=")[::2] for option in options)
    check_placer(name, dict(pairs))
    return name, tuple(pairs)


if __name__ == "__main__":
    main()
