"""The worker process, which runs sessions and nothing else.

Run by `LiveProcesses` as `python -m tf_placer.environments.worker`. A command loads a graph under a
name, connects to a server, measures a graph or fetches values from it. An answer with a "stage"
only names the next stage, so that a time-out can name the stage it ended; every other answer ends
its command.
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

__all__ = ["CommandChannel", "CommandLoop", "main"]

_Graph = TypeVar("_Graph")


class CommandChannel(Protocol):
    """The worker's end of a connection to the search."""

    def receive(self) -> dict[str, Any]:
        """Waits for the next command and returns it."""
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends an answer, a JSON object."""
        ...


class CommandLoop:
    """Executes the commands that arrive on a channel."""

    def __init__(
        self, channel: CommandChannel, *, on_loaded: Callable[[], None] = lambda: None
    ) -> None:
        """Prepares the loop without loading a graph.

        Args:
            channel: the channel of the commands.
            on_loaded: called after each load of a graph.
        """
        self._channel = channel
        self._on_loaded = on_loaded
        self._target = ""
        self._loads: dict[str, dict[str, Any]] = {}
        self._graphs: dict[str, LoadedGraph] = {}
        self._probed: dict[str, ProbedGraph] = {}

    def serve(self) -> None:
        """Executes commands until the channel raises an exception, then closes all sessions."""
        # Import TensorFlow after the connection to the parent is made: the import takes seconds.
        from tf_placer.environments.loaded_graph import SessionFailed

        try:
            while True:
                command = self._channel.receive()
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
                self._channel.send(answer)
        finally:
            for graph in self._graphs.values():
                graph.close_sessions()

    def cancel(self) -> None:
        """Cancels all runs of all sessions, from another thread."""
        for graph in (*self._graphs.values(), *self._probed.values()):
            graph.cancel()

    def _report_stage(self, stage: str) -> None:
        self._channel.send({"stage": stage})

    def _answer(self, command: str, graph: str = "", **arguments: Any) -> dict[str, Any]:
        """Executes a command.

        Args:
            command: the name of the command.
            graph: the name of its graph; empty for commands without one.
            **arguments: the other arguments of the command.

        Returns:
            The answer.

        Raises:
            SessionFailed: TensorFlow raised an exception.
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
        self._on_loaded()
        return {"loaded": True}

    def _write_values(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        from tf_placer.environments.probed_graph import ProbedGraph

        if name not in self._probed:
            self._report_stage("loading the graph with seeds")
            self._probed[name] = _load(self._loads[name], self._target, ProbedGraph)
        self._probed[name].write_values(report_stage=self._report_stage, **arguments)
        return {"written": True}


def main() -> None:
    """Executes commands until the parent is gone."""
    parent = Parent()
    if parent.settings["cores"]:
        pin_to_cores(parent.settings["cores"])
    # Loaded graphs live long: exempt them from garbage collection during steps.
    CommandLoop(parent, on_loaded=gc.freeze).serve()


def _load(load: dict[str, Any], target: str, graph_class: Callable[..., _Graph]) -> _Graph:
    """Makes a graph of the given class from the arguments of a "load" command."""
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
