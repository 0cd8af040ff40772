"""Connects this process to the devices of a machine, so that its functions can run on them."""

from __future__ import annotations

import os

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function

from tf_placer.functions.data_sets import check_before_connection
from tf_placer.functions.moved_variables import recreate_variables
from tf_placer.functions.recreated_tables import recreate_tables
from tf_placer.machines.command_on_cluster import MACHINE_VARIABLE
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["connect", "full_name", "is_connected", "list_device_names"]

# A process can be connected to one cluster at a time. The servers that were started for it run
# until the process exits, because TensorFlow still sends them messages about unused functions then.
_connected: dict[str, LocalCluster | None] = {}

# TensorFlow's default, true, sends operations to servers asynchronously and functions over another
# channel, so a function can overtake an assignment to a variable that it reads.
_STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"


def connect(machine: Machine) -> None:
    """Connects this process to a machine, so that functions can run on the machine's devices.

    The servers of a machine "local:N" are started unless they run already, and stop when the
    process exits. Existing variables, tables, iterators and functions of this process stay valid;
    existing queues and summary writers are lost. `result.function` and `result.apply` of `optimize`
    connect, too.

    Args:
        machine: a machine attached to this process, "local:N", or a cluster: one that the process
            is already connected to, or one with the addresses of all its tasks.

    Raises:
        MachineError: the process is connected to another cluster, it cannot connect to this one, or
            a data set assigns to a variable, and the assignments would be lost.
        LocalClusterError: the servers do not start.
    """
    if machine.backend.starts_servers or machine.backend.is_remote:
        os.environ.setdefault(_STREAMING, "False")
    if is_connected(machine):
        return
    job = _check_tasks(machine)
    if any(not name.startswith("/job:localhost/") for name in list_device_names()):
        raise MachineError(
            f"this process is connected to another cluster: functions for {machine.spec!r} need a "
            "process of their own"
        )
    check_before_connection()
    cluster = LocalCluster(machine) if machine.backend.starts_servers else None
    addresses = [*machine.addresses]
    if cluster is not None:
        addresses = [target.removeprefix("grpc://") for target in cluster.targets]
    _keep_functions()
    try:
        if cluster is not None:
            cluster.wait_until_ready()
        with recreate_tables():
            tf.config.experimental_connect_to_cluster(
                tf.train.ClusterSpec({job: addresses}), protocol="grpc"
            )
    except BaseException:
        if cluster is not None:
            cluster.close()
        raise
    recreate_variables()
    _connected[machine.spec] = cluster
    if cluster is not None:
        cluster.keep_until_exit()


def is_connected(machine: Machine) -> bool:
    """Says whether functions of this process can run on the devices of a machine."""
    known = list_device_names()
    return machine.spec in _connected or all(full_name(d.name) in known for d in machine.devices)


def list_device_names() -> list[str]:
    """Lists the full names of the devices on which functions of this process can run."""
    return [full_name(device.name) for device in tf.config.list_logical_devices()]


def _check_tasks(machine: Machine) -> str:
    """Checks that the addresses of all tasks are known; returns the name of their job."""
    tasks = sorted({device.name.rpartition("/device:")[0] for device in machine.devices})
    job = tasks[0].removeprefix("/job:").partition("/")[0]
    if machine.backend.in_one_process and machine.backend.is_described:
        raise MachineError(
            f"this process has no {machine.devices[-1].name}: run the program by "
            f"'python -m tf_placer emulate {machine.spec} -- python PROGRAM'"
        )
    if machine.backend.in_one_process:
        raise MachineError(f"this process has no device {machine.devices[0].name}")
    if any(not task.startswith(f"/job:{job}/") for task in tasks):
        raise MachineError(
            f"{machine.spec!r} has several jobs: call tf.config.experimental_connect_to_cluster "
            "with the addresses of all their tasks first"
        )
    is_whole = machine.backend.starts_servers or len(machine.addresses) == len(tasks)
    if not is_whole or not machine.devices[0].name.startswith(f"/job:{job}/replica:0/task:0/"):
        raise MachineError(
            f"functions need the addresses of all {len(tasks)} tasks of {machine.spec!r}, in the "
            "order of the tasks: 'grpc://HOST:PORT,HOST:PORT,...'; under `serve`, "
            f"{MACHINE_VARIABLE} has them"
        )
    return job


def _keep_functions() -> None:
    """Keeps alive, until the process exits, all functions that were traced so far.

    TensorFlow does not send these functions to servers that start later, but does ask the servers
    to remove a function that is deleted. They answer with an error, which TensorFlow raises from
    the next operation that waits for them, such as restoring a checkpoint.
    """
    for name in atomic_function.RUNTIME_FUNCTION_REFS:
        atomic_function.RUNTIME_FUNCTION_REFS[name] += 1


def full_name(device: str) -> str:
    """Returns the name of a device with its job, by default the job of this process."""
    if device.startswith("/job:"):
        return device
    return f"/job:localhost/replica:0/task:0{device}"
