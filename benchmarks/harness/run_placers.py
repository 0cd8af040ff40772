"""The placers of benchmark runs: all of the registry, and the papers' own placements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from benchmarks.problems.paper import PaperProblem
from tf_placer.placers import PLACERS, Granularity, find_granularity, make_placer
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.placer import Placer

__all__ = [
    "ALL_PLACERS",
    "make_run_placer",
    "run_granularity",
    "uses_seed",
]

# Everything on the first GPU; and what people do with the model, see `benchmarks.problems.experts`.
_SINGLE_GPU, _MODEL_EXPERT = "single_gpu", "model_expert"

ALL_PLACERS = (
    _SINGLE_GPU,
    _MODEL_EXPERT,
    *(name for name, entry in PLACERS.items() if not entry.needs_start),
)
"""The names of all placers that a run may have."""


def run_granularity(name: str, options: Mapping[str, str]) -> Granularity:
    """Says what placements of a run are made of; see `tf_placer.placers.find_granularity`."""
    return find_granularity(name, options) if name in PLACERS else "coarse"


def uses_seed(name: str) -> bool:
    """Says whether what a placer proposes depends on its seed."""
    return name in PLACERS and PLACERS[name].is_random


def make_run_placer(
    name: str,
    options: Mapping[str, str],
    model: str,
    problem: PaperProblem,
    *,
    seed: int,
    max_samples: int | None = None,
) -> Placer:
    """Makes a placer for a run.

    Args:
        name: one of `ALL_PLACERS`.
        options: of the placer. That of "model_expert" is `rule`, one of the rules for the model;
            without it, all are tried.
        model: of the catalog.
        problem: the model on a machine.
        seed: of everything random.
        max_samples: placements that the run may simulate; None for no limit.

    Raises:
        ImportError, OSError: something that the placer needs is not installed.
        ValueError: the placer refuses what it is given, or there is no such rule for the model.
    """
    groups, legal = problem.groups, problem.legal
    candidates: Iterable[np.ndarray]
    if name == _SINGLE_GPU:
        candidates = [np.ones(groups.num_groups, np.int32)]
    elif name == _MODEL_EXPERT:
        candidates = _expert_placements(model, problem, options.get("rule"))
    else:
        return make_placer(
            name,
            groups,
            legal,
            seed=seed,
            options=options or None,
            problem=problem.problem,
            max_samples=max_samples,
        )
    placer = CandidateList(groups, legal, seed=seed, candidates=candidates)
    placer.name = name
    return placer


def _expert_placements(model: str, problem: PaperProblem, rule: str | None) -> Iterable[np.ndarray]:
    from benchmarks.problems.experts import expert_placements

    placements = expert_placements(
        model,
        problem.problem.operation_names,
        problem.problem.groups,
        problem.legal,
        problem.problem.num_devices - 1,
    )
    if not placements:
        raise ValueError(f"nobody has a rule for {model}")
    if rule is None:
        return placements.values()
    if rule not in placements:
        raise ValueError(
            f"there is no rule {rule!r} for {model}; there are {', '.join(sorted(placements))}"
        )
    return [placements[rule]]
