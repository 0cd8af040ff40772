"""What each part of `auto` is worth: the search without it, or with more of it, in the same time.

Every variant searches every problem, for as long on the clock and on all cores, with several seeds;
variants take turns, so that a disturbance of the machine falls on all of them. What is done is kept
in `--out_dir`, so the benchmark goes on where it stopped.

Of what is not a variant any more: `auto` has no learned proposals, because where a learned placer
has 30 % of the time and `auto` goes on from its best placement, steps end 1.5 % longer.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.csv_runs import kept_or_run
from benchmarks.harness.table_file import write_table
from benchmarks.problems.paper import PaperProblem, ProblemKey, make_problems, read_paper_problem
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.problem.coarse_groups import coarse_problem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["VARIANTS", "AblationRun", "ablation_table", "main", "run_variant"]

_WHOLE = "auto"
_PROBLEMS = ("rnnlm_2:4xK80", "nmt_2:4xK80", "inception_v3:4xK80")
_SEEDS, _MAX_SECS = (0, 1, 2), 10.0


@dataclasses.dataclass(frozen=True)
class AblationRun:
    """What a search came to.

    Attributes:
        problem: its name.
        variant: one of `VARIANTS`.
        seed: of everything random.
        step_secs: the fastest step that fits; infinite if none was found.
        simulated: placements simulated.
    """

    problem: str
    variant: str
    seed: int
    step_secs: float
    simulated: int

    @property
    def key(self) -> tuple[int, str, str]:
        """The identity of the run."""
        return self.seed, self.problem, self.variant


@dataclasses.dataclass(frozen=True)
class _Variant:
    """How a search differs from `auto`.

    Attributes:
        summary: for people.
        config: how it searches.
        groups: which groups it places.
        threads: how many chains; None for one per core.
    """

    summary: str
    config: AutoConfig = dataclasses.field(default_factory=AutoConfig)
    groups: str = "both"
    threads: int | None = None


VARIANTS: Mapping[str, _Variant] = {
    _WHOLE: _Variant("all of it"),
    "few starts": _Variant(
        "of the starts only those on a single device", AutoConfig(starts="single_device")
    ),
    "whole groups": _Variant("nothing but whole groups", groups="coarse"),
    "single groups": _Variant("colocation groups at once; METIS cuts clusters", groups="fine"),
    "no clusters": _Variant(
        "moves of single groups, their neighbours and stretches only",
        AutoConfig(coarse_moves=0.0),
    ),
    "cooling": _Variant("no chain climbs: all cool, again and again", AutoConfig(climbing="none")),
    "climbing": _Variant(
        "all chains climb once the first cooling is over", AutoConfig(climbing="all")
    ),
    "no path": _Variant(
        "moves start anywhere, not where the step waits", AutoConfig(critical_path=False)
    ),
    "one chain": _Variant("on one core", threads=1),
}
"""By name, what is compared."""


def run_variant(
    name: str, problem_name: str, problem: PaperProblem, seed: int, max_secs: float
) -> AblationRun:
    """Searches once.

    Args:
        name: of the variant.
        problem_name: for the result.
        problem: what is placed; its groups are colocation groups, and it knows the coarse ones.
        seed: of everything random.
        max_secs: time on the clock.
    """
    variant = VARIANTS[name]
    placed, groups = problem.problem, problem.groups
    if variant.groups == "coarse":
        placed, _ = coarse_problem(placed)
        groups = group_graph(placed)
    elif variant.groups == "fine":
        placed = dataclasses.replace(placed, coarse_groups=None)
    result = refined_search(
        placed,
        groups,
        max_secs=max_secs,
        config=variant.config,
        seed=seed,
        threads=variant.threads,
    )
    best = result.best
    step_secs = float("inf") if best.excess_bytes else best.step_secs
    return AblationRun(problem_name, name, seed, step_secs, result.num_simulated)


def ablation_table(runs: Sequence[AblationRun]) -> str:
    """Formats a line for each variant, in Markdown.

    Args:
        runs: each variant on the same problems with the same seeds.
    """
    secs = {(run.problem, run.variant, run.seed): run.step_secs for run in runs}
    problems = list(dict.fromkeys(run.problem for run in runs))
    cases = list(dict.fromkeys((run.problem, run.seed) for run in runs))
    rows = []
    for name in dict.fromkeys(run.variant for run in runs):
        ratios = [secs[p, name, seed] / secs[p, _WHOLE, seed] for p, seed in cases]
        steps = [
            format_step(statistics.fmean(secs[p, name, seed] for p, seed in cases if p == problem))
            for problem in problems
        ]
        rows.append(
            [
                name,
                VARIANTS[name].summary,
                *steps,
                f"{statistics.geometric_mean(ratios):.3f}",
                f"{min(ratios):.3f} to {max(ratios):.3f}",
                f"{sum(ratio > 1.0 for ratio in ratios)} of {len(ratios)}",
            ]
        )
    headers = ["variant", "what it is", *problems, "to auto", "from, to", "slower"]
    return markdown_table(headers, rows, "ll" + "r" * (len(problems) + 3))


def main() -> None:
    """Makes the runs that are missing and writes the table."""
    parser = run_parser(__doc__, "auto_ablation")
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems")
    args = parser.parse_args()
    keys = [(s, problem, variant) for s in _SEEDS for problem in _PROBLEMS for variant in VARIANTS]
    problems = {} if args.only_kept else _problems(pathlib.Path(args.runs_dir, "problems"))

    def run(key: tuple[int, str, str]) -> AblationRun:
        seed, problem, variant = key
        return run_variant(variant, problem, problems[problem], seed, _MAX_SECS)

    out = pathlib.Path(args.out_dir)
    runs = kept_or_run(AblationRun, out / "runs.csv", keys, run, only_kept=args.only_kept)
    text = (
        f"# The parts of `auto`\n\n{ablation_table(runs)}\n\nSimulated steps after "
        f"{_MAX_SECS:g} s on the clock and all cores, mean of {len(_SEEDS)} seeds. to "
        "auto: geometric mean of the step by that of the whole search with the same problem and "
        "seed; slower: in how many of them it is slower."
    )
    write_table(text, out / "table.md")


def _problems(folder: pathlib.Path) -> dict[str, PaperProblem]:
    """Reads problems by name, and makes those that are missing."""
    keys = {}
    for name in _PROBLEMS:
        model, _, machine = name.partition(":")
        keys[name] = ProblemKey(model, machine, "fine")
    failures = make_problems(keys.values(), folder)
    if failures:
        raise SystemExit("; ".join(failures.values()))
    return {name: read_paper_problem(key, folder) for name, key in keys.items()}


if __name__ == "__main__":
    main()
