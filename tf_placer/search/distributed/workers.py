"""Which workers measure: none, those of this computer, or those of a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import numbers
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.util.messages import quoted
from tf_placer.errors import SearchError
from tf_placer.machines.backends import BACKENDS, Kind
from tf_placer.placers import BEST_START, is_learned, start_of
from tf_placer.scratch import scratch_directory

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

#: Where Ray listens that is started here.
LOOPBACK = "127.0.0.1"
#: Environment variables of Ray, to be set before it is imported: it sends nothing to anybody, its
#: actors run at the priority of other processes, and it prints nothing of what dies, least of all
#: to standard output, where it would do so.
QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
}
#: Those for a cluster on the loopback.
LOOPBACK_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
#: What Ray that is started here keeps for graphs on their way, in bytes.
OBJECT_STORE_BYTES = 256 * 2**20
#: The resource of Ray that a machine has if it may measure, one for each worker.
RESOURCE = "tf_placer_worker"
#: How the directories of Ray that is started here begin: short, because sockets are in them.
SHORT_PREFIX = "tfp_ray_"
# As short: the path of a socket has 107 bytes at most, of which Ray takes about 70.
_RAY = "r"
_HERE, _CLUSTER = "ray", "auto"


@dataclasses.dataclass(frozen=True)
class Workers:
    """What measures placements in parallel.

    Attributes:
        address: "ray" for workers that are started on this computer, "auto" for the Ray cluster
            that runs here, "ray://HOST:PORT" for one elsewhere.
        count: how many there are at most; None for one on this computer, and for as many as the
            cluster has.
        controllers: how many processes sample placements and learn, each on its own, where the
            placer learns; 1 for the search itself.
    """

    address: str
    count: int | None = None
    controllers: int = 1

    @property
    def are_here(self) -> bool:
        """Whether they are started on this computer for this search."""
        return self.address == _HERE

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self)


def find_workers(address: object, count: object, controllers: object = None) -> Workers | None:
    """Checks which workers are wanted; connects to nothing.

    Args:
        address: see `Workers`; None for none.
        count: see `Workers`.
        controllers: see `Workers`; None for 1.

    Returns:
        The workers, or None where none are wanted.

    Raises:
        ImportError: Ray is not installed.
        ValueError: there are no such workers.
    """
    if address is None:
        if count is not None:
            raise ValueError("num_workers is for searches with workers: workers='ray' starts some")
        if controllers not in (None, 1):
            raise ValueError("controllers is for searches with workers: workers='ray' starts some")
        return None
    if not isinstance(address, str):
        raise ValueError(f"workers is an address such as 'ray', not {quoted(address)}")
    number = _positive("num_workers", count)
    num_controllers = _positive("controllers", controllers)
    if address not in (_HERE, _CLUSTER) and not re.fullmatch(r"ray://[^/\s]+:\d{1,5}", address):
        raise ValueError(
            f"there are no workers {quoted(address)}: 'ray' starts some on this computer, 'auto' "
            "and 'ray://HOST:PORT' are those of a Ray cluster"
        )
    require_ray()
    return Workers(address, number, num_controllers or 1)


def _positive(name: str, count: object) -> int | None:
    """Checks how many of something are wanted; None for no wish."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise ValueError(f"{name} is a whole number, 1 at least, not {quoted(count)}")
    return int(count)


@contextlib.contextmanager
def ray_directories() -> Iterator[tuple[str, str]]:
    """Makes a private directory, and one in it for Ray, which are gone at the end.

    Ray lets everybody write to the directory that it is given, and everybody who reaches its
    sockets may take its processes over. So the directory of Ray is in one that only this user can
    enter.

    Yields:
        The private one, and that of Ray.

    Raises:
        OSError: they cannot be made.
    """
    with scratch_directory(prefix=SHORT_PREFIX) as private:
        directory = os.path.join(private, _RAY)
        os.mkdir(directory, 0o700)
        yield private, directory


def require_ray() -> None:
    """Makes sure that Ray is installed, without importing it.

    Raises:
        ImportError: it is not; the message says how to install it.
    """
    if importlib.util.find_spec("ray") is None:
        raise ImportError("workers need Ray: pip install 'tf_placer[ray]'")


def check_is_for_controllers(
    workers: Workers | None, placer: str, options: Mapping[str, object] | None
) -> None:
    """Makes sure that a placer can be trained by the controllers that are wanted.

    Raises:
        ValueError: there are several, and it does not learn or begins by measuring placements.
    """
    if workers is None or workers.controllers == 1:
        return
    several = f"controllers={workers.controllers}"
    if not is_learned(placer):
        raise ValueError(f"{several} train a placer that learns, and {placer!r} does not")
    if start_of(placer, options) == BEST_START:
        raise ValueError(
            f"{several} have no first placements to measure, which start='best' of {placer!r} "
            "needs: give another start, such as 'expert'"
        )


def check_is_for_workers(workers: Workers, kind: Kind, spec: str, calls_python: bool) -> None:
    """Makes sure that workers can measure on a machine.

    Args:
        workers: who measures.
        kind: of the machine.
        spec: its name.
        calls_python: whether a step calls functions of this process.

    Raises:
        SearchError: they cannot; the message says why.
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
