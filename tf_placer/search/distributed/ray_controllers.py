"""Controllers and their parameter server as actors of Ray."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from tf_placer.search.distributed.controllers import Controllers
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_fleet import RayFleet
from tf_placer.search.distributed.workers import Workers

__all__ = ["ray_controllers"]


@contextlib.contextmanager
def ray_controllers(workers: Workers, setup: PlacerSetup, **options: Any) -> Iterator[Controllers]:
    """Starts controllers beside the search; this process must be connected.

    Args:
        workers: says how many.
        setup: what they train.
        options: of `Controllers`.
    """
    # It needs TensorFlow, which only those need that learn.
    learners = importlib.import_module("tf_placer.search.distributed.learners")
    controllers = Controllers(
        setup.name,
        RayFleet(workers, learners.Controller, setup, is_near=True),
        RayFleet(workers, learners.ParameterServer, setup, is_near=True),
        workers.controllers,
        **options,
    )
    try:
        yield controllers
    finally:
        controllers.close()
