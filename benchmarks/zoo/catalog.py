"""Small graphs of the kinds that training scripts make, for tests and benchmarks.

All are deterministic but those that say otherwise: in a fresh session, after its initializers, the
same number of runs fetches the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.zoo import control_flow, feeding, layers, sequences, shared_names, training
from benchmarks.zoo.graph_parts import StepGraph

__all__ = ["KINDS"]

#: Builders of a graph of each kind, by name.
KINDS: Mapping[str, Callable[[], StepGraph]] = {
    **control_flow.KINDS,
    **sequences.KINDS,
    **training.KINDS,
    **layers.KINDS,
    **feeding.KINDS,
    **shared_names.KINDS,
}
