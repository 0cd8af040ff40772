"""The process that runs sessions and nothing else.

Run by `LiveProcesses` as `python -m tf_placer.environments.worker`. The first command loads a
graph; every other one measures it or fetches values from it. An answer with a "stage" only says
what the worker does next, so that a time-out can say where it struck; every other answer ends its
command.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from tf_placer.processes import Parent, pin_to_cores

__all__ = ["main"]

_Graph = TypeVar("_Graph")


def main() -> None:
    """Loads a graph and obeys until the parent is gone."""
    parent = Parent()
    load = parent.receive()
    if load["cores"]:
        pin_to_cores(load["cores"])
    # Not at the top of the file: the line to the parent comes before TensorFlow, whose import takes
    # seconds.
    from tf_placer.environments.loaded_graph import LoadedGraph, SessionFailed
    from tf_placer.environments.probed_graph import ProbedGraph

    try:
        graph = _load(load, functools.partial(LoadedGraph, share_variables=load["share_variables"]))
    except Exception as error:
        parent.send({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        os._exit(1)
    # Everything so far stays: no collection has to look at it during a step.
    gc.freeze()
    parent.send({"loaded": True})

    def report_stage(stage: str) -> None:
        parent.send({"stage": stage})

    probed: ProbedGraph | None = None
    while True:
        command = parent.receive()
        try:
            kind = command.pop("command")
            if kind == "open_session":
                answer: dict[str, Any] = graph.open_session(report_stage=report_stage, **command)
            elif kind == "run_steps":
                answer = graph.run_steps(**command)
            elif kind == "close_session":
                graph.close_session(**command)
                answer = {"closed": True}
            elif kind == "close_sessions":
                graph.close_sessions()
                answer = {"closed": True}
            elif kind == "connect":
                load["target"] = command["target"]
                graph.connect(command["target"])
                probed = None
                answer = {"connected": True}
            elif kind == "trace":
                answer = graph.trace(report_stage=report_stage, **command)
            elif kind == "time_each":
                answer = {"times": graph.time_each(report_stage=report_stage, **command)}
            else:
                if probed is None:
                    report_stage("loading the graph with seeds")
                    probed = _load(load, ProbedGraph)
                probed.write_values(report_stage=report_stage, **command)
                answer = {"written": True}
        except SessionFailed as failed:
            answer = {
                "error": {
                    "type": failed.error_type,
                    "message": failed.message,
                    "stage": failed.stage,
                    "steps_done": failed.steps_done,
                }
            }
        parent.send(answer)


def _load(load: dict[str, Any], graph_class: Callable[..., _Graph]) -> _Graph:
    """Makes a graph of a class from what the first command says."""
    import tensorflow as tf

    from tf_placer.environments.tensor_file import read_tensors

    graph_def = tf.compat.v1.GraphDef.FromString(pathlib.Path(load["graph"]).read_bytes())
    config = tf.compat.v1.ConfigProto.FromString(pathlib.Path(load["session_config"]).read_bytes())
    if not load["meta_optimizer"]:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    if load["isolate"]:
        config.isolate_session_state = True
    return graph_class(
        graph_def,
        fetches=load["fetches"],
        feeds=read_tensors(load["feeds"]),
        initializers=load["initializers"],
        target=load["target"],
        config=config,
    )


if __name__ == "__main__":
    main()
