"""Measures the links of a machine with real transfers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import tensorflow as tf

from tf_placer.costs.tensor_streams import build_tensor_stream, make_factor, make_values, send
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.errors import SearchError
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Link, Machine
from tf_placer.problem.transfer_overhead import overhead_part
from tf_placer.temporary_directory import temporary_directory

__all__ = ["calibrate_links", "fit_link", "set_default_links"]

tf1 = tf.compat.v1

_KIB, _MIB = 2**10, 2**20
# The smallest stands for a tensor of no bytes. Where memory is scarce, all that are larger than one
# of the limits are left out.
_SIZES = (4, 64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
_SIZE_LIMITS = (16 * _MIB, _MIB, 64 * _KIB)
# Between many devices there are so many ways that large tensors would take long.
_MANY_DEVICES, _LARGEST_OF_MANY = 4, _MIB
_TRIPS = 6
# Tensors of a stream are made at once, or each after four more products.
_NUM_TENSORS, _PRODUCTS_EACH = 24, 4
_NUM_PRODUCTS = _NUM_TENSORS * _PRODUCTS_EACH
_AT_ONCE = (1,) * _NUM_TENSORS
_APART = range(_PRODUCTS_EACH, _NUM_PRODUCTS + 1, _PRODUCTS_EACH)
_Manner = Literal["kept", "at once", "apart"]
_SMALL_MANNERS: tuple[_Manner, ...] = ("kept", "at once", "apart")
_LARGE_MANNERS: tuple[_Manner, ...] = ("kept", "at once")
_LARGEST_IN_STREAM = _MIB
# Source, destination, bytes, and whether tensors are sent, and how.
_Stream = tuple[str, str, int, _Manner]
_PROTOCOL = MeasuringProtocol(steps=15, dropped=3)
_TIMEOUT_SECS = 120.0
# After these seconds of timing, few rounds are enough; what comes before takes about as long.
_ENOUGH_SECS = 8.0
# A device holds the values of all sizes and, while the largest are on their way, some copies; and
# others may need memory meanwhile.
_COPIES, _SHARE_OF_FREE = 4, 0.5
# Only devices that send on the cores that they compute on lose time to transfers.
_USUAL_SHARE, _USUAL_OVERHEAD_SECS = 0.3, 2e-4


def calibrate_links(
    machine: Machine,
    session_config: tf.compat.v1.ConfigProto | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    processes: LiveProcesses | None = None,
    *,
    held_bytes: int = 0,
    timeout_secs: float = _TIMEOUT_SECS,
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

    Tensors are as large as fits beside what the devices hold; smaller ones are tried where memory
    was too small all the same.

    Args:
        machine: an attached or local machine or a cluster.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.
        processes: of the machine, which run already; new ones when None.
        held_bytes: what other sessions may hold on each device meanwhile.
        timeout_secs: seconds that it may take, not counting the start of processes.

    Returns:
        The machine with measured links.

    Raises:
        SearchError: the transfers could not be timed.
        WorkerStartError: the processes do not start.
    """
    names = [device.name for device in machine.devices]
    if len(names) < 2:
        return machine
    end_secs = time.monotonic() + timeout_secs
    for sizes in _possible_sizes(machine, held_bytes):
        left_secs = max(end_secs - time.monotonic(), 1.0)
        timed = _time_transfers(machine, sizes, session_config, work_dir, processes, left_secs)
        if not isinstance(timed, Failure) or timed.kind is not FailureKind.OUT_OF_MEMORY:
            break
    if isinstance(timed, Failure):
        raise SearchError(f"the links of {machine.spec} cannot be measured: {timed.message}")
    secs, runs = timed
    links = tuple(_link(*pair, sizes, secs) for pair in itertools.permutations(names, 2))
    devices = machine.devices
    if runs:
        share, overhead_secs = _losses(machine, links, runs)
        devices = tuple(
            dataclasses.replace(device, transfer_share=share, transfer_overhead_secs=overhead_secs)
            for device in devices
        )
    return dataclasses.replace(machine, devices=devices, links=links)


