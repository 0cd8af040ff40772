"""The search of `auto` on the workers of Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.distributed.island_search import IslandWorker, island_search
from tf_placer.search.distributed.ray_backend import RayBackend, connect_to_ray
from tf_placer.search.distributed.workers import Workers

__all__ = ["search_on_islands"]


def search_on_islands(
    problem: PlacementProblem,
    config: AutoConfig,
    workers: Workers,
    seed: int,
    starts: Sequence[np.ndarray],
    report: Callable[[AutoProgress], None],
    say: Callable[[str], None],
    *,
    max_secs: float,
    max_simulated: float,
    stop_secs: float,
) -> AutoResult:
    """Connects to workers and searches on them; see `island_search`."""
    start_secs = time.monotonic()
    with connect_to_ray(workers):
        # Divide the cores among workers on the same computer.
        cores = len(os.sched_getaffinity(0))
        threads = max(1, cores // (workers.count or 1)) if workers.are_here else None
        backend = RayBackend(workers, IslandWorker, problem, config, threads)
        return island_search(
            backend,
            backend.count_wanted(),
            max_secs=max(1.0, max_secs - (time.monotonic() - start_secs)),
            max_simulated=max_simulated,
            stop_secs=stop_secs,
            seed=seed,
            starts=starts,
            report=report,
            say=say,
        )
