"""The error for graphs that the passes cannot process."""

from graph_passes.util.messages import shorten_text

__all__ = ["GraphError", "StepError"]


class GraphError(ValueError):
    """The error for an unusable graph or name in it; the message names the culprit."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten_text(message))


class StepError(GraphError):
    """The error for a step of a usable graph: what is fetched, fed or initialized."""
