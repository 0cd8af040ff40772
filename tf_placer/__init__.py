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
    from tf_placer.integrations.session_hook import PlacementHook
    from tf_placer.local_cluster import LocalCluster
    from tf_placer.machine import Machine, MachineError
    from tf_placer.machine_lookup import find_machine
    from tf_placer.optimization import optimize
    from tf_placer.result import OptimizeResult

__all__ = [
    "GraphError",
    "LocalCluster",
    "Machine",
    "MachineError",
    "OptimizeResult",
    "Placement",
    "PlacementHook",
    "SearchError",
    "find_machine",
    "optimize",
    "read_placement",
]

__version__ = "0.1.0"

_MODULES = {
    "GraphError": "graph_passes.errors",
    "LocalCluster": "tf_placer.local_cluster",
    "Machine": "tf_placer.machine",
    "MachineError": "tf_placer.machine",
    "OptimizeResult": "tf_placer.result",
    "Placement": "graph_passes.placement",
    "PlacementHook": "tf_placer.integrations.session_hook",
    "find_machine": "tf_placer.machine_lookup",
    "optimize": "tf_placer.optimization",
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
