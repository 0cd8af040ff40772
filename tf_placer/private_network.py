"""Private networks (Linux network namespaces), so that no other process can reach servers.

TensorFlow's servers listen on every interface without a password, and anyone who can reach one can
run graphs there, which read and write files. A network namespace gives a group of processes their
own network, with a loopback interface only. Users other than root need a user namespace, too, in
which user and group ids stay the same.

The module is run in two ways. As a script without arguments it creates a network and holds it until
its standard input ends; `PrivateNetwork` keeps it from then on. With USER NETWORK MODULE ... it
enters a network and runs a module there, or a command if MODULE is "-".
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import getpass
import os
import runpy
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence

__all__ = [
    "OPEN_VARIABLE",
    "NetworkError",
    "PrivateNetwork",
    "describe_open_servers",
    "enter_network",
    "find_open_reason",
    "is_private",
]

#: An environment variable; "1" makes servers reachable for everybody.
OPEN_VARIABLE = "TF_PLACER_OPEN_SERVERS"
# An environment variable with the inode of the private network that a process is in.
_INSIDE_VARIABLE = "TF_PLACER_PRIVATE_NETWORK"
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_NO_USER = -1
_REMEDY = "docs/safety.md tells how to keep others out"
_READY = b"ready\n"


class NetworkError(RuntimeError):
    """The error if no private network can be created; the message says why."""


class PrivateNetwork:
    """A private network, which exists until it is closed and all processes in it have ended.

    Attributes:
        descriptors: file descriptors of the user namespace (-1 for none) and of the network
            namespace, for a child to inherit.
    """

    def __init__(self) -> None:
        """Creates a network.

        Raises:
            NetworkError: the kernel does not permit it, or the user has disabled it.
        """
        if os.environ.get(OPEN_VARIABLE) == "1":
            raise NetworkError(f"{OPEN_VARIABLE}=1 asks for that")
        # Imported here, because this file as a script cannot import this package.
        from tf_placer.descriptors import open_standard_files
        from tf_placer.interpreter import find_interpreter

        open_standard_files()
        # In a separate process, because creating a user namespace needs a single-threaded one.
        command = [find_interpreter(), "-I", "-S", os.path.abspath(__file__)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as maker:
            assert maker.stdout is not None
            answer = maker.stdout.readline()
            if answer != _READY:
                reason = answer.decode().strip() or "the process that makes it has ended"
                raise NetworkError(f"the kernel denies a network of its own ({reason})")
            try:
                is_users = _inode(maker.pid, "user") != _inode(os.getpid(), "user")
                self.descriptors = (
                    _namespace(maker.pid, "user") if is_users else _NO_USER,
                    _namespace(maker.pid, "net"),
                )
            except OSError as error:
                raise NetworkError(f"a network of its own cannot be entered ({error})") from None

    def environ(self) -> dict[str, str]:
        """Returns the environment variables that processes in the network need in addition."""
        return {_INSIDE_VARIABLE: str(os.fstat(self.descriptors[1]).st_ino)}

    def command(self, module: str, *arguments: str) -> list[str]:
        """Returns a command line that runs a module in the network, or a command if it is "-".

        The process must inherit `descriptors`.
        """
        from tf_placer.interpreter import find_interpreter

        numbers = map(str, self.descriptors)
        if module == "-":
            # Run as a script, which needs no PYTHONPATH, so that the command's environment does not
            # change.
            script = os.path.abspath(__file__)
            return [find_interpreter(), "-I", "-S", script, *numbers, module, *arguments]
        # -P keeps the working directory off the path unless it is on this process's path.
        return [find_interpreter(), "-P", "-m", __name__, *numbers, module, *arguments]

    @property
    def inherited(self) -> tuple[int, ...]:
        """The file descriptors that a child process has to inherit."""
        return tuple(each for each in self.descriptors if each != _NO_USER)

    def close(self) -> None:
        """Releases the network; processes in it keep it alive."""
        for each in self.inherited:
            os.close(each)
        self.descriptors = (_NO_USER, _NO_USER)


def enter_network(descriptors: Sequence[int]) -> None:
    """Moves this process, which must be single-threaded, into a network.

    Args:
        descriptors: the descriptors of the `PrivateNetwork`; they are closed.

    Raises:
        OSError: the kernel does not permit it.
    """
    user, network = descriptors
    if user != _NO_USER:
        _call("setns", user, _NEW_USER)
        os.close(user)
    _call("setns", network, _NEW_NETWORK)
    os.close(network)


def is_private() -> bool:
    """Says whether this process is in a private network."""
    inside = os.environ.get(_INSIDE_VARIABLE)
    return inside is not None and inside == str(_inode(os.getpid(), "net"))


def find_open_reason() -> str | None:
    """Returns the reason why this process cannot have a private network; None if it can."""
    if is_private():
        return None
    try:
        PrivateNetwork().close()
    except NetworkError as error:
        return str(error)
    return None


def describe_open_servers(what: str, why: str | None, remedy: str = _REMEDY) -> str:
    """Warns who can reach servers outside of a private network.

    Args:
        what: the servers, "the servers of local:2".
        why: the reason why they are not in a private network; None for a short warning.
        remedy: the way to keep others out, as a sentence.
    """
    interfaces = [name for _, name in socket.if_nameindex() if name != "lo" and _is_up(name)]
    reach = "Every user of this computer"
    if interfaces:
        reach += f", and everybody who reaches it over {', '.join(interfaces)},"
    user = _user_name()
    if why is None:
        return (
            f"{what} listen without a password: {reach[0].lower()}{reach[1:]} can run graphs there "
            f"as {user}. {remedy}"
        )
    return (
        f"{what} listen without a password, because {why}. {reach} can run graphs there as {user}, "
        f"and so read and write {user}'s files. {remedy}"
    )


def _is_up(interface: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            return bool(_interface_flags(control, interface) & _IS_UP)
        except OSError:  # The interface was removed meanwhile.
            return False


def _interface_flags(control: socket.socket, interface: str) -> int:
    request = struct.pack("16sh14x", interface.encode(), 0)
    (flags,) = struct.unpack("16xh14x", fcntl.ioctl(control, _GET_FLAGS, request))
    return int(flags)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _inode(pid: int, kind: str) -> int:
    return os.stat(f"/proc/{pid}/ns/{kind}").st_ino


def _namespace(pid: int, kind: str) -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _create_network() -> None:
    """Moves this process into a new network, and brings its loopback interface up.

    Raises:
        OSError: the kernel does not permit it.
    """
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEW_NETWORK)
    except PermissionError:
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = _interface_flags(control, "lo")
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _IS_UP))


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        # The kernel reports the limit of namespaces by these errors, not a full disk.
        is_limit = number in (errno.ENOSPC, errno.EUSERS)
        raise OSError(number, "it allows no more of them" if is_limit else os.strerror(number))


def _main() -> None:
    if len(sys.argv) == 1:
        try:
            _create_network()
        except OSError as error:
            print(error.strerror, flush=True)
            return
        sys.stdout.buffer.write(_READY)
        sys.stdout.flush()
        sys.stdin.read()
        return
    _, user, network, module, *arguments = sys.argv
    enter_network((int(user), int(network)))
    if module == "-":
        try:
            os.execvp(arguments[0], arguments)
        except OSError as error:
            sys.exit(f"tf_placer: cannot run {arguments[0]!r}: {error.strerror}")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
