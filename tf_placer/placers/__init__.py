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
from tf_placer.placers.registry import (
    AUTO,
    BASELINES,
    PLACERS,
    Granularity,
    find_granularity,
    is_learned,
    needs_problem,
)

__all__ = [
    "AUTO",
    "BASELINES",
    "BEST_START",
    "ORIGINAL_START",
    "PLACERS",
    "Granularity",
    "check_options",
    "describe_placer",
    "find_granularity",
    "find_start",
    "find_start_source",
    "is_learned",
    "make_placer",
    "needs_problem",
]
