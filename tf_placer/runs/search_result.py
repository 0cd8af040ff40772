"""The placement files of a live search."""

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
    """Builds a placement with its measurement and its provenance.

    Args:
        config: the settings of the search.
        header: the header of the search; see `live_header`.
        assignment: full device names by operation name.
        trial: the trial of the placement.
        measurement: the measurement as JSON values.
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
    """Summarizes the confirmation of a placement for its file."""
    comparison = confirmation.comparisons[label]
    return {
        "original_step_secs": confirmation.step_secs(ORIGINAL),
        "step_secs": confirmation.step_secs(label),
        "speedup": comparison.speedup,
        "interval": comparison.interval,
    }
