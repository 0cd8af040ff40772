"""Every placer against every other on every problem, with equal time or with equal samples.

A problem is a model of the catalog on a described machine, such as "nmt_2:4xK80". `COMPARISONS`
has what is compared. Each has a folder of results with a page: the winner of each problem and every
placer's distance to it. Beside it is kept every run that ended, with its curve: those that are
there are not repeated.

    python -m benchmarks.comparison.comparison systems_on_k80 --only_kept
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.comparison.report import comparison_markdown
from benchmarks.comparison.seen_problems import describe_seen
from benchmarks.harness.arguments import add_pool_arguments, run_parser
from benchmarks.harness.kept_runs import read_or_make_runs
from benchmarks.harness.placement_runs import Run, RunKey
from benchmarks.harness.run_placers import ALL_PLACERS, uses_seed
from benchmarks.harness.table_file import write_table
from benchmarks.harness.timed_search import SearchBudget

__all__ = ["COMPARISONS", "PROBLEMS", "Comparison", "main"]

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

_K80_PROBLEMS = ("rnnlm_2:4xK80", "nmt_2:4xK80", "inception_v3:4xK80")
_BASELINES = ("single_device", "expert", "model_expert")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A named set of problems, placers, seeds and a budget.

    Attributes:
        problems: each a model of the catalog and a described machine, as in "nmt_2:4xK80".
        placers: each with its options behind it, as in "hierarchical:grouper=metis".
        budget: of each run.
        seeds: of placers that are random.
    """

    problems: tuple[str, ...]
    placers: tuple[str, ...]
    budget: SearchBudget
    seeds: tuple[int, ...] = (0, 1, 2)

    def keys(self) -> dict[tuple[str, str], list[RunKey]]:
        """Lists the runs, one per seed, by problem ("nmt_2 on 4xK80") and label of the placer."""
        keys = {}
        for problem, text in itertools.product(self.problems, self.placers):
            model, _, machine = problem.partition(":")
            # The name of a placer may have ":", too.
            placer, *rest = re.split(":(?=[^:]*=)", text)
            pairs = (each.partition("=") for each in rest)
            options = tuple(sorted((name, value) for name, _, value in pairs))
            seeds = self.seeds if uses_seed(placer) else self.seeds[:1]
            runs = [RunKey(model, machine, placer, options, seed) for seed in seeds]
            keys[f"{model} on {machine}", runs[0].label] = runs
        return keys


