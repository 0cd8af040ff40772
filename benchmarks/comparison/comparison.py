"""Every placer against every other on every problem, with equal time or with equal samples.

A problem is a model of the catalogue on a described machine, such as "nmt_2:4xK80". Writes NAME.md
with the winner of each problem and every placer's distance to it. NAME_runs.jsonl.gz keeps every
run that ended, with its curve: those that are there are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.comparison.report import comparison_markdown
from benchmarks.harness.arguments import add_pool_arguments, run_parser
from benchmarks.harness.kept_runs import kept_or_made
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.provenance import provenance, provenance_line
from benchmarks.harness.run_placers import ALL_PLACERS, check_placer, uses_seed
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.models.catalogue import MODELS
from tf_placer.machines.machine import MachineError

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
    """Makes the runs that are missing and writes the page."""
    parser = _parser()
    args = parser.parse_args()
    try:
        problems = [_problem(text) for text in args.problems.split(",")]
        placers = [_placer(text) for text in args.placers.split(",")]
        if args.core_secs is None:
            budget = SearchBudget(args.max_secs, args.samples)
        else:
            budget = SearchBudget(args.core_secs)
    except ValueError as error:
        parser.error(str(error))
    keys = {
        (problem, placer): [
            RunKey(*problem, *placer, seed=seed)
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
            jobs=args.jobs,
            only_kept=args.only_kept,
        )
    except (MachineError, ValueError) as error:
        parser.error(str(error))
    labels = {key.label for key in runs}
    comparison = {
        f"{model} on {machine}": {
            label: [runs[key] for key in keys[(model, machine), placer] if key in runs]
            for placer in placers
            if (label := keys[(model, machine), placer][0].label) in labels
        }
        for model, machine in problems
    }
    seeds = ", ".join(map(str, args.seeds))
    page = comparison_markdown(
        f"Placers compared: {budget}",
        comparison,
        provenance_line(provenance(), f"Budget of each run: {budget}; seeds: {seeds}."),
    )
    (out / f"{budget.folder}.md").write_text(page, encoding="utf-8")
    print(page)


def _parser() -> argparse.ArgumentParser:
    parser = run_parser(__doc__, "comparison")
    add_pool_arguments(parser)
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
    limit.add_argument("--core_secs", type=float, help="processor time of each run")
    limit.add_argument("--samples", type=int, default=2400, help="of each run (default 2400)")
    parser.add_argument(
        "--max_secs",
        type=float,
        default=600.0,
        help="with --samples: processor time of each run (default 600)",
    )
    return parser


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
