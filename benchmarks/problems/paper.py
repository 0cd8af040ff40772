"""The models of the catalog on described machines, as problems that placers are given.

A problem is a folder: `problem.json`, `groups.json` (what a placer sees of the groups) and
`about.json` (where the problem is from). It is made once, in a process of its own, because the
graphs are large, and again when the sources that it depends on have changed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.provenance import package_versions
from benchmarks.harness.run_pool import Call, run_calls
from benchmarks.models.catalog import MODELS
from benchmarks.problems.group_graph_file import read_group_graph, write_group_graph
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.files import read_json, write_json
from tf_placer.machines.catalog import make_described_machine
from tf_placer.placers import Granularity
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem

__all__ = [
    "PaperProblem",
    "ProblemKey",
    "make_problems",
    "problem_path",
    "read_paper_problem",
    "write_parts",
]

_FORMAT = 1
_ABOUT, _GROUPS, _PROBLEM = "about.json", "groups.json", "problem.json"
# The sources that determine the costs and groups of a model.
_SOURCES = (
    "benchmarks/models/*.py",
    "graph_passes/**/*.py",
    "graph_passes/data/*",
    "tf_placer/costs/*.py",
    "tf_placer/inputs/workload.py",
    "tf_placer/machines/*.py",
    "tf_placer/machines/data/*",
    "tf_placer/problem/*.py",
)
_CPU_LIMIT_SECS = 3600.0


@dataclasses.dataclass(frozen=True, order=True)
class ProblemKey:
    """The identity of a problem.

    Attributes:
        model: of the catalog.
        machine: name of a described machine.
        granularity: what a group is; see `tf_placer.placers.find_granularity`.
        small: whether the model has its small size.
    """

    model: str
    machine: str
    granularity: Granularity = "coarse"
    small: bool = False

    @property
    def folder(self) -> str:
        """The name of its folder."""
        size = "-small" if self.small else ""
        return f"{self.model}{size}-{self.machine}-{self.granularity}"


@dataclasses.dataclass(frozen=True, eq=False)
class PaperProblem:
    """A model on a machine.

    Attributes:
        groups: what a placer sees of the groups.
        legal: bool [num_groups, num_devices], where groups may go.
        problem: what is simulated.
        digest: of the files; equal problems have equal ones.
        num_graph_operations: of the whole graph, with what a step does not need.
    """

    groups: GroupGraph
    legal: np.ndarray
    problem: PlacementProblem
    digest: str
    num_graph_operations: int


def make_problems(
    keys: Iterable[ProblemKey],
    problems_dir: str | os.PathLike[str],
) -> dict[str, str]:
    """Makes the problems that are not there yet, each model in a process of its own; prints which.

    Args:
        keys: which problems.
        problems_dir: where their folders go.

    Returns:
        What went wrong, one sentence by the name of each model that could not be made.

    Raises:
        MachineError: there is no such machine.
        ValueError: there is no such model.
    """
    keys = sorted(set(keys))
    for key in keys:
        if key.model not in MODELS:
            raise ValueError(f"there is no model {key.model!r}; there are {', '.join(MODELS)}")
        make_described_machine(key.machine)
    missing = [key for key in keys if not _is_made(key, problems_dir)]
    failures = {}
    sizes = sorted({(key.model, key.small) for key in missing})
    keys_of = [[key for key in missing if (key.model, key.small) == size] for size in sizes]
    calls = [Call(_make_model, (own, os.fspath(problems_dir)), _CPU_LIMIT_SECS) for own in keys_of]
    for number, ended in enumerate(run_calls(calls, jobs=1), 1):
        model, small = sizes[ended.index]
        places = ", ".join(sorted({key.machine for key in keys_of[ended.index]}))
        print(
            f"[{number}/{len(sizes)}] costs of {model}{' (small)' * small} on {places}", flush=True
        )
        if ended.problem is not None:
            failures[model] = f"the problems of {model} could not be made: {ended.problem}"
            print(failures[model], flush=True)
    return failures


def read_paper_problem(key: ProblemKey, problems_dir: str | os.PathLike[str]) -> PaperProblem:
    """Reads a problem that `make_problems` made.

    Raises:
        OSError, ValueError: it is not there, or not whole.
    """
    folder = pathlib.Path(problems_dir, key.folder)
    about = read_json(folder / _ABOUT)
    return PaperProblem(
        groups=read_group_graph(folder / _GROUPS),
        legal=np.array(about["legal"], np.bool_),
        problem=read_problem(folder / _PROBLEM),
        digest=about["digest"],
        num_graph_operations=about["num_graph_operations"],
    )


def problem_path(key: ProblemKey, problems_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Names the problem file of a problem that `make_problems` made."""
    return pathlib.Path(problems_dir, key.folder, _PROBLEM)


