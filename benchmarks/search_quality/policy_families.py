"""How well a trained policy places families of models that it has not seen.

For each family a policy is trained without it (`policy_training`), which is kept as
FAMILY.weights.h5 and not repeated. Then each problem of the family is placed: at once, by the best
of 16 samples, and by a search of 200 samples that learns on, beside the same search without
training, and the fastest that `auto` found in 60 seconds (kept by `comparison`). Writes
families.md.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.kept_runs import KeptRuns
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.run_placers import make_run_placer
from benchmarks.harness.table_file import write_table
from benchmarks.harness.timed_search import SearchBudget, timed_search
from benchmarks.problems.paper import PaperProblem, ProblemKey, read_paper_problem
from benchmarks.search_quality.policy_training import FAMILIES
from tf_placer.text.markdown import markdown_table

__all__ = ["families_markdown", "main"]

_AT_ONCE, _LEARNING = 16, 200
_COLUMNS = ("expert", "at once", "after 200 samples", "untrained, 200 samples")
_LIMIT_SECS = 600.0
_AUTO_RUNS = "benchmarks/results/comparison/60-core-secs_runs.jsonl.xz"


def families_markdown(
    found: Mapping[tuple[str, str], Sequence[float | None]],
    auto: Mapping[str, float],
) -> str:
    """Makes the page.

    Args:
        found: by family and problem, the fastest steps in seconds in the order of the columns; None
            where nothing fitted.
        auto: the fastest step that `auto` found, by problem.
    """
    rows = []
    fitted: list[list[float]] = []
    for (family, problem), steps in found.items():
        ratios = [None if secs is None else secs / auto[problem] for secs in steps]
        known = [ratio for ratio in ratios if ratio is not None]
        if len(known) == len(ratios):
            fitted.append(known)
        cells = ["none" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        rows.append([family, problem, f"{auto[problem]:.3g}", *cells])
    if fitted:
        means = [f"{statistics.geometric_mean(column):.2f}" for column in zip(*fitted, strict=True)]
        rows.append(["mean", f"of the {len(fitted)} that all fit", "", *means])
    headers = ["family", "problem", "auto, s per step", *_COLUMNS]
    return "\n".join(
        [
            "# A policy on families of models that it has not seen",
            "",
            "Each family is placed by a policy that was trained on all others and on generated "
            "steps. The fastest step of each search by what `auto` found in 60 seconds; none: "
            "nothing fitted. The last line has geometric means.",
            "",
            markdown_table(headers, rows, "ll" + "r" * (len(headers) - 2)),
        ]
    )


def main() -> None:
    """Trains what is missing, places, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1000, help="of each policy (default 1000)")
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems")
    parser.add_argument("--weights_dir", default="runs/policies", help="for policies")
    parser.add_argument("--out_dir", default="benchmarks/results/policy_families")
    args = parser.parse_args()
    kept = KeptRuns(_AUTO_RUNS)
    found: dict[tuple[str, str], list[float | None]] = {}
    auto: dict[str, float] = {}
    for family, texts in FAMILIES.items():
        weights = _trained_without(family, args)
        for text in texts:
            model, _, machine = text.partition(":")
            problem = read_paper_problem(
                ProblemKey(model, machine, "coarse"), pathlib.Path(args.runs_dir, "problems")
            )
            runs = [
                kept.get(RunKey(model, machine, "auto", seed=seed), SearchBudget(60.0))
                for seed in range(3)
            ]
            auto[text] = min(
                run.found.best_secs for run in runs if run and run.found and run.found.best_secs
            )
            found[family, text] = _placed(model, problem, str(weights))
            print(family, text, found[family, text], flush=True)
    page = f"{families_markdown(found, auto)}\n\n{args.updates} updates of each policy, seed 0."
    write_table(page, pathlib.Path(args.out_dir, "families.md"))


def _trained_without(family: str, args: argparse.Namespace) -> pathlib.Path:
    weights = pathlib.Path(args.weights_dir, f"{family.replace(' ', '_')}.weights.h5")
    if not weights.exists():
        command = [sys.executable, "-m", "benchmarks.search_quality.policy_training"]
        command += [f"--held_out={family}", f"--updates={args.updates}"]
        command += [f"--runs_dir={args.runs_dir}", f"--output={weights}"]
        subprocess.run(command, check=True)
    return weights


def _placed(model: str, problem: PaperProblem, weights: str) -> list[float | None]:
    """Finds the fastest step of each column."""
    trained = {"initial_weights": weights}
    searches: Sequence[tuple[str, Mapping[str, str], int]] = (
        ("expert", {}, _LEARNING),
        ("graph_neural", trained, _AT_ONCE),
        ("graph_neural", trained, _LEARNING),
        ("graph_neural", {"initial_weights": "none"}, _LEARNING),
    )
    return [
        timed_search(
            problem.problem,
            functools.partial(make_run_placer, name, options, model, problem, seed=0),
            SearchBudget(_LIMIT_SECS, samples),
        ).best_secs
        for name, options, samples in searches
    ]


if __name__ == "__main__":
    main()
