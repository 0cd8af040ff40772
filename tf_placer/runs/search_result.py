"""What a live search writes of the placements that it found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graph_passes.placement import Placement
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.search.config import SearchConfig
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = ["build_placement", "summarize_comparison"]


def build_placement(
    config: SearchConfig,
    header: Mapping[str, Any],
    assignment: Mapping[str, str],
    trial: Trial,
    measurement: Mapping[str, Any],
) -> Placement:
    """Makes a placement with what was measured of it and where it comes from.

    Args:
        config: how it was searched for.
        header: what the search is of, as `live_header` says it.
        assignment: full device names by operation name.
        trial: the trial that it is.
        measurement: what was measured; JSON values.
    """
    return Placement(
        header["graph_fingerprint"],
        tuple(device.name for device in config.found_machine.devices),
        assignment,
        measurement=dict(measurement),
        provenance={
            "placer": trial.placer,
            "trial": trial.index,
            "seed": config.seed,
            "machine": config.found_machine.spec,
            "versions": header["versions"],
        },
    )


def summarize_comparison(confirmation: Confirmation, label: str) -> dict[str, Any]:
    """Extracts what a confirmation says of a placement, for its file."""
    comparison = confirmation.comparisons[label]
    return {
        "original_step_secs": confirmation.step_secs(ORIGINAL),
        "step_secs": confirmation.step_secs(label),
        "speedup": comparison.speedup,
        "interval": comparison.interval,
    }
