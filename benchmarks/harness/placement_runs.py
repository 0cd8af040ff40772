"""Runs of placers on problems: each a search under a budget, in a process of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.provenance import commit, package_versions
from benchmarks.harness.run_placers import make_run_placer, run_granularity
from benchmarks.harness.run_pool import Call, run_calls
from benchmarks.harness.step_losses import step_losses
from benchmarks.harness.timed_search import Found, SearchBudget, time_auto, time_search
from benchmarks.problems.paper import (
    ProblemKey,
    make_problems,
    read_paper_problem,
)
from tf_placer.files import read_json, write_json
from tf_placer.placers import AUTO, is_learned
from tf_placer.placers.former_names import FORMER_PLACERS, rename_former
from tf_placer.placers.placer import Placer
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.text.units import format_duration, format_step

__all__ = ["Run", "RunKey", "run_all"]

_FORMAT = 1
# Above its budget, for what a run does before and after, and for its last batch.
_GRACE_SECS = 60.0
_MAX_MESSAGE = 300


@dataclasses.dataclass(frozen=True)
class RunKey:
    """The identity of a run.

    Attributes:
        model: of the catalog.
        machine: name of a described machine.
        placer: one of `run_placers.ALL_PLACERS`.
        options: of the placer, name and value, sorted.
        seed: of everything random.
        small: whether the model has its small size.
    """

    model: str
    machine: str
    placer: str
    options: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    small: bool = False

    @property
    def problem(self) -> ProblemKey:
        """The problem that the placer is given."""
        granularity = run_granularity(self.placer, dict(self.options))
        return ProblemKey(self.model, self.machine, granularity, self.small)

    @property
    def label(self) -> str:
        """The placer with its options: "hierarchical grouper=metis"."""
        return " ".join([self.placer, *(f"{name}={value}" for name, value in self.options)])

    @property
    def file_name(self) -> str:
        """The name of its file; options that differ beyond what a file name takes do differ."""
        label = re.sub(r"[^\w.=-]+", "-", self.label)
        if label != self.label.replace(" ", "-"):
            label += "-" + hashlib.sha256(self.label.encode()).hexdigest()[:8]
        size = "-small" if self.small else ""
        return f"{self.model}{size}-{self.machine}-{label}-{self.seed}.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run and what came of it.

    Attributes:
        key: which run.
        budget: its budget.
        problem_digest: of the problem that was placed.
        lower_bound_secs: no placement of the problem takes less.
        found: what was found; None if the run failed.
        failure: why it failed, one sentence; else None.
        versions: of packages.
        losses: of the step that was found, the seconds above the lower bound by what they are lost
            to (see `step_losses`); None if nothing fitted or nobody looked.
        commit: of the source tree that made it, "+" behind it if files differed; None if not known.
    """

    key: RunKey
    budget: SearchBudget
    problem_digest: str
    lower_bound_secs: float | None
    found: Found | None
    failure: str | None
    versions: Mapping[str, str]
    losses: Mapping[str, float] | None = None
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form; `assignment` is at its top, as `tf_placer simulate` reads it."""
        value = dataclasses.asdict(self) | {"format": _FORMAT}
        if self.found is not None:
            value["assignment"] = value["found"].pop("assignment")
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Run:
        """Reads what `to_json` gave, with the assignment or without it.

        Raises:
            KeyError, TypeError, ValueError: the value is no run of this format.
        """
        if value["format"] != _FORMAT:
            raise ValueError(f"format is {value['format']!r}: it must be {_FORMAT}")
        placer = value["key"]["placer"]
        options = rename_former(dict(value["key"]["options"]), owner=placer)
        found = value["found"]
        return cls(
            key=RunKey(
                **{
                    **value["key"],
                    "placer": FORMER_PLACERS.get(placer, placer),
                    "options": tuple(sorted(options.items())),
                }
            ),
            budget=SearchBudget(**value["budget"]),
            problem_digest=value["problem_digest"],
            lower_bound_secs=value["lower_bound_secs"],
            found=found and Found(**found, assignment=value.get("assignment")),
            failure=value["failure"],
            versions=value["versions"],
            losses=value.get("losses"),
            commit=value.get("commit"),
        )


def run_all(
    keys: Sequence[RunKey],
    budget: SearchBudget,
    runs_dir: str | os.PathLike[str],
    *,
    jobs: int,
    ended: Callable[[Run], None] = lambda run: None,
) -> dict[RunKey, Run]:
    """Makes runs, and prints what came of each, how far it all is, and how long the rest may take.

    Every run has a process of its own with one thread. It writes a file in a folder of the budget,
    which has the placement that it found, too. A run by a learned placer that was killed goes on
    where it was.

    Args:
        keys: which runs, each once.
        budget: of each, in processor time.
        runs_dir: where problems and runs go.
        jobs: runs at a time.
        ended: is given each run as soon as it has ended.

    Returns:
        All runs, those that failed included.

    Raises:
        MachineError: there is no such machine.
        ValueError: there is no such model.
    """
    problems_dir = pathlib.Path(runs_dir, "problems")
    folder = pathlib.Path(runs_dir, budget.folder)
    folder.mkdir(parents=True, exist_ok=True)
    broken = make_problems({key.problem for key in keys}, problems_dir)
    runs = {
        key: _make_failed_run(key, budget, broken[key.model]) for key in keys if key.model in broken
    }
    wanted = [key for key in keys if key not in runs]
    calls = [
        Call(
            _run_to_file,
            (key, budget, str(problems_dir), str(folder / key.file_name)),
            2 * budget.max_secs + _GRACE_SECS,
        )
        for key in wanted
    ]
    start_secs = time.monotonic()
    for number, call in enumerate(run_calls(calls, jobs), 1):
        key = wanted[call.index]
        if call.problem is None:
            run = Run.from_json(read_json(folder / key.file_name))
        else:
            run = _make_failed_run(key, budget, call.problem)
        runs[key] = run
        ended(run)
        eta_secs = (time.monotonic() - start_secs) / number * (len(calls) - number)
        left = f"{format_duration(eta_secs)} left"
        print(f"[{number}/{len(calls)}] {_summary(run)} | {left}", flush=True)
    return {key: runs[key] for key in keys}


def _run_to_file(key: RunKey, budget: SearchBudget, problems_dir: str, path: str) -> None:
    """Makes one run; in a process of its own."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[variable] = "1"
    try:
        run = _run(key, budget, problems_dir, pathlib.Path(path).parent)
    # Whatever a placer raises is what this run came to.
    except Exception as error:
        text = " ".join(f"{error}".split()) or type(error).__name__
        run = _make_failed_run(key, budget, text[:_MAX_MESSAGE])
        if not isinstance(error, ImportError | OSError | ValueError):
            sys.excepthook(type(error), error, error.__traceback__)
    write_json(path, run.to_json())


