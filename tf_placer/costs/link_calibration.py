"""Measures the links of a machine with real transfers."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import tensorflow as tf

from tf_placer.costs.tensor_streams import make_factor, make_values, send, tensor_stream
from tf_placer.environments.environment import Failure
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.errors import SearchError
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Link, Machine
from tf_placer.problem.transfer_overhead import overhead_part
from tf_placer.scratch import scratch_directory

__all__ = ["calibrate_links", "fit_link"]

tf1 = tf.compat.v1

_KIB, _MIB = 2**10, 2**20
# The smallest stands for a tensor of no bytes.
_SIZES = (4, 64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
_TRIPS = 6
# Tensors of a stream are made at once, or each after four more products.
_NUM_TENSORS, _PRODUCTS_EACH = 24, 4
_NUM_PRODUCTS = _NUM_TENSORS * _PRODUCTS_EACH
_AT_ONCE = (1,) * _NUM_TENSORS
_APART = range(_PRODUCTS_EACH, _NUM_PRODUCTS + 1, _PRODUCTS_EACH)
_Manner = Literal["kept", "at once", "apart"]
_MANNERS: Mapping[int, tuple[_Manner, ...]] = {
    _SIZES[0]: ("kept", "at once", "apart"),
    _MIB: ("kept", "at once"),
}
# Source, destination, bytes, and whether tensors are sent, and how.
_Stream = tuple[str, str, int, _Manner]
_PROTOCOL = MeasuringProtocol(steps=15, dropped=3)
_TIMEOUT_SECS = 120.0


def calibrate_links(
    machine: Machine,
    session_config: tf.compat.v1.ConfigProto | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    processes: LiveProcesses | None = None,
) -> Machine:
    """Measures latency and bandwidth between every ordered pair of devices.

    A tensor goes to the other device, a signal comes back, and so on several times in a row; the
    same with both ends on one device tells what the operations take. Half of what a round trip
    with a tensor of four bytes takes is the latency, in both directions.

    The processes of a "local" machine send and receive with the cores that they compute on. Tensors
    that are sent while both ends multiply matrices tell what processor time each costs at either
    end, without that of waiting. What it grows by with the size of those that are sent at once is
    the `transfer_share` of the devices. What small ones cost that are sent at once and one by one
    gives their `transfer_overhead_secs`.

    Args:
        machine: an attached or local machine or a cluster.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.
        processes: of the machine, which run already; new ones when None.

    Returns:
        The machine with measured links.

    Raises:
        SearchError: the transfers could not be timed.
        WorkerStartError: the processes do not start.
    """
    names = [device.name for device in machine.devices]
    if len(names) < 2:
        return machine
    is_local = machine.kind == "local"
    graph, initializer, trips, streams = _graph(names, with_streams=is_local)
    with scratch_directory(work_dir) as directory:
        path = pathlib.Path(directory, "graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        step = Step(tuple(trips.values())[:1], {}, (initializer,))
        with SessionEnvironment(
            path,
            step,
            machine,
            lambda _: {},
            protocol=_PROTOCOL,
            timeout_secs=_TIMEOUT_SECS,
            session_config=session_config,
            work_dir=directory,
            processes=processes,
        ) as environment:
            times = environment.time_each([*trips.values(), *streams.values()])
    if isinstance(times, Failure):
        raise SearchError(f"the links of {machine.spec} cannot be measured: {times.message}")
    secs = {
        key: _undisturbed(run.secs) / _TRIPS
        for key, run in zip(trips, times[: len(trips)], strict=True)
    }
    links = tuple(_link(*pair, secs) for pair in itertools.permutations(names, 2))
    devices = machine.devices
    if is_local:
        runs = dict(zip(streams, times[len(trips) :], strict=True))
        share, overhead_secs = _losses(machine, links, runs)
        devices = tuple(
            dataclasses.replace(device, transfer_share=share, transfer_overhead_secs=overhead_secs)
            for device in devices
        )
    return dataclasses.replace(machine, devices=devices, links=links)


def _undisturbed(secs: Sequence[float]) -> float:
    """Computes what something takes; what disturbs it only adds to that."""
    return float(np.quantile(secs, 0.25))


def _losses(
    machine: Machine, links: Sequence[Link], streams: Mapping[_Stream, OperationTimes]
) -> tuple[float, float]:
    """Computes what operations of a local machine's devices lose to a transfer from or to them.

    Args:
        machine: whose devices are processes that are all alike.
        links: as they were measured.
        streams: how long each took and what each process used.

    Returns:
        The `transfer_share` and the `transfer_overhead_secs` of each device.
    """
    tasks = {device.name: f"task {task}" for task, device in enumerate(machine.devices)}
    pairs = list(dict.fromkeys(stream[:2] for stream in streams))
    small, large = _SIZES[0], _MIB

    def lost_secs(pair: tuple[str, str], end: str, size: int, manner: _Manner) -> float:
        """Computes what an end of a stream lost to each tensor."""
        sent_secs, kept_secs = (
            _undisturbed(streams[*pair, size, how].cpu_secs[tasks[end]]) for how in (manner, "kept")
        )
        return (sent_secs - kept_secs) / _NUM_TENSORS

    # To receive costs as much, and more or less on top of that: it hangs on chance how much memory
    # an allocator has just returned to the system.
    grown_secs = statistics.fmean(
        lost_secs(pair, pair[0], large, "at once") - lost_secs(pair, pair[0], small, "at once")
        for pair in pairs
    )
    link_secs = statistics.fmean(large / link.bandwidth_bytes_per_sec for link in links)
    share = min(max(grown_secs / link_secs, 0.0), 1.0)
    at_once_secs, apart_secs = (
        statistics.fmean(lost_secs(pair, end, small, manner) for pair in pairs for end in pair)
        for manner in ("at once", "apart")
    )
    # The next tensor is made when the last one is there already.
    latency_secs = statistics.fmean(link.latency_secs for link in links)
    computed_secs = statistics.fmean(
        _undisturbed(streams[*pair, small, "kept"].secs) for pair in pairs
    )
    gap_secs = computed_secs / _NUM_TENSORS + apart_secs - latency_secs
    parts = overhead_part(0.0) + overhead_part(gap_secs)
    return share, max(at_once_secs + apart_secs, 0.0) / parts


def _link(source: str, destination: str, secs: Mapping[tuple[str, str, int], float]) -> Link:
    """Computes the link between two devices from the times of all round trips."""

    def trip(there: str, back: str, size: int) -> float:
        return max(secs[there, back, size] - secs[there, there, size], 0.0)

    latency_secs = (trip(source, destination, _SIZES[0]) + trip(destination, source, _SIZES[0])) / 4
    one_way = {size: trip(source, destination, size) - latency_secs for size in _SIZES[1:]}
    return Link(source, destination, *fit_link(latency_secs, one_way))


def fit_link(latency_secs: float, secs: Mapping[int, float]) -> tuple[float, float]:
    """Computes the latency and bandwidth of a link.

    Args:
        latency_secs: what a tensor of next to no bytes takes.
        secs: what larger tensors take, by their bytes.

    Returns:
        Latency in seconds and the median bandwidth in bytes per second.
    """
    latency_secs = max(latency_secs, 1e-7)
    bandwidths = [size / max(taken - latency_secs, 1e-12) for size, taken in secs.items()]
    # Where a tensor takes no longer than an empty one, its size says nothing.
    slower = [
        b for b, taken in zip(bandwidths, secs.values(), strict=True) if taken > 2 * latency_secs
    ]
    return latency_secs, statistics.median(slower or bandwidths)


def _graph(
    names: Sequence[str], *, with_streams: bool
) -> tuple[tf.Graph, str, dict[tuple[str, str, int], str], dict[_Stream, str]]:
    """Builds what is timed between pairs of devices.

    Returns:
        The graph, and the name of its initialiser; by (source, destination, bytes), a device and
        itself included, the name of the operation that makes `_TRIPS` round trips; and the names of
        those that make tensors at the source while both devices multiply matrices, from each device
        to the next, if they are wanted.
    """
    # All processes are alike, so not every pair has to show what it loses.
    stream_ends = dict(zip(names, [*names[1:], names[0]], strict=True)) if with_streams else {}
    trips: dict[tuple[str, str, int], str] = {}
    streams: dict[_Stream, str] = {}
    with tf.Graph().as_default() as graph:
        factors = {name: make_factor(f"factor_{number}", name) for number, name in enumerate(names)}
        for source, size in itertools.product(names, _SIZES):
            values = make_values(f"values_{names.index(source)}_{size}", source, size)
            for destination in names:
                arrived = tf.no_op()
                for _ in range(_TRIPS):
                    with tf.control_dependencies([arrived]):
                        arrived = send(values, source, destination)
                trips[source, destination, size] = arrived.name
                if destination != stream_ends.get(source):
                    continue
                for manner in _MANNERS.get(size, ()):
                    are_apart = manner == "apart" or (manner, size) == ("kept", _SIZES[0])
                    streams[source, destination, size, manner] = tensor_stream(
                        *(values, factors, source, destination),
                        is_sent=manner != "kept",
                        num_products=_NUM_PRODUCTS,
                        made_after=_APART if are_apart else _AT_ONCE,
                    ).name
        initializer = tf1.global_variables_initializer()
    return graph, initializer.name, trips, streams
