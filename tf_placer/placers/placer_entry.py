"""The entry of a placer in a registry."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal

from tf_placer.placers.presets import Preset

__all__ = ["Granularity", "PlacerEntry", "import_object"]

Granularity = Literal["coarse", "fine"]


@dataclasses.dataclass(frozen=True)
class PlacerEntry:
    """A placer; its module is imported lazily.

    Attributes:
        name: the name of the placer.
        summary: one line of help.
        reference: the source of the placer, such as a paper.
        factory: its class, or a function that makes it, as "module:name" or as itself.
        config: the dataclass of its settings, as "module:name" or as itself; None for a placer
            without settings or with the settings of its components.
        preset: the components and settings of a placer that learns; such a placer needs TensorFlow.
        needs_problem: whether the placer needs a `PlacementProblem`.
        uses_problem: whether the placer takes a `PlacementProblem` if there is one.
        needs_start: whether the placer needs a placement, which its option `start` names.
        takes_start: whether its option `start` may name a placement to begin with.
        granularity: see `find_granularity`.
        is_random: whether proposals depend on the seed, so that tables compare several seeds.
        is_baseline: whether live searches measure its proposals before those of other placers; for
            placers of this package only, as `seeds_auto`.
        seeds_auto: number of its proposals that `auto` starts from before the next placer has its
            turn; the other proposals follow after the turns of all placers. 0 for none.
    """

    name: str
    summary: str
    reference: str
    factory: str | Callable[..., Any]
    config: str | type | None = None
    preset: Preset | None = None
    needs_problem: bool = False
    uses_problem: bool = False
    needs_start: bool = False
    takes_start: bool = False
    granularity: Granularity = "coarse"
    is_random: bool = False
    is_baseline: bool = False
    seeds_auto: int = 0


def import_object(path: str) -> Any:
    """Imports an object by its path, "module:name" or "module:class.name".

    Raises:
        AttributeError: the module has no such object.
        ImportError: there is no such module. Any other error that the module raises, too.
    """
    module, _, names = path.partition(":")
    value = importlib.import_module(module)
    for name in names.split("."):
        value = getattr(value, name)
    return value
