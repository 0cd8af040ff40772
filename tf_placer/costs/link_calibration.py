"""Measures the links of a machine by transfers of tensors."""

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
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.environments.session import SessionEnvironment
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.errors import SearchError
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Link, Machine
from tf_placer.problem.transfer_overhead import overhead_part
from tf_placer.temporary_directory import temporary_directory

__all__ = ["calibrate_links", "fit_link", "set_default_links"]

tf1 = tf.compat.v1

_KIB, _MIB = 2**10, 2**20
# Tensors of a stream stay on the source, or are sent without or with products between them.
_StreamKind = Literal["local", "burst", "spaced"]
# Source, destination and bytes.
_Trip = tuple[str, str, int]
# Source, destination, bytes and kind.
_Stream = tuple[str, str, int, _StreamKind]


@dataclasses.dataclass(frozen=True)
class _CalibrationProtocol:
    """The sizes and limits of the transfers that are timed."""

    #: The smallest tensor stands for a transfer without bytes.
    tensor_bytes: tuple[int, ...] = (4, 64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
    #: Each attempt needs less memory than the one before.
    max_tensor_bytes_of_attempts: tuple[int, ...] = (16 * _MIB, _MIB, 64 * _KIB)
    max_devices_for_all_sizes: int = 4
    max_tensor_bytes_for_more_devices: int = _MIB
    num_round_trips: int = 6
    tensors_per_stream: int = 24
    products_per_tensor: int = 4
    max_tensor_bytes_of_streams: int = _MIB
    small_stream_kinds: tuple[_StreamKind, ...] = ("local", "burst", "spaced")
    large_stream_kinds: tuple[_StreamKind, ...] = ("local", "burst")
    measured_steps: int = 15
    dropped_steps: int = 3
    timeout_secs: float = 120.0
    #: Few rounds are enough after this time. The work before takes about as long.
    enough_timing_secs: float = 8.0
    copies_of_largest_tensor: int = 4
    max_share_of_free_memory: float = 0.5
    default_transfer_share: float = 0.3
    default_transfer_overhead_secs: float = 2e-4

    @property
    def products_per_stream(self) -> int:
        """The number of products that each end of a stream computes."""
        return self.tensors_per_stream * self.products_per_tensor

    @property
    def burst_schedule(self) -> Sequence[int]:
        """The number of products before each tensor of a burst."""
        return (1,) * self.tensors_per_stream

    @property
    def spaced_schedule(self) -> Sequence[int]:
        """The number of products before each tensor of a spaced stream."""
        return range(
            self.products_per_tensor, self.products_per_stream + 1, self.products_per_tensor
        )


_PROTOCOL = _CalibrationProtocol()


def calibrate_links(
    machine: Machine,
    session_config: tf.compat.v1.ConfigProto | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    processes: LiveProcesses | None = None,
    *,
    held_bytes: int = 0,
    timeout_secs: float = _PROTOCOL.timeout_secs,
) -> Machine:
    """Measures latency and bandwidth between every ordered pair of devices.

    A round trip sends a tensor to the other device and a signal back. Several round trips run in a
    row; the same round trips on one device give the time of the operations, which is subtracted.
    The latency, in both directions, is half of the time of a round trip with a tensor of four
    bytes.

    The processes of a "local" machine send and receive with the cores that they compute on. Streams
    of tensors, sent while both ends multiply matrices, give the processor time that each tensor
    costs at either end, without the time of waiting. The growth of this time with the size of the
    tensors of bursts gives the `transfer_share` of the devices. The times of small tensors in
    bursts and in spaced streams give the `transfer_overhead_secs`.

    The tensors are as large as the free memory of the devices allows. If the memory is exhausted
    nevertheless, another attempt uses smaller tensors.

    Args:
        machine: an attached machine, a local machine or a cluster.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: the directory for logs and exchange files; the system's temporary directory when
            None.
        processes: the running processes of the machine; new ones when None.
        held_bytes: the memory that other sessions may hold on each device meanwhile.
        timeout_secs: the time limit, not counting the start of processes.

    Returns:
        The machine with measured links.

    Raises:
        SearchError: the transfers could not be timed.
        WorkerStartError: the processes cannot be started.
    """
    names = [device.name for device in machine.devices]
    if len(names) < 2:
        return machine
    end_secs = time.monotonic() + timeout_secs
    for sizes in _find_possible_sizes(machine, held_bytes):
        left_secs = max(end_secs - time.monotonic(), 1.0)
        timed = _time_transfers(machine, sizes, session_config, work_dir, processes, left_secs)
        if not isinstance(timed, Failure) or timed.kind is not FailureKind.OUT_OF_MEMORY:
            break
    if isinstance(timed, Failure):
        raise SearchError(f"the links of {machine.spec} cannot be measured: {timed.message}")
    secs, streams = timed
    links = tuple(_compute_link(*pair, sizes, secs) for pair in itertools.permutations(names, 2))
    devices = machine.devices
    if streams:
        share, overhead_secs = _compute_losses(machine, links, streams)
        devices = tuple(
            dataclasses.replace(device, transfer_share=share, transfer_overhead_secs=overhead_secs)
            for device in devices
        )
    return dataclasses.replace(machine, devices=devices, links=links)


def set_default_links(machine: Machine) -> Machine:
    """Sets the links of a machine to the default of its kind, if they cannot be measured."""
    assert machine.backend.default_link is not None
    latency_secs, bandwidth = machine.backend.default_link
    pairs = itertools.permutations([device.name for device in machine.devices], 2)
    devices = machine.devices
    if machine.backend.sends_on_cores:
        devices = tuple(
            dataclasses.replace(
                device,
                transfer_share=_PROTOCOL.default_transfer_share,
                transfer_overhead_secs=_PROTOCOL.default_transfer_overhead_secs,
            )
            for device in devices
        )
    links = tuple(Link(*pair, latency_secs, bandwidth) for pair in pairs)
    return dataclasses.replace(machine, devices=devices, links=links)


def _find_possible_sizes(machine: Machine, held_bytes: int) -> Iterator[tuple[int, ...]]:
    """Yields the tensor sizes of each attempt that may fit on all devices.

    Args:
        machine: the machine.
        held_bytes: the memory that other sessions may hold on each device.
    """
    limits = [device.memory_bytes for device in machine.devices if device.memory_bytes is not None]
    free_bytes = min(limits, default=math.inf) - held_bytes
    largest = _PROTOCOL.tensor_bytes[-1]
    # The number of links grows with the square of the devices: large tensors would take too long.
    if len(machine.devices) > _PROTOCOL.max_devices_for_all_sizes:
        largest = _PROTOCOL.max_tensor_bytes_for_more_devices
    for limit in _PROTOCOL.max_tensor_bytes_of_attempts:
        sizes = tuple(size for size in _PROTOCOL.tensor_bytes if size <= limit)
        needed = sum(sizes) + _PROTOCOL.copies_of_largest_tensor * limit
        if machine.backend.sends_on_cores:
            stream_bytes = min(limit, _PROTOCOL.max_tensor_bytes_of_streams)
            needed += 2 * _PROTOCOL.tensors_per_stream * stream_bytes
        is_last = limit == _PROTOCOL.max_tensor_bytes_of_attempts[-1]
        fits = needed <= _PROTOCOL.max_share_of_free_memory * free_bytes
        if is_last or (limit <= largest and fits):
            yield sizes


def _time_transfers(
    machine: Machine,
    sizes: tuple[int, ...],
    session_config: tf.compat.v1.ConfigProto | None,
    work_dir: str | os.PathLike[str] | None,
    processes: LiveProcesses | None,
    timeout_secs: float,
) -> tuple[dict[_Trip, float], dict[_Stream, OperationTimes]] | Failure:
    """Times tensors of some sizes between the devices of a machine.

    Returns:
        The seconds of a round trip by (source, destination, bytes), and the times of each stream if
        the machine is local; or the failure.
    """
    names = [device.name for device in machine.devices]
    with_streams = machine.backend.sends_on_cores
    graph, initializer, trips, streams = _build_graph(names, sizes, with_streams=with_streams)
    with temporary_directory(work_dir) as directory:
        path = pathlib.Path(directory, "graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        step = Step(tuple(trips.values())[:1], {}, (initializer,))
        with SessionEnvironment(
            path,
            step,
            machine,
            lambda _: {},
            protocol=MeasuringProtocol(
                steps=_PROTOCOL.measured_steps, dropped=_PROTOCOL.dropped_steps
            ),
            timeout_secs=timeout_secs,
            session_config=session_config,
            work_dir=directory,
            processes=processes,
        ) as environment:
            times = environment.time_each(
                [*trips.values(), *streams.values()],
                enough_secs=min(_PROTOCOL.enough_timing_secs, timeout_secs / 2),
            )
    if isinstance(times, Failure):
        return times
    secs = {
        key: _estimate_undisturbed_secs(run.secs) / _PROTOCOL.num_round_trips
        for key, run in zip(trips, times[: len(trips)], strict=True)
    }
    return secs, dict(zip(streams, times[len(trips) :], strict=True))


def _estimate_undisturbed_secs(secs: Sequence[float]) -> float:
    """Estimates the time without disturbances, which only add time: the lower quartile."""
    return float(np.quantile(secs, 0.25))


def _compute_losses(
    machine: Machine, links: Sequence[Link], streams: Mapping[_Stream, OperationTimes]
) -> tuple[float, float]:
    """Computes the time that operations of a local machine lose to a transfer of their device.

    Args:
        machine: a machine whose devices are equal processes.
        links: the measured links.
        streams: the times of each stream and of each process.

    Returns:
        The `transfer_share` and the `transfer_overhead_secs` of each device.
    """
    tasks = {device.name: f"task {task}" for task, device in enumerate(machine.devices)}
    pairs = list(dict.fromkeys(stream[:2] for stream in streams))
    sizes = {size for _, _, size, _ in streams}
    small, large = min(sizes), max(sizes)

    def compute_lost_secs(pair: tuple[str, str], end: str, size: int, kind: _StreamKind) -> float:
        """Computes the time that an end of a stream loses to each tensor."""
        sent_secs, local_secs = (
            _estimate_undisturbed_secs(streams[*pair, size, each].cpu_secs[tasks[end]])
            for each in (kind, "local")
        )
        return (sent_secs - local_secs) / _PROTOCOL.tensors_per_stream

    # Use only the sender: receiving costs the same plus a random part, which depends on the memory
    # that an allocator has just returned to the system.
    grown_secs = statistics.fmean(
        compute_lost_secs(pair, pair[0], large, "burst")
        - compute_lost_secs(pair, pair[0], small, "burst")
        for pair in pairs
    )
    link_secs = statistics.fmean(large / link.bandwidth_bytes_per_sec for link in links)
    share = min(max(grown_secs / link_secs, 0.0), 1.0)
    burst_secs, spaced_secs = (
        statistics.fmean(
            compute_lost_secs(pair, end, small, kind) for pair in pairs for end in pair
        )
        for kind in ("burst", "spaced")
    )
    # In a spaced stream, each tensor arrives before the source makes the next one.
    latency_secs = statistics.fmean(link.latency_secs for link in links)
    computed_secs = statistics.fmean(
        _estimate_undisturbed_secs(streams[*pair, small, "local"].secs) for pair in pairs
    )
    gap_secs = computed_secs / _PROTOCOL.tensors_per_stream + spaced_secs - latency_secs
    parts = overhead_part(0.0) + overhead_part(gap_secs)
    return share, max(burst_secs + spaced_secs, 0.0) / parts


def _compute_link(
    source: str,
    destination: str,
    sizes: Sequence[int],
    secs: Mapping[_Trip, float],
) -> Link:
    """Computes the link between two devices from the times of all round trips."""

    def compute_trip_secs(there: str, back: str, size: int) -> float:
        return max(secs[there, back, size] - secs[there, there, size], 0.0)

    latency_secs = (
        compute_trip_secs(source, destination, sizes[0])
        + compute_trip_secs(destination, source, sizes[0])
    ) / 4
    one_way = {
        size: compute_trip_secs(source, destination, size) - latency_secs for size in sizes[1:]
    }
    return Link(source, destination, *fit_link(latency_secs, one_way))


def fit_link(latency_secs: float, secs: Mapping[int, float]) -> tuple[float, float]:
    """Computes the latency and bandwidth of a link.

    Args:
        latency_secs: the time of a tensor of almost no bytes.
        secs: the times of larger tensors, by their bytes.

    Returns:
        The latency in seconds and the median bandwidth in bytes per second.
    """
    latency_secs = max(latency_secs, 1e-7)
    bandwidths = [size / max(taken - latency_secs, 1e-12) for size, taken in secs.items()]
    # Ignore tensors whose time is mostly latency: they do not depend on the bandwidth.
    slower = [
        b for b, taken in zip(bandwidths, secs.values(), strict=True) if taken > 2 * latency_secs
    ]
    return latency_secs, statistics.median(slower or bandwidths)


def _build_graph(
    names: Sequence[str], sizes: tuple[int, ...] = _PROTOCOL.tensor_bytes, *, with_streams: bool
) -> tuple[tf.Graph, str, dict[_Trip, str], dict[_Stream, str]]:
    """Builds the round trips and streams between pairs of devices.

    Returns:
        The graph, the name of its initializer, the names of the operations that make
        `num_round_trips` round trips by (source, destination, bytes), including those from a device
        to itself, and the names of the operations of streams, from each device to the next.
    """
    # All processes are equal, so streams between some pairs are enough.
    stream_ends = dict(zip(names, [*names[1:], names[0]], strict=True)) if with_streams else {}
    largest = max(size for size in sizes if size <= _PROTOCOL.max_tensor_bytes_of_streams)
    kinds = {
        largest: _PROTOCOL.large_stream_kinds,
        sizes[0]: _PROTOCOL.small_stream_kinds,
    }
    trips: dict[_Trip, str] = {}
    streams: dict[_Stream, str] = {}
    with tf.Graph().as_default() as graph:
        factors = {name: make_factor(f"factor_{number}", name) for number, name in enumerate(names)}
        for source, size in itertools.product(names, sizes):
            values = make_values(f"values_{names.index(source)}_{size}", source, size)
            for destination in names:
                arrived = tf.no_op()
                for _ in range(_PROTOCOL.num_round_trips):
                    with tf.control_dependencies([arrived]):
                        arrived = send(values, source, destination)
                trips[source, destination, size] = arrived.name
                if destination != stream_ends.get(source):
                    continue
                for kind in kinds.get(size, ()):
                    # Local tensors have the schedule of the stream that they are compared with.
                    is_spaced = kind == "spaced" or (kind, size) == ("local", sizes[0])
                    streams[source, destination, size, kind] = build_tensor_stream(
                        *(values, factors, source, destination),
                        is_sent=kind != "local",
                        num_products=_PROTOCOL.products_per_stream,
                        made_after=(
                            _PROTOCOL.spaced_schedule if is_spaced else _PROTOCOL.burst_schedule
                        ),
                    ).name
        initializer = tf1.global_variables_initializer()
    return graph, initializer.name, trips, streams
