"""What the passes raise when a graph is not one they can work on."""

__all__ = ["GraphError"]


class GraphError(ValueError):
    """A graph, or a name in it, is not usable; the message names the culprit."""
