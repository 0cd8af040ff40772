"""A network between nodes on this computer that can be cut off from each other.

The process that makes it, and what it starts later, are in a network of their own with a bridge.
Each node has a network behind a cable to that bridge. A cable that is cut looks whole from both
ends and drops every packet, as a switch does that has failed. All is gone when the last process in
it has ended. It takes root and the `ip` and `bridge` of iproute2.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator

__all__ = ["CuttableNetwork", "why_not"]

_NEW_NETWORK = 0x40000000
_PREFIX = "10.77.0"
# States of a port of a bridge.
_DISABLED, _FORWARDING = "0", "3"


def why_not() -> str:
    """Says why there can be no such network here; "" if there can."""
    if os.geteuid() != 0:
        return "only root can cut a network"
    missing = [name for name in ("ip", "bridge", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]} here"
    tried = "ip link add port type veth peer name cable && ip link add bridge type bridge"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", tried], capture_output=True, text=True, check=False
    )
    return done.stderr.strip()


class CuttableNetwork:
    """A bridge, and a cable to the network of each node.

    Attributes:
        address: of the process itself, at the bridge.
    """

    def __init__(self) -> None:
        """Moves this process, which must have one thread only, into a network of its own."""
        self.address = f"{_PREFIX}.1"
        self._networks: dict[str, int] = {}
        self._home = _new_network()
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")

    def add(self) -> str:
        """Adds the network of a node, and says which address it has there."""
        number = len(self._networks) + 2
        address, port = f"{_PREFIX}.{number}", f"port{number}"
        network = _new_network()
        _enter(self._home)
        _ip("link", "add", port, "type", "veth", "peer", "name", "cable")
        _ip("link", "set", "cable", "netns", f"/proc/{os.getpid()}/fd/{network}")
        _ip("link", "set", port, "master", "bridge", "up")
        self._networks[address] = network
        with self.inside(address):
            _ip("address", "add", f"{address}/24", "dev", "cable")
            _ip("link", "set", "cable", "up")
        return address

    @contextlib.contextmanager
    def inside(self, address: str) -> Iterator[None]:
        """Starts processes in the network of a node meanwhile."""
        _enter(self._networks[address])
        try:
            yield
        finally:
            _enter(self._home)

    def cut(self, address: str) -> None:
        """Drops all that goes to a node and comes from it."""
        _set_state(address, _DISABLED)

    def mend(self, address: str) -> None:
        """Lets packets through again."""
        _set_state(address, _FORWARDING)


def _set_state(address: str, state: str) -> None:
    port = f"port{address.rpartition('.')[2]}"
    subprocess.run(["bridge", "link", "set", "dev", port, "state", state], check=True)


def _new_network() -> int:
    """Moves this process into a new network, which it returns a descriptor of."""
    _call("unshare", _NEW_NETWORK)
    _ip("link", "set", "lo", "up")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(network: int) -> None:
    _call("setns", network, _NEW_NETWORK)


def _call(name: str, *args: int) -> None:
    """Calls a function of the C library for the calling thread."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True)
