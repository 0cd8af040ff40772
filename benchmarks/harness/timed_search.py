"""A search on a problem that keeps what it found when, and where its time went."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.files import write_bytes
from tf_placer.placers.auto.auto_search import AutoProgress
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.placers.learned.training_values import select_state
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.proposals import propose_checked

if TYPE_CHECKING:
    # Heuristics run without TensorFlow.
    from tf_placer.placers.learned.learned_placer import LearnedPlacer

__all__ = [
    "CurvePoint",
    "Found",
    "SearchBudget",
    "thin_curve",
    "time_auto",
    "time_search",
]

CurvePoint = tuple[int, float, float]
"""Samples, seconds, and the fastest step that was found after them."""

Ended = Literal["samples", "secs", "nothing more"]
"""The reason for which a search ended."""

_MAX_POINTS = 200
# A gain that is smaller than this share of the step does not show in a curve.
_LEAST_GAIN = 0.01
_CHECKPOINT_SECS = 60.0
_WINDOW = 100
_MAX_WINDOWS = 50


@dataclasses.dataclass(frozen=True)
class SearchBudget:
    """When a search ends, whichever comes first.

    Attributes:
        max_secs: seconds. No batch starts after them, and what a batch found that ended later does
            not count.
        max_samples: placements to simulate; None for no limit.
        is_wall: whether the seconds are those of the clock, with all cores; else they are processor
            time, with one core.
    """

    max_secs: float
    max_samples: int | None = None
    is_wall: bool = False

    def __post_init__(self) -> None:
        if self.max_samples is not None and self.max_samples < 1:
            raise ValueError(f"max_samples must be at least 1, not {self.max_samples}")
        if not 0 < self.max_secs < math.inf:
            raise ValueError(f"max_secs must be positive and finite, not {self.max_secs}")

    @property
    def folder(self) -> str:
        """The name of a folder, or of files, for what has this budget."""
        samples = "" if self.max_samples is None else f"{self.max_samples}-samples-"
        return f"{samples}{self.max_secs:g}-core-secs"

    def __str__(self) -> str:
        samples = "" if self.max_samples is None else f"{self.max_samples} samples, at most "
        return f"{samples}{self.max_secs:g} s of processor time on one core"


@dataclasses.dataclass(frozen=True)
class Found:
    """The outcome of a timed search.

    Attributes:
        samples: placements simulated.
        failures: of them, those that did not fit; None if not known.
        best_secs: the fastest step; None if nothing fitted.
        samples_to_best: until a step within 2 % of that.
        ended: by "samples", by "secs", or because the placer had "nothing more" to propose.
        search_secs: seconds by the clock of the budget, from making the placer to the end; and of
            it for making it (`make_secs`), proposing, learning (`observe_secs`) and simulating.
        curve: [samples, seconds, fastest step] when a faster step was found; see `thin_curve`.
        window: how many samples each of `mean_secs` is of.
        mean_secs: mean step of those of each window of samples that fitted, None where none did.
        assignment: the device of each group of the fastest placement; None if nothing fitted.
        window_failures: how many samples of each window did not fit; empty in older runs, and if it
            is not known.
    """

    samples: int
    failures: int | None
    best_secs: float | None
    samples_to_best: int
    ended: Ended
    search_secs: float
    make_secs: float
    propose_secs: float
    observe_secs: float
    simulate_secs: float
    curve: Sequence[Sequence[float]]
    window: int
    mean_secs: Sequence[float | None]
    assignment: Sequence[int] | None
    window_failures: Sequence[int] = dataclasses.field(default_factory=list)


class _Samples:
    """The samples of a search so far.

    Attributes:
        secs: the step of each sample; infinite for those that did not fit.
        best: the placement with the fastest step, int32 [num_groups]; None if nothing fitted.
        curve: a point for each faster step.
    """

    def __init__(self) -> None:
        self.secs: list[float] = []
        self.best: np.ndarray | None = None
        self.curve: list[CurvePoint] = []

    def state(self) -> dict[str, np.ndarray]:
        """Copies everything; see `restore`."""
        state = {"secs": np.array(self.secs), "curve": np.array(self.curve).reshape(-1, 3)}
        return state if self.best is None else state | {"best": self.best}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets what `state` gave."""
        self.secs = state["secs"].tolist()
        self.best = state.get("best")
        self.curve = [(int(n), secs, step_secs) for n, secs, step_secs in state["curve"].tolist()]

    def add(
        self, placements: np.ndarray, measured: Sequence[Measurement], elapsed_secs: float
    ) -> None:
        """Adds a batch that was simulated after so many seconds."""
        for placement, measurement in zip(placements, measured, strict=True):
            secs = math.inf if measurement.median_secs is None else measurement.median_secs
            self.secs.append(secs)
            if secs < (self.curve[-1][2] if self.curve else math.inf):
                self.best = placement.copy()
                self.curve.append((len(self.secs), round(elapsed_secs, 4), secs))


class _Checkpoint:
    """A file from which a search by a learned placer goes on after its process has ended.

    Attributes:
        spent: seconds of the search so far, by phase, and of all ("search").
    """

    def __init__(self, path: pathlib.Path, placer: LearnedPlacer, samples: _Samples) -> None:
        """Goes on from the file, if there is one."""
        self._path, self._placer, self._samples = path, placer, samples
        self.spent: dict[str, float] = {}
        self._written_secs = time.monotonic()
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as file:
            state = {name: file[name] for name in file.files}
        placer.restore(select_state("placer/", state))
        samples.restore(select_state("samples/", state))
        self.spent = {name: float(secs) for name, secs in select_state("spent/", state).items()}

    def write(self, spent: Mapping[str, float]) -> None:
        """Writes the file, whole or not at all, unless that was done a short time ago."""
        if time.monotonic() - self._written_secs < _CHECKPOINT_SECS:
            return
        self._written_secs = time.monotonic()
        state = {f"placer/{name}": value for name, value in self._placer.state().items()}
        state |= {f"samples/{name}": value for name, value in self._samples.state().items()}
        state |= {f"spent/{name}": np.array(secs) for name, secs in spent.items()}
        content = io.BytesIO()
        np.savez(content, **state)  # type: ignore[arg-type]
        write_bytes(self._path, content.getvalue())


