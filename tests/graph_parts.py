"""What the test graphs are made of."""

from __future__ import annotations

from benchmarks.zoo.graph_parts import (
    SEED,
    control_flow,
    convolution,
    cross_entropy,
    dense,
    inputs,
    new_graph,
    training_graph,
    weight_variable,
)
from benchmarks.zoo.graph_parts import StepGraph as TestGraph

__all__ = [
    "SEED",
    "TestGraph",
    "control_flow",
    "convolution",
    "cross_entropy",
    "dense",
    "inputs",
    "new_graph",
    "training_graph",
    "weight_variable",
]
