"""Everything that proposes placements, by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.options import config_from_options
from tf_placer.placers.placer import Placer

__all__ = ["PLACERS", "PlacerEntry", "make_placer"]


@dataclasses.dataclass(frozen=True)
class PlacerEntry:
    """Where a placer is found; its module is imported only when it is made.

    Attributes:
        summary: one line of help.
        module: the module of its class.
        class_name: its class there.
        config_name: the dataclass of its options there; None if it has no options.
    """

    summary: str
    module: str
    class_name: str
    config_name: str | None = None

    def placer_type(self) -> type[Placer]:
        """The class of the placer."""
        placer_type: type[Placer] = getattr(importlib.import_module(self.module), self.class_name)
        return placer_type

    def config_type(self) -> type[Any] | None:
        """The dataclass of its options, or None."""
        if self.config_name is None:
            return None
        config_type: type[Any] = getattr(importlib.import_module(self.module), self.config_name)
        return config_type


PLACERS: Mapping[str, PlacerEntry] = {
    "single_device": PlacerEntry(
        "everything on each device in turn",
        "tf_placer.placers.heuristics.single_device",
        "SingleDevice",
    ),
    "random": PlacerEntry(
        "a random legal device for every group",
        "tf_placer.placers.heuristics.uniform_random",
        "UniformRandom",
    ),
    "expert": PlacerEntry(
        "the layers cut into contiguous parts, one per device",
        "tf_placer.placers.heuristics.contiguous",
        "Contiguous",
    ),
    "colocrl": PlacerEntry(
        "sequence-to-sequence policy trained by REINFORCE",
        "tf_placer.placers.learned.colocrl",
        "ColocRL",
        "ColocRLConfig",
    ),
}


def make_placer(
    name: str,
    groups: GroupGraph,
    legal: np.ndarray,
    *,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
) -> Placer:
    """Makes a placer by its name.

    Args:
        name: one of `PLACERS`.
        groups: the groups to place.
        legal: bool [num_groups, num_devices], true where a group may go.
        seed: of everything random; not negative.
        options: settings that differ from the placer's defaults. Strings are converted.

    Returns:
        A placer that has observed nothing.

    Raises:
        ValueError: there is no such placer, option or value, or the placer refuses its arguments.
    """
    if name not in PLACERS:
        raise ValueError(f"no placer {name!r}; the placers are: {', '.join(sorted(PLACERS))}")
    entry = PLACERS[name]
    config = config_from_options(entry.config_type(), options, owner=f"placer {name!r}")
    if config is None:
        return entry.placer_type()(groups, legal, seed=seed)
    return entry.placer_type()(groups, legal, seed=seed, config=config)  # type: ignore[call-arg]
