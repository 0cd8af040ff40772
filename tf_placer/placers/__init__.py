"""Everything that proposes placements, by name."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.messages import quoted
from tf_placer.placers.best_start import BestStart
from tf_placer.placers.composition import resolve
from tf_placer.placers.options import Setting, config_from_options, settings_of, suggest
from tf_placer.placers.placer import Placer
from tf_placer.placers.systems import PUBLISHED, SYSTEMS, System
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "AUTO",
    "BEST_START",
    "ORIGINAL_START",
    "PLACERS",
    "Granularity",
    "PlacerDescription",
    "check_options",
    "describe_placer",
    "granularity_of",
    "is_learned",
    "make_placer",
    "needs_problem",
    "start_of",
    "start_source",
]

Granularity = Literal["coarse", "fine"]


@dataclasses.dataclass(frozen=True)
class _Heuristic:
    """A placer that is no composition; its module is imported only when it is made.

    Attributes:
        summary: one line of help.
        reference: where it is from.
        module: where its class is.
        class_name: its class.
        config: where the dataclass of its settings is, as "module:class"; None without settings.
        needs_problem: whether it is made for a `PlacementProblem`.
        uses_problem: whether it is given the problem where that is known.
        granularity: see `granularity_of`.
    """

    summary: str
    reference: str
    module: str
    class_name: str
    config: str | None = None
    needs_problem: bool = False
    uses_problem: bool = False
    granularity: Granularity = "coarse"


AUTO = "auto"
"""The placer that searches in simulation by itself."""

_HEURISTICS: Mapping[str, _Heuristic] = {
    AUTO: _Heuristic(
        "all heuristics, improved in simulation; what is best is measured",
        "this project",
        "tf_placer.placers.auto.auto_placer",
        "AutoPlacer",
        "tf_placer.placers.auto.auto_config:AutoConfig",
        needs_problem=True,
        granularity="fine",
    ),
    "single_device": _Heuristic(
        "everything on each device in turn",
        "baseline of all papers",
        "tf_placer.placers.heuristics.single_device",
        "SingleDevice",
    ),
    "random": _Heuristic(
        "a random legal device for every group",
        "baseline",
        "tf_placer.placers.heuristics.uniform_random",
        "UniformRandom",
    ),
    "expert": _Heuristic(
        "the layers cut into contiguous parts, one per device",
        "baseline of all papers",
        "tf_placer.placers.heuristics.contiguous",
        "Contiguous",
    ),
    "single_cpu": _Heuristic(
        "everything on the CPU",
        "baseline of all papers",
        "tf_placer.placers.heuristics.single_cpu",
        "SingleCpu",
    ),
    "heft": _Heuristic(
        "operations with the longest way to the end first, each where it ends first",
        "Topcuoglu et al. 2002",
        "tf_placer.placers.heuristics.heft",
        "Heft",
        needs_problem=True,
    ),
    "topological": _Heuristic(
        "the topological order cut into parts of equal work, one per device",
        "baseline",
        "tf_placer.placers.heuristics.topological",
        "Topological",
        needs_problem=True,
    ),
    "m_topo": _Heuristic(
        "the topological order cut into parts of equal memory, one per device",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_topo",
        "MTopo",
        needs_problem=True,
    ),
    "m_etf": _Heuristic(
        "always the operation that can start first, where it can and fits",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_etf",
        "MEtf",
        needs_problem=True,
    ),
    "m_sct": _Heuristic(
        "m_etf with devices that wait for favourite children, found by a linear program",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_sct",
        "MSct",
        needs_problem=True,
    ),
    "greedy_fill": _Heuristic(
        "layer by layer to the first accelerator with memory left, then to the CPU",
        'Hugging Face device_map="auto"',
        "tf_placer.placers.heuristics.greedy_fill",
        "GreedyFill",
        needs_problem=True,
    ),
    "metis": _Heuristic(
        "balanced parts that send each other little, one per accelerator",
        "Karypis and Kumar 1998; baseline of Post",
        "tf_placer.placers.heuristics.metis_partition",
        "MetisPartition",
        needs_problem=True,
    ),
    "scotch": _Heuristic(
        "static mapping onto all devices and their links",
        "Pellegrini and Roman 1996; baseline of ColocRL",
        "tf_placer.placers.heuristics.scotch_partition",
        "Scotch",
        needs_problem=True,
    ),
    "mincut": _Heuristic(
        "static mapping onto the accelerators and their links",
        "Pellegrini and Roman 1996; baseline of ColocRL",
        "tf_placer.placers.heuristics.scotch_partition",
        "MinCut",
        needs_problem=True,
    ),
    "stretches": _Heuristic(
        "lines along which the graph repeats itself, cut into stretches of equal work",
        "this project",
        "tf_placer.placers.heuristics.stretches",
        "Stretches",
        needs_problem=True,
    ),
    "branches": _Heuristic(
        "branches of the graph, so that every device has as much to do in every window of time",
        "Graham 1969",
        "tf_placer.placers.heuristics.branches",
        "Branches",
        needs_problem=True,
    ),
    "hill_climbing": _Heuristic(
        "moves of a few groups from the best simple placement, if not for the worse",
        "Lourenço et al. 2003",
        "tf_placer.placers.heuristics.hill_climbing",
        "HillClimbing",
        uses_problem=True,
    ),
    "simulated_annealing": _Heuristic(
        "moves of a few groups, at first also for the worse",
        "Kirkpatrick et al. 1983",
        "tf_placer.placers.heuristics.simulated_annealing",
        "SimulatedAnnealing",
        uses_problem=True,
    ),
    "learned_moves": _Heuristic(
        "hill climbing that learns which moves are worth a measurement",
        "ours, after Agrawal and Goyal 2013",
        "tf_placer.placers.heuristics.learned_moves",
        "LearnedMoves",
        uses_problem=True,
    ),
}

PLACERS: Mapping[str, _Heuristic | System] = {**_HEURISTICS, **SYSTEMS, **PUBLISHED}
"""All placers by name; each has a `summary` and a `reference`."""

ORIGINAL_START = "original"
"""What option `start` names for the devices that a graph came with."""

BEST_START = "best"
"""What it names for the best of the simple placements, which are measured first."""


@dataclasses.dataclass(frozen=True)
class PlacerDescription:
    """What a placer is made of.

    Attributes:
        name: of the placer.
        summary: one line of help.
        reference: where it is from.
        parts: the name of the part of each kind; empty for a heuristic.
        settings: all settings with their values.
    """

    name: str
    summary: str
    reference: str
    parts: Mapping[str, str]
    settings: Sequence[Setting]


def is_learned(name: str) -> bool:
    """Says whether a placer has a policy that learns, and so needs TensorFlow.

    False of a name that there is not, and of `learned_moves`, which has no policy.
    """
    return isinstance(PLACERS.get(name), System)


def start_of(name: str, options: Mapping[str, object] | None) -> object:
    """Says what a placer starts at: the value of option `start`; None for one that does not learn.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults.

    Raises:
        ValueError: there is no such placer.
    """
    entry = _entry(name)
    if not isinstance(entry, System):
        return None
    return (options or {}).get("start", entry.settings.get("start"))


def start_source(name: str, options: Mapping[str, object] | None) -> str | None:
    """Says where the placement is that a placer starts from, if it is not to propose it itself.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults.

    Returns:
        `ORIGINAL_START`, or the path of a placement; None if it starts from neither.

    Raises:
        ValueError: there is no such placer.
    """
    start = start_of(name, options)
    if isinstance(start, str) and _is_placement(start):
        return start
    return None


def describe_placer(name: str, options: Mapping[str, object] | None = None) -> PlacerDescription:
    """Says what a placer is made of, after options.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults. Strings are converted.

    Raises:
        ImportError: the placer learns and TensorFlow is not installed.
        ValueError: there is no such placer, option or value.
    """
    entry = _entry(name)
    parts: Mapping[str, str] = {}
    settings: list[Setting] = []
    if isinstance(entry, System):
        composition = resolve(entry, options, owner=f"placer {name!r}")
        parts, settings = composition.parts, composition.settings()
    else:
        config = _config(name, entry, options)
        settings = [] if config is None else settings_of(name, config)
    return PlacerDescription(name, entry.summary, entry.reference, parts, settings)


def check_options(name: str, options: Mapping[str, object] | None) -> dict[str, Any]:
    """Converts the options of a placer to the types of its settings.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults. Strings are converted.

    Raises:
        ImportError: there are options and TensorFlow is not installed.
        ValueError: there is no such placer, option or value.
    """
    if not options:
        _entry(name)
        return {}  # The modules of the parts, and with them Keras, are not imported without need.
    values = {setting.name: setting.value for setting in describe_placer(name, options).settings}
    start = values.get("start") if is_learned(name) else None
    if isinstance(start, str) and not _is_placement(start):
        _check_start(start)
    return {option: values[option] for option in options}


def granularity_of(name: str, options: Mapping[str, object] | None = None) -> Granularity:
    """Says what a placer wants placements to be made of.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults.

    Returns:
        "coarse" for the groups of the model rules, "fine" for one group per colocation
        group: for placers that group operations themselves, or refine groups.

    Raises:
        ValueError: there is no such placer.
    """
    entry = _entry(name)
    if isinstance(entry, _Heuristic):
        return entry.granularity
    grouper = (options or {}).get("grouper", entry.grouper)
    return "coarse" if grouper == "coarse" else "fine"


def needs_problem(name: str) -> bool:
    """Says whether a placer can only be made for a problem whose costs are known.

    Args:
        name: one of `PLACERS`.

    Raises:
        ValueError: there is no such placer.
    """
    entry = _entry(name)
    return isinstance(entry, _Heuristic) and entry.needs_problem


def make_placer(
    name: str,
    groups: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    problem: PlacementProblem | None = None,
    start: np.ndarray | None = None,
) -> Placer:
    """Makes a placer by its name.

    Args:
        name: one of `PLACERS`.
        groups: the groups to place.
        legal: bool [num_groups, num_devices], true where a group may go.
        seed: of everything random; not negative.
        options: settings that differ from the placer's defaults. Strings are converted.
        problem: what the operations of the groups cost on these devices; None if that is not
            known.
        start: int32 [num_groups], the placement that `start_source` names; None for none.

    Returns:
        A placer that has observed nothing.

    Raises:
        ImportError: the placer learns and TensorFlow is not installed.
        ValueError: there is no such placer, option or value, the placer needs the problem and it is
            not known or not that of the groups, or the placer refuses its arguments.
    """
    entry = _entry(name)
    if problem is not None and (problem.num_groups, problem.num_devices) != legal.shape:
        raise ValueError(
            f"the problem has {problem.num_groups} groups on {problem.num_devices} devices, but "
            f"legal is {legal.shape}"
        )
    if isinstance(entry, System):
        composition = resolve(entry, options, owner=f"placer {name!r}")
        compose = importlib.import_module("tf_placer.placers.learned.compose").compose
        learned = functools.partial(
            compose, name, composition, groups, legal, seed=seed, problem=problem
        )
        source = composition.configs["start"].start
        if source == BEST_START:
            return BestStart(name, groups, legal, seed=seed, make=lambda best: learned(start=best))
        if source is not None and start is None:
            start = _first_placement(source, groups, legal, seed, problem)
        placer: Placer = learned(start=start)
        return placer
    arguments: dict[str, Any] = {}
    config = _config(name, entry, options)
    if config is not None:
        arguments["config"] = config
    if entry.needs_problem and problem is None:
        raise ValueError(f"placer {name!r} needs to know what the operations cost")
    if entry.needs_problem or entry.uses_problem:
        arguments["problem"] = problem
    placer_type = getattr(importlib.import_module(entry.module), entry.class_name)
    made: Placer = placer_type(groups, legal, seed=seed, **arguments)
    return made


def _first_placement(
    name: str, groups: GroupGraph, legal: np.ndarray, seed: int, problem: PlacementProblem | None
) -> np.ndarray:
    """Asks a placer that does not learn for a placement, int32 [num_groups].

    Raises:
        ValueError: the placer learns, proposes nothing, or cannot be made, or it is none.
    """
    if _is_placement(name):
        raise ValueError(f"option 'start': placement {name!r} is not known here")
    _check_start(name)
    placements = make_placer(name, groups, legal, seed=seed, problem=problem).propose(1)
    if not len(placements):
        raise ValueError(f"option 'start': placer {name!r} has no placement for this graph")
    first: np.ndarray = placements[0]
    return first


def _check_start(name: str) -> None:
    """Makes sure that a placer of this name can be started from."""
    if name == BEST_START:
        return
    if isinstance(_entry(name), System) or name == AUTO:
        raise ValueError(f"option 'start' takes a placer that does not learn, not {name!r}")


def _is_placement(start: str) -> bool:
    """Says whether a value of option `start` is a placement, not the name of a placer."""
    return start == ORIGINAL_START or start.endswith(".json")


def _config(name: str, entry: _Heuristic, options: Mapping[str, object] | None) -> Any:
    """Makes the settings of a placer that is no composition; None if it has none."""
    config_type = None
    if entry.config is not None:
        module, _, class_name = entry.config.partition(":")
        config_type = getattr(importlib.import_module(module), class_name)
    return config_from_options(config_type, options, owner=f"placer {name!r}")


def _entry(name: str) -> _Heuristic | System:
    if name not in PLACERS:
        raise ValueError(
            f"no placer {quoted(name)}{suggest(name, list(PLACERS))}; the placers are: "
            f"{', '.join(sorted(PLACERS))}"
        )
    return PLACERS[name]
