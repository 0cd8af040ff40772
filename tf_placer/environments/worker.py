"""The process that runs sessions and nothing else.

Run by `LiveProcesses` as `python -m tf_placer.environments.worker`. A command loads a graph under a
name, connects to a server, or measures a graph or fetches values from it. An answer with a "stage"
only says what the worker does next, so that a time-out can say where it struck; every other answer
ends its command.
"""

from __future__ import annotations

import functools
import gc
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from tf_placer.processes import Parent, pin_to_cores

__all__ = ["main"]

_Graph = TypeVar("_Graph")


def main() -> None:
    """Obeys until the parent is gone."""
    parent = Parent()
    if parent.settings["cores"]:
        pin_to_cores(parent.settings["cores"])
    # Not at the top of the file: the line to the parent comes before TensorFlow, whose import takes
    # seconds.
    from tf_placer.environments.loaded_graph import LoadedGraph, SessionFailed
    from tf_placer.environments.probed_graph import ProbedGraph

    target = ""
    loads: dict[str, dict[str, Any]] = {}
    graphs: dict[str, LoadedGraph] = {}
    probed: dict[str, ProbedGraph] = {}

    def report_stage(stage: str) -> None:
        parent.send({"stage": stage})

    while True:
        command = parent.receive()
        kind, name = command.pop("command"), command.pop("graph", "")
        try:
            if kind == "load":
                loads[name] = command
                share = command.pop("share_variables")
                make = functools.partial(LoadedGraph, share_variables=share)
                try:
                    graphs[name] = _load(command, target, make)
                except Exception as error:
                    text = " ".join(str(error).split())
                    answer: dict[str, Any] = {"refused": f"{type(error).__name__}: {text}"}
                else:
                    # Everything so far stays: no collection has to look at it during a step.
                    gc.freeze()
                    answer = {"loaded": True}
            elif kind == "connect":
                target = command["target"]
                for graph in graphs.values():
                    graph.connect(target)
                probed.clear()
                answer = {"connected": True}
            elif kind == "close_sessions":
                for graph in graphs.values():
                    graph.close_sessions()
                answer = {"closed": True}
            elif kind == "unload":
                graphs.pop(name).close_sessions()
                probed.pop(name, None)
                answer = {"unloaded": True}
            elif kind == "open_session":
                answer = graphs[name].open_session(report_stage=report_stage, **command)
            elif kind == "run_steps":
                answer = graphs[name].run_steps(**command)
            elif kind == "close_session":
                graphs[name].close_session(**command)
                answer = {"closed": True}
            elif kind == "trace":
                answer = graphs[name].trace(report_stage=report_stage, **command)
            elif kind == "time_each":
                answer = {"times": graphs[name].time_each(report_stage=report_stage, **command)}
            else:
                if name not in probed:
                    report_stage("loading the graph with seeds")
                    probed[name] = _load(loads[name], target, ProbedGraph)
                probed[name].write_values(report_stage=report_stage, **command)
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


def _load(load: dict[str, Any], target: str, graph_class: Callable[..., _Graph]) -> _Graph:
    """Makes a graph of a class from what the command to load it says."""
    import tensorflow as tf

    from tf_placer.environments.tensor_file import read_tensors
    from tf_placer.inputs.step import QueueRunner

    graph_def = tf.compat.v1.GraphDef.FromString(pathlib.Path(load["path"]).read_bytes())
    config = tf.compat.v1.ConfigProto.FromString(pathlib.Path(load["session_config"]).read_bytes())
    if not load["meta_optimizer"]:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    if load["isolate"]:
        config.isolate_session_state = True
    return graph_class(
        graph_def,
        fetches=load["fetches"],
        initializers=load["initializers"],
        queue_runners=[QueueRunner.from_json(each) for each in load["queue_runners"]],
        **{name: read_tensors(path) for name, path in load["tensors"].items()},
        target=target,
        config=config,
    )


if __name__ == "__main__":
    main()
