"""Everything that proposes placements, by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.composition import Setting, resolve
from tf_placer.placers.options import suggest
from tf_placer.placers.placer import Placer
from tf_placer.placers.systems import SYSTEMS, System

__all__ = [
    "PLACERS",
    "PlacerDescription",
    "Units",
    "check_options",
    "describe_placer",
    "make_placer",
    "units_of",
]

Units = Literal["heuristic", "per_operation"]


@dataclasses.dataclass(frozen=True)
class _Heuristic:
    """A placer without settings; its module is imported only when it is made."""

    summary: str
    reference: str
    module: str
    class_name: str


_HEURISTICS: Mapping[str, _Heuristic] = {
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
}

PLACERS: Mapping[str, _Heuristic | System] = {**_HEURISTICS, **SYSTEMS}
"""All placers by name; each has a `summary` and a `reference`."""


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
    elif options:
        raise ValueError(f"placer {name!r} has no option {min(options)!r}; its options are: none")
    return PlacerDescription(name, entry.summary, entry.reference, parts, settings)


def check_options(name: str, options: Mapping[str, object] | None) -> dict[str, Any]:
    """The options of a placer in the types of its settings.

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
    return {option: values[option] for option in options}


def units_of(name: str, options: Mapping[str, object] | None = None) -> Units:
    """What a placer wants placements to be made of.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults.

    Returns:
        "heuristic" for the groups of the model rules, "per_operation" for one group per colocation
        group: for placers that group operations themselves.

    Raises:
        ValueError: there is no such placer.
    """
    entry = _entry(name)
    grouper = (options or {}).get("grouper", getattr(entry, "grouper", "heuristic"))
    return "heuristic" if grouper == "heuristic" else "per_operation"


def make_placer(
    name: str,
    groups: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    device_secs: np.ndarray | None = None,
    edge_secs: np.ndarray | None = None,
) -> Placer:
    """Makes a placer by its name.

    Args:
        name: one of `PLACERS`.
        groups: the groups to place.
        legal: bool [num_groups, num_devices], true where a group may go.
        seed: of everything random; not negative.
        options: settings that differ from the placer's defaults. Strings are converted.
        device_secs: float64 [num_groups, num_devices], what the operations of a group take on each
            device, infinite where they may not go; None if that is not known.
        edge_secs: float64 [num_edges], what it takes to send each edge of the groups from device
            to device; None if that is not known.

    Returns:
        A placer that has observed nothing.

    Raises:
        ImportError: the placer learns and TensorFlow is not installed.
        ValueError: there is no such placer, option or value, or the placer refuses its arguments.
    """
    entry = _entry(name)
    if isinstance(entry, System):
        composition = resolve(entry, options, owner=f"placer {name!r}")
        compose = importlib.import_module("tf_placer.placers.learned.compose").compose
        placer: Placer = compose(
            name,
            composition,
            groups,
            legal,
            seed=seed,
            device_secs=device_secs,
            edge_secs=edge_secs,
        )
        return placer
    describe_placer(name, options)
    placer_type: type[Placer] = getattr(importlib.import_module(entry.module), entry.class_name)
    return placer_type(groups, legal, seed=seed)


def _entry(name: str) -> _Heuristic | System:
    if name not in PLACERS:
        raise ValueError(
            f"no placer {name!r}{suggest(name, list(PLACERS))}; the placers are: "
            f"{', '.join(sorted(PLACERS))}"
        )
    return PLACERS[name]