def _run(key: RunKey, budget: SearchBudget, problems_dir: str, folder: pathlib.Path) -> Run:
    problem = read_paper_problem(key.problem, problems_dir)
    checkpoint = None
    if is_learned(key.placer):
        checkpoint = folder / f"{key.file_name}.{problem.digest[:8]}.npz"
        import tf_placer.placers.learned.compose  # noqa: F401 (its seconds are not the placer's)

    def make() -> Placer:
        return make_run_placer(
            key.placer,
            dict(key.options),
            key.model,
            problem,
            seed=key.seed,
            max_samples=budget.max_samples,
        )

    if key.placer == AUTO:
        found = time_auto(problem.problem, problem.groups, budget, seed=key.seed)
    else:
        found = time_search(problem.problem, make, budget, checkpoint=checkpoint)
    bound_secs, losses = float(lower_bounds(problem.problem).step_secs), None
    if found.assignment is not None:
        placement = np.array(found.assignment, np.int32)
        losses = step_losses(problem.problem, placement, bound_secs)
    return Run(
        key=key,
        budget=budget,
        problem_digest=problem.digest,
        lower_bound_secs=bound_secs,
        found=found,
        failure=None,
        versions=package_versions(),
        losses=losses,
        commit=commit() or None,
    )


def _make_failed_run(key: RunKey, budget: SearchBudget, failure: str) -> Run:
    return Run(key, budget, "", None, None, failure, package_versions())


def _summary(run: Run) -> str:
    key = run.key
    what = f"{key.model} {key.machine} {key.label} (seed {key.seed})"
    if run.found is None:
        return f"{what}: {run.failure}"
    found = run.found
    best = "nothing fits" if found.best_secs is None else format_step(found.best_secs)
    return f"{what}: {best} in {found.samples} samples, {format_duration(found.search_secs)}"
