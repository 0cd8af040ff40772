"""Factory of placers by name, and checks of their options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.best_start import BestStart
from tf_placer.placers.former_names import rename_former
from tf_placer.placers.options import config_from_options
from tf_placer.placers.own_placers import describe_cause
from tf_placer.placers.placer import Placer
from tf_placer.placers.placer_entry import PlacerEntry, import_object
from tf_placer.placers.registry import AUTO, PLACERS, find_placer, is_learned
from tf_placer.placers.resolved_config import ResolvedConfig, resolve
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "BEST_START",
    "ORIGINAL_START",
    "check_options",
    "describe_placer",
    "find_start",
    "find_start_source",
    "make_placer",
]


ORIGINAL_START = "original"
"""The value of option `start` for the original devices of a graph."""

BEST_START = "best"
"""The value of option `start` for the best simple placement; these are measured first."""


def find_start(name: str, options: Mapping[str, object] | None) -> object:
    """Finds the value of option `start`; None for a placer that has no such option.

    Args:
        name: see `find_placer`.
        options: settings that differ from the placer's defaults.

    Raises:
        ValueError: there is no such placer.
    """
    entry = find_placer(name)
    if entry.preset is None and not (entry.needs_start or entry.takes_start):
        return None
    default = None if entry.preset is None else entry.preset.settings.get("start")
    return (options or {}).get("start", default)


def find_start_source(name: str, options: Mapping[str, object] | None) -> str | None:
    """Finds the placement that the caller must give `make_placer` as its start.

    Args:
        name: see `find_placer`.
        options: settings that differ from the placer's defaults.

    Returns:
        `ORIGINAL_START`, or the path of a placement; None if the placer needs neither.

    Raises:
        ValueError: there is no such placer.
    """
    start = find_start(name, options)
    return start if isinstance(start, str) and _is_placement(start) else None


def describe_placer(name: str, options: Mapping[str, object] | None = None) -> ResolvedConfig:
    """Applies options to a placer, and lists its components and settings.

    A heuristic has no components.

    Args:
        name: see `find_placer`.
        options: settings that differ from the placer's defaults. Strings are converted.

    Raises:
        ImportError: the placer learns and TensorFlow is not installed.
        ValueError: there is no such placer, option or value.
    """
    entry, owner = find_placer(name), f"placer {name!r}"
    if entry.preset is not None:
        return resolve(entry.preset, options, owner=owner)
    config_type = import_object(entry.config) if isinstance(entry.config, str) else entry.config
    config = config_from_options(config_type, options, owner=owner)
    return ResolvedConfig({}, {} if config is None else {name: config})


def check_options(name: str, options: Mapping[str, object] | None) -> dict[str, Any]:
    """Converts the options of a placer to the types of its settings.

    Args:
        name: see `find_placer`.
        options: settings that differ from the placer's defaults. Strings are converted.

    Raises:
        ImportError: there are options and TensorFlow is not installed.
        ValueError: there is no such placer, option or value.
    """
    if not options:
        find_placer(name)
        return {}  # Do not import the modules of components, which import Keras.
    values = {setting.name: setting.value for setting in describe_placer(name, options).settings}
    start = values.get("start") if is_learned(name) else None
    if isinstance(start, str) and not _is_placement(start):
        _check_start(start)
    names = rename_former(options, owner=f"placer {name!r}")
    return {option: values[option] for option in names}


def make_placer(
    name: str,
    groups: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    problem: PlacementProblem | None = None,
    start: np.ndarray | None = None,
    max_samples: int | None = None,
) -> Placer:
    """Makes a placer by its name.

    Args:
        name: see `find_placer`.
        groups: the groups to place.
        legal: bool [num_groups, num_devices], true where a group may go.
        seed: the seed of all random numbers; not negative.
        options: settings that differ from the placer's defaults. Strings are converted.
        problem: the costs of the operations on these devices; None if they are unknown.
        start: int32 [num_groups], the placement that `find_start_source` names; None for none.
        max_samples: the number of placements that the search may measure, to which a schedule of a
            learned placer is fitted; None for no limit.

    Returns:
        A placer that has observed nothing.

    Raises:
        ImportError: the placer learns and TensorFlow is not installed.
        ValueError: there is no such placer, option or value; the placer needs a problem and there
            is none; the problem does not fit the groups; the placer rejects its arguments; or a
            placer of a user raises an error.
    """
    entry = find_placer(name)
    if problem is not None and (problem.num_groups, problem.num_devices) != legal.shape:
        raise ValueError(
            f"the problem has {problem.num_groups} groups on {problem.num_devices} devices, but "
            f"legal is {legal.shape}"
        )
    resolved = describe_placer(name, options)
    if entry.preset is not None:
        resolved = _fit_schedule(resolved, max_samples)
        return _make_learned_placer(entry, resolved, groups, legal, seed, problem, start)
    if entry.needs_problem and problem is None:
        raise ValueError(f"placer {name!r} needs to know what the operations cost")
    arguments: dict[str, Any] = {}
    if name in resolved.configs:
        arguments["config"] = resolved.configs[name]
    if entry.needs_problem or entry.uses_problem:
        arguments["problem"] = problem
    if entry.needs_start:
        arguments["start"] = start
    make = functools.partial(_find_factory(entry), groups, legal, seed=seed, **arguments)
    placer: Placer = make() if name in PLACERS else _make_own_placer(name, make)
    return placer


def _find_factory(entry: PlacerEntry) -> Callable[..., Placer]:
    """Finds the class or the function that makes a placer."""
    if isinstance(entry.factory, str):
        factory: Callable[..., Placer] = import_object(entry.factory)
        return factory
    return entry.factory


def _make_own_placer(name: str, make: Callable[[], Placer]) -> Placer:
    """Makes a placer of a user, and gives it its name in logs.

    Raises:
        ValueError: making it raises an error, or returns something else.
    """
    try:
        placer = make()
    except Exception as error:
        raise ValueError(f"placer {name!r} cannot be made: {describe_cause(error)}") from error
    if not isinstance(placer, Placer) or not hasattr(placer, "legal"):
        raise ValueError(
            f"placer {name!r} was made as no whole Placer: its class is a subclass of "
            "tf_placer.placers.placer.Placer, whose constructor it calls by "
            "super().__init__(groups, legal, seed=seed)"
        )
    placer.name = name
    return placer


def _make_learned_placer(
    entry: PlacerEntry,
    resolved: ResolvedConfig,
    groups: GroupGraph,
    legal: np.ndarray,
    seed: int,
    problem: PlacementProblem | None,
    start: np.ndarray | None,
) -> Placer:
    """Makes a learned placer, which starts where its option `start` says; see `make_placer`."""
    make = functools.partial(
        _find_factory(entry), entry.name, resolved, groups, legal, seed=seed, problem=problem
    )
    source = resolved.configs["start"].start
    if source == BEST_START:
        return BestStart(entry.name, groups, legal, seed=seed, make=lambda best: make(start=best))
    if source is not None and start is None:
        start = _propose_start(source, groups, legal, seed, problem)
    placer: Placer = make(start=start)
    return placer


def _fit_schedule(resolved: ResolvedConfig, max_samples: int | None) -> ResolvedConfig:
    """Lets the exploration of cross-entropy minimization end with the search."""
    config = resolved.configs.get("ce")
    if config is None or config.total_samples is not None or max_samples is None:
        return resolved
    fitted = dataclasses.replace(config, total_samples=max_samples)
    return dataclasses.replace(resolved, configs={**resolved.configs, "ce": fitted})


def _propose_start(
    name: str, groups: GroupGraph, legal: np.ndarray, seed: int, problem: PlacementProblem | None
) -> np.ndarray:
    """Takes the first proposal of a placer that does not learn, int32 [num_groups].

    Raises:
        ValueError: there is no such placer; it learns, cannot be made, or proposes nothing.
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
    """Checks that a placer can start from the proposal of the placer with this name."""
    if name != BEST_START and (find_placer(name).preset is not None or name == AUTO):
        raise ValueError(f"option 'start' takes a placer that does not learn, not {name!r}")


def _is_placement(start: str) -> bool:
    """Returns whether a value of option `start` is a placement, not the name of a placer."""
    return start == ORIGINAL_START or start.endswith(".json")
