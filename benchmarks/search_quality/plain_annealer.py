"""Plain simulated annealing in C++, to compare `auto` with; `plain_annealer.cc` has the moves."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import pathlib
import subprocess
import tempfile

import numpy as np

from tf_placer.native.library import Struct, array_of, int64, pointer_to
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.step_tables import make_tables

__all__ = ["ANNEALER_SOURCE", "AnnealedPlacement", "anneal"]

# Under Bazel this file is a link into the source tree, where the headers are.
ANNEALER_SOURCE = pathlib.Path(__file__).resolve().with_suffix(".cc")
_ROOT = ANNEALER_SOURCE.parents[2]
# As setup.py builds the core, but without assertions.
_COMMAND = ("g++", "-std=c++17", "-O3", "-ffp-contract=off", "-DNDEBUG", "-shared", "-fPIC")
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 0.005, 1e-5


class _Neighbors(Struct):
    _fields_ = (("start", array_of(np.int64)), ("groups", array_of(np.int32)))


class _Parameters(ctypes.Structure):
    _fields_ = (
        ("core_secs", ctypes.c_double),
        ("max_steps", int64),
        ("first_temperature", ctypes.c_double),
        ("last_temperature", ctypes.c_double),
        ("seed", ctypes.c_uint64),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("step_secs", ctypes.c_double),
        ("core_secs", ctypes.c_double),
        ("num_simulated", int64),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class AnnealedPlacement:
    """The result of an annealing.

    Attributes:
        placement: int32 [num_groups], the best placement.
        step_secs: its step time.
        core_secs: the time of a core that the annealing took.
        num_simulated: the steps that were simulated, those that were cut included.
    """

    placement: np.ndarray
    step_secs: float
    core_secs: float
    num_simulated: int


def anneal(
    problem: PlacementProblem, *, core_secs: float, seed: int, max_steps: int = 2**62
) -> AnnealedPlacement:
    """Anneals on one core, from all groups on the first device that they may go to.

    Args:
        problem: the problem, with more memory than it needs.
        core_secs: the time limit, in seconds of a core.
        seed: seeds everything random.
        max_steps: the most steps to simulate; where this ends the annealing, the result depends on
            the seed alone.

    Raises:
        MemoryError: there is too little memory.
        OSError: there is no compiler.
        subprocess.CalledProcessError: the compiler failed.
    """
    groups = group_graph(problem)
    ends = np.concatenate([groups.edges, groups.edges[:, ::-1]]).reshape(-1, 2)
    ends = np.unique(ends, axis=0)
    neighbors = _Neighbors(
        start=np.searchsorted(ends[:, 0], np.arange(problem.num_groups + 1)).astype(np.int64),
        groups=np.ascontiguousarray(ends[:, 1], np.int32),
    )
    tables = make_tables(problem)
    placement = legal_devices(problem).argmax(axis=1).astype(np.int32)
    result = _Result()
    parameters = _Parameters(core_secs, max_steps, _FIRST_TEMPERATURE, _LAST_TEMPERATURE, seed)
    failure = _library().anneal(
        ctypes.byref(tables),
        ctypes.byref(neighbors),
        ctypes.byref(parameters),
        pointer_to(placement, np.int32),
        ctypes.byref(result),
    )
    if failure:
        raise MemoryError(f"no memory to anneal {problem.num_operations:,} operations")
    return AnnealedPlacement(placement, result.step_secs, result.core_secs, result.num_simulated)


@functools.cache
def _library() -> ctypes.CDLL:
    """Compiles the annealer, once in a process, and loads it."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "plain_annealer.so")
        subprocess.run([*_COMMAND, f"-I{_ROOT}", str(ANNEALER_SOURCE), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
    library.anneal.restype = ctypes.c_int64
    library.anneal.argtypes = [ctypes.c_void_p] * 5
    return library