def write_parts(
    key: ProblemKey,
    problems_dir: str | os.PathLike[str],
    groups: GroupGraph,
    legal: np.ndarray,
    problem: PlacementProblem,
    *,
    num_graph_operations: int,
) -> None:
    """Writes the folder of a problem.

    Args:
        key: which problem.
        problems_dir: where its folder goes.
        groups: what a placer sees of the groups.
        legal: bool [num_groups, num_devices], where groups may go.
        problem: what is simulated.
        num_graph_operations: of the whole graph.

    Raises:
        OSError, ProblemError: a file cannot be written.
    """
    folder = pathlib.Path(problems_dir, key.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _ABOUT).unlink(missing_ok=True)
    write_problem(problem, folder / _PROBLEM)
    write_group_graph(groups, folder / _GROUPS)
    digest = hashlib.sha256()
    for name in (_PROBLEM, _GROUPS):
        digest.update((folder / name).read_bytes())
    # The last, so that a folder that has it is whole.
    about = _describe_sources(key) | {
        "digest": digest.hexdigest(),
        "num_graph_operations": num_graph_operations,
        "legal": legal.astype(int).tolist(),
    }
    write_json(folder / _ABOUT, about)


def _is_made(key: ProblemKey, problems_dir: str | os.PathLike[str]) -> bool:
    try:
        about = read_json(pathlib.Path(problems_dir, key.folder, _ABOUT))
    except (OSError, ValueError):
        return False
    expected = _describe_sources(key)
    return isinstance(about, dict) and {name: about.get(name) for name in expected} == expected


def _describe_sources(key: ProblemKey) -> dict[str, Any]:
    """Collects what says whether a folder is that of the problem as it would be made now."""
    return {
        "format": _FORMAT,
        **dataclasses.asdict(key),
        "versions": package_versions(),
        "sources": _sources_digest(),
    }


@functools.cache
def _sources_digest() -> str:
    root = pathlib.Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        paths = sorted(path for path in root.glob(pattern) if path.is_file())
        if not paths:
            raise FileNotFoundError(f"no source of the problems is like {root / pattern}")
        for path in paths:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _make_model(keys: Sequence[ProblemKey], problems_dir: str) -> None:
    """Makes problems of one model; in a process of its own."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.models.catalog import build_model
    from graph_passes.pipeline import group_operations
    from tf_placer.costs.costed_graph import CostedGraph
    from tf_placer.inputs.workload import read_workload

    model = build_model(keys[0].model, small=keys[0].small)
    workload = read_workload(model.graph, [model.train_op, model.loss])
    num_graph_operations = len(workload.op_graph.names)
    del model
    # No run uses the fixed seconds, and kept runs name the digests of problems without them.
    costs = {
        key.machine: dataclasses.replace(
            compute_analytic_costs(workload.op_graph, make_described_machine(key.machine)),
            fixed_secs=None,
        )
        for key in keys
    }
    for granularity in sorted({key.granularity for key in keys}):
        grouped = group_operations(workload.op_graph, granularity)
        for key in keys:
            if key.granularity != granularity:
                continue
            machine = make_described_machine(key.machine)
            names = tuple(device.name for device in machine.devices)
            write_parts(
                key,
                problems_dir,
                grouped.group_graph,
                grouped.grouping.legal_devices(grouped.colocation, names),
                CostedGraph(grouped, machine, costs[key.machine]).problem(),
                num_graph_operations=num_graph_operations,
            )
