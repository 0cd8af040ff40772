"""Controllers and their parameter server as actors of Ray."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from tf_placer.search.distributed.controllers import Controllers
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_backend import RayBackend
from tf_placer.search.distributed.workers import Workers

__all__ = ["ray_controllers"]


@contextlib.contextmanager
def ray_controllers(workers: Workers, setup: PlacerSetup, **options: Any) -> Iterator[Controllers]:
    """Starts controllers on the computer of the search; Ray must be initialized.

    Args:
        workers: settings of the search's workers, with the number of controllers.
        setup: the placer to train.
        options: further arguments of `Controllers`.
    """
    # Import here, because the module needs TensorFlow and most searches have no controllers.
    learners = importlib.import_module("tf_placer.search.distributed.learners")
    controllers = Controllers(
        setup.name,
        RayBackend(workers, learners.Controller, setup, is_local=True),
        RayBackend(workers, learners.ParameterServer, setup, is_local=True),
        workers.controllers,
        **options,
    )
    try:
        yield controllers
    finally:
        controllers.close()
