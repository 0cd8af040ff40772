"""A network that only processes of one's own are in, so that nobody else reaches their servers.

TensorFlow's servers listen on every interface and ask for no password, and whoever reaches one runs
graphs there, which read and write files. Linux lets a group of processes have a network of their
own, with nothing but a loopback interface. Root needs no more than that; everybody else needs a
user namespace, too, in which users and groups stay what they are.

The module is run in two ways. As a script without arguments it makes a network and holds it until
its standard input ends; `PrivateNetwork` keeps it from then on. With USER NETWORK MODULE ... it
enters a network and runs a module there, or with "-" in place of the module a command.
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
    "enter_network",
    "is_private",
    "open_servers_note",
    "why_open",
]

#: An environment variable that, where it is "1", has servers listen for everybody.
OPEN_VARIABLE = "TF_PLACER_OPEN_SERVERS"
# In the processes of a private network: which one that is.
_INSIDE_VARIABLE = "TF_PLACER_PRIVATE_NETWORK"
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_NO_USER = -1
_READY = b"ready\n"


class NetworkError(RuntimeError):
    """There is no private network to be had; the message says why."""


class PrivateNetwork:
    """A network of one's own, which is there until it is closed and all processes in it are gone.

    Attributes:
        descriptors: of the namespaces of users (-1 for none) and of the network, for a child to
            inherit.
    """

    def __init__(self) -> None:
        """Makes a network.

        Raises:
            NetworkError: the kernel does not let this user have one, or it is not wanted.
        """
        if os.environ.get(OPEN_VARIABLE) == "1":
            raise NetworkError(f"{OPEN_VARIABLE}=1 asks for that")
        # Not above: the script that makes a network finds no modules of this package.
        from tf_placer.descriptors import open_standard_files
        from tf_placer.interpreter import interpreter

        open_standard_files()
        # A process of its own: to make one needs a process with a single thread.
        command = [interpreter(), "-I", "-S", os.path.abspath(__file__)]
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
        """Makes the environment variables that processes in it have beside others."""
        return {_INSIDE_VARIABLE: str(os.fstat(self.descriptors[1]).st_ino)}

    def command(self, module: str, *arguments: str) -> list[str]:
        """Makes the command that runs a module in it, or with "-" another command.

        The process must inherit `descriptors`.
        """
        from tf_placer.interpreter import interpreter

        numbers = map(str, self.descriptors)
        if module == "-":
            # As a script, which runs in any environment: that of the command stays what it is.
            script = os.path.abspath(__file__)
            return [interpreter(), "-I", "-S", script, *numbers, module, *arguments]
        # -P: the working directory counts only if it is on this process's path.
        return [interpreter(), "-P", "-m", __name__, *numbers, module, *arguments]

    @property
    def inherited(self) -> tuple[int, ...]:
        """The file descriptors that are to be passed on."""
        return tuple(each for each in self.descriptors if each != _NO_USER)

    def close(self) -> None:
        """Lets go of it; processes that are in it stay there."""
        for each in self.inherited:
            os.close(each)
        self.descriptors = (_NO_USER, _NO_USER)


def enter_network(descriptors: Sequence[int]) -> None:
    """Moves this process into a network; it must have one thread only.

    Args:
        descriptors: those of the `PrivateNetwork`; they are closed.

    Raises:
        OSError: the kernel denies it.
    """
    user, network = descriptors
    if user != _NO_USER:
        _call("setns", user, _NEW_USER)
        os.close(user)
    _call("setns", network, _NEW_NETWORK)
    os.close(network)


def is_private() -> bool:
    """Says whether this process is in a private network already."""
    inside = os.environ.get(_INSIDE_VARIABLE)
    return inside is not None and inside == str(_inode(os.getpid(), "net"))


def why_open() -> str | None:
    """Says why servers of this process cannot be in a private network; None if they can."""
    if is_private():
        return None
    try:
        PrivateNetwork().close()
    except NetworkError as error:
        return str(error)
    return None


def open_servers_note(what: str, why: str) -> str:
    """Says what is open to whom where servers are not in a private network.

    Args:
        what: the servers, "the servers of local:2".
        why: why they are not.
    """
    interfaces = [name for _, name in socket.if_nameindex() if name != "lo" and _is_up(name)]
    reach = "every user of this computer"
    if interfaces:
        reach += f", and whoever reaches it over {', '.join(interfaces)},"
    user = _user_name()
    return (
        f"{what} listen without a password, because {why}: {reach} can run graphs there as {user}, "
        f"and so read and write {user}'s files"
    )


def _is_up(interface: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            return bool(_interface_flags(control, interface) & _IS_UP)
        except OSError:  # It has gone.
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


def _make() -> None:
    """Moves this process into a new network, and brings its loopback interface up.

    Raises:
        OSError: the kernel denies it.
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
        # The kernel says so of namespaces, and means no disk.
        is_limit = number in (errno.ENOSPC, errno.EUSERS)
        raise OSError(number, "it allows no more of them" if is_limit else os.strerror(number))


def _main() -> None:
    if len(sys.argv) == 1:
        try:
            _make()
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
