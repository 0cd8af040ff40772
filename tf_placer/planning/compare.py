"""The comparison of machines, by the best step that is found for a graph on each of them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graph_passes.util.json_text import format_value
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.planning.plan import DEFAULT_SECS
from tf_placer.planning.plan_result import PlanResult
from tf_placer.problem.accelerators import find_accelerators, is_gpu
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.device_labels import device_labels
from tf_placer.report.machine_comparison import AS_WELL_AS, ComparedMachine, MachineComparison
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.simulation.data_parallel import compute_data_parallel_bound
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import step_report

__all__ = ["compare"]

_IDLE_SHARE = 0.01
_MIN_SEARCH_SECS = 1e-3

#: A machine to compare: a problem, its file, or a finished search or its directory.
Source = PlacementProblem | PlanResult | str | os.PathLike[str]


def compare(
    machines: Mapping[str, Source] | Sequence[str | os.PathLike[str]],
    *,
    max_secs: float = DEFAULT_SECS,
    seed: int = 0,
    prices: Mapping[str, float] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> MachineComparison:
    """Compares machines by the best simulated step that is found for a graph on each.

    Problems are searched by `auto`, the smallest machine first; a larger machine also starts from
    the placements of smaller ones, and so is never worse for want of time. Finished searches are
    compared as they are. An interrupt from the keyboard leaves out the machines that were not
    searched yet.

    Args:
        machines: by name, the problem of the graph on each machine or its file, as `profile` makes
            them; or a finished search: the result of `plan`, or its directory. The paths are the
            names of a list of files and directories.
        max_secs: time limit of all searches together; each gets an equal share of what is left.
        seed: seed of the searches.
        prices: by name, prices per hour, in any currency.
        say: called with lines for users.

    Raises:
        KeyboardInterrupt: the comparison was interrupted before a machine was searched.
        OSError: a file cannot be read.
        ValueError: a file, a name or a number is wrong.

    Example:
        >>> names = ["1xA100", "4xA100", "8xA100"]
        >>> problems = {
        ...     name: tf_placer.profile(graph, machine=name, output=f"{name}.json")
        ...     for name in names
        ... }
        >>> print(tf_placer.compare(problems, prices={"4xA100": 14.0}).table())
    """
    if isinstance(machines, str | os.PathLike) or not machines:
        raise ValueError("compare needs machines: problems by name, or a list of files")
    if not max_secs > 0:
        raise ValueError(f"max_secs must be greater than 0, not {format_value(max_secs)}")
    if not isinstance(machines, Mapping):
        machines = {os.fspath(path): path for path in machines}
    prices = dict(prices or {})
    _check_prices(prices, machines)
    read = {name: _read_source(name, source) for name, source in machines.items()}
    found = {name: placement for name, (_, placement) in read.items() if placement is not None}
    searched = sorted(
        (name for name in read if name not in found), key=lambda name: read[name][0].num_devices
    )
    end_secs = time.monotonic() + max_secs
    for number, name in enumerate(searched):
        problem = read[name][0]
        left_secs = max(_MIN_SEARCH_SECS, end_secs - time.monotonic())
        secs = left_secs / (len(searched) - number)
        say(f"searching for {name}, at most {secs:.0f} s")
        result = coarse_to_fine_search(
            problem,
            group_graph(problem),
            max_secs=secs,
            starts=_list_starts(problem, found),
            seed=seed,
        )
        found[name] = result.best.placement
        if result.interrupted:
            say(f"interrupted: {len(searched) - number - 1} machines are left out")
            break
    return MachineComparison(
        tuple(
            _describe(name, problem, found[name], prices.get(name))
            for name, (problem, _) in read.items()
            if name in found
        )
    )


def _check_prices(prices: Mapping[str, float], names: Mapping[str, Source]) -> None:
    for name, price in prices.items():
        if name not in names:
            raise ValueError(
                f"there is a price of {format_value(name)}, which is not compared: "
                f"{', '.join(names)} are"
            )
        if not 0 <= price < math.inf:
            raise ValueError(f"the price of {name} must be 0 or more, not {format_value(price)}")


def _read_source(name: str, source: Source) -> tuple[PlacementProblem, np.ndarray | None]:
    """Reads a problem, and the placement of a finished search.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is wrong.
    """
    if isinstance(source, PlanResult):
        return source.problem, source.assignment
    if isinstance(source, PlacementProblem):
        return source, None
    if not os.path.isdir(source):
        return read_problem(source), None
    directory = PlanDirectory(source)
    for path in (directory.problem, directory.result):
        if not path.exists():
            raise ValueError(
                f"{name} has no {path.name}: give the directory of a finished `search` (its "
                "--log_dir), or a problem file"
            )
    problem_path = os.fspath(directory.problem)
    problem = read_problem(problem_path)
    return problem, read_assignment(os.fspath(directory.result), problem, problem_path)


def _list_starts(
    problem: PlacementProblem, found: Mapping[str, np.ndarray]
) -> list[tuple[str, np.ndarray]]:
    """Lists the placements of other machines that are legal on this one."""
    legal = legal_devices(problem)
    starts = []
    for name, placement in found.items():
        is_possible = len(placement) == problem.num_groups and (
            placement.max(initial=0) < problem.num_devices
        )
        if is_possible and legal[np.arange(len(placement)), placement].all():
            starts.append((name, placement.astype(np.int32)))
    return starts


def _count_spare(
    simulator: Simulator,
    placement: np.ndarray,
    legal: np.ndarray,
    idle: np.ndarray,
    busy: np.ndarray,
    step_secs: float,
) -> int:
    """Counts the idle accelerators that a placement can do without, within 2 % of its step."""
    is_moved = np.isin(placement, idle)
    moved = [
        np.where(is_moved, target, placement) for target in busy if legal[is_moved, target].all()
    ]
    if moved:
        batch = simulator.simulate(np.stack(moved).astype(np.int32))
        if (batch.feasible & (batch.step_secs <= AS_WELL_AS * step_secs)).any():
            return len(idle)
    return int((~np.isin(idle, placement)).sum())


def _describe(
    name: str, problem: PlacementProblem, placement: np.ndarray, price: float | None
) -> ComparedMachine:
    """Simulates a placement, and the best one with everything on one accelerator."""
    accelerators = find_accelerators(problem)
    simulator = Simulator(problem)
    step = step_report(simulator.trace(placement))
    legal = legal_devices(problem)
    one_device = simulator.simulate(
        np.stack(
            [np.where(legal[:, index], index, legal.argmax(axis=1)) for index in accelerators]
        ).astype(np.int32)
    )
    fitting = one_device.step_secs[one_device.feasible]
    labels = device_labels([device.name for device in problem.devices])
    fullest = max(step.devices, key=lambda each: each.peak_bytes / max(each.memory_bytes, 1))
    is_idle = [
        step.devices[index].busy_secs < _IDLE_SHARE * step.step_secs for index in accelerators
    ]
    idle = accelerators[is_idle]
    return ComparedMachine(
        name=name,
        kind="+".join(dict.fromkeys(problem.devices[index].kind for index in accelerators)),
        device_type="GPU" if is_gpu(problem.devices[accelerators[0]]) else "device",
        accelerators=len(accelerators),
        step_secs=step.step_secs if step.fits else None,
        one_device_secs=float(fitting.min()) if len(fitting) else None,
        lower_bound_secs=float(lower_bounds(problem).step_secs),
        data_parallel_secs=compute_data_parallel_bound(
            problem,
            one_device.step_secs,
            one_device.peak_bytes[np.arange(len(accelerators)), accelerators],
        ),
        fullest_device=labels[fullest.name],
        peak_bytes=fullest.peak_bytes,
        memory_bytes=fullest.memory_bytes,
        idle=tuple(labels[problem.devices[index].name] for index in idle),
        spare=_count_spare(
            simulator, placement, legal, idle, np.setdiff1d(accelerators, idle), step.step_secs
        ),
        price_per_hour=price,
    )