def set_default_links(machine: Machine) -> Machine:
    """Gives a machine whose links cannot be measured usual ones of its kind."""
    assert machine.backend.default_link is not None
    latency_secs, bandwidth = machine.backend.default_link
    pairs = itertools.permutations([device.name for device in machine.devices], 2)
    devices = machine.devices
    if machine.backend.sends_on_cores:
        devices = tuple(
            dataclasses.replace(
                device,
                transfer_share=_USUAL_SHARE,
                transfer_overhead_secs=_USUAL_OVERHEAD_SECS,
            )
            for device in devices
        )
    links = tuple(Link(*pair, latency_secs, bandwidth) for pair in pairs)
    return dataclasses.replace(machine, devices=devices, links=links)


def _possible_sizes(machine: Machine, held_bytes: int) -> Iterator[tuple[int, ...]]:
    """Yields the sizes of tensors that may fit on all devices, the most first, ever fewer.

    Args:
        machine: the devices.
        held_bytes: what others may hold on each of them.
    """
    limits = [device.memory_bytes for device in machine.devices if device.memory_bytes is not None]
    free_bytes = min(limits, default=math.inf) - held_bytes
    most = _LARGEST_OF_MANY if len(machine.devices) > _MANY_DEVICES else _SIZES[-1]
    for limit in _SIZE_LIMITS:
        sizes = tuple(size for size in _SIZES if size <= limit)
        needed = sum(sizes) + _COPIES * limit
        if machine.backend.sends_on_cores:
            needed += 2 * _NUM_TENSORS * min(limit, _LARGEST_IN_STREAM)
        is_last = limit == _SIZE_LIMITS[-1]
        if is_last or (limit <= most and needed <= _SHARE_OF_FREE * free_bytes):
            yield sizes