COMPARISONS: Mapping[str, Comparison] = {
    "comparison": Comparison(PROBLEMS, tuple(sorted(ALL_PLACERS)), SearchBudget(60.0)),
    "systems": Comparison(
        (
            *("bert_base:eagle-4xP100", "gnmt_4:eagle-4xP100", "gnmt_4_wide:eagle-4xP100"),
            *(*_K80_PROBLEMS, "inception_v3_batch_1:eagle-4xP100"),
        ),
        (
            *(*_BASELINES, "random", "post"),
            *("hierarchical", "eagle", "colocrl", "spotlight"),
        ),
        SearchBudget(7200.0, 2400),
    ),
    "eagle_ablation": Comparison(
        ("bert_base:eagle-4xP100", "gnmt_4:eagle-4xP100"),
        ("eagle", "eagle:bridge=none", "eagle_metis", "eagle_fluid"),
        SearchBudget(7200.0, 2400),
    ),
    # The parts in which EAGLE and Post differ, one after the other: groups, policy and training.
    "eagle_and_post": Comparison(
        ("bert_base:eagle-4xP100", "gnmt_4:eagle-4xP100", "gnmt_4_wide:eagle-4xP100"),
        (
            *("post", "post:grouper=metis:num_groups=64"),
            *("post_ppo", "post_ppo:grouper=metis:num_groups=64"),
            "eagle_metis:policy=softmax:optimizer=sgd:learning_rate=1.0:clip_norm=none",
            *("eagle_metis", "eagle"),
        ),
        SearchBudget(7200.0, 2400),
    ),
    "large_models": Comparison(
        ("rnnlm_large:4xK80", "nmt_large:4xK80"),
        (
            *("eagle", "hierarchical", "post", "colocrl"),
            *("colocrl:batch_size=12", "colocrl:batch_size=20"),
        ),
        SearchBudget(7200.0, 600),
    ),
    "colocrl_batches": Comparison(
        ("rnnlm_2:4xK80", "inception_v3:4xK80", "bert_base:eagle-4xP100"),
        ("colocrl", "colocrl:batch_size=12"),
        SearchBudget(7200.0, 2400),
    ),
    "systems_on_k80": Comparison(
        _K80_PROBLEMS,
        (
            *(*_BASELINES, "random", "post_ce"),
            *("colocrl:published", "policy_gradient:variant", "hierarchical:variant"),
            *("spotlight:variant", "post:published", "post_ppo:published", "eagle:published"),
            *("eagle_ppo_ce:published", "eagle_reinforce:published", "eagle_metis:published"),
            *("eagle_fluid:published", "eagle_gcn:published"),
            "graph_neural:explored=0:initial_weights=none:own_scores=0",
            *("post", "post_ppo", "warm_softmax", "policy_gradient", "spotlight", "eagle"),
            *("eagle_ppo_ce", "eagle_reinforce", "eagle_metis", "eagle_fluid", "hierarchical"),
            *("eagle_gcn", "colocrl", "eagle_gcn:num_groups=256"),
        ),
        SearchBudget(3600.0, 2400),
    ),
    "eagle_large_models": Comparison(
        ("bert_base:eagle-4xP100", "gnmt_4_wide:eagle-4xP100"),
        (
            *(*_BASELINES, "post:published", "eagle_gcn:published", "post", "post_ppo"),
            *("warm_softmax", "hierarchical", "eagle_gcn", "eagle_reinforce", "eagle"),
        ),
        SearchBudget(3600.0, 2400),
    ),
    "equal_samples": Comparison(
        (
            *("rnnlm_2:4xK80", "rnnlm_4:post-2xK80", "nmt_2:4xK80", "nmt_4:post-4xK80"),
            *("gnmt_4:eagle-4xP100", "inception_v3:4xK80", "bert_base:eagle-4xP100"),
            "decoder_only:4xV100",
        ),
        (
            *("hill_climbing", "simulated_annealing", "learned_moves", "warm_softmax"),
            *("graph_neural", "graph_neural:start=best", "post:start=best"),
        ),
        SearchBudget(600.0, 1000),
        tuple(range(12)),
    ),
}
"""By the folder of its results, what is compared."""


def main() -> None:
    """Makes the runs that are missing and writes the page."""
    parser = run_parser(__doc__)
    add_pool_arguments(parser)
    parser.add_argument("name", choices=COMPARISONS, nargs="?", default="comparison")
    args = parser.parse_args()
    comparison = COMPARISONS[args.name]
    budget, keys = comparison.budget, comparison.keys()
    out = pathlib.Path(args.out_dir or f"benchmarks/results/{args.name}")
    # Seed by seed, so that a page of the first seeds is whole early.
    wanted = sorted(itertools.chain.from_iterable(keys.values()), key=lambda key: key.seed)
    runs = read_or_make_runs(
        wanted,
        budget,
        out / f"{budget.folder}_runs.jsonl.xz",
        args.runs_dir,
        jobs=args.jobs,
        only_kept=args.only_kept,
    )
    labels = {key.label for key in runs}
    problems = {problem for (problem, _), of_cell in keys.items() if runs.keys() & set(of_cell)}
    cells: dict[str, dict[str, list[Run]]] = {}
    for (problem, label), of_cell in keys.items():
        if label in labels and problem in problems:
            of_problem = cells.setdefault(problem, {})
            of_problem[label] = [runs[key] for key in of_cell if key in runs]
    is_shipped = any(key.placer == "graph_neural" and not key.options for key in runs)
    note = describe_seen(comparison.problems, graph_neural=is_shipped)
    page = comparison_markdown(f"Placers compared: {budget}", cells, note)
    write_table(page, out / f"{budget.folder}.md")


if __name__ == "__main__":
    main()
