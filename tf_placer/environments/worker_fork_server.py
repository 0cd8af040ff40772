"""The fork server of workers, which may be started before it is needed."""

from __future__ import annotations

import os

from tf_placer.fork_server import ForkServer

__all__ = ["start_early", "start_fork_server"]

_MODULES = ("tensorflow", "tf_placer.environments.loaded_graph")
# The server that was started early and has no user yet, if there is one.
_early: list[ForkServer] = []


def start_early(log_path: str | os.PathLike[str]) -> None:
    """Starts a server for the next call of `start_fork_server`, because its imports take seconds.

    Args:
        log_path: the file for the server's output.
    """
    _early.append(ForkServer(_MODULES, log_path))


def start_fork_server(log_path: str | os.PathLike[str]) -> ForkServer:
    """Starts a server for workers, or takes the one that was started early.

    Args:
        log_path: the file for the output of a new server.
    """
    while _early:
        server = _early.pop()
        if server.is_fit():
            return server
        server.close()
    return ForkServer(_MODULES, log_path)