def _time_transfers(
    machine: Machine,
    sizes: tuple[int, ...],
    session_config: tf.compat.v1.ConfigProto | None,
    work_dir: str | os.PathLike[str] | None,
    processes: LiveProcesses | None,
    timeout_secs: float,
) -> tuple[dict[tuple[str, str, int], float], dict[_Stream, OperationTimes]] | Failure:
    """Times tensors of some sizes between the devices of a machine.

    Returns:
        By (source, destination, bytes) the seconds of one round trip, and by stream what it took,
        of a local machine; or why there is nothing.
    """
    names = [device.name for device in machine.devices]
    with_streams = machine.backend.sends_on_cores
    graph, initializer, trips, streams = _graph(names, sizes, with_streams=with_streams)
    with temporary_directory(work_dir) as directory:
        path = pathlib.Path(directory, "graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        step = Step(tuple(trips.values())[:1], {}, (initializer,))
        with SessionEnvironment(
            path,
            step,
            machine,
            lambda _: {},
            protocol=_PROTOCOL,
            timeout_secs=timeout_secs,
            session_config=session_config,
            work_dir=directory,
            processes=processes,
        ) as environment:
            times = environment.time_each(
                [*trips.values(), *streams.values()],
                enough_secs=min(_ENOUGH_SECS, timeout_secs / 2),
            )
    if isinstance(times, Failure):
        return times
    secs = {
        key: _estimate_undisturbed_secs(run.secs) / _TRIPS
        for key, run in zip(trips, times[: len(trips)], strict=True)
    }
    return secs, dict(zip(streams, times[len(trips) :], strict=True))


def _estimate_undisturbed_secs(secs: Sequence[float]) -> float:
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
    sizes = {size for _, _, size, _ in streams}
    small, large = min(sizes), max(sizes)

    def compute_lost_secs(pair: tuple[str, str], end: str, size: int, manner: _Manner) -> float:
        """Computes what an end of a stream lost to each tensor."""
        sent_secs, kept_secs = (
            _estimate_undisturbed_secs(streams[*pair, size, how].cpu_secs[tasks[end]])
            for how in (manner, "kept")
        )
        return (sent_secs - kept_secs) / _NUM_TENSORS

    # To receive costs as much, and more or less on top of that: it hangs on chance how much memory
    # an allocator has just returned to the system.
    grown_secs = statistics.fmean(
        compute_lost_secs(pair, pair[0], large, "at once")
        - compute_lost_secs(pair, pair[0], small, "at once")
        for pair in pairs
    )
    link_secs = statistics.fmean(large / link.bandwidth_bytes_per_sec for link in links)
    share = min(max(grown_secs / link_secs, 0.0), 1.0)
    at_once_secs, apart_secs = (
        statistics.fmean(
            compute_lost_secs(pair, end, small, manner) for pair in pairs for end in pair
        )
        for manner in ("at once", "apart")
    )
    # The next tensor is made when the last one is there already.
    latency_secs = statistics.fmean(link.latency_secs for link in links)
    computed_secs = statistics.fmean(
        _estimate_undisturbed_secs(streams[*pair, small, "kept"].secs) for pair in pairs
    )
    gap_secs = computed_secs / _NUM_TENSORS + apart_secs - latency_secs
    parts = overhead_part(0.0) + overhead_part(gap_secs)
    return share, max(at_once_secs + apart_secs, 0.0) / parts


def _link(
    source: str,
    destination: str,
    sizes: Sequence[int],
    secs: Mapping[tuple[str, str, int], float],
) -> Link:
    """Computes the link between two devices from the times of all round trips."""

    def trip(there: str, back: str, size: int) -> float:
        return max(secs[there, back, size] - secs[there, there, size], 0.0)

    latency_secs = (trip(source, destination, sizes[0]) + trip(destination, source, sizes[0])) / 4
    one_way = {size: trip(source, destination, size) - latency_secs for size in sizes[1:]}
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
    # A tensor that takes no longer than an empty one tells nothing about the bandwidth.
    slower = [
        b for b, taken in zip(bandwidths, secs.values(), strict=True) if taken > 2 * latency_secs
    ]
    return latency_secs, statistics.median(slower or bandwidths)


def _graph(
    names: Sequence[str], sizes: tuple[int, ...] = _SIZES, *, with_streams: bool
) -> tuple[tf.Graph, str, dict[tuple[str, str, int], str], dict[_Stream, str]]:
    """Builds what is timed between pairs of devices.

    Returns:
        The graph, and the name of its initializer; by (source, destination, bytes), a device and
        itself included, the name of the operation that makes `_TRIPS` round trips; and the names of
        those that make tensors at the source while both devices multiply matrices, from each device
        to the next, if they are wanted.
    """
    # All processes are alike, so not every pair has to show what it loses.
    stream_ends = dict(zip(names, [*names[1:], names[0]], strict=True)) if with_streams else {}
    manners = {
        max(size for size in sizes if size <= _LARGEST_IN_STREAM): _LARGE_MANNERS,
        sizes[0]: _SMALL_MANNERS,
    }
    trips: dict[tuple[str, str, int], str] = {}
    streams: dict[_Stream, str] = {}
    with tf.Graph().as_default() as graph:
        factors = {name: make_factor(f"factor_{number}", name) for number, name in enumerate(names)}
        for source, size in itertools.product(names, sizes):
            values = make_values(f"values_{names.index(source)}_{size}", source, size)
            for destination in names:
                arrived = tf.no_op()
                for _ in range(_TRIPS):
                    with tf.control_dependencies([arrived]):
                        arrived = send(values, source, destination)
                trips[source, destination, size] = arrived.name
                if destination != stream_ends.get(source):
                    continue
                for manner in manners.get(size, ()):
                    are_apart = manner == "apart" or (manner, size) == ("kept", sizes[0])
                    streams[source, destination, size, manner] = build_tensor_stream(
                        *(values, factors, source, destination),
                        is_sent=manner != "kept",
                        num_products=_NUM_PRODUCTS,
                        made_after=_APART if are_apart else _AT_ONCE,
                    ).name
        initializer = tf1.global_variables_initializer()
    return graph, initializer.name, trips, streams
