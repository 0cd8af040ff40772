"""The directories of the plans of a comparison, one for each machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from tf_placer.placers import AUTO
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.planning.gpu_placement import replace_best
from tf_placer.planning.plan_files import PlanLog, ResultFile
from tf_placer.planning.plan_result import PlanResult
from tf_placer.planning.planned_placement import describe_candidate
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.limits import find_limits
from tf_placer.report.memory_curve import MoreMemory
from tf_placer.search.config import SearchConfig

__all__ = ["ComparedPlans"]


class ComparedPlans:
    """Keeps the plan of each machine in a directory of its own, as `plan` does.

    Attributes:
        directories: the directory of each machine, by name; empty if nothing is kept.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None,
        problems: Mapping[str, PlacementProblem],
        seed: int,
    ) -> None:
        """Reads what is there; writes nothing.

        Args:
            log_dir: the parent of the directories; None to keep nothing.
            problems: the problem on each machine that is searched, by name.
            seed: the seed of the searches.

        Raises:
            LogError: a directory is that of another search.
            OSError: a file cannot be read.
            ValueError: two machines would have the same directory, or a file is damaged.
        """
        self._problems = problems
        self._seed = seed
        self._logs: dict[str, PlanLog] = {}
        self._files: dict[str, ResultFile] = {}
        self.directories: dict[str, str] = {}
        if log_dir is None:
            return
        for name, problem in problems.items():
            path = os.path.join(log_dir, pathlib.Path(name).name.removesuffix(".json"))
            if path in self.directories.values():
                raise ValueError(
                    f"two machines would be kept in {path!r}: give them names that "
                    "differ without folders"
                )
            self.directories[name] = path
            config = SearchConfig(placer=AUTO, log_dir=path, seed=seed)
            self._logs[name] = PlanLog(problem, config)
            self._files[name] = ResultFile(None, self._logs[name], problem)

    @property
    def kept(self) -> list[np.ndarray]:
        """The placements that an earlier comparison left, int32 [num_groups] each."""
        return [file.kept for file in self._files.values() if file.kept is not None]

    def keep(
        self,
        name: str,
        result: AutoResult,
        best: Candidate,
        needed: int | None = None,
        *,
        least_bytes: int | None = None,
        more: MoreMemory | None = None,
        gpus_only_secs: float | None = None,
    ) -> PlanResult:
        """Makes the plan of a machine, and writes it if there are directories.

        Args:
            name: the machine.
            result: its search.
            best: the best placement, which may be of another search.
            needed: the number of accelerators that were found to be enough; None if not searched.
            least_bytes: the memory that would do where nothing fits; see `PlanResult`.
            more: the memory of GPUs for a shorter step; see `PlanResult`.
            gpus_only_secs: see `PlanResult`.

        Raises:
            LogLockedError: another search is writing there.
            OSError: a file cannot be written.
        """
        problem = self._problems[name]
        outcome = describe_candidate(
            best,
            lower_bound_secs=result.lower_bound_secs,
            trials=result.num_simulated,
            elapsed_secs=result.elapsed_secs,
            seed=self._seed,
            interrupted=result.interrupted,
        )
        limits = find_limits(problem, best.placement) if outcome.feasible else None
        chosen = replace_best(result, best)
        plan = PlanResult(
            *(problem, outcome, chosen, limits),
            log_dir=self.directories.get(name),
            least_memory_bytes=least_bytes,
            more_memory=more,
            gpus_only_secs=gpus_only_secs,
        )
        if name in self._logs:
            with contextlib.closing(self._logs[name]) as log:
                log.begin()
                log.write(plan, needed)
                self._files[name].finish(outcome)
        return plan
