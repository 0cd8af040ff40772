"""What part of the overhead of a transfer a device loses."""

from __future__ import annotations

import math

__all__ = ["overhead_part"]

_REST_SECS = 0.01
_LEAST = 0.25


def overhead_part(gap_secs: float) -> float:
    """Computes what part of its `transfer_overhead_secs` a device loses to a transfer.

    Args:
        gap_secs: how long ago its last transfer ended; negative while that is on its way, infinite
            if it had none.

    Returns:
        From 0.25 to 1, as the rules of problems say: mostly 10 to 25 % less than what processes of
        `local:2` were measured to lose, whatever the tensors and the gaps (commit a8756c8).
    """
    return _LEAST + (1.0 - _LEAST) * math.sqrt(min(max(gap_secs / _REST_SECS, 0.0), 1.0))
