"""What one step of a graph runs: fetches, feeds and initialisers, all by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

__all__ = ["Step"]


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a graph.

    Attributes:
        fetches: names of the operations ("train") and tensors ("loss:0") that a step runs.
        feeds: the value of each fed tensor, by tensor name ("x:0").
        initializers: names of the operations that run once, together, before the first step.
    """

    fetches: tuple[str, ...]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    initializers: tuple[str, ...] = ()
