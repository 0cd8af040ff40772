"""One template for the processes of all environments of a test process.

Each environment has a template of its own otherwise, which imports TensorFlow once more.
"""

from __future__ import annotations

import functools
import os
import unittest
from unittest import mock

from tf_placer.environments import live_processes, worker_fork_server
from tf_placer.fork_server import ForkServer

__all__ = ["find_template", "share_template"]


class _SharedTemplate(ForkServer):
    def close(self) -> None:
        """Does nothing: others make processes of it, and it ends with this process."""


@functools.cache
def _new_template(modules: tuple[str, ...]) -> _SharedTemplate:
    return _SharedTemplate(modules, os.devnull)


def find_template() -> ForkServer:
    """The template, which is started at the first call."""
    template = _new_template(worker_fork_server._MODULES)
    if not template.is_fit():
        _new_template.cache_clear()
        return find_template()
    return template


def share_template() -> None:
    """Lets all environments of a module share the template; a `setUpModule`."""

    def make(log_path: str | os.PathLike[str]) -> ForkServer:
        del log_path
        return find_template()

    patch = mock.patch.object(live_processes, "start_fork_server", make)
    patch.start()
    unittest.addModuleCleanup(patch.stop)
