"""Small graphs of the kinds that training scripts make, for tests and benchmarks.

All are deterministic but those that say otherwise: in a fresh session, after its initialisers, the
same number of runs fetches the same values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping

from benchmarks.zoo import control_flow, feeding, layers, sequences, shared_names, training
from benchmarks.zoo.graph_parts import StepGraph

__all__ = ["KINDS", "describe"]

#: What builds a graph of each kind, by name.
KINDS: Mapping[str, Callable[[], StepGraph]] = {
    **control_flow.KINDS,
    **sequences.KINDS,
    **training.KINDS,
    **layers.KINDS,
    **feeding.KINDS,
    **shared_names.KINDS,
}


def describe(name: str) -> str:
    """Says in a sentence what is in graphs of a kind."""
    builder = KINDS[name]
    if isinstance(builder, functools.partial):
        builder = builder.func
    return (inspect.getdoc(builder) or "").partition("\n")[0]
