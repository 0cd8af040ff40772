"""Placers by name, and their options."""

from __future__ import annotations

from tf_placer.placers.making import (
    BEST_START,
    ORIGINAL_START,
    check_options,
    describe_placer,
    make_placer,
    start_of,
    start_source,
)
from tf_placer.placers.registry import (
    AUTO,
    BASELINES,
    PLACERS,
    Granularity,
    granularity_of,
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
    "granularity_of",
    "is_learned",
    "make_placer",
    "needs_problem",
    "start_of",
    "start_source",
]
