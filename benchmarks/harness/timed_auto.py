"""The search of the placer "auto" under the budget of a run."""

from __future__ import annotations

import math
import time

from benchmarks.harness.timed_search import CurvePoint, Found, SearchBudget, samples_within, thinned
from benchmarks.problems.paper import PaperProblem
from tf_placer.placers.auto.auto_search import AutoProgress
from tf_placer.placers.auto.refined_search import refined_search

__all__ = ["timed_auto"]


def timed_auto(problem: PaperProblem, budget: SearchBudget, *, seed: int) -> Found:
    """Searches as "auto" does before anything is measured, with all of the budget.

    Args:
        problem: what to place.
        budget: when to end.
        seed: of everything random.

    Returns:
        What was found. How many placements did not fit and what was sampled is not known, and only
        simulating takes time.
    """
    clock = time.monotonic if budget.is_wall else time.process_time
    curve: list[CurvePoint] = []
    start_secs = clock()

    def report(progress: AutoProgress) -> None:
        best = progress.best
        if not best.excess_bytes and (not curve or best.step_secs < curve[-1][2]):
            elapsed_secs = round(clock() - start_secs, 4)
            curve.append((progress.num_simulated, elapsed_secs, best.step_secs))

    max_simulated = math.inf if budget.max_samples is None else budget.max_samples
    result = refined_search(
        problem.problem,
        problem.groups,
        max_secs=budget.max_secs,
        max_simulated=max_simulated,
        seed=seed,
        threads=None if budget.is_wall else 1,
        report=report,
    )
    search_secs = round(clock() - start_secs, 3)
    best = result.best
    fits = not best.excess_bytes and math.isfinite(best.step_secs)
    if fits and (not curve or best.step_secs < curve[-1][2]):
        curve.append((result.num_simulated, search_secs, best.step_secs))
    is_short = result.num_simulated < max_simulated
    return Found(
        samples=result.num_simulated,
        failures=None,
        best_secs=best.step_secs if fits else None,
        samples_to_best=samples_within(curve, 1.02),
        ended="nothing more" if result.is_optimal else "secs" if is_short else "samples",
        search_secs=search_secs,
        make_secs=0.0,
        propose_secs=0.0,
        observe_secs=0.0,
        simulate_secs=search_secs,
        curve=thinned(curve),
        window=max(1, result.num_simulated),
        mean_secs=[],
        assignment=best.placement.tolist() if fits else None,
    )
