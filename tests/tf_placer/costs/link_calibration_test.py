"""Tests of measuring links: results for given times, and the structure of the timed graph."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import unittest
from unittest import mock

import networkx as nx
import numpy as np
import tensorflow as tf

from tf_placer.costs import link_calibration
from tf_placer.costs.link_calibration import calibrate_links, fit_link, set_default_links
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.loaded_graph import LoadedGraph
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.errors import SearchError
from tf_placer.machines.machine import Device, Machine

v1 = tf.compat.v1
_PROTOCOL = link_calibration._PROTOCOL
_NAMES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
_MACHINE = Machine(
    "two devices",
    "attached",
    tuple(Device(name, "CPU") for name in _NAMES),
)


def setUpModule():
    """Caches built graphs, which take most of the time of these tests."""
    build = functools.cache(link_calibration._build_graph)

    def build_once(names, sizes=_PROTOCOL.tensor_bytes, *, with_streams):
        return build(tuple(names), sizes, with_streams=with_streams)

    patch = mock.patch.object(link_calibration, "_build_graph", build_once)
    patch.start()
    unittest.addModuleCleanup(patch.stop)


class FitLinkTest(tf.test.TestCase):
    def test_recovers_latency_and_bandwidth_from_exact_times(self):
        secs = {size: 2e-4 + size / 5e8 for size in (10**6, 10**7, 10**8)}
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_ignores_a_disturbed_size(self):
        secs = {size: 2e-4 + size / 5e8 for size in (10**6, 10**7, 10**8)}
        secs[10**7] *= 30
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_ignores_sizes_that_take_no_longer_than_the_latency(self):
        secs = {1000: 2e-4, 2000: 1e-4, 10**7: 2e-4 + 0.02, 10**8: 2e-4 + 0.2}
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_latency_is_positive_and_bandwidth_is_finite(self):
        for latency_secs in (0.0, -1e-3, 2e-4):
            latency, bandwidth = fit_link(latency_secs, {10**6: 0.0, 10**7: -0.01})
            self.assertGreater(latency, 0.0)
            self.assertGreater(bandwidth, 0.0)
            self.assertTrue(math.isfinite(bandwidth))


class _ScriptedEnvironment:
    """A fake environment with given times of operations."""

    def __init__(self, times) -> None:
        self._times = times

    def __call__(self, *_args, **_settings) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext(self)

    def time_each(self, fetches, *, enough_secs):
        assert 0 < enough_secs <= 10
        times = self._times(fetches)
        return times if isinstance(times, Failure) else list(times)


class _SmallMemory:
    """A fake environment whose devices have memory for tensors up to a size.

    Attributes:
        tried: the largest tensor of each attempt, in bytes.
    """

    def __init__(self, room_bytes: int, kind: FailureKind = FailureKind.OUT_OF_MEMORY) -> None:
        self._room_bytes, self._kind = room_bytes, kind
        self.tried: list[int] = []

    def __call__(self, path, *_args, **_settings) -> contextlib.AbstractContextManager:
        graph_def = v1.GraphDef.FromString(path.read_bytes())
        self.tried.append(
            max(
                4 * node.attr["shape"].shape.dim[0].size
                for node in graph_def.node
                if node.op == "VarHandleOp" and node.name.startswith("values")
            )
        )
        return contextlib.nullcontext(self)

    def time_each(self, fetches, *, enough_secs):
        if self.tried[-1] > self._room_bytes:
            return Failure(self._kind, "it failed")
        return [OperationTimes((1e-3 * (1 + number),)) for number, _ in enumerate(fetches)]


class LittleMemoryTest(tf.test.TestCase):
    def try_sizes(
        self,
        room_bytes: int,
        *,
        memory_bytes: int | None = None,
        held_bytes: int = 0,
        num_devices: int = 2,
        kind: FailureKind = FailureKind.OUT_OF_MEMORY,
    ) -> list[int]:
        """Measures links, and returns the largest tensor of each attempt in KiB."""
        devices = tuple(
            Device(f"{_NAMES[0][:-1]}{i}", "CPU", memory_bytes) for i in range(num_devices)
        )
        self.sessions = _SmallMemory(room_bytes, kind)
        with mock.patch.object(link_calibration, "SessionEnvironment", self.sessions):
            self.machine = calibrate_links(
                Machine("few bytes", "attached", devices), held_bytes=held_bytes
            )
        return [size // 2**10 for size in self.sessions.tried]

    def test_retries_with_smaller_tensors_after_running_out_of_memory(self):
        for room, tried in ((2**30, [16384]), (2**22, [16384, 1024]), (2**17, [16384, 1024, 64])):
            self.assertEqual(self.try_sizes(room), tried)
            self.assertLen(self.machine.links, 2)

    def test_tensors_fit_into_the_free_memory(self):
        mib = 2**20
        self.assertEqual(self.try_sizes(2**30, memory_bytes=1024 * mib), [16384])
        self.assertEqual(
            self.try_sizes(2**30, memory_bytes=1024 * mib, held_bytes=950 * mib), [1024]
        )
        self.assertEqual(
            self.try_sizes(2**30, memory_bytes=1024 * mib, held_bytes=1020 * mib), [64]
        )
        self.assertEqual(self.try_sizes(2**30, memory_bytes=100 * mib), [1024])
        # Sessions hold more than the whole memory: they may release it before the measurement.
        self.assertEqual(self.try_sizes(2**30, memory_bytes=mib, held_bytes=2 * mib), [64])

    def test_sends_no_large_tensors_between_many_devices(self):
        self.assertEqual(self.try_sizes(2**30, num_devices=5), [1024])

    def test_fails_if_the_smallest_tensors_exceed_the_memory(self):
        with self.assertRaisesRegex(SearchError, "links of few bytes cannot .*: it failed"):
            self.try_sizes(2)
        self.assertLen(self.sessions.tried, 3)

    def test_does_not_retry_after_other_failures(self):
        with self.assertRaisesRegex(SearchError, "it failed"):
            self.try_sizes(2, kind=FailureKind.TIMEOUT)
        self.assertLen(self.sessions.tried, 1)

    def test_default_links_connect_all_devices(self):
        for kind in ("attached", "local", "cluster"):
            machine = set_default_links(dataclasses.replace(_MACHINE, kind=kind))
            pairs = [(link.source, link.destination) for link in machine.links]
            self.assertCountEqual(pairs, [_NAMES, _NAMES[::-1]])
            self.assertAllGreater([link.latency_secs for link in machine.links], 0.0)
            self.assertAllGreater([link.bandwidth_bytes_per_sec for link in machine.links], 1e6)
            for device in machine.devices:
                self.assertEqual(device.transfer_share is not None, kind == "local")


class CalibrateLinksTest(tf.test.TestCase):
    def calibrate(self, machine: Machine, times) -> Machine:
        with mock.patch.object(link_calibration, "SessionEnvironment", _ScriptedEnvironment(times)):
            return calibrate_links(machine)

    def test_computes_links_of_both_directions_from_round_trips(self):
        _, _, trips, streams = link_calibration._build_graph(_NAMES, with_streams=False)
        self.assertEmpty(streams)
        bandwidths = {_NAMES: 1e9, _NAMES[::-1]: 2e9}

        def times(fetches):
            self.assertEqual(fetches, list(trips.values()))
            for source, destination, size in trips:
                secs = 1e-5 + size / 1e10  # The time of the operations.
                if source != destination:
                    secs += 2 * 3e-4 + size / bandwidths[source, destination]
                # One disturbed step and two undisturbed ones.
                steps = [_PROTOCOL.num_round_trips * secs * factor for factor in (9.0, 1.0, 1.0)]
                yield OperationTimes(tuple(steps))

        machine = self.calibrate(_MACHINE, times)
        self.assertEqual(machine.devices, _MACHINE.devices)
        links = {(link.source, link.destination): link for link in machine.links}
        self.assertCountEqual(links, bandwidths)
        for pair, link in links.items():
            # Four bytes take a little longer than none.
            self.assertAllClose(link.latency_secs, 3e-4, rtol=1e-3)
            self.assertAllClose(link.bandwidth_bytes_per_sec, bandwidths[pair], rtol=1e-3)
            self.assertIsNone(link.channel)

    def test_computes_losses_of_local_devices_from_processor_times(self):
        _, _, trips, streams = link_calibration._build_graph(_NAMES, with_streams=True)
        num_tensors = _PROTOCOL.tensors_per_stream
        latency_secs, bandwidth = 2e-3, 1e9

        def times(fetches):
            self.assertEqual(fetches, [*trips.values(), *streams.values()])
            for source, destination, size in trips:
                secs = 0.0 if source == destination else 2 * latency_secs + size / bandwidth
                yield OperationTimes((_PROTOCOL.num_round_trips * (0.1 + secs),))
            for source, _, size, kind in streams:
                lost = np.zeros(2)
                if kind != "local":
                    # Sending costs task 0 half of the transfer time and task 1 a quarter. Receiving
                    # costs an arbitrary time.
                    lost[:] = (size > 4) * 0.02
                    sender = _NAMES.index(source)
                    lost[sender] = (0.5, 0.25)[sender] * size / bandwidth
                    # A transfer costs 3 ms if the last one was 10 ms ago. In a spaced stream, it
                    # starts 10 / 36 ms after the end of the last one.
                    lost += 0.003 * (1 / 4 if kind == "burst" else 3 / 8)
                # The products take a second, the source needs another second to make the tensors,
                # and some steps are disturbed.
                made = [1.0 + (name == source) for name in _NAMES]
                used = {
                    f"task {task}": tuple(
                        made[task] + num_tensors * lost[task] + disturbed
                        for disturbed in (0.0, 5.0, 0.3)
                    )
                    for task in range(2)
                }
                taken = num_tensors * (0.01 / 36 + latency_secs - 0.003 * 3 / 8)
                yield OperationTimes((9.0, taken, taken), used)

        local = dataclasses.replace(_MACHINE, kind="local")
        for device in self.calibrate(local, times).devices:
            self.assertAllClose(device.transfer_share, 0.375, rtol=1e-3)
            self.assertAllClose(device.transfer_overhead_secs, 0.003, rtol=1e-3)

    def test_losses_are_never_negative(self):
        *_, trips, streams = link_calibration._build_graph(_NAMES, with_streams=True)

        def times(_):
            for _ in trips:
                yield OperationTimes((1.0,))
            for *_, kind in streams:
                # A disturbed measurement may give less time with transfers than without.
                used = 1.0 - 0.5 * (kind != "local")
                yield OperationTimes((1.0,), {f"task {i}": (used,) for i in range(2)})

        for device in self.calibrate(dataclasses.replace(_MACHINE, kind="local"), times).devices:
            self.assertBetween(device.transfer_share, 0.0, 1.0)
            self.assertBetween(device.transfer_overhead_secs, 0.0, 1e-6)

    def test_reports_the_reason_of_a_failure(self):
        failure = Failure(FailureKind.TIMEOUT, "no result within 120 s")
        with self.assertRaisesRegex(SearchError, "links of two devices .*: no result within 120 s"):
            self.calibrate(_MACHINE, lambda _: failure)

    def test_one_device_has_no_links(self):
        machine = Machine("one", "attached", _MACHINE.devices[:1], ())
        self.assertIs(self.calibrate(machine, self.fail), machine)


class RoundTripsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        graph, cls.initializer, cls.trips, cls.streams = link_calibration._build_graph(
            _NAMES, with_streams=True
        )
        cls.graph_def = graph.as_graph_def()
        cls.types = {node.name: node.op for node in cls.graph_def.node}

    def chain(self, trip: str) -> nx.DiGraph:
        """Builds the graph of the ancestors of a timed operation."""
        nodes = {node.name: node for node in self.graph_def.node}
        edges = nx.DiGraph()
        pending = [trip]
        while pending:
            name = pending.pop()
            for text in nodes[name].input:
                before = text.lstrip("^").partition(":")[0]
                pending += [] if before in edges else [before]
                edges.add_edge(before, name)
        return edges

    def test_streams_are_local_bursts_or_spaced(self):
        on = {node.name: node.device for node in self.graph_def.node}
        small, large = 4, 2**20
        self.assertCountEqual(
            self.streams,
            [
                (*pair, size, kind)
                for pair in (_NAMES, _NAMES[::-1])
                for size, kind in (
                    *((small, "local"), (small, "burst"), (small, "spaced")),
                    *((large, "local"), (large, "burst")),
                )
            ],
        )
        for (source, destination, size, kind), stream in self.streams.items():
            edges = self.chain(stream)
            [values] = [n for n in edges if self.types[n] == "VarHandleOp" and "values" in n]
            self.assertEqual(values, f"values_{_NAMES.index(source)}_{size}")
            read = {on[name] for name in edges if self.types[name] == "StridedSlice"}
            self.assertEqual(read, {source if kind == "local" else destination})
            # A local stream has the schedule of the stream that it is compared with.
            waited_for = {
                sum(self.types[before] == "MatMul" for before in nx.ancestors(edges, name))
                for name in edges
                if self.types[name] == "Abs"
            }
            is_burst = kind == "burst" or (size, kind) == (large, "local")
            self.assertEqual(waited_for, {1} if is_burst else set(range(4, 97, 4)))

    def test_streams_go_from_each_device_to_the_next(self):
        names = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(4)]
        *_, streams = link_calibration._build_graph(names, with_streams=True)
        pairs = {(names.index(source), names.index(end)) for source, end, _, _ in streams}
        self.assertEqual(pairs, {(0, 1), (1, 2), (2, 3), (3, 0)})

    def test_round_trips_are_sequential(self):
        for (source, destination, size), trip in self.trips.items():
            edges = self.chain(trip)
            order = list(nx.topological_sort(edges))
            stages = [name for name in order if self.types[name] in ("Abs", "StridedSlice")]
            self.assertLen(stages, 2 * _PROTOCOL.num_round_trips)
            self.assertEqual(
                [self.types[name] for name in stages],
                ["Abs", "StridedSlice"] * _PROTOCOL.num_round_trips,
            )
            for before, after in itertools.pairwise(stages):
                self.assertTrue(nx.has_path(edges, before, after))
            devices = [node.device for node in self.graph_def.node if node.name in stages]
            self.assertEqual(sorted(devices), sorted([source, destination] * (len(stages) // 2)))
            [values] = [name for name in order if self.types[name] == "VarHandleOp"]
            self.assertEndsWith(values, f"_{size}")

    def test_tensorflow_runs_all_operations_of_a_trip_in_order(self):
        config = v1.ConfigProto(device_count={"CPU": 2})
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(self.graph_def, name="")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with v1.Session(graph=graph, config=config) as session:
            session.run(self.initializer)
            for (source, destination, size), trip in self.trips.items():
                metadata = v1.RunMetadata()
                session.run(trip, options=options, run_metadata=metadata)
                ran = collections.defaultdict(list)
                for device in metadata.step_stats.dev_stats:
                    for node in device.node_stats:
                        start = node.all_start_nanos + node.op_start_rel_nanos
                        ran[self.types.get(node.node_name), device.device].append(start)
                sent, arrived = ran["Abs", source], ran["StridedSlice", destination]
                self.assertLen(sent, _PROTOCOL.num_round_trips, (source, destination, size))
                self.assertLen(arrived, _PROTOCOL.num_round_trips)
                self.assertLen(ran["ReadVariableOp", source], _PROTOCOL.num_round_trips)
                in_turns = np.stack([sorted(sent), sorted(arrived)], axis=1).ravel()
                self.assertAllEqual(in_turns, sorted(in_turns))

    def test_every_trip_can_be_timed(self):
        loaded = LoadedGraph(
            self.graph_def,
            fetches=list(self.trips.values())[:1],
            feeds={},
            initializers=[self.initializer],
            target="",
            config=v1.ConfigProto(device_count={"CPU": 2}),
        )
        times = loaded.time_each(list(self.trips.values()), 2, 1, [], 60.0, lambda _: None)
        self.assertLen(times, len(self.trips))
        self.assertAllGreater([each["secs"] for each in times], 0.0)


if __name__ == "__main__":
    tf.test.main()
