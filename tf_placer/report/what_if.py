"""What a step would take on another machine: what to buy, and what not."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.machines.machine import Link
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.placers.auto.cost_fit import with_factors
from tf_placer.problem.coarse_groups import clusters_of
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["WhatIf", "what_if", "with_another_device"]

_TWICE, _NO_TRANSFERS = "transfers twice as fast", "transfers that take no time"
# So fast that what is left of a transfer does not matter.
_NO_TIME = 1e-6
# To prepare the search for a machine takes this many times as long as to simulate one step.
_PREPARING_STEPS = 5


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """A step on a machine that is changed in one way.

    Attributes:
        change: what is changed, for people.
        step_secs: what the step takes under the best placement that was found for that machine.
        lower_bound_secs: no placement takes less there.
    """

    change: str
    step_secs: float
    lower_bound_secs: float


def what_if(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    search_secs: float,
    seed: int = 0,
) -> tuple[WhatIf, ...]:
    """Searches again, for machines that are better in one way each.

    The placement of now is where each search begins. On a machine whose parts are faster nothing
    has to take longer than now, so that is the most that is said: a simulated step may take longer
    when only a transfer is faster, because operations then come in another order.

    Args:
        problem: what is placed.
        groups: its groups.
        placement: int32 [num_groups], a placement that fits.
        search_secs: seconds for all searches together, preparing them included.
        seed: of the searches.

    Returns:
        Nothing about transfers if there is only one device, and nothing about machines that there
        is no time for.
    """
    end_secs = time.monotonic() + search_secs
    each = np.ones(problem.num_devices)
    machines = []
    if problem.links:
        machines.append((_TWICE, with_factors(problem, each, 0.5)))
        machines.append((_NO_TRANSFERS, with_factors(problem, each, _NO_TIME)))
    for kind in dict.fromkeys(device.kind for device in problem.devices):
        factors = np.array([0.5 if device.kind == kind else 1.0 for device in problem.devices])
        machines.append((f"every {kind} twice as fast", with_factors(problem, factors, 1.0)))
    machines.append((f"one more {problem.devices[-1].kind}", with_another_device(problem)))
    start_secs = time.monotonic()
    now_secs = _step_secs(problem, placement)
    preparing_secs = _PREPARING_STEPS * (time.monotonic() - start_secs)
    clusters = np.arange(problem.num_groups)
    if problem.coarse_groups is not None:
        clusters = clusters_of(problem.groups, problem.coarse_groups)
    results: list[WhatIf] = []
    known = [placement]
    for number, (change, machine) in enumerate(machines):
        left_secs = end_secs - time.monotonic()
        if left_secs <= preparing_secs:
            break
        found = auto_search(
            machine,
            groups,
            max_secs=max(preparing_secs, left_secs / (len(machines) - number)),
            starts=[("known", each) for each in known],
            clusters=clusters,
            seed=seed,
        )
        known = [placement]
        most_secs = now_secs
        if change == _TWICE:
            # What is good there is good where transfers are faster still.
            known.append(found.best.placement)
        elif change == _NO_TRANSFERS:
            most_secs = results[-1].step_secs
        step_secs = min(most_secs, _step_secs(machine, placement), found.best.step_secs)
        results.append(WhatIf(change, step_secs, found.lower_bound_secs))
    return tuple(results)


def _step_secs(problem: PlacementProblem, placement: np.ndarray) -> float:
    simulated = Simulator(problem, memory=False).simulate(placement[None])
    return float(simulated.step_secs[0])


def with_another_device(problem: PlacementProblem) -> PlacementProblem:
    """Adds a copy of the last device to the problem, linked as that is.

    The link between the two is like that between the last device and another of its kind, or to the
    first device if there is no other. All links of the copy are channels of their own. A single
    device gets a copy that transfers to and from it in no time.
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
