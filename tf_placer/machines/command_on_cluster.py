"""Runs a command that uses the servers of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from tf_placer.descriptors import open_standard_files, wait_until_readable
from tf_placer.interpreter import find_interpreter
from tf_placer.machines import served_command
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.private_network import PrivateNetwork
from tf_placer.text.notes import say

__all__ = ["MACHINE_VARIABLE", "TARGET_VARIABLE", "run_on_cluster"]

#: The environment variable in which sessions of the command find the address of the servers.
TARGET_VARIABLE = "TF_PLACER_TARGET"
#: The environment variable with the servers as a machine for functions, which need all addresses.
MACHINE_VARIABLE = "TF_PLACER_MACHINE"
_CHECK_INTERVAL_SECS = 1.0


def run_on_cluster(
    command: Sequence[str], cluster: LocalCluster, network: PrivateNetwork | None
) -> int:
    """Runs a command with the servers of a cluster, and waits for its end.

    Args:
        command: the command and its arguments. It finds the address of the first server, for
            sessions, in the environment variable `TARGET_VARIABLE`, and the machine of all servers,
            for functions, in `MACHINE_VARIABLE`.
        cluster: the running servers.
        network: the network of the servers; None for the network of this process.

    Returns:
        The exit code of the command, as a shell reports it.

    Raises:
        OSError: the command cannot be run.
    """
    environ = {
        **os.environ,
        TARGET_VARIABLE: cluster.target,
        MACHINE_VARIABLE: cluster.spec,
        "no_grpc_proxy": "localhost",
    }
    open_standard_files()
    line, line_of_this_process = os.pipe()
    inherited: tuple[int, ...] = (line,)
    script = os.path.abspath(served_command.__file__)
    full_command = [find_interpreter(), "-I", "-S", script, str(line), *command]
    if network is not None:
        full_command = network.command("-", *full_command)
        environ.update(network.environ())
        inherited = (line, *network.inherited)
    # Signals that are ignored stay ignored, as under `nohup`.
    before = {
        number: handler
        for number in (signal.SIGINT, *served_command.ENDING_SIGNALS)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    if signal.SIGINT in before:
        # Ctrl-C reaches the command as well, which decides whether to end.
        signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with subprocess.Popen(full_command, env=environ, pass_fds=inherited) as process:
            for number in before.keys() - {signal.SIGINT}:
                signal.signal(number, lambda number, frame: process.send_signal(number))
            _wait_for_end(process, cluster)
    except OSError as error:
        raise OSError(f"cannot run {command[0]!r}: {error.strerror}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(line)
        os.close(line_of_this_process)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _wait_for_end(process: subprocess.Popen[bytes], cluster: LocalCluster) -> None:
    """Waits until a command has ended, and reports if a server dies meanwhile."""
    all_live = True
    ended = os.pidfd_open(process.pid)
    try:
        while not wait_until_readable(ended, _CHECK_INTERVAL_SECS):
            try:
                if all_live:
                    cluster.wait(0)
            except LocalClusterError as error:
                # Only report it: the command sees that its sessions fail, and handles that itself.
                say(str(error))
                all_live = False
    finally:
        os.close(ended)
