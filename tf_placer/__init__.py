"""Finds a device for each operation of a TensorFlow graph, to make its steps faster.

    import tf_placer
    result = tf_placer.optimize(graph, machine="local:2")

times real steps, searches for a faster placement, confirms it against the original graph, and
writes the devices into the graph.

Live: `optimize`, `optimize_function`, `optimize_model`, `optimize_saved_model`. Without the
machine: `profile`, `plan`, `simulate`, `explain`, `compare`, `offload`. Of results: `write_report`,
`apply_placement`, `load_placed`. Settings: `SearchConfig`; own code in a search: `Callback`,
`tf_placer.placers.Placer`. Each has a help of its own, such as `help(tf_placer.optimize)`; the
manual is in the folder docs of the source.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_placer.errors import NoAnswerError, SearchError, require_tensorflow
from tf_placer.interrupts import shorten_interrupts

if TYPE_CHECKING:
    from graph_passes.errors import GraphError, StepError
    from graph_passes.placement import Placement, read_placement
    from tf_placer.functions.connection import connect
    from tf_placer.functions.loaded_model import load_placed
    from tf_placer.functions.placement_application import apply_placement
    from tf_placer.inputs.session_hook import PlacementHook
    from tf_placer.library_build import LibraryError
    from tf_placer.live.entry_points import (
        optimize,
        optimize_function,
        optimize_model,
        optimize_saved_model,
    )
    from tf_placer.live.offloading import offload
    from tf_placer.live.profiling import profile
    from tf_placer.live.result import (
        FunctionResult,
        ModelResult,
        OptimizeResult,
        SavedModelResult,
    )
    from tf_placer.machines.local_cluster import LocalCluster
    from tf_placer.machines.lookup import find_machine
    from tf_placer.machines.machine import Machine, MachineError
    from tf_placer.planning.compare import compare
    from tf_placer.planning.explanation import explain
    from tf_placer.planning.plan import plan
    from tf_placer.planning.plan_result import PlanResult, UnwrittenPlanError
    from tf_placer.planning.simulated_step import simulate
    from tf_placer.problem.problem_error import ProblemError
    from tf_placer.problem.problem_file import read_problem
    from tf_placer.runs.run_page import write_report
    from tf_placer.search.callbacks import Callback
    from tf_placer.search.config import SearchConfig
    from tf_placer.search.log_file import LogLockedError
    from tf_placer.search.log_header import LogError, LogMismatchError

__all__ = [
    "Callback",
    "FunctionResult",
    "GraphError",
    "LibraryError",
    "LocalCluster",
    "LogError",
    "LogLockedError",
    "LogMismatchError",
    "Machine",
    "MachineError",
    "ModelResult",
    "NoAnswerError",
    "OptimizeResult",
    "Placement",
    "PlacementHook",
    "PlanResult",
    "ProblemError",
    "SavedModelResult",
    "SearchConfig",
    "SearchError",
    "StepError",
    "UnwrittenPlanError",
    "apply_placement",
    "compare",
    "connect",
    "explain",
    "find_machine",
    "load_placed",
    "offload",
    "optimize",
    "optimize_function",
    "optimize_model",
    "optimize_saved_model",
    "plan",
    "profile",
    "read_placement",
    "read_problem",
    "simulate",
    "write_report",
]

__version__ = "0.1.0"

_MODULES = {
    "Callback": "tf_placer.search.callbacks",
    "FunctionResult": "tf_placer.live.result",
    "LocalCluster": "tf_placer.machines.local_cluster",
    "Machine": "tf_placer.machines.machine",
    "ModelResult": "tf_placer.live.result",
    "OptimizeResult": "tf_placer.live.result",
    "Placement": "graph_passes.placement",
    "PlacementHook": "tf_placer.inputs.session_hook",
    "SavedModelResult": "tf_placer.live.result",
    "apply_placement": "tf_placer.functions.placement_application",
    "connect": "tf_placer.functions.connection",
    "find_machine": "tf_placer.machines.lookup",
    "load_placed": "tf_placer.functions.loaded_model",
    "offload": "tf_placer.live.offloading",
    "optimize": "tf_placer.live.entry_points",
    "optimize_function": "tf_placer.live.entry_points",
    "optimize_model": "tf_placer.live.entry_points",
    "optimize_saved_model": "tf_placer.live.entry_points",
    "profile": "tf_placer.live.profiling",
    "read_placement": "graph_passes.placement",
}
# Planning does not need TensorFlow.
_PLANNING_MODULES = {
    "GraphError": "graph_passes.errors",
    "LibraryError": "tf_placer.library_build",
    "LogError": "tf_placer.search.log_header",
    "LogLockedError": "tf_placer.search.log_file",
    "LogMismatchError": "tf_placer.search.log_header",
    "MachineError": "tf_placer.machines.machine",
    "PlanResult": "tf_placer.planning.plan_result",
    "ProblemError": "tf_placer.problem.problem_error",
    "SearchConfig": "tf_placer.search.config",
    "StepError": "graph_passes.errors",
    "UnwrittenPlanError": "tf_placer.planning.plan_result",
    "compare": "tf_placer.planning.compare",
    "explain": "tf_placer.planning.explanation",
    "plan": "tf_placer.planning.plan",
    "read_problem": "tf_placer.problem.problem_file",
    "simulate": "tf_placer.planning.simulated_step",
    "write_report": "tf_placer.runs.run_page",
}


def __getattr__(name: str) -> Any:
    # Imported lazily, because importing TensorFlow takes seconds and many commands do not need it.
    module = _PLANNING_MODULES.get(name)
    if module is None:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        require_tensorflow()
        module = _MODULES[name]
    value = getattr(shorten_interrupts(importlib.import_module)(module), name)
    # Set explicitly, because importing the module of the same name, such as `plan`, binds the name
    # to the module.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
