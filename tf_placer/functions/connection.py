"""The devices of a machine, for functions of this process."""

from __future__ import annotations

import ctypes

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function

from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["connect", "full_name"]

_JOB = "worker"
# A process can be connected to one cluster at a time. Its servers die with the process, and not
# before: as it ends, TensorFlow still tells them which functions are not needed any more.
_clusters: dict[str, LocalCluster] = {}


def connect(machine: Machine) -> None:
    """Makes the devices of a machine those that functions of this process can run on.

    The servers of a machine "local:N" are started, if that was not done before, and stay until the
    process ends. Variables and functions of this process stay what they are.

    Args:
        machine: attached to this process, "local:N", or a cluster that the process is connected to.

    Raises:
        MachineError: the process is connected to another cluster, or not to this one.
        LocalClusterError: the servers do not start.
    """
    known = {full_name(device.name) for device in tf.config.list_logical_devices()}
    wanted = [full_name(device.name) for device in machine.devices]
    if machine.spec in _clusters or all(name in known for name in wanted):
        return
    if machine.kind != "local":
        raise MachineError(
            f"this process has no device {wanted[0]}: call tf.config.experimental_connect_to_"
            f"cluster(tf.train.ClusterSpec({{{_JOB!r}: ['HOST:PORT', ...]}})) with the addresses "
            "of all tasks first"
        )
    if any(f"/job:{_JOB}/" in name for name in known):
        raise MachineError(
            f"this process is connected to another cluster: functions for {machine.spec!r} need a "
            "process of their own"
        )
    cluster = LocalCluster(machine)
    addresses = [target.removeprefix("grpc://") for target in cluster.targets]
    _keep_functions()
    try:
        cluster.wait_until_ready()
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec({_JOB: addresses}), protocol="grpc"
        )
    except BaseException:
        cluster.close()
        raise
    _clusters[machine.spec] = cluster
    # Python would drop it before TensorFlow is done.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(cluster))


def _keep_functions() -> None:
    """Keeps the functions that were traced so far until the process ends.

    Servers are not sent the functions that were there before them, but are told when one is not
    needed any more; they answer with an error, which TensorFlow raises out of whatever waits for
    the servers next, such as the restoring of a checkpoint.
    """
    for name in atomic_function.RUNTIME_FUNCTION_REFS:
        atomic_function.RUNTIME_FUNCTION_REFS[name] += 1


def full_name(device: str) -> str:
    """Returns the name of a device with its job, that of this process where it has none."""
    if device.startswith("/job:"):
        return device
    return f"/job:localhost/replica:0/task:0{device}"
