import collections
import itertools
import json

from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem, make_trace, random_traces
from tf_placer.report.chrome_trace import chrome_trace


def pair_trace():
    """op0 on D0 from 0 to 1 s, its 5 bytes on the bus from 1 to 6 s, op1 on D1 from 6 to 8 s."""
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


class ChromeTraceTest(absltest.TestCase):
    def test_operations_and_transfers_are_spans_in_microseconds(self):
        spans = events(chrome_trace(pair_trace()), "X")
        self.assertEqual(
            spans,
            [
                {"ph": "X", "name": "op0", "pid": 1, "tid": 1, "ts": 0.0, "dur": 1e6,
                 "args": {"group": 0, "waited_us": 0.0}},
                {"ph": "X", "name": "op1", "pid": 2, "tid": 1, "ts": 6e6, "dur": 2e6,
                 "args": {"group": 7, "waited_us": 0.0}},
                {"ph": "X", "name": "op0", "pid": 3, "tid": 1, "ts": 1e6, "dur": 5e6,
                 "args": {"bytes": 5, "waited_us": 0.0}},
            ],
        )  # fmt: skip

    def test_processes_and_threads_have_names(self):
        names = {
            (event["name"], event["pid"], event.get("tid")): event["args"].get("name")
            for event in events(chrome_trace(pair_trace()), "M")
            if event["name"] != "process_sort_index"
        }
        self.assertEqual(
            names,
            {
                ("process_name", 1, None): "D0",
                ("process_name", 2, None): "D1",
                ("process_name", 3, None): "links",
                ("thread_name", 1, 1): "slot 0",
                ("thread_name", 2, 1): "slot 0",
                ("thread_name", 3, 1): "D0 -> D1 (bus)",
            },
        )

    def test_memory_is_counted_over_time(self):
        levels = collections.defaultdict(list)
        for event in events(chrome_trace(pair_trace()), "C"):
            levels[event["pid"]].append((event["ts"], event["args"]["bytes"]))
        # The tensor stays until it is sent; its copy from the start of the transfer to the end.
        self.assertEqual(levels[1], [(0.0, 105), (6e6, 100)])
        self.assertEqual(levels[2], [(0.0, 0), (1e6, 5), (8e6, 0)])

    def test_is_complete_and_its_lanes_never_overlap(self):
        for trace in random_traces(seed=1, count=100):
            value = json.loads(json.dumps(chrome_trace(trace), allow_nan=False))
            spans = events(value, "X")
            transfers = trace.transfers
            self.assertLen(spans, trace.problem.num_operations + len(transfers.tensors))
            total_secs = sum(event["dur"] for event in spans) / 1e6
            self.assertAlmostEqual(
                total_secs,
                (trace.end_secs - trace.start_secs).sum()
                + (transfers.end_secs - transfers.start_secs).sum(),
            )
            lanes = collections.defaultdict(list)
            for event in spans:
                start = round(event["ts"] * 1000)
                lanes[event["pid"], event["tid"]].append(
                    (start, start + round(event["dur"] * 1000))
                )
            for intervals in lanes.values():
                intervals.sort()
                for before, after in itertools.pairwise(intervals):
                    self.assertLessEqual(before[1], after[0])
            named = {
                (event["pid"], event["tid"])
                for event in events(value, "M")
                if event["name"] == "thread_name"
            }
            self.assertEqual(named, set(lanes))
            for index, device in enumerate(trace.problem.devices):
                self.assertLessEqual(sum(pid == index + 1 for pid, _ in lanes), device.slots)

    def test_the_highest_memory_is_the_peak(self):
        for trace in random_traces(seed=2, count=50):
            peaks = collections.Counter()
            for event in events(chrome_trace(trace), "C"):
                peaks[event["pid"]] = max(peaks[event["pid"]], event["args"]["bytes"])
            self.assertEqual(
                [peaks[index + 1] for index in range(trace.problem.num_devices)],
                trace.peak_bytes.tolist(),
            )

    def test_spans_that_meet_within_a_nanosecond_do_not_overlap(self):
        trace = make_trace(make_problem([[1.3e-9]] * 50), [0] * 50)
        spans = events(chrome_trace(trace), "X")
        for before, after in itertools.pairwise(spans):
            end = round(before["ts"] * 1000) + round(before["dur"] * 1000)
            self.assertEqual(end, round(after["ts"] * 1000))


if __name__ == "__main__":
    absltest.main()
