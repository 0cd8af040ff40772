"""The fork server of workers, which may be started before it is needed."""

from __future__ import annotations

import os

from tf_placer.fork_server import ForkServer

__all__ = ["release_fork_server", "start_early", "start_fork_server"]

_MODULES = ("tensorflow", "tf_placer.environments.loaded_graph")
# The server that was started early, which serves one user after the other, and whether it is free.
_early: list[ForkServer] = []
_free: list[ForkServer] = []


def start_early(log_path: str | os.PathLike[str]) -> None:
    """Starts a server for the next calls of `start_fork_server`, because its imports take seconds.

    It ends with this process.

    Args:
        log_path: the file for the server's output.
    """
    _early.append(ForkServer(_MODULES, log_path))
    _free.append(_early[-1])


def start_fork_server(log_path: str | os.PathLike[str]) -> ForkServer:
    """Starts a server for workers, or takes the one that was started early, if it is free.

    Args:
        log_path: the file for the output of a new server.
    """
    while _free:
        server = _free.pop()
        if server.is_fit():
            return server
        server.close()
    return ForkServer(_MODULES, log_path)


def release_fork_server(server: ForkServer) -> None:
    """Ends a server, but keeps the one that was started early for the next user."""
    if server in _early and server.is_fit():
        _free.append(server)
    else:
        server.close()
