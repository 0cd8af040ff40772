"""The coarse-to-fine search: with coarse groups first, then with the groups inside them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import merge_group_graph, number_clusters
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult, auto_search
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.problem.coarse_groups import find_clusters
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_layers
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = ["COARSE_START", "coarse_to_fine_search"]

#: The name of the start of the fine search that is the best placement of coarse groups.
COARSE_START = "coarse groups"


def coarse_to_fine_search(
    problem: PlacementProblem,
    groups: GroupGraph,
    *,
    max_secs: float,
    max_simulated: float = math.inf,
    stop_secs: float = 0.0,
    config: AutoConfig | None = None,
    starts: Iterable[tuple[str, np.ndarray]] = (),
    seed: int = 0,
    threads: int | None = None,
    report: Callable[[AutoProgress], None] | None = None,
) -> AutoResult:
    """Searches for the fastest placement that fits.

    The search moves whole coarse groups first, which makes most of the progress in little time,
    and then refines the result with single groups. Few coarse groups converge soon, so that their
    share of a long search is limited.

    Args:
        problem: the placement problem. Without coarse groups, all of the search is with groups.
        groups: its groups; the layers of the problem, if it has any, replace theirs.
        max_secs: see `auto_search`.
        max_simulated: see `auto_search`.
        stop_secs: see `auto_search`.
        config: see `auto_search`.
        starts: names and placements, int32 [num_groups].
        seed: see `auto_search`.
        threads: see `auto_search`.
        report: see `auto_search`.

    Returns:
        The best placement and the finalists, of groups. The starts include `COARSE_START`, unless
        the search ended with coarse groups.

    Raises:
        ValueError: the budget is not positive, or an argument does not fit the problem.
    """
    if not max_secs > 0 or not max_simulated >= 1:
        raise ValueError(f"the budget must be positive, not {max_secs} s and {max_simulated}")
    config = config or AutoConfig()
    starts = list(starts)
    layers = group_layers(problem)
    if layers is not None:
        groups = dataclasses.replace(groups, layers=layers)
    clusters = np.arange(groups.num_groups)
    if problem.coarse_groups is not None:
        clusters = number_clusters(find_clusters(problem.groups, problem.coarse_groups))
    search = functools.partial(
        auto_search, stop_secs=stop_secs, config=config, seed=seed, threads=threads
    )
    num_clusters = int(clusters.max()) + 1
    if num_clusters == groups.num_groups:
        return search(
            problem,
            groups,
            max_secs=max_secs,
            max_simulated=max_simulated,
            starts=starts,
            report=report,
        )

    def compute_share(elapsed_secs: float, num_simulated: int) -> float:
        return min(1.0, max(elapsed_secs / max_secs, num_simulated / max_simulated))

    def report_coarse(progress: AutoProgress) -> None:
        if report is not None:
            share = compute_share(progress.elapsed_secs, progress.num_simulated)
            best = _expand(progress.best, clusters)
            report(dataclasses.replace(progress, best=best, share=share))

    coarse = _expand_result(
        search(
            dataclasses.replace(problem, groups=clusters[problem.groups], coarse_groups=None),
            merge_group_graph(groups, clusters),
            max_secs=config.coarse_budget * max_secs,
            max_simulated=max(
                1.0,
                min(config.coarse_budget * max_simulated, config.coarse_placements * num_clusters),
            ),
            starts=_select_coarse_starts(starts, clusters),
            report=report_coarse,
        ),
        clusters,
    )
    left_secs = max_secs - coarse.elapsed_secs
    left_simulated = max_simulated - coarse.num_simulated
    if coarse.interrupted or left_secs <= 0 or left_simulated < 1:
        return _include_starts(
            dataclasses.replace(
                coarse,
                # The results for coarse groups do not hold for the groups inside them.
                lower_bound_secs=float(lower_bounds(problem).step_secs),
                is_near_bound=False,
                is_optimal=False,
            ),
            problem,
            starts,
        )

    def report_fine(progress: AutoProgress) -> None:
        if report is not None:
            elapsed_secs = progress.elapsed_secs + coarse.elapsed_secs
            num_simulated = progress.num_simulated + coarse.num_simulated
            share = compute_share(elapsed_secs, num_simulated)
            report(AutoProgress(progress.best, share, num_simulated, elapsed_secs))

    fine = search(
        problem,
        groups,
        max_secs=left_secs,
        max_simulated=left_simulated,
        starts=[(COARSE_START, coarse.best.placement), *starts],
        clusters=clusters,
        report=report_fine,
    )
    return _merge_results(coarse, fine)


def _expand(found: Candidate, clusters: np.ndarray) -> Candidate:
    """Expands a placement of coarse groups to one of the groups in them."""
    return dataclasses.replace(found, placement=found.placement[clusters])


def _expand_result(coarse: AutoResult, clusters: np.ndarray) -> AutoResult:
    """Expands the result of a search with coarse groups to one with the groups in them."""
    return dataclasses.replace(
        coarse,
        best=_expand(coarse.best, clusters),
        finalists=tuple(_expand(found, clusters) for found in coarse.finalists),
        starts=tuple((name, _expand(found, clusters)) for name, found in coarse.starts),
    )


def _merge_results(coarse: AutoResult, fine: AutoResult) -> AutoResult:
    """Adds the result with coarse groups to that of the search that refined it."""
    finalists = {
        found.placement.tobytes(): found
        for found in sorted([*fine.finalists, *coarse.finalists], key=lambda each: each.rank)
    }
    given = {name for name, _ in coarse.starts}
    others = [each for each in fine.starts if each[0] not in given]
    return dataclasses.replace(
        fine,
        finalists=tuple(finalists.values()),
        starts=tuple(sorted([*coarse.starts, *others], key=lambda each: each[1].rank)),
        num_simulated=fine.num_simulated + coarse.num_simulated,
        elapsed_secs=fine.elapsed_secs + coarse.elapsed_secs,
    )


def _include_starts(
    result: AutoResult, problem: PlacementProblem, starts: Sequence[tuple[str, np.ndarray]]
) -> AutoResult:
    """Adds the best start to the result of a search that may have skipped starts, if better."""
    if not starts:
        return result
    placements = np.stack([placement for _, placement in starts]).astype(np.int32)
    found = simulate_candidates(problem, Simulator(problem), placements)
    best = min([result.best, *found], key=lambda each: each.rank)
    if best is result.best:
        return result
    return dataclasses.replace(result, best=best, finalists=(best, *result.finalists))


def _select_coarse_starts(
    starts: Iterable[tuple[str, np.ndarray]], clusters: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the starts that have each coarse group on one device."""
    for name, placement in starts:
        coarse = np.zeros(clusters.max() + 1, np.int32)
        coarse[clusters] = placement
        if (coarse[clusters] == placement).all():
            yield name, coarse
