"""What each part of `auto` is worth: the search without it, or with more of it, in the same time.

Every variant searches every problem, for as long on the clock and on all cores, with several seeds;
variants take turns, so that a disturbance of the machine falls on all of them. Learned proposals
are tried by giving a learned placer the first 30 % of the time and the rest of the search its best
placement. What is done is kept in `--out_dir`, so the benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.numbered_runs import read_runs, write_runs
from benchmarks.harness.provenance import provenance
from benchmarks.harness.timed_search import SearchBudget, timed_search
from benchmarks.problems.paper import PaperProblem, ProblemKey, make_problems, read_paper_problem
from tf_placer.machines.machine import MachineError
from tf_placer.placers import make_placer
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.problem.coarse_groups import clusters_of, coarse_problem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration, format_step

__all__ = ["VARIANTS", "AblationRun", "Problem", "ablation_table", "main", "run_variant"]

_WHOLE = "auto"
_LEARNED_SHARE = 0.3


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A problem with both kinds of groups.

    Attributes:
        fine: with colocation groups, which knows the coarse ones.
        coarse: with these as groups, for learned placers.
    """

    fine: PaperProblem
    coarse: PaperProblem


@dataclasses.dataclass(frozen=True)
class AblationRun:
    """What a search came to.

    Attributes:
        problem: its name.
        variant: one of `VARIANTS`.
        seed: of everything random.
        step_secs: the fastest step that fits; infinite if none was found.
        simulated: placements simulated, those of a learned placer not counted.
    """

    problem: str
    variant: str
    seed: int
    step_secs: float
    simulated: int


@dataclasses.dataclass(frozen=True)
class _Variant:
    """How a search differs from `auto`.

    Attributes:
        summary: for people.
        config: how it searches, where that is not the default.
        groups: which groups it places.
        layers: whether it knows the layers of the model.
        threads: how many chains; None for one per core.
        first: the learned placer that begins.
    """

    summary: str
    config: AutoConfig | None = None
    groups: str = "both"
    layers: bool = True
    threads: int | None = None
    first: str | None = None


VARIANTS: Mapping[str, _Variant] = {
    _WHOLE: _Variant("all of it"),
    "few starts": _Variant(
        "of the starts only those on a single device", AutoConfig(starts="single_device")
    ),
    "no race": _Variant(
        "chains begin at the best start, without a race", AutoConfig(racing_starts=1)
    ),
    "whole groups": _Variant("nothing but whole groups", groups="coarse"),
    "single groups": _Variant("colocation groups at once; METIS cuts clusters", groups="fine"),
    "no layers": _Variant("it does not know the layers of the model", layers=False),
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
    "post_ce first": _Variant("cross-entropy minimisation has 30 % of the time", first="post_ce"),
    "graph_neural first": _Variant(
        "the shipped graph network, which learns on, has 30 % of the time", first="graph_neural"
    ),
    "warm_softmax first": _Variant(
        "a softmax per group has 30 % of the time", first="warm_softmax"
    ),
}
"""By name, what is compared."""


def run_variant(
    name: str, problem_name: str, problem: Problem, seed: int, max_secs: float
) -> AblationRun:
    """Searches once.

    Args:
        name: of the variant.
        problem_name: for the result.
        problem: what is placed.
        seed: of everything random.
        max_secs: time on the clock.
    """
    variant = VARIANTS[name]
    placed, groups = problem.fine.problem, problem.fine.groups
    if not variant.layers:
        placed = dataclasses.replace(placed, layers=None)
    if variant.groups == "coarse":
        placed, _ = coarse_problem(placed)
        groups = group_graph(placed)
    elif variant.groups == "fine":
        placed = dataclasses.replace(placed, coarse_groups=None)
    starts: Iterable[tuple[str, np.ndarray]] = ()
    if variant.first is not None:
        starts = _learned_start(variant.first, problem, seed, _LEARNED_SHARE * max_secs)
        max_secs *= 1.0 - _LEARNED_SHARE
    result = refined_search(
        placed,
        groups,
        max_secs=max_secs,
        config=variant.config,
        starts=starts,
        seed=seed,
        threads=variant.threads,
    )
    best = result.best
    return AblationRun(
        problem_name,
        name,
        seed,
        float("inf") if best.excess_bytes else best.step_secs,
        result.num_simulated,
    )


def _learned_start(
    name: str, problem: Problem, seed: int, max_secs: float
) -> list[tuple[str, np.ndarray]]:
    """Finds the best placement of a learned placer, if that found one that fits."""
    coarse, fine = problem.coarse, problem.fine.problem
    found = timed_search(
        coarse.problem,
        lambda: make_placer(name, coarse.groups, coarse.legal, seed=seed, problem=coarse.problem),
        SearchBudget(max_secs, is_wall=True),
    )
    if found.assignment is None:
        return []
    clusters = clusters_of(fine.groups, coarse.problem.groups)
    return [(name, np.array(found.assignment, np.int32)[clusters])]


