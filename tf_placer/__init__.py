"""Finds out which device each operation of a TensorFlow graph should run on.

    import tf_placer
    result = tf_placer.optimize(graph, machine="local:2")

times real steps, searches for a faster placement, confirms it against the graph as it came, and
writes the devices into the graph.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_placer.errors import SearchError, require_tensorflow

if TYPE_CHECKING:
    from graph_passes.errors import GraphError
    from graph_passes.placement import Placement, read_placement
    from tf_placer.functions.connection import connect
    from tf_placer.inputs.session_hook import PlacementHook
    from tf_placer.live.optimization import optimize
    from tf_placer.live.profiling import profile
    from tf_placer.live.result import OptimizeResult
    from tf_placer.machines.local_cluster import LocalCluster
    from tf_placer.machines.lookup import find_machine
    from tf_placer.machines.machine import Machine, MachineError

__all__ = [
    "GraphError",
    "LocalCluster",
    "Machine",
    "MachineError",
    "OptimizeResult",
    "Placement",
    "PlacementHook",
    "SearchError",
    "connect",
    "find_machine",
    "optimize",
    "profile",
    "read_placement",
]

__version__ = "0.1.0"

_MODULES = {
    "GraphError": "graph_passes.errors",
    "LocalCluster": "tf_placer.machines.local_cluster",
    "Machine": "tf_placer.machines.machine",
    "MachineError": "tf_placer.machines.machine",
    "OptimizeResult": "tf_placer.live.result",
    "Placement": "graph_passes.placement",
    "PlacementHook": "tf_placer.inputs.session_hook",
    "connect": "tf_placer.functions.connection",
    "find_machine": "tf_placer.machines.lookup",
    "optimize": "tf_placer.live.optimization",
    "profile": "tf_placer.live.profiling",
    "read_placement": "graph_passes.placement",
}


def __getattr__(name: str) -> Any:
    # TensorFlow takes seconds to import, and much here does without it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_tensorflow()
    value = getattr(importlib.import_module(_MODULES[name]), name)
    # A function called like its module must stay what the name means.
    globals()[name] = value
    return value
