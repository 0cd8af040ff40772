"""Analysis of the steps that other machines would allow."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.machines.machine import Link
from tf_placer.placers.auto.auto_search import AutoProgress
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.placers.auto.cost_fit import scale_costs
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels
from tf_placer.report.limits import move_to_gpus
from tf_placer.report.one_device import place_on_one_of_each_kind
from tf_placer.simulation.host_offload import HostOffload, find_offload
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes

__all__ = ["THIS_MACHINE", "WhatIf", "add_device", "search_changed_machines"]

#: The row of the machine as it is, which tells the gain of another search from that of a machine.
THIS_MACHINE = "this machine, searched as long"
_TWICE, _NO_TRANSFERS = "transfers twice as fast", "transfers that take no time"
_MORE_MEMORY = "twice the memory"
_MOVED_SHARES = (1.0, 0.75, 0.5, 0.25)
_NEGLIGIBLE_FACTOR = 1e-6
# Share of the time that is left for estimates with tensors that wait on the CPU.
_OFFLOAD_SHARE = 0.3
# The preparation of a search takes about as long as this many simulated steps.
_PREPARATION_STEPS = 5


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """The step on a machine that differs in one way, or on the same machine.

    Attributes:
        change: the difference, for people; `THIS_MACHINE` if there is none.
        step_secs: the step time under the best placement found for that machine; None if there was
            no time to search for one.
        lower_bound_secs: the lower bound of the step time there; None without a search.
        assignment: for tensors that wait on the CPU, the placement whose tensors they are, which
            `offload` takes: a device index per group. Empty for all else.
    """

    change: str
    step_secs: float | None
    lower_bound_secs: float | None
    # Explanations of older versions lack this field.
    assignment: tuple[int, ...] = dataclasses.field(default=(), repr=False)


def search_changed_machines(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    running: Sequence[np.ndarray] = (),
    known: Sequence[np.ndarray] = (),
    search_secs: float,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[WhatIf, ...]:
    """Searches placements for this machine, and for machines that are each better in one way.

    Each search starts from the given placements, and takes an equal share of the time. The machine
    as it is comes first, and the other searches also start from its placement: otherwise other
    machines would be credited with the gain of a better placement. One more device comes next,
    because machines are chosen by that; it also starts from placements with work of CPUs on that
    device, and gets two shares. Twice the memory is among the changes if memory is short, and
    so are tensors that wait on the CPU if that makes a faster placement fit. As memory makes
    the largest difference, that search is the next, gets two shares, and also starts from known
    placements, which may not fit. The reported step is at most the shortest
    present one: a faster machine allows that, although a simulated step may take longer when only
    a transfer is faster, because operations then run in another order.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a placement that fits.
        running: other placements that fit.
        known: other placements, int32 [num_groups] each, such as fast ones that do not fit.
        search_secs: time limit of all searches together, with their preparation.
        seed: the seed of the searches.
        progress: called often with a line about the search that runs. A KeyboardInterrupt from it
            ends the searches, at the beginning of one by that error.

    Returns:
        A step for each machine, the present one first, with None for machines that there is no time
        for; none for faster transfers if there is only one device, and nothing if there is no time
        for any machine.
    """
    end_secs = time.monotonic() + search_secs
    now_secs, is_short = _simulate_now(problem, placement)
    preparing_secs = _PREPARATION_STEPS * (time.monotonic() - (end_secs - search_secs))
    machines = [(THIS_MACHINE, problem), *_change_machines(problem, is_short=is_short)]
    results: list[WhatIf] = []
    here = [placement, *running]
    best_secs = min([now_secs, *(_step_secs(problem, each) for each in running)])
    fast = here
    for number, (change, machine) in enumerate(machines):
        start_secs = time.monotonic()
        if end_secs - start_secs <= preparing_secs:
            break
        shown = f"what if: {change} ({number + 1} of {len(machines)})"
        if progress is not None:
            progress(shown)
        bound_secs = lower_bounds(machine).step_secs
        # The bounds of the machines take about as long as each other.
        preparing_secs = max(preparing_secs, time.monotonic() - start_secs)
        left_secs = end_secs - time.monotonic()
        if left_secs <= 0:
            break
        starts = fast
        weights = [
            1.0 + (name == _MORE_MEMORY or each.num_devices > problem.num_devices)
            for name, each in machines[number:]
        ]
        share = weights[0] / sum(weights)
        if change == _MORE_MEMORY:
            starts = [*here, *known, *_move_off_cpu(problem, placement)]
        elif machine.num_devices > problem.num_devices:
            # Work that is on CPUs for want of memory may fit there.
            starts = [placement, here[-1], *_move_parts(machine, here[-1])]
        found = coarse_to_fine_search(
            machine,
            groups,
            max_secs=min(left_secs, max(preparing_secs, share * left_secs)),
            starts=[("known", each) for each in starts],
            seed=seed,
            report=None if progress is None else functools.partial(_report, progress, shown),
        )
        if change == THIS_MACHINE and not found.best.excess_bytes:
            here = [*here, found.best.placement]
            best_secs = min(best_secs, found.best.step_secs)
        fast = here
        most_secs = best_secs
        if change == _TWICE:
            # A placement for fast transfers is a good start for even faster ones.
            fast = [*here, found.best.placement]
        elif change == _NO_TRANSFERS:
            most_secs = min(most_secs, results[-1].step_secs or math.inf)
        found_secs = math.inf if found.best.excess_bytes else found.best.step_secs
        step_secs = min([most_secs, found_secs, *(_step_secs(machine, each) for each in here)])
        results.append(WhatIf(change, step_secs, float(bound_secs)))
        if change == _MORE_MEMORY:
            crowded = [*place_on_one_of_each_kind(problem), found.best.placement]
            moved = find_offload(
                problem, crowded, max_secs=_OFFLOAD_SHARE * (end_secs - time.monotonic())
            )
            if moved is not None and moved.num_tensors and moved.step_secs < best_secs:
                results.append(_describe_offload(problem, moved))
        if found.interrupted:
            break
    if results:
        searched = {each.change for each in results}
        results += [WhatIf(name, None, None) for name, _ in machines if name not in searched]
    return tuple(results)


def _report(progress: Callable[[str], None], line: str, state: AutoProgress) -> None:
    del state
    progress(line)


def _move_off_cpu(problem: PlacementProblem, placement: np.ndarray) -> list[np.ndarray]:
    """Lists the placement with its work on CPUs moved to GPUs, if there is such work."""
    moved, moves = move_to_gpus(problem, placement)
    return list(moved) if moves.any() else []


def _move_parts(machine: PlacementProblem, placement: np.ndarray) -> list[np.ndarray]:
    """Lists the placement with parts of its work on CPUs moved to the last device, if a GPU.

    The parts are the first of the work in the order of the graph.
    """
    moved, moves = move_to_gpus(machine, placement)
    position = np.full(machine.num_groups, machine.num_operations)
    np.minimum.at(position, machine.groups[machine.order], np.arange(machine.num_operations))
    groups = np.flatnonzero(moves)
    groups = groups[np.argsort(position[groups], kind="stable")]
    parts = []
    for share in _MOVED_SHARES if len(groups) else ():
        part = placement.copy()
        first = groups[: round(share * len(groups))]
        part[first] = moved[-1][first]
        parts.append(part)
    return parts


def _change_machines(
    problem: PlacementProblem, *, is_short: bool
) -> Iterator[tuple[str, PlacementProblem]]:
    """Yields changes for people, and the problem on the changed machine.

    Args:
        problem: the problem.
        is_short: whether there are placements that do not fit, so that memory may matter.
    """
    # The order is that of interest, because there may be no time for all.
    last = problem.devices[-1]
    label = device_labels([device.name for device in problem.devices])[last.name]
    yield f"one more {last.kind}, like {label}", add_device(problem)
    if is_short:
        devices = [
            dataclasses.replace(device, memory_bytes=2 * device.memory_bytes)
            for device in problem.devices
        ]
        yield _MORE_MEMORY, dataclasses.replace(problem, devices=tuple(devices))
    each = np.ones(problem.num_devices)
    if problem.links:
        yield _TWICE, scale_costs(problem, each, 0.5)
        yield _NO_TRANSFERS, scale_costs(problem, each, _NEGLIGIBLE_FACTOR)
    ordered = sorted(problem.devices, key=lambda device: not is_gpu(device))
    for kind in dict.fromkeys(device.kind for device in ordered):
        factors = np.array([0.5 if device.kind == kind else 1.0 for device in problem.devices])
        yield f"every {kind} twice as fast", scale_costs(problem, factors, 1.0)


def _describe_offload(problem: PlacementProblem, moved: HostOffload) -> WhatIf:
    change = f"{format_bytes(moved.moved_bytes)} moved to the CPU and back"
    bound_secs = float(lower_bounds(problem).step_secs)
    return WhatIf(change, moved.step_secs, bound_secs, moved.assignment)


def _simulate_now(problem: PlacementProblem, placement: np.ndarray) -> tuple[float, bool]:
    """Simulates the present step, and tells whether memory is short.

    Memory is short if the devices hold more together than the smallest of them has room for:
    otherwise about every placement fits.
    """
    simulated = Simulator(problem).simulate(placement[None])
    room_bytes = min(device.memory_bytes for device in problem.devices)
    return float(simulated.step_secs[0]), bool(simulated.peak_bytes.sum() > room_bytes)


def _step_secs(problem: PlacementProblem, placement: np.ndarray) -> float:
    simulated = Simulator(problem, memory=False).simulate(placement[None])
    return float(simulated.step_secs[0])


def add_device(problem: PlacementProblem) -> PlacementProblem:
    """Adds a copy of the last device to a problem, with the same links.

    The link between the two is like the link between the last device and another of its kind, or
    the first device if there is no other. Each link of the copy is its own channel. The copy of a
    single device transfers to and from it in no time.
    """
    last = problem.devices[-1]
    names = {device.name for device in problem.devices}
    name = next(
        f"{last.name}+{number}"
        for number in itertools.count(1)
        if f"{last.name}+{number}" not in names
    )
    partner = next(
        (device.name for device in problem.devices[:-1] if device.kind == last.kind),
        problem.devices[0].name,
    )
    links = list(problem.links)
    for link in problem.links:
        if link.source == last.name:
            links.append(dataclasses.replace(link, source=name, channel=None))
            if link.destination == partner:
                links.append(
                    dataclasses.replace(link, source=name, destination=last.name, channel=None)
                )
        elif link.destination == last.name:
            links.append(dataclasses.replace(link, destination=name, channel=None))
            if link.source == partner:
                links.append(
                    dataclasses.replace(link, source=last.name, destination=name, channel=None)
                )
    if not problem.links:
        links = [
            Link(source, destination, 0.0, 1e30)
            for source, destination in itertools.permutations((last.name, name))
        ]
    secs = problem.compute_secs
    return dataclasses.replace(
        problem,
        devices=(*problem.devices, dataclasses.replace(last, name=name)),
        links=tuple(links),
        compute_secs=np.concatenate([secs, secs[:, -1:]], axis=1),
    )
