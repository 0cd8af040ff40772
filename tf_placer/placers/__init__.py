"""Placers by name, and their options."""

from __future__ import annotations

from tf_placer.placers.making import (
    BEST_START,
    ORIGINAL_START,
    check_options,
    describe_placer,
    find_start,
    find_start_source,
    make_placer,
)
from tf_placer.placers.own_placers import (
    check_is_importable,
    check_no_import_is_running,
    describe_entry_point,
    list_entry_points,
    name_placer,
)
from tf_placer.placers.placer import Placer
from tf_placer.placers.placer_entry import Granularity, PlacerEntry
from tf_placer.placers.registry import (
    AUTO,
    BASELINES,
    GIVEN,
    PLACERS,
    find_granularity,
    find_placer,
    is_learned,
    list_placers,
    needs_problem,
)

__all__ = [
    "AUTO",
    "BASELINES",
    "BEST_START",
    "GIVEN",
    "ORIGINAL_START",
    "PLACERS",
    "Granularity",
    "Placer",
    "PlacerEntry",
    "check_is_importable",
    "check_no_import_is_running",
    "check_options",
    "describe_entry_point",
    "describe_placer",
    "find_granularity",
    "find_placer",
    "find_start",
    "find_start_source",
    "is_learned",
    "list_entry_points",
    "list_placers",
    "make_placer",
    "name_placer",
    "needs_problem",
]
