"""Settings of the workers of a search: none, on this computer, or in a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import numbers
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.errors import SearchError
from tf_placer.machines.backends import BACKENDS, Kind
from tf_placer.placers import BEST_START, find_start, is_learned
from tf_placer.temporary_directory import temporary_directory

__all__ = [
    "LOOPBACK",
    "LOOPBACK_ENVIRONMENT",
    "OBJECT_STORE_BYTES",
    "QUIET_ENVIRONMENT",
    "RESOURCE",
    "SHORT_PREFIX",
    "Workers",
    "check_is_for_controllers",
    "check_is_for_workers",
    "find_workers",
    "ray_directories",
    "require_ray",
]

#: The address that a Ray started here listens on.
LOOPBACK = "127.0.0.1"
#: Environment variables to set before Ray is imported: it sends no usage statistics, its actors run
#: at normal priority, and it does not print messages about dead processes to standard output.
QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
}
#: Environment variables for a cluster on the loopback interface.
LOOPBACK_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
#: Size of the object store of a Ray started here, which transports graphs.
OBJECT_STORE_BYTES = 256 * 2**20
#: The Ray resource of machines that may measure, one unit for each worker.
RESOURCE = "tf_placer_worker"
#: Prefix of the directory of a Ray started here. It must be short, because the path of a socket has
#: at most 107 bytes, of which Ray uses about 70.
SHORT_PREFIX = "tfp_ray_"
_RAY_DIRECTORY = "r"
_HERE, _CLUSTER = "ray", "auto"


@dataclasses.dataclass(frozen=True)
class Workers:
    """Settings of the workers, which measure placements in parallel.

    Attributes:
        address: "ray" for workers that are started on this computer, "auto" for the Ray cluster
            that runs here, "ray://HOST:PORT" for one elsewhere.
        count: the maximum number of workers; None for one on this computer, and for as many as the
            cluster has room for.
        controllers: the number of processes of a learned placer that sample placements and learn
            independently; 1 for the search process itself.
    """

    address: str
    count: int | None = None
    controllers: int = 1

    @property
    def are_here(self) -> bool:
        """True if the workers are started on this computer for this search."""
        return self.address == _HERE

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self)


def find_workers(address: object, count: object, controllers: object = None) -> Workers | None:
    """Checks the settings of workers, without connecting to them.

    Args:
        address: see `Workers`; None for no workers.
        count: see `Workers`.
        controllers: see `Workers`; None for 1.

    Returns:
        The settings, or None for no workers.

    Raises:
        ImportError: Ray is not installed.
        ValueError: a setting is invalid.
    """
    if address is None:
        if count is not None:
            raise ValueError("num_workers is for searches with workers: workers='ray' starts some")
        if controllers not in (None, 1):
            raise ValueError("controllers is for searches with workers: workers='ray' starts some")
        return None
    if not isinstance(address, str):
        raise ValueError(f"workers is an address such as 'ray', not {quote(address)}")
    number = _check_positive("num_workers", count)
    num_controllers = _check_positive("controllers", controllers)
    if address not in (_HERE, _CLUSTER) and not re.fullmatch(r"ray://[^/\s]+:\d{1,5}", address):
        raise ValueError(
            f"there are no workers {quote(address)}: 'ray' starts some on this computer, 'auto' "
            "and 'ray://HOST:PORT' are those of a Ray cluster"
        )
    require_ray()
    return Workers(address, number, num_controllers or 1)


def _check_positive(name: str, count: object) -> int | None:
    """Checks an optional positive number."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise ValueError(f"{name} is a whole number, 1 at least, not {quote(count)}")
    return int(count)


@contextlib.contextmanager
def ray_directories() -> Iterator[tuple[str, str]]:
    """Makes a private directory with a directory for Ray in it, until the context ends.

    Ray makes its directory writable by all users, and any user who reaches its sockets can take
    over its processes. Therefore only this user can enter the private directory around it.

    Yields:
        The private directory, and that of Ray.

    Raises:
        OSError: a directory cannot be made.
    """
    with temporary_directory(prefix=SHORT_PREFIX) as private:
        directory = os.path.join(private, _RAY_DIRECTORY)
        os.mkdir(directory, 0o700)
        yield private, directory


def require_ray() -> None:
    """Checks that Ray is installed, without importing it.

    Raises:
        ImportError: Ray is not installed; the message says how to install it.
    """
    if importlib.util.find_spec("ray") is None:
        raise ImportError("workers need Ray: pip install 'tf_placer[ray]'")


def check_is_for_controllers(
    workers: Workers | None, placer: str, options: Mapping[str, object] | None
) -> None:
    """Checks that a placer supports the requested number of controllers.

    Raises:
        ValueError: there are several, and the placer does not learn or starts by measuring
            placements.
    """
    if workers is None or workers.controllers == 1:
        return
    several = f"controllers={workers.controllers}"
    if not is_learned(placer):
        raise ValueError(f"{several} train a placer that learns, and {placer!r} does not")
    if find_start(placer, options) == BEST_START:
        raise ValueError(
            f"{several} have no first placements to measure, which start='best' of {placer!r} "
            "needs: give another start, such as 'expert'"
        )


def check_is_for_workers(workers: Workers, kind: Kind, spec: str, calls_python: bool) -> None:
    """Checks that workers can measure on a machine.

    Args:
        workers: settings of the workers.
        kind: kind of the machine.
        spec: name of the machine.
        calls_python: whether a step calls Python functions of this process.

    Raises:
        SearchError: the workers cannot measure; the message says why.
    """
    if not BACKENDS[kind].suits_workers:
        raise SearchError(
            f"workers={workers.address!r} measure each on devices of its own, which {spec!r} is "
            "not: use machine='attached' or 'local:N'"
        )
    if calls_python:
        raise SearchError(
            f"a step that calls Python functions runs in this process only, and workers="
            f"{workers.address!r} are others: leave workers out"
        )
