"""The comparison of the values of two runs, up to rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

__all__ = ["describe_difference"]

# Devices and partitions sum in different orders. The error of a wrong placement is far larger.
_RELATIVE, _ABSOLUTE = 2e-3, 1e-5
# Types of one or two bytes have few significant digits.
_RELATIVE_BY_ITEMSIZE = {1: 0.5, 2: 0.05}
_LEAST_ITEMSIZE = 4


def describe_difference(
    expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]
) -> str | None:
    """Compares values by name.

    Args:
        expected: arrays by name.
        actual: arrays by name.

    Returns:
        None if both have the same names and, up to rounding, the same values; else one sentence
        about the first difference.
    """
    for name in sorted(expected.keys() ^ actual.keys()):
        return f"only one of the two graphs has a value for {name!r}"
    for name in sorted(expected):
        a, b = np.asarray(expected[name]), np.asarray(actual[name])
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name!r} is {b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        # NumPy reports bfloat16 and similar types as kind V, as it does records.
        if a.dtype.kind not in "fcV" or a.dtype.names:
            if not np.array_equal(a, b):
                return f"{name!r} has other values"
            continue
        # NumPy computes little with types of one or two bytes.
        x, y = (v if v.dtype.itemsize >= _LEAST_ITEMSIZE else v.astype(np.float32) for v in (a, b))
        scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
        relative = _RELATIVE_BY_ITEMSIZE.get(a.dtype.itemsize, _RELATIVE)
        close = np.isclose(x, y, rtol=relative, atol=_ABSOLUTE + relative * scale, equal_nan=True)
        if not close.all():
            finite = np.isfinite(x) & np.isfinite(y)
            if not (close | finite).all():
                return f"{name!r} is not finite in other places"
            worst = float(np.max(np.abs(x - y)[finite]))
            return f"{name!r} differs by up to {worst:.3g} in values of up to {scale:.3g}"
    return None
