"""Advice for scripts that want a GPU on a computer without one."""

from __future__ import annotations

import re

__all__ = ["advise_on_missing_gpu"]

# TensorFlow's Placer lists the devices that are there in brackets.
_UNPLACEABLE = re.compile(
    r"Cannot assign a device for operation .*device:GPU:\d.* available devices "
    r"(?:are )?\[([^]]*)\]",
    re.DOTALL | re.IGNORECASE,
)


def advise_on_missing_gpu(error: BaseException) -> str | None:
    """Advises on a script that has ended because it puts operations on a GPU that is not there.

    Args:
        error: the error that has ended the script.

    Returns:
        A sentence without a full stop; None for any other error.
    """
    match = _UNPLACEABLE.search(str(error))
    if match is None or "GPU:" in match[1]:
        return None
    return (
        "the script itself wants a GPU, which this computer lacks: give its sessions "
        "tf.compat.v1.ConfigProto(allow_soft_placement=True), and run it with python alone first"
    )
