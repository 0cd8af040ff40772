"""Tests of measuring links: what hand-made times give, and what it is that is timed."""

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
_NAMES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
_MACHINE = Machine(
    "two devices",
    "attached",
    tuple(Device(name, "CPU") for name in _NAMES),
)


def setUpModule():
    """Builds each graph once, which takes longer than all else."""
    build = functools.cache(link_calibration._graph)

    def built(names, sizes=link_calibration._SIZES, *, with_streams):
        return build(tuple(names), sizes, with_streams=with_streams)

    patch = mock.patch.object(link_calibration, "_graph", built)
    patch.start()
    unittest.addModuleCleanup(patch.stop)


class FitLinkTest(tf.test.TestCase):
    def test_times_on_a_line_give_the_line(self):
        secs = {size: 2e-4 + size / 5e8 for size in (10**6, 10**7, 10**8)}
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_one_disturbed_size_does_not_count(self):
        secs = {size: 2e-4 + size / 5e8 for size in (10**6, 10**7, 10**8)}
        secs[10**7] *= 30
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_a_size_that_takes_no_longer_than_none_does_not_count(self):
        secs = {1000: 2e-4, 2000: 1e-4, 10**7: 2e-4 + 0.02, 10**8: 2e-4 + 0.2}
        self.assertAllClose(fit_link(2e-4, secs), (2e-4, 5e8))

    def test_a_link_is_never_without_latency_or_without_end(self):
        for latency_secs in (0.0, -1e-3, 2e-4):
            latency, bandwidth = fit_link(latency_secs, {10**6: 0.0, 10**7: -0.01})
            self.assertGreater(latency, 0.0)
            self.assertGreater(bandwidth, 0.0)
            self.assertTrue(math.isfinite(bandwidth))


class _Timed:
    """Instead of an environment: operations take what it is told."""

    def __init__(self, times) -> None:
        self._times = times

    def __call__(self, *_args, **_settings) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext(self)

    def time_each(self, fetches, *, enough_secs):
        assert 0 < enough_secs <= 10
        times = self._times(fetches)
        return times if isinstance(times, Failure) else list(times)


