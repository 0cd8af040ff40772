"""What the passes raise when a graph is not one they can work on."""

from graph_passes.util.messages import shortened

__all__ = ["GraphError"]


class GraphError(ValueError):
    """A graph, or a name in it, is not usable; the message names the culprit."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))
