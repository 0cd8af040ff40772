import collections
import dataclasses
import itertools
import json

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem, make_trace, random_traces
from tf_placer.report.chrome_trace import chrome_trace


def pair_trace():
    """Simulates op0 on D0 for 0-1 s, its transfer of 5 bytes for 1-6 s, op1 on D1 for 6-8 s."""
    problem = make_problem(
        [[1.0, 1.0], [2.0, 2.0]],
        tensors=[(0, 5, [1])],
        resident_bytes=[100, 0],
        groups=[0, 7],
        channel="bus",
    )
    return make_trace(problem, [0] * 7 + [1])


def events(value, phase):
    return [event for event in value["traceEvents"] if event["ph"] == phase]


def names(value, kind):
    """Returns the names of processes or threads, by their numbers."""
    return {
        (event["pid"], event.get("tid")): event["args"]["name"]
        for event in events(value, "M")
        if event["name"] == f"{kind}_name"
    }


class ChromeTraceTest(absltest.TestCase):
    def test_operations_and_transfers_are_spans_in_microseconds(self):
        value = chrome_trace({"found": pair_trace()})
        self.assertEqual(names(value, "process"), {(1, None): "found"})
        threads = {tid: name for (_, tid), name in names(value, "thread").items()}
        self.assertEqual(list(threads.values()), ["critical path", "D0", "D1", "D0 -> D1"])
        spans = [(threads[event.pop("tid")], event) for event in events(value, "X")]
        op0, op1, sent = (
            {"ph": "X", "name": "op0", "cat": "compute,other,forward,critical", "pid": 1,
             "ts": 0.0, "dur": 1e6, "args": {"group": 0, "waited_us": 0.0}},
            {"ph": "X", "name": "op1", "cat": "compute,other,forward,critical", "pid": 1,
             "ts": 6e6, "dur": 2e6, "args": {"group": 7, "waited_us": 0.0}},
            {"ph": "X", "name": "op0", "cat": "transfer,forward,critical", "pid": 1,
             "ts": 1e6, "dur": 5e6, "args": {"bytes": 5, "waited_us": 0.0}},
        )  # fmt: skip
        path = [("critical path", event) for event in (op0, sent, op1)]
        self.assertEqual(spans, [("D0", op0), ("D1", op1), ("D0 -> D1", sent), *path])

    def test_arrows_lead_from_the_sender_through_the_transfer_to_the_receiver(self):
        value = chrome_trace({"found": pair_trace()})
        threads = names(value, "thread")
        arrows = [
            (event["ph"], threads[1, event["tid"]], event["ts"])
            for event in value["traceEvents"]
            if event["ph"] in "stf"
        ]
        self.assertEqual(arrows, [("s", "D0", 0.0), ("t", "D0 -> D1", 1e6), ("f", "D1", 6e6)])
        self.assertLen({event["id"] for event in events(value, "f")}, 1)

    def test_an_arrow_leads_to_the_first_of_several_readers(self):
        # Both read what op0 makes; op2, with less before it, starts first.
        problem = make_problem(
            [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [10.0, 10.0]],
            tensors=[(0, 5, [1, 2])],
            control_edges=[(3, 1)],
        )
        value = chrome_trace({"": make_trace(problem, [0, 1, 1, 1])})
        [end] = events(value, "f")
        [reader] = [
            event["name"]
            for event in events(value, "X")
            if (event["tid"], event["ts"]) == (end["tid"], end["ts"])
        ]
        self.assertEqual(reader, "op2")

    def test_steps_are_processes_beside_each_other(self):
        value = chrome_trace({"original": pair_trace(), "found": pair_trace()})
        self.assertEqual(names(value, "process"), {(1, None): "original", (2, None): "found"})
        spans = events(value, "X")
        self.assertEqual([event["pid"] for event in spans], [1] * 6 + [2] * 6)
        self.assertLen({event["id"] for event in events(value, "s")}, 2)

    def test_categories_tell_layers_and_directions(self):
        problem = dataclasses.replace(
            make_problem([[1.0], [1.0]]),
            operation_names=("a/MatMul", "gradients/a/MatMul_grad"),
            layers=np.array([3, 3]),
        )
        value = chrome_trace({"": make_trace(problem, [0, 0])})
        self.assertEqual(
            {event["name"]: event["cat"].removesuffix(",critical") for event in events(value, "X")},
            {
                "a/MatMul": "compute,matrix product,forward,layer 3",
                "gradients/a/MatMul_grad": "compute,matrix product,backward,layer 3",
            },
        )

    def test_operations_that_take_no_time_are_left_out(self):
        problem = make_problem([[0.0, 0.0], [2.0, 2.0]], tensors=[(0, 5, [1])])
        value = chrome_trace({"found": make_trace(problem, [0, 1])})
        self.assertEqual(
            [event["name"] for event in events(value, "X")], ["op1", "op0", "op0", "op1"]
        )
        self.assertEqual(value["otherData"], {"operations_without_duration": {"found": 1}})
        # The arrow begins at the transfer.
        self.assertEqual([e["ts"] for e in value["traceEvents"] if e["ph"] in "stf"], [0.0, 5e6])

    def test_devices_and_links_have_short_names(self):
        problem = make_problem([[1.0, 1.0], [2.0, 2.0]], tensors=[(0, 5, [1])])
        long = {name: f"/job:worker/replica:0/task:0/device:GPU:{name[1]}" for name in ("D0", "D1")}
        problem = dataclasses.replace(
            problem,
            devices=[dataclasses.replace(d, name=long[d.name]) for d in problem.devices],
            links=[
                dataclasses.replace(
                    link, source=long[link.source], destination=long[link.destination]
                )
                for link in problem.links
            ],
        )
        threads = names(chrome_trace({"": make_trace(problem, [0, 1])}), "thread").values()
        self.assertContainsSubset(["GPU:0", "GPU:1", "GPU:0 -> GPU:1"], threads)

    def test_memory_is_counted_over_time(self):
        levels = collections.defaultdict(list)
        for event in events(chrome_trace({"": pair_trace()}), "C"):
            levels[event["name"]].append((event["ts"], event["args"]["bytes"]))
        # The tensor stays until it is sent; its copy from the start of the transfer to the end.
        self.assertEqual(levels["memory of D0"], [(0.0, 105), (6e6, 100)])
        self.assertEqual(levels["memory of D1"], [(0.0, 0), (1e6, 5), (8e6, 0)])

    def test_is_complete_and_its_lanes_never_overlap(self):
        for trace in random_traces(seed=1, count=100):
            value = json.loads(json.dumps(chrome_trace({"": trace}), allow_nan=False))
            threads = names(value, "thread")
            spans, path = [], []
            for event in events(value, "X"):
                on_path = threads[1, event["tid"]] == "critical path"
                (path if on_path else spans).append(event)
            transfers = trace.transfers
            left_out = value["otherData"]["operations_without_duration"][""]
            num_operations = trace.problem.num_operations - left_out
            self.assertLen(spans, num_operations + len(transfers.tensors))
            total_secs = sum(event["dur"] for event in spans) / 1e6
            self.assertAlmostEqual(
                total_secs,
                (trace.end_secs - trace.start_secs).sum()
                + (transfers.end_secs - transfers.start_secs).sum(),
            )
            # The path has no gaps, and is marked where it is, too.
            self.assertAlmostEqual(sum(event["dur"] for event in path) / 1e6, trace.step_secs)
            marked = [event for event in spans if event["cat"].endswith(",critical")]
            self.assertLen(marked, len(path))
            lanes = collections.defaultdict(list)
            for event in [*spans, *path]:
                start = round(event["ts"] * 1000)
                lanes[event["tid"]].append((start, start + round(event["dur"] * 1000)))
            for intervals in lanes.values():
                intervals.sort()
                for before, after in itertools.pairwise(intervals):
                    self.assertLessEqual(before[1], after[0])
            self.assertContainsSubset({(1, tid) for tid in lanes}, threads)
            # Every arrow has a begin and an end, each at the start of a span.
            starts = {(event["tid"], event["ts"]) for event in spans}
            for arrow in [*events(value, "s"), *events(value, "t"), *events(value, "f")]:
                self.assertIn((arrow["tid"], arrow["ts"]), starts)
            self.assertEqual(
                sorted(event["id"] for event in events(value, "s")),
                sorted(event["id"] for event in events(value, "f")),
            )

    def test_the_highest_memory_is_the_peak(self):
        for trace in random_traces(seed=2, count=50):
            peaks = collections.Counter()
            for event in events(chrome_trace({"": trace}), "C"):
                peaks[event["name"]] = max(peaks[event["name"]], event["args"]["bytes"])
            self.assertEqual(list(peaks.values()), trace.peak_bytes.tolist())

    def test_spans_that_meet_within_a_nanosecond_do_not_overlap(self):
        trace = make_trace(make_problem([[1.3e-9]] * 50), [0] * 50)
        spans = [event for event in events(chrome_trace({"": trace}), "X") if event["tid"] == 2]
        self.assertLen(spans, 50)
        for before, after in itertools.pairwise(spans):
            end = round(before["ts"] * 1000) + round(before["dur"] * 1000)
            self.assertEqual(end, round(after["ts"] * 1000))


if __name__ == "__main__":
    absltest.main()