class _SmallMemory:
    """Instead of an environment: sessions on devices with room for tensors of some size.

    Attributes:
        tried: the largest tensors of each attempt.
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
        """The largest tensors of each attempt at measuring links, in KiB."""
        devices = tuple(
            Device(f"{_NAMES[0][:-1]}{i}", "CPU", memory_bytes) for i in range(num_devices)
        )
        self.sessions = _SmallMemory(room_bytes, kind)
        with mock.patch.object(link_calibration, "SessionEnvironment", self.sessions):
            self.machine = calibrate_links(
                Machine("few bytes", "attached", devices), held_bytes=held_bytes
            )
        return [size // 2**10 for size in self.sessions.tried]

    def test_where_memory_is_too_small_smaller_tensors_are_timed(self):
        for room, tried in ((2**30, [16384]), (2**22, [16384, 1024]), (2**17, [16384, 1024, 64])):
            self.assertEqual(self.try_sizes(room), tried)
            self.assertLen(self.machine.links, 2)

    def test_tensors_fit_beside_what_devices_hold(self):
        mib = 2**20
        self.assertEqual(self.try_sizes(2**30, memory_bytes=1024 * mib), [16384])
        self.assertEqual(
            self.try_sizes(2**30, memory_bytes=1024 * mib, held_bytes=950 * mib), [1024]
        )
        self.assertEqual(
            self.try_sizes(2**30, memory_bytes=1024 * mib, held_bytes=1020 * mib), [64]
        )
        self.assertEqual(self.try_sizes(2**30, memory_bytes=100 * mib), [1024])
        # More than there is: the next session may have released it.
        self.assertEqual(self.try_sizes(2**30, memory_bytes=mib, held_bytes=2 * mib), [64])

    def test_between_many_devices_no_large_tensors_are_sent(self):
        self.assertEqual(self.try_sizes(2**30, num_devices=5), [1024])

    def test_links_that_no_memory_is_left_for_cannot_be_measured(self):
        with self.assertRaisesRegex(SearchError, "links of few bytes cannot .*: it failed"):
            self.try_sizes(2)
        self.assertLen(self.sessions.tried, 3)

    def test_after_another_failure_smaller_tensors_are_no_help(self):
        with self.assertRaisesRegex(SearchError, "it failed"):
            self.try_sizes(2, kind=FailureKind.TIMEOUT)
        self.assertLen(self.sessions.tried, 1)

    def test_a_machine_that_cannot_be_measured_gets_usual_links(self):
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
        with mock.patch.object(link_calibration, "SessionEnvironment", _Timed(times)):
            return calibrate_links(machine)

    def test_times_of_round_trips_give_the_links_of_both_directions(self):
        _, _, trips, streams = link_calibration._graph(_NAMES, with_streams=False)
        self.assertEmpty(streams)
        bandwidths = {_NAMES: 1e9, _NAMES[::-1]: 2e9}

        def times(fetches):
            self.assertEqual(fetches, list(trips.values()))
            for source, destination, size in trips:
                secs = 1e-5 + size / 1e10  # what the operations take
                if source != destination:
                    secs += 2 * 3e-4 + size / bandwidths[source, destination]
                # A step that is disturbed, and two that are not.
                disturbed = [link_calibration._TRIPS * secs * factor for factor in (9.0, 1.0, 1.0)]
                yield OperationTimes(tuple(disturbed))

        machine = self.calibrate(_MACHINE, times)
        self.assertEqual(machine.devices, _MACHINE.devices)
        links = {(link.source, link.destination): link for link in machine.links}
        self.assertCountEqual(links, bandwidths)
        for pair, link in links.items():
            # Four bytes take a little longer than none.
            self.assertAllClose(link.latency_secs, 3e-4, rtol=1e-3)
            self.assertAllClose(link.bandwidth_bytes_per_sec, bandwidths[pair], rtol=1e-3)
            self.assertIsNone(link.channel)

    def test_devices_of_a_local_machine_lose_what_their_processes_use_for_transfers(self):
        _, _, trips, streams = link_calibration._graph(_NAMES, with_streams=True)
        num_tensors = link_calibration._NUM_TENSORS
        latency_secs, bandwidth = 2e-3, 1e9

        def times(fetches):
            self.assertEqual(fetches, [*trips.values(), *streams.values()])
            for source, destination, size in trips:
                secs = 0.0 if source == destination else 2 * latency_secs + size / bandwidth
                yield OperationTimes((link_calibration._TRIPS * (0.1 + secs),))
            for source, _, size, manner in streams:
                lost = np.zeros(2)
                if manner != "kept":
                    # To send bytes costs task 0 half of their time and task 1 a quarter. To receive
                    # them costs either anything.
                    lost[:] = (size > 4) * 0.02
                    sender = _NAMES.index(source)
                    lost[sender] = (0.5, 0.25)[sender] * size / bandwidth
                    # Any transfer costs 3 ms after 10 ms. Apart, one starts a 36th of 10 ms after
                    # the end of the last one.
                    lost += 0.003 * (1 / 4 if manner == "at once" else 3 / 8)
                # The products take a second, what is sent another to make, and what disturbs a
                # round more.
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

    def test_a_transfer_never_gives_a_device_time(self):
        *_, trips, streams = link_calibration._graph(_NAMES, with_streams=True)

        def times(_):
            for _ in trips:
                yield OperationTimes((1.0,))
            for *_, manner in streams:
                # As in a disturbed measurement.
                used = 1.0 - 0.5 * (manner != "kept")
                yield OperationTimes((1.0,), {f"task {i}": (used,) for i in range(2)})

        for device in self.calibrate(dataclasses.replace(_MACHINE, kind="local"), times).devices:
            self.assertBetween(device.transfer_share, 0.0, 1.0)
            self.assertBetween(device.transfer_overhead_secs, 0.0, 1e-6)

    def test_a_failure_is_named(self):
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
        graph, cls.initializer, cls.trips, cls.streams = link_calibration._graph(
            _NAMES, with_streams=True
        )
        cls.graph_def = graph.as_graph_def()
        cls.types = {node.name: node.op for node in cls.graph_def.node}

    def chain(self, trip: str) -> nx.DiGraph:
        """Builds the graph of operations that a timed operation waits for."""
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

    def test_streams_are_kept_or_sent_at_once_or_apart(self):
        on = {node.name: node.device for node in self.graph_def.node}
        small, large = 4, 2**20
        self.assertCountEqual(
            self.streams,
            [
                (*pair, size, manner)
                for pair in (_NAMES, _NAMES[::-1])
                for size, manner in (
                    *((small, "kept"), (small, "at once"), (small, "apart")),
                    *((large, "kept"), (large, "at once")),
                )
            ],
        )
        for (source, destination, size, manner), stream in self.streams.items():
            edges = self.chain(stream)
            [values] = [n for n in edges if self.types[n] == "VarHandleOp" and "values" in n]
            self.assertEqual(values, f"values_{_NAMES.index(source)}_{size}")
            read = {on[name] for name in edges if self.types[name] == "StridedSlice"}
            self.assertEqual(read, {source if manner == "kept" else destination})
            # What is kept is made when that is made which it is compared with.
            waited_for = {
                sum(self.types[before] == "MatMul" for before in nx.ancestors(edges, name))
                for name in edges
                if self.types[name] == "Abs"
            }
            is_at_once = manner == "at once" or (size, manner) == (large, "kept")
            self.assertEqual(waited_for, {1} if is_at_once else set(range(4, 97, 4)))

    def test_streams_go_from_each_device_to_the_next(self):
        names = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(4)]
        *_, streams = link_calibration._graph(names, with_streams=True)
        pairs = {(names.index(source), names.index(end)) for source, end, _, _ in streams}
        self.assertEqual(pairs, {(0, 1), (1, 2), (2, 3), (3, 0)})

    def test_every_trip_waits_for_the_one_before(self):
        for (source, destination, size), trip in self.trips.items():
            edges = self.chain(trip)
            order = list(nx.topological_sort(edges))
            stages = [name for name in order if self.types[name] in ("Abs", "StridedSlice")]
            self.assertLen(stages, 2 * link_calibration._TRIPS)
            self.assertEqual(
                [self.types[name] for name in stages],
                ["Abs", "StridedSlice"] * link_calibration._TRIPS,
            )
            for before, after in itertools.pairwise(stages):
                self.assertTrue(nx.has_path(edges, before, after))
            devices = [node.device for node in self.graph_def.node if node.name in stages]
            self.assertEqual(sorted(devices), sorted([source, destination] * (len(stages) // 2)))
            [values] = [name for name in order if self.types[name] == "VarHandleOp"]
            self.assertEndsWith(values, f"_{size}")

    def test_nothing_of_a_trip_is_folded_or_merged_and_it_runs_in_order(self):
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
                self.assertLen(sent, link_calibration._TRIPS, (source, destination, size))
                self.assertLen(arrived, link_calibration._TRIPS)
                self.assertLen(ran["ReadVariableOp", source], link_calibration._TRIPS)
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
