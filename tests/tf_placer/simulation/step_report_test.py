import dataclasses
import itertools
import json

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem, make_trace, random_traces
from tf_placer.simulation.step_report import Holder, step_report


def make_two_device_trace():
    """Traces a step on two devices that was worked by hand.

    A link takes 1 s and 1 s for each 10 bytes.

        D0  read 0-1  left 1-5
        D1                      right 4-6  join 7-8
        D0 -> D1      read 1-4  left 5-7
    """
    problem = make_problem(
        [[1.0, 1.0], [4.0, 4.0], [2.0, 2.0], [1.0, 1.0]],
        names=["read", "left", "right", "join"],
        tensors=[(0, 20, [1, 2]), (1, 10, [3]), (2, 30, [3])],
        resident_bytes=[100, 0, 0, 50],
        temp_bytes=[0, 7, 0, 0],
        latency_secs=1.0,
        bandwidth_bytes_per_sec=10.0,
        memory_bytes=[130, 110],
    )
    return make_trace(problem, [0, 0, 1, 1])


def queue_trace():
    """Traces a step in which two operations wait for a device, and their tensors for a channel.

    D0  first 0-2  second 2-3
    D1                             near 7-8  far 12-13
    D0 -> D1       first 2-7       second 7-12
    """
    problem = make_problem(
        [[2.0, 2.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
        names=["first", "second", "near", "far"],
        tensors=[(0, 5, [2]), (1, 5, [3])],
        memory_bytes=[1000, 1000],
    )
    return make_trace(problem, [0, 0, 1, 1])


def measure_union(intervals):
    """Computes the length of the union of intervals in the simplest way."""
    instants = sorted({secs for interval in intervals for secs in interval})
    return sum(
        after - before
        for before, after in itertools.pairwise(instants)
        if any(start <= before and after <= end for start, end in intervals)
    )


def path_rows(report):
    return [
        (item.kind, item.operation, item.start_secs, item.end_secs, item.waited_for)
        for item in report.critical_path
    ]


class WorkedStepTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.report = step_report(make_two_device_trace())

    def test_devices_are_busy_idle_and_copying(self):
        first, second = self.report.devices
        self.assertEqual((first.name, first.slots, first.operations), ("D0", 1, 2))
        self.assertEqual((first.busy_secs, first.idle_secs, first.compute_secs), (5.0, 3.0, 5.0))
        self.assertEqual((second.busy_secs, second.idle_secs, second.operations), (3.0, 5.0, 2))
        self.assertEqual([device.copy_secs for device in (first, second)], [5.0, 5.0])

    def test_the_report_lists_the_holders_of_memory_at_the_peak(self):
        first, second = self.report.devices
        # From 1 s on, both outputs and the temporary memory of "left".
        self.assertEqual((first.peak_bytes, first.peak_secs), (100 + 20 + 10 + 7, 1.0))
        self.assertEqual((first.resident_bytes, first.output_bytes), (100, 30))
        self.assertEqual((first.copy_bytes, first.temporary_bytes), (0, 7))
        self.assertEqual(
            first.holders,
            (Holder("output", "read", 20), Holder("output", "left", 10),
             Holder("temporary", "left", 7)),
        )  # fmt: skip
        # From 5 s, when the second copy starts to arrive, to 6 s, when "right" has read the first.
        self.assertEqual((second.peak_bytes, second.peak_secs), (50 + 20 + 30 + 10, 5.0))
        self.assertEqual(
            second.holders,
            (Holder("output", "right", 30), Holder("copy", "read", 20), Holder("copy", "left", 10)),
        )

    def test_a_step_fits_if_every_device_does(self):
        self.assertFalse(self.report.fits)
        larger = [dataclasses.replace(d, memory_bytes=137) for d in self.report.devices]
        self.assertTrue(dataclasses.replace(self.report, devices=tuple(larger)).fits)

    def test_links_that_carry_nothing_are_left_out(self):
        (link,) = self.report.links
        self.assertEqual((link.source, link.destination, link.channel), ("D0", "D1", None))
        self.assertEqual((link.transfers, link.bytes), (2, 30))
        self.assertEqual((link.busy_secs, link.waiting_secs), (5.0, 0.0))

    def test_the_critical_path_goes_back_through_inputs_and_transfers(self):
        self.assertEqual(
            path_rows(self.report),
            [
                ("compute", "read", 0.0, 1.0, "nothing"),
                ("compute", "left", 1.0, 5.0, "input"),
                ("transfer", "left", 5.0, 7.0, "input"),
                ("compute", "join", 7.0, 8.0, "transfer"),
            ],
        )
        self.assertEqual(self.report.path_compute_secs, 6.0)
        self.assertEqual(self.report.path_transfer_secs, 2.0)
        transfer = self.report.critical_path[2]
        self.assertEqual((transfer.device, transfer.destination, transfer.bytes), ("D0", "D1", 10))
        self.assertEqual(self.report.critical_path[3].device, "D1")

    def test_the_json_form_is_json_and_complete(self):
        value = json.loads(json.dumps(self.report.to_json(), allow_nan=False))
        self.assertEqual(value["step_secs"], 8.0)
        self.assertEqual([device["busy_secs"] for device in value["devices"]], [5.0, 3.0])
        self.assertEqual(value["devices"][0]["holders"][0]["operation"], "read")
        self.assertLen(value["links"], 1)
        self.assertLen(value["critical_path"]["items"], 4)
        self.assertFalse(value["fits"])


class CriticalPathTest(absltest.TestCase):
    def test_a_transfer_may_wait_for_its_channel(self):
        report = step_report(queue_trace())
        self.assertEqual(
            path_rows(report),
            [
                ("compute", "first", 0.0, 2.0, "nothing"),
                ("transfer", "first", 2.0, 7.0, "input"),
                ("transfer", "second", 7.0, 12.0, "channel"),
                ("compute", "far", 12.0, 13.0, "transfer"),
            ],
        )
        self.assertEqual(report.links[0].waiting_secs, 4.0)

    def test_links_of_one_channel_wait_for_each_other(self):
        problem = make_problem(
            [[1.0] * 3] * 3, tensors=[(0, 5, [1, 2])], channel="bus", latency_secs=1.0
        )
        report = step_report(make_trace(problem, [0, 1, 2]))
        self.assertEqual([item.waited_for for item in report.critical_path][2], "channel")
        self.assertEqual([link.channel for link in report.links], ["bus", "bus"])
        self.assertEqual(report.step_secs, 1 + 6 + 6 + 1)

    def test_an_operation_may_wait_for_its_device(self):
        # Two slots: "c" waits for the first of "a" and "b" to end, though a free operation ends at
        # the same instant.
        problem = make_problem(
            [[2.0], [3.0], [0.0], [4.0]], names=["a", "b", "free", "c"], slots=[2]
        )
        self.assertEqual(
            path_rows(step_report(make_trace(problem, [0] * 4))),
            [("compute", "a", 0.0, 2.0, "nothing"), ("compute", "c", 2.0, 6.0, "device")],
        )

    def test_a_control_edge_is_a_signal(self):
        problem = make_problem([[1.0, 1.0]] * 2, control_edges=[(0, 1)], latency_secs=0.5)
        report = step_report(make_trace(problem, [0, 1]))
        self.assertEqual(
            [item.kind for item in report.critical_path], ["compute", "control", "compute"]
        )
        self.assertEqual(report.path_transfer_secs, 0.5)


class RandomStepsTest(absltest.TestCase):
    def test_memory_agrees_with_the_simulator(self):
        for trace in random_traces(seed=1, count=200):
            report = step_report(trace)
            self.assertEqual([d.peak_bytes for d in report.devices], trace.peak_bytes.tolist())
            for device in report.devices:
                parts = device.output_bytes + device.copy_bytes + device.temporary_bytes
                self.assertEqual(device.peak_bytes, device.resident_bytes + parts)
                self.assertEqual(device.unused_bytes, 0)
                held = sum(holder.bytes for holder in device.holders)
                self.assertLessEqual(held, parts)
                if len(device.holders) < 10:
                    self.assertEqual(held, parts)

    def test_memory_of_asynchronous_devices_agrees_with_the_simulator(self):
        in_blocks = 0
        for trace in itertools.chain(
            random_traces(seed=6, count=300, asynchronous_share=0.7),
            random_traces(seed=9, count=100, asynchronous_share=0.7, in_stream_share=0.7),
        ):
            devices = trace.problem.devices
            report = step_report(trace)
            self.assertEqual([d.peak_bytes for d in report.devices], trace.peak_bytes.tolist())
            for device in report.devices:
                parts = device.output_bytes + device.copy_bytes + device.temporary_bytes
                all_parts = device.resident_bytes + parts + device.unused_bytes
                self.assertEqual(device.peak_bytes, all_parts)
                self.assertBetween(device.peak_secs, 0.0, trace.step_secs)
            unused = np.array([device.unused_bytes for device in report.devices])
            self.assertTrue((unused >= 0).all())
            self.assertFalse(unused[[not device.is_asynchronous for device in devices]].any())
            in_blocks += unused.any()
        # Fragmentation counts in some of them, and not in others.
        self.assertBetween(in_blocks, 30, 270)

    def test_busy_and_copy_secs_are_lengths_of_unions_of_intervals(self):
        for trace in random_traces(seed=2, count=100):
            operations = list(
                zip(trace.operation_devices, trace.start_secs, trace.end_secs, strict=True)
            )
            moves = trace.transfers
            transfers = list(
                zip(
                    moves.sources, moves.destinations, moves.start_secs, moves.end_secs, strict=True
                )
            )
            for index, device in enumerate(step_report(trace).devices):
                runs = [(start, end) for where, start, end in operations if where == index]
                copies = [(start, end) for a, b, start, end in transfers if index in (a, b)]
                self.assertAlmostEqual(device.busy_secs, measure_union(runs))
                self.assertAlmostEqual(device.copy_secs, measure_union(copies))
                self.assertAlmostEqual(device.compute_secs, sum(end - start for start, end in runs))
                self.assertAlmostEqual(device.busy_secs + device.idle_secs, trace.step_secs)

    def test_links_carry_every_transfer(self):
        for trace in random_traces(seed=3, count=50):
            links, moves = step_report(trace).links, trace.transfers
            self.assertEqual(sum(link.transfers for link in links), len(moves.tensors))
            self.assertEqual(sum(link.bytes for link in links), moves.bytes.sum())
            waited_secs = (moves.start_secs - moves.request_secs).sum()
            self.assertAlmostEqual(sum(link.waiting_secs for link in links), waited_secs)

    def test_the_critical_path_has_no_gap_from_start_to_end(self):
        reasons = set()
        for trace in itertools.chain(
            random_traces(seed=4, count=300),
            random_traces(seed=7, count=200, asynchronous_share=0.7),
            random_traces(seed=8, count=200, asynchronous_share=0.7, in_stream_share=0.7),
        ):
            path = step_report(trace).critical_path
            self.assertEqual(path[0].start_secs, 0.0)
            self.assertEqual(path[0].waited_for, "nothing")
            self.assertEqual(path[-1].end_secs, trace.step_secs)
            self.assertEqual(path[-1].kind, "compute")
            for before, item in itertools.pairwise(path):
                self.assertEqual(item.start_secs, before.end_secs)
                # The previous item has the kind and the device that the reason implies.
                is_transfer = before.kind != "compute"
                self.assertEqual(is_transfer, item.waited_for in ("transfer", "channel"))
                if item.waited_for == "input":
                    self.assertEqual(before.device, item.device)
                if item.waited_for == "device":
                    self.assertIn(before.device, (item.device, item.destination))
                if item.waited_for == "transfer":
                    self.assertEqual(before.destination, item.device)
                if item.kind != "compute" and item.waited_for == "input":
                    self.assertEqual(before.operation, item.operation)
            self.assertAlmostEqual(sum(item.secs for item in path), trace.step_secs)
            reasons |= {item.waited_for for item in path}
        self.assertEqual(reasons, {"nothing", "input", "transfer", "device", "channel"})

    def test_an_item_waits_for_one_of_its_inputs(self):
        for trace in random_traces(seed=5, count=100):
            problem = trace.problem
            edges = {(problem.operation_names[a], problem.operation_names[b])
                     for a, b in problem.edges.tolist()}  # fmt: skip
            path = step_report(trace).critical_path
            for before, item in itertools.pairwise(path):
                if item.kind == "compute" and item.waited_for in ("input", "transfer"):
                    self.assertIn((before.operation, item.operation), edges)


if __name__ == "__main__":
    absltest.main()
