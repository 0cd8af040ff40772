"""The share of convolutions in the work of a graph, whose computed costs are too low."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import find_kinds

__all__ = ["CONVOLUTION_CAVEAT", "NOTABLE_CONVOLUTION_SHARE", "compute_convolution_share"]

#: From this share of the work on, a sentence says how far their costs may be off.
NOTABLE_CONVOLUTION_SHARE = 0.3
#: The source is docs/emulated_gpus.md, "Against a real GPU".
CONVOLUTION_CAVEAT = (
    "where costs are computed, convolutional networks kept a real GPU (H200) busy 1.6 to 1.8 times "
    "as long, and needed 1.35 to 1.45 times the memory"
)


def compute_convolution_share(problem: PlacementProblem) -> float:
    """Computes the share of convolutions in the time of all operations on the first accelerator."""
    secs = problem.compute_secs[:, find_accelerators(problem)[0]]
    secs = np.where(np.isfinite(secs), secs, 0.0)
    is_convolution = np.array(find_kinds(problem)) == "convolution"
    return float(secs[is_convolution].sum() / max(secs.sum(), 1e-300))