def ablation_table(runs: Sequence[AblationRun]) -> str:
    """Formats what came out, in Markdown: a line for each variant, and one for each problem.

    Args:
        runs: each variant on the same problems with the same seeds.
    """
    secs = {(run.problem, run.variant, run.seed): run.step_secs for run in runs}
    problems = list(dict.fromkeys(run.problem for run in runs))
    variants = list(dict.fromkeys(run.variant for run in runs))
    cases = list(dict.fromkeys((run.problem, run.seed) for run in runs))
    rows = []
    for name in variants:
        ratios = [secs[p, name, seed] / secs[p, _WHOLE, seed] for p, seed in cases]
        rows.append(
            [
                name,
                VARIANTS[name].summary,
                f"{statistics.geometric_mean(ratios):.3f}",
                f"{min(ratios):.3f} to {max(ratios):.3f}",
                f"{sum(ratio > 1.0 for ratio in ratios)} of {len(ratios)}",
            ]
        )
    steps = [
        [
            problem,
            *(
                format_step(statistics.fmean(secs[p, name, s] for p, s in cases if p == problem))
                for name in variants
            ),
        ]
        for problem in problems
    ]
    headers = ["variant", "what it is", "to auto", "from, to", "slower"]
    by_variant = markdown_table(headers, rows, "llrrr")
    by_problem = markdown_table(["problem", *variants], steps, "l" + "r" * len(variants))
    return f"{by_variant}\n\n{by_problem}"


def main() -> None:
    """Makes the runs that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--problems",
        default="rnnlm_2:4xK80,nmt_2:4xK80,inception_v3:4xK80",
        help="MODEL:MACHINE by comma (default %(default)s)",
    )
    parser.add_argument(
        "--variants", default=",".join(VARIANTS), help="by comma, auto among them (default: all)"
    )
    parser.add_argument("--max_secs", type=float, default=10.0, help="of a search (default 10)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--small", action="store_true", help="models of small size")
    parser.add_argument("--runs_dir", default="runs/tables", help="where problems are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/auto_ablation")
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    variants = args.variants.split(",")
    if _WHOLE not in variants or not VARIANTS.keys() >= set(variants):
        parser.error(
            f"--variants must have {_WHOLE!r} and be of {', '.join(VARIANTS)}, not {args.variants}"
        )
    try:
        problems = _problems(args)
    except (MachineError, OSError, ValueError) as error:
        parser.error(str(error))
    runs = _make_runs(problems, variants, args.seeds, args.max_secs, out / "runs.csv")
    made_by = provenance()
    text = (
        f"# The parts of `auto`\n\n{ablation_table(runs)}\n\nSimulated steps after "
        f"{args.max_secs:g} s on the clock and all cores (seeds: {args.seeds}; steps are their "
        "means). to auto: geometric mean of the step by that of the whole search with the same "
        "problem and seed; slower: in how many of them it is slower. Made by "
        f"`{made_by['command']}` at commit {made_by['commit'] or 'unknown'} on "
        f"{made_by['processor']}, {made_by['cores']} cores."
    )
    print(text)
    (out / "table.md").write_text(text + "\n")


def _problems(args: argparse.Namespace) -> dict[str, Problem]:
    keys = {}
    for text in args.problems.split(","):
        model, _, machine = text.partition(":")
        keys[text] = [
            ProblemKey(model, machine, granularity, args.small)
            for granularity in ("fine", "coarse")
        ]
    folder = pathlib.Path(args.runs_dir, "problems")
    failures = make_problems([key for both in keys.values() for key in both], folder)
    if failures:
        raise ValueError("; ".join(failures.values()))
    return {
        text: Problem(*(read_paper_problem(key, folder) for key in both))
        for text, both in keys.items()
    }


def _make_runs(
    problems: Mapping[str, Problem],
    variants: Sequence[str],
    seeds: int,
    max_secs: float,
    path: pathlib.Path,
) -> list[AblationRun]:
    """Makes the runs that the file lacks, and writes it after each, others that it has included."""
    import tf_placer.placers.learned.compose  # noqa: F401 (its seconds are not the placer's)

    runs = {(run.problem, run.variant, run.seed): run for run in read_runs(AblationRun, path)}
    wanted = [
        (problem, variant, seed)
        for seed in range(seeds)
        for problem in problems
        for variant in variants
    ]
    missing = [key for key in wanted if key not in runs]
    start_secs = time.monotonic()
    for done, (problem, variant, seed) in enumerate(missing, 1):
        run = run_variant(variant, problem, problems[problem], seed, max_secs)
        runs[problem, variant, seed] = run
        write_runs(AblationRun, path, list(runs.values()))
        left_secs = (time.monotonic() - start_secs) / done * (len(missing) - done)
        print(
            f"{done}/{len(missing)}: {problem}, {variant}, seed {seed}: "
            f"{format_step(run.step_secs)}, {format_duration(left_secs)} left",
            flush=True,
        )
    return [runs[key] for key in wanted]


if __name__ == "__main__":
    main()
