"""Whether the search of "auto" fits in what an integer program fits in, where memory is scarce.

Random problems of 10 to 400 groups on 2 to 8 devices, whose weights fill 85 to 98 % of all memory.
An integer program (HiGHS) distributes the weights; where the simulated step of what it finds fits
into the memory as well, "auto" must find something that does, too. Problems of which the integer
program finds nothing that fits are drawn again. What is done is kept in `--out_dir`, so the
benchmark goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from scipy import optimize, sparse

from benchmarks.search_quality.random_problems import in_ranges, run_command
from benchmarks.search_quality.random_steps import random_step
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table

__all__ = ["TightRun", "main", "packed_placement", "run_one", "table_of_runs", "tight_problem"]

_SEED = 0
_GROUPS = (10, 400)
_DEVICES = (2, 8)
_FULL = (0.85, 0.98)
# The spread of the sizes, as that of a lognormal distribution: even to heavy-tailed.
_SPREADS = (0.05, 0.5, 1.0, 2.0)
# What the weights leave, by what all tensors and operations hold beside: plenty, or not much.
_ROOM = ((100.0, 100.0), (0.5, 5.0))
_BYTES_PER_TENSOR = 10**6
_CHECK_SECS = 10.0
_ENDS = (20, 60, 150, _GROUPS[1])


@dataclasses.dataclass(frozen=True)
class TightRun:
    """What a search of one problem came to.

    Attributes:
        number: which problem.
        groups: how many groups it has.
        devices: how many devices.
        full: the share of all memory that the weights fill.
        spread: of the sizes of the weights.
        room: what the weights leave, by what all tensors and running operations hold together.
        drawn: how many problems were drawn until the integer program found what fits.
        check_secs: what it took.
        start_fits: whether the best start of the search fits.
        excess_bytes: by how much the best placement of the search does not fit.
        search_secs: what the search took.
    """

    number: int
    groups: int
    devices: int
    full: float
    spread: float
    room: float
    drawn: int
    check_secs: float
    start_fits: bool
    excess_bytes: int
    search_secs: float

    @property
    def key(self) -> int:
        """The identity of the run."""
        return self.number


@dataclasses.dataclass(frozen=True, eq=False)
class TightProblem:
    """A problem with little memory, and how it was made; see `TightRun`."""

    problem: PlacementProblem
    full: float
    spread: float
    room: float


def tight_problem(random: np.random.Generator, max_groups: int = _GROUPS[1]) -> TightProblem:
    """Draws a problem that may have no placement that fits.

    Args:
        random: what it depends on.
        max_groups: the most groups.
    """
    num_groups = round(float(np.exp(random.uniform(*np.log([_GROUPS[0], max_groups])))))
    num_devices = int(random.integers(_DEVICES[0], min(_DEVICES[1], num_groups // 4) + 1))
    problem = random_step(random, num_groups, num_devices)
    full, spread = random.uniform(*_FULL), float(random.choice(_SPREADS))
    room = float(random.uniform(*_ROOM[random.integers(len(_ROOM))]))
    # Some groups have no weights in some problems.
    has_weights = random.random(num_groups) >= random.choice([0.0, 0.0, 0.3])
    sizes = random.lognormal(0.0, spread, num_groups) * has_weights
    shares = np.ones(num_devices)
    if random.random() < 0.5:
        shares = random.choice([1.0, 2.0, 4.0], num_devices) * random.uniform(0.8, 1.2, num_devices)
    # Tensors of any size, for the speed of the links was made for them.
    scale = _BYTES_PER_TENSOR * problem.num_tensors / problem.tensor_bytes.sum()
    tensor_bytes = (problem.tensor_bytes * scale).astype(np.int64)
    # Half of the problems have operations that need memory while they run.
    temp_bytes = (
        _BYTES_PER_TENSOR * random.lognormal(0.0, 1.0, problem.num_operations) * random.integers(2)
    ).astype(np.int64)
    left_bytes = (tensor_bytes.sum() + temp_bytes.sum()) * room
    memory_bytes = left_bytes / (1.0 - full) * shares / shares.sum()
    sizes *= left_bytes / (1.0 - full) * full / max(sizes.sum(), 1e-9)
    # The first operation of a group has its weights.
    resident_bytes = np.zeros(problem.num_operations, np.int64)
    firsts = np.unique(problem.groups, return_index=True)[1]
    resident_bytes[firsts] = sizes.astype(np.int64)
    tight = dataclasses.replace(
        problem,
        tensor_bytes=tensor_bytes,
        local_bytes=tensor_bytes,
        resident_bytes=resident_bytes,
        temp_bytes=temp_bytes,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=int(size))
            for device, size in zip(problem.devices, memory_bytes, strict=True)
        ),
        links=tuple(
            dataclasses.replace(link, bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec * scale)
            for link in problem.links
        ),
    )
    return TightProblem(tight, full, spread, room)


def packed_placement(problem: PlacementProblem, max_secs: float = _CHECK_SECS) -> np.ndarray | None:
    """Lets an integer program find a placement that fits, if it can: int32 [num_groups].

    It is asked for any distribution of what is resident that fits, and for one that leaves as much
    of each memory free as it can.

    Args:
        problem: what is placed.
        max_secs: how long the first is looked for; the other for a fifth of that.
    """
    simulator = Simulator(problem, threads=1)
    for is_spread in (False, True):
        # Which leaves most free is hardly ever certain.
        placement = _integer_program(problem, max_secs / (5.0 if is_spread else 1.0), is_spread)
        if placement is not None and simulator.simulate(placement[None]).feasible[0]:
            return placement
    return None


def _integer_program(
    problem: PlacementProblem, max_secs: float, is_spread: bool
) -> np.ndarray | None:
    num_groups, num_devices = problem.num_groups, problem.num_devices
    sizes = np.bincount(problem.groups, problem.resident_bytes, minlength=num_groups)
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])
    # Variables: whether group g is on device d, and the share of each memory that stays free.
    once = sparse.kron(sparse.eye(num_groups), np.ones([1, num_devices]))
    filled = sparse.kron(sizes[None], sparse.diags(1.0 / memory_bytes))
    rows = sparse.vstack(
        [
            sparse.hstack([once, np.zeros([num_groups, 1])]),
            sparse.hstack([filled, np.ones([num_devices, 1])]),
        ]
    )
    lows = np.concatenate([np.ones(num_groups), np.full(num_devices, -np.inf)])
    solved = optimize.milp(
        c=np.append(np.zeros(num_groups * num_devices), -1.0 if is_spread else 0.0),
        constraints=optimize.LinearConstraint(rows.tocsc(), lows, np.ones(len(lows))),
        bounds=optimize.Bounds(0.0, np.append(legal_devices(problem).reshape(-1), 1.0)),
        integrality=np.append(np.ones(num_groups * num_devices), 0.0),
        options={"time_limit": max_secs},
    )
    if solved.x is None:
        return None
    chosen: np.ndarray = solved.x[:-1].reshape(num_groups, num_devices).argmax(axis=1)
    return chosen.astype(np.int32)


def run_one(
    number: int,
    max_secs: float = 2.0,
    max_simulated: float = np.inf,
    max_groups: int = _GROUPS[1],
) -> TightRun:
    """Draws a random problem that something fits, and has "auto" search it.

    Args:
        number: which problem.
        max_secs: of the search.
        max_simulated: of the search.
        max_groups: the most groups of the problem.
    """
    random = np.random.default_rng([_SEED, number])
    drawn = 0
    packed = None
    while packed is None:
        tight = tight_problem(random, max_groups)
        drawn += 1
        start_secs = time.monotonic()
        packed = packed_placement(tight.problem)
        check_secs = time.monotonic() - start_secs
    result = auto_search(
        tight.problem,
        group_graph(tight.problem),
        max_secs=max_secs,
        max_simulated=max_simulated,
        seed=number,
    )
    return TightRun(
        number=number,
        groups=tight.problem.num_groups,
        devices=tight.problem.num_devices,
        full=round(tight.full, 4),
        spread=tight.spread,
        room=round(tight.room, 3),
        drawn=drawn,
        check_secs=round(check_secs, 3),
        start_fits=not result.starts[0][1].excess_bytes,
        excess_bytes=result.best.excess_bytes,
        search_secs=round(result.elapsed_secs, 3),
    )


def table_of_runs(runs: Sequence[TightRun]) -> str:
    """Tabulates the runs by the number of groups, and all of them, in Markdown."""
    rows = []
    for name, those in in_ranges(runs, _ENDS, lambda run: run.groups):
        rows.append(
            [
                name,
                f"{len(those)}",
                f"{sum(not run.excess_bytes for run in those)}",
                f"{sum(run.start_fits for run in those)}",
                f"{np.mean([run.full for run in those]):.1%}",
                f"{np.mean([run.check_secs for run in those]):.2f} s",
            ]
        )
    headers = ("groups", "problems", "fit", "fit at the start", "memory filled", "integer program")
    return markdown_table(headers, rows, "lrrrrr")


def _page(runs: Sequence[TightRun]) -> str:
    return (
        f"{table_of_runs(runs)}\n\n"
        "problems: of which the integer program finds a placement that fits; "
        f"{sum(run.drawn for run in runs):,} were drawn for that. fit: of these, how many the "
        "search makes fit; at the start: before it anneals. memory filled: by weights. integer "
        "program: the time that it took."
    )


def main() -> None:
    """Runs what has not run yet, and writes the table."""
    run_command("auto_tight_memory", __doc__, TightRun, 200, run_one, _page)


if __name__ == "__main__":
    main()