def time_search(
    problem: PlacementProblem,
    make: Callable[[], Placer],
    budget: SearchBudget,
    *,
    checkpoint: pathlib.Path | None = None,
) -> Found:
    """Simulates what a placer proposes, and lets it learn, until the budget ends.

    Args:
        problem: what to place.
        make: makes the placer, which counts towards the budget.
        budget: when to end.
        checkpoint: for a learned placer, a file that keeps the search from minute to minute; where
            it exists, the search goes on from it, and at the end it is deleted.

    Raises:
        ValueError: the placer has nothing to propose at all, or broke its contract.
    """
    environment = SimulatedEnvironment(problem, threads=None if budget.is_wall else 1)
    clock = time.monotonic if budget.is_wall else time.process_time
    start_secs = clock()
    phases = dict.fromkeys(("make", "propose", "observe", "simulate"), 0.0)

    @contextlib.contextmanager
    def measure_phase(phase: str) -> Iterator[None]:
        begin_secs = clock()
        yield
        phases[phase] += clock() - begin_secs

    with measure_phase("make"):
        placer = make()
    samples = _Samples()
    kept = None
    if checkpoint is not None:
        kept = _Checkpoint(checkpoint, cast("LearnedPlacer", placer), samples)
        start_secs -= kept.spent.pop("search", 0.0)
        for phase, secs in kept.spent.items():
            phases[phase] += secs
    ended: Ended = "nothing more"
    while True:
        left = (budget.max_samples or math.inf) - len(samples.secs)
        if left <= 0 or clock() - start_secs >= budget.max_secs:
            ended = "samples" if left <= 0 else "secs"
            break
        with measure_phase("propose"):
            placements = propose_checked(placer, int(min(placer.batch_size, left)))
        if not len(placements):
            break
        with measure_phase("simulate"):
            measured = environment.measure(placements)
        elapsed_secs = clock() - start_secs
        if elapsed_secs > budget.max_secs:
            ended = "secs"
            break
        samples.add(placements, measured, elapsed_secs)
        with measure_phase("observe"):
            placer.observe(placements, measured)
        if kept is not None and len(placements) == placer.batch_size:
            kept.write(phases | {"search": clock() - start_secs})
    if ended == "nothing more" and not samples.secs:
        raise ValueError(f"placer {placer.name!r} has nothing to propose")
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    spent = {f"{phase}_secs": round(secs, 3) for phase, secs in phases.items()}
    return _summarize(samples, ended, search_secs=round(clock() - start_secs, 3), **spent)


def _summarize(samples: _Samples, ended: Ended, **spent: float) -> Found:
    steps = np.array(samples.secs)
    window = max(_WINDOW, math.ceil(len(steps) / _MAX_WINDOWS))
    windows = [steps[begin : begin + window] for begin in range(0, len(steps), window)]
    return Found(
        samples=len(steps),
        failures=int(np.isinf(steps).sum()),
        best_secs=float(samples.curve[-1][2]) if samples.curve else None,
        samples_to_best=_samples_within(samples.curve, 1.02),
        ended=ended,
        **spent,
        curve=thin_curve(samples.curve),
        window=window,
        mean_secs=[_mean(each) for each in windows],
        assignment=None if samples.best is None else samples.best.tolist(),
        window_failures=[int(np.isinf(each).sum()) for each in windows],
    )


def time_auto(
    problem: PlacementProblem, groups: GroupGraph, budget: SearchBudget, *, seed: int
) -> Found:
    """Searches as "auto" does before anything is measured, with all of the budget.

    Args:
        problem: what to place.
        groups: its groups.
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
    result = coarse_to_fine_search(
        problem,
        groups,
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
        samples_to_best=_samples_within(curve, 1.02),
        ended="nothing more" if result.is_optimal else "secs" if is_short else "samples",
        search_secs=search_secs,
        make_secs=0.0,
        propose_secs=0.0,
        observe_secs=0.0,
        simulate_secs=search_secs,
        curve=thin_curve(curve),
        window=max(1, result.num_simulated),
        mean_secs=[],
        assignment=best.placement.tolist() if fits else None,
    )


def _samples_within(curve: Sequence[CurvePoint], factor: float) -> int:
    """Samples until a step within a factor of the fastest; 0 if nothing fitted."""
    return next((n for n, _, secs in curve if secs <= factor * curve[-1][2]), 0)


def thin_curve(curve: Sequence[CurvePoint]) -> list[list[float]]:
    """Picks the points that show: at most `_MAX_POINTS`, the first and the last among them.

    Between these, a point that is hardly faster than the one before it is left out.
    """
    shown: list[CurvePoint] = []
    for point in curve[:-1]:
        if not shown or point[2] <= (1.0 - _LEAST_GAIN) * shown[-1][2]:
            shown.append(point)
    shown.extend(curve[-1:])
    kept = np.unique(np.linspace(0, len(shown) - 1, min(len(shown), _MAX_POINTS)).astype(int))
    return [list(shown[index]) for index in kept]


def _mean(steps: np.ndarray) -> float | None:
    fitted = steps[np.isfinite(steps)]
    # Drawn only, and the most of what is kept of a run.
    return float(f"{fitted.mean():.7g}") if fitted.size else None
