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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from graph_passes.util.json_records import read_record
from tf_placer.processes import Parent, pin_to_cores

if TYPE_CHECKING:
    from tf_placer.environments.loaded_graph import LoadedGraph
    from tf_placer.environments.probed_graph import ProbedGraph

__all__ = ["Line", "Worker", "main"]

_Graph = TypeVar("_Graph")


class Line(Protocol):
    """A channel that commands come over."""

    def receive(self) -> dict[str, Any]:
        """Waits for the next command, and returns it."""
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Answers with a JSON object."""
        ...


class Worker:
    """Obeys commands that come over a line."""

    def __init__(self, line: Line, *, loaded: Callable[[], None] = lambda: None) -> None:
        """Loads nothing yet.

        Args:
            line: what commands come over.
            loaded: called whenever a graph was loaded.
        """
        self._line = line
        self._loaded = loaded
        self._target = ""
        self._loads: dict[str, dict[str, Any]] = {}
        self._graphs: dict[str, LoadedGraph] = {}
        self._probed: dict[str, ProbedGraph] = {}

    def serve(self) -> None:
        """Obeys until the line raises something; sessions are closed then."""
        # Not at the top of the file: the line to the parent comes before TensorFlow, whose import
        # takes seconds.
        from tf_placer.environments.loaded_graph import SessionFailed

        try:
            while True:
                command = self._line.receive()
                try:
                    answer = self._answer(**command)
                except SessionFailed as failed:
                    answer = {
                        "error": {
                            "type": failed.error_type,
                            "message": failed.message,
                            "stage": failed.stage,
                            "steps_done": failed.steps_done,
                        }
                    }
                self._line.send(answer)
        finally:
            for graph in self._graphs.values():
                graph.close_sessions()

    def cancel(self) -> None:
        """Breaks off, from another thread, whatever sessions run."""
        for graph in (*self._graphs.values(), *self._probed.values()):
            graph.cancel()

    def _report_stage(self, stage: str) -> None:
        self._line.send({"stage": stage})

    def _answer(self, command: str, graph: str = "", **arguments: Any) -> dict[str, Any]:
        """Obeys a command.

        Args:
            command: its name.
            graph: the name of the graph that it is about, if it is about one.
            **arguments: what else it says.

        Returns:
            The answer.

        Raises:
            SessionFailed: TensorFlow raised something.
        """
        report_stage, named = self._report_stage, self._graphs.get(graph)
        if command == "connect":
            self._target = arguments["target"]
            for each in self._graphs.values():
                each.connect(self._target)
            self._probed.clear()
            return {"connected": True}
        if command == "close_sessions":
            for each in self._graphs.values():
                each.close_sessions()
            return {"closed": True}
        if command == "load":
            return self._load(graph, arguments)
        assert named is not None, f"no graph {graph!r} was loaded"
        if command == "unload":
            named.close_sessions()
            del self._graphs[graph]
            self._probed.pop(graph, None)
            return {"unloaded": True}
        if command == "open_session":
            return named.open_session(report_stage=report_stage, **arguments)
        if command == "run_steps":
            return named.run_steps(**arguments)
        if command == "close_session":
            named.close_session(**arguments)
            return {"closed": True}
        if command == "trace":
            return named.trace(report_stage=report_stage, **arguments)
        if command == "time_each":
            return {"times": named.time_each(report_stage=report_stage, **arguments)}
        return self._write_values(graph, arguments)

    def _load(self, name: str, load: dict[str, Any]) -> dict[str, Any]:
        from tf_placer.environments.loaded_graph import LoadedGraph

        share_variables = load.pop("share_variables")
        make = functools.partial(LoadedGraph, share_variables=share_variables)
        self._loads[name] = load
        try:
            self._graphs[name] = _load(load, self._target, make)
        except Exception as error:
            text = " ".join(str(error).split())
            return {"refused": f"{type(error).__name__}: {text}"}
        self._loaded()
        return {"loaded": True}

    def _write_values(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        from tf_placer.environments.probed_graph import ProbedGraph

        if name not in self._probed:
            self._report_stage("loading the graph with seeds")
            self._probed[name] = _load(self._loads[name], self._target, ProbedGraph)
        self._probed[name].write_values(report_stage=self._report_stage, **arguments)
        return {"written": True}


def main() -> None:
    """Obeys until the parent is gone."""
    parent = Parent()
    if parent.settings["cores"]:
        pin_to_cores(parent.settings["cores"])
    # Loaded graphs live long: exempt them from garbage collection during steps.
    Worker(parent, loaded=gc.freeze).serve()


def _load(load: dict[str, Any], target: str, graph_class: Callable[..., _Graph]) -> _Graph:
    """Makes a graph of a class from what the command to load it says."""
    import tensorflow as tf

    from graph_passes.summary_writes import drop_summary_writes
    from tf_placer.environments.tensor_file import read_tensors
    from tf_placer.inputs.step import QueueRunner
    from tf_placer.machines.emulation_state import apply_gpu_options

    graph_def = tf.compat.v1.GraphDef.FromString(pathlib.Path(load["path"]).read_bytes())
    drop_summary_writes(graph_def)
    config = tf.compat.v1.ConfigProto.FromString(pathlib.Path(load["session_config"]).read_bytes())
    apply_gpu_options(config)
    if not load["meta_optimizer"]:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    if load["isolate"]:
        config.isolate_session_state = True
    return graph_class(
        graph_def,
        fetches=load["fetches"],
        initializers=load["initializers"],
        queue_runners=[read_record(QueueRunner, each) for each in load["queue_runners"]],
        **{name: read_tensors(path) for name, path in load["tensors"].items()},
        target=target,
        config=config,
    )


if __name__ == "__main__":
    main()
