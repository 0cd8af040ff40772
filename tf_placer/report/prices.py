"""Prices of machines per hour, by name."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence

from graph_passes.util.json_text import format_value

__all__ = ["match_prices"]


def match_prices(prices: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Matches prices with the machines that are compared.

    Args:
        prices: prices per hour, by the name of a machine or, if that is a path, by its last part
            without ".json".
        names: the names of the machines.

    Returns:
        The prices by the name of the machine.

    Raises:
        TypeError: the prices have no names.
        ValueError: a price is not that of one machine, or is no price.
    """
    if not isinstance(prices, Mapping):
        raise TypeError(
            "prices are by machine and per hour, such as {'4xA100': 14.0}, unlike "
            f"{format_value(prices)}"
        )
    matched = {}
    for given, price in prices.items():
        short = [name for name in names if pathlib.Path(name).name.removesuffix(".json") == given]
        found = [given] if given in names else short
        if len(found) != 1:
            reason = "could be several of them" if found else "is not compared"
            raise ValueError(
                f"there is a price of {format_value(given)}, which {reason}: the machines are "
                f"{', '.join(names)}"
            )
        if not 0 <= price < math.inf:
            raise ValueError(f"the price of {given} must be 0 or more, not {format_value(price)}")
        matched[found[0]] = price
    return matched
