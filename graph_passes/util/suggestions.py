"""Suggestions of known names for unknown ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from graph_passes.util.messages import quote

__all__ = ["suggest"]

# Characters of an unknown name that are compared: the comparison is quadratic.
_MAX_COMPARED = 60


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggests the known name that is nearest to an unknown name.

    Args:
        name: the unknown name.
        known: the known names.

    Returns:
        Text that follows the unknown name in a message: " (did you mean 'right'?)", or "" if no
        known name is similar.

    Example:
        >>> suggest("colocrll", ["random", "colocrl"])
        " (did you mean 'colocrl'?)"
    """
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name[:_MAX_COMPARED].lower(), by_lower, n=1)
    return f" (did you mean {quote(by_lower[near[0]])}?)" if near else ""
