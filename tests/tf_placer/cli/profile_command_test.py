"""Tests of the commands that turn graphs into problems, on machines of the catalog."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib

import numpy as np
import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests import graph_parts, graphs
from tf_placer.cli import main as cli
from tf_placer.inputs.graph_files import write_graph
from tf_placer.problem.problem_file import read_problem

v1 = tf.compat.v1
_MACHINE = "2xK80"
_CPU, _GPU_0, _GPU_1 = (
    f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
)


class ProfileCommandTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        graph = graphs.two_branches()
        write_graph(self.path("graph.pb"), graph.graph.as_graph_def())
        self.graph = (f"--input_graph={self.path('graph.pb')}", "--fetches=result:0")

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def read(self, name: str):
        return json.loads((self.directory / name).read_text())

    def call(self, *arguments: str) -> str:
        """Calls the command line here; returns what it printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            cli.main(arguments)
        return output.getvalue()

    def assert_refused(self, message: str, *arguments: str):
        """Asserts that a command fails with one sentence and writes nothing."""
        before = sorted(self.directory.iterdir())
        with self.assertRaises(SystemExit) as raised:
            self.call(*arguments)
        self.assertRegex(str(raised.exception.code), f"^tf_placer: .*{message}")
        self.assertNotIn("\n", raised.exception.code)
        self.assertEqual(sorted(self.directory.iterdir()), before)


class ProfileTest(ProfileCommandTestCase):
    def test_a_problem_can_be_searched_and_simulated(self):
        output = f"--output={self.path('p.json')}"
        printed = self.call("profile", *self.graph, f"--machine={_MACHINE}", output)
        self.assertIn("25 operations in ", printed)
        self.assertIn("costs: analytic", printed)
        self.assertNotIn("take no time", printed)
        self.assertIn(f"problem: {self.path('p.json')}", printed)
        problem = read_problem(self.path("p.json"))
        self.assertEqual([d.kind for d in problem.devices], ["Haswell-18", "K80", "K80"])
        first = (self.directory / "p.json").read_bytes()
        self.call("profile", *self.graph, f"--machine={_MACHINE}", output)
        self.assertEqual((self.directory / "p.json").read_bytes(), first)

        common = (f"--problem={self.path('p.json')}", f"--output={self.path('result.json')}")
        self.call("search", *common, "--placer=random", "--max_trials=30")
        result = self.read("result.json")
        self.assertTrue(result["feasible"])
        common = (f"--problem={self.path('p.json')}", f"--output={self.path('report.json')}")
        self.call("simulate", *common, f"--assignment={self.path('result.json')}")
        self.assertAllClose(self.read("report.json")["step_secs"], result["step_secs"])

    def test_granularity_selects_coarse_or_colocation_groups(self):
        graph = graphs.lstm()
        write_graph(self.path("lstm.pb"), graph.graph.as_graph_def())
        output = f"--output={self.path('p.json')}"
        source = (f"--input_graph={self.path('lstm.pb')}", f"--fetches={','.join(graph.fetches)}")
        problems = {}
        for granularity in ("coarse", "fine"):
            machine = f"--machine={_MACHINE}"
            self.call("profile", *source, machine, output, f"--granularity={granularity}")
            problems[granularity] = read_problem(self.path("p.json"))
        fine, coarse = problems["fine"], problems["coarse"]
        self.assertEqual(fine.operation_names, coarse.operation_names)
        self.assertGreater(fine.num_groups, 3 * coarse.num_groups)
        # Colocation groups are together at both granularities.
        pairs = set(zip(fine.groups.tolist(), coarse.groups.tolist(), strict=True))
        self.assertLen(pairs, fine.num_groups)
        np.testing.assert_array_equal(fine.coarse_groups, coarse.groups)
        self.assertIsNone(coarse.coarse_groups)
        # Two layers of LSTM, one layer before them and one after them.
        np.testing.assert_array_equal(fine.layers, coarse.layers)
        self.assertBetween(len(set(fine.layers.tolist())), 3, 6)
        self.call("profile", *source, machine, output)
        np.testing.assert_array_equal(read_problem(self.path("p.json")).groups, fine.groups)
        with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit):
            cli.main(["profile", *source, output, "--granularity=metis"])
        self.assertIn("--granularity: invalid choice: 'metis'", errors.getvalue())

    def test_groups_of_a_problem_obey_pins(self):
        machine, output = f"--machine={_MACHINE}", f"--output={self.path('p.json')}"
        flags = self.directory / "flags"
        flags.write_text("--pin=chain_0/*=/GPU:1\n--keep_together=chain_1/*,result\n")
        self.call("profile", *self.graph, machine, output, f"--flagfile={flags}")
        problem = read_problem(self.path("p.json"))
        legal = np.isfinite(problem.compute_secs)
        names = problem.operation_names
        first = [name.startswith("chain_0/") for name in names]
        second = [name.startswith("chain_1/") or name == "result" for name in names]
        self.assertAllEqual(legal[first].any(axis=0), [False, False, True])
        self.assertLen(np.unique(problem.groups[second]), 1)
        result = ("--placer=random", "--max_trials=30", f"--output={self.path('r.json')}")
        self.call("search", f"--problem={self.path('p.json')}", *result)
        row = np.array(self.read("r.json")["assignment"])[problem.groups]
        self.assertAllEqual(row[first], [2] * sum(first))
        self.assertLen(set(row[second]), 1)

    def test_wrong_pins_are_refused(self):
        output, machine = f"--output={self.path('p.json')}", f"--machine={_MACHINE}"
        for flag, message in (
            ("--pin=chain_0/*", "--pin 'chain_0/\\*' is not PATTERN=DEVICE"),
            ("--pin=chain_0/*=/GPU:2", "'/GPU:2' is not on the machine: name one of .*GPU:1$"),
            ("--pin=chian_0/*=/GPU:1", "matches 'chian_0/\\*'; the nearest are 'chain_0/\\*'"),
            ("--pin=re:(=/GPU:1", "pin 're:\\(' is no regular expression"),
            ("--keep_together=chain_2/*", "keep_together 'chain_2/\\*': no operation of the step"),
            ("--keep_together=,", "an item of keep_together is a pattern"),
        ):
            self.assert_refused(message, "profile", *self.graph, machine, output, flag)
        twice = ("--pin=a=/GPU:0", "--pin=a=/GPU:1")
        self.assert_refused("'a' is given for /GPU:0 and", "profile", *self.graph, output, *twice)

    def test_devices_that_the_machine_lacks_are_cleared_by_a_flag(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        for node in graph_def.node:
            node.device = "/device:GPU:7"
        write_graph(self.path("graph.pb"), graph_def)
        arguments = (*self.graph, f"--machine={_MACHINE}", f"--output={self.path('p.json')}")
        message = "only .*: clear the graph's devices .--clear_devices.$"
        self.assert_refused(message, "profile", *arguments)
        self.call("profile", *arguments, "--clear_devices")

    def test_says_that_the_devices_of_the_graph_leave_nothing_to_choose(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        for node in graph_def.node:
            node.device = "/device:GPU:0"
        write_graph(self.path("graph.pb"), graph_def)
        for name, machines in (("p.json", [_MACHINE]), ("plans", [_MACHINE, "1xK80"])):
            arguments = [*self.graph, "--output", self.path(name), "--machine", *machines]
            for cleared, expected in ((), 1), (("--clear_devices",), 0):
                errors = io.StringIO()
                with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                    cli.main(["profile", *arguments, *cleared])
                self.assertEqual(
                    errors.getvalue().count(
                        "because the graph says so: clear the graph's devices (--clear_devices)"
                    ),
                    expected,
                )

    def test_a_wrong_input_is_refused_in_one_sentence(self):
        output, machine = f"--output={self.path('p.json')}", f"--machine={_MACHINE}"
        refused = self.assert_refused
        missing = f"--input_graph={self.path('missing.pb')}"
        refused("missing.pb", "profile", missing, "--fetches=y", machine, output)
        refused("steps must be at least 1", "profile", *self.graph, machine, output, "--steps=0")
        refused("unknown machine '3xZ9'", "profile", *self.graph, "--machine=3xZ9", output)
        wrong = (self.graph[0], "--fetches=nowhere")
        refused("'nowhere' is not in the graph", "profile", *wrong, machine, output)
        nowhere = f"--output={self.path('no/p.json')}"
        refused("cannot write to .*no/p.json", "profile", *self.graph, machine, nowhere)
        (self.directory / "feeds.npz").write_text("no archive")
        feeds = f"--feeds={self.path('feeds.npz')}"
        refused("feeds.npz", "profile", *self.graph, feeds, machine, output)


class SimulateGraphTest(ProfileCommandTestCase):
    def simulate(self, *arguments: str):
        report, trace = f"--output={self.path('report.json')}", f"--trace={self.path('trace.json')}"
        machine = f"--machine={_MACHINE}"
        self.call("simulate", *self.graph, machine, report, trace, *arguments)
        self.assertNotEmpty(self.read("trace.json")["traceEvents"])
        return self.read("report.json")

    def place(self, **devices: str) -> str:
        """Writes a placement with all operations below each name, such as a branch, on a device."""
        nodes = graphs.two_branches().graph.as_graph_def().node
        assignment = {
            node.name: device
            for node in nodes
            for name, device in devices.items()
            if node.name.startswith(name)
        }
        used = tuple(dict.fromkeys(devices.values()))
        write_placement(Placement("", used, assignment), self.path("placement.json"))
        return f"--placement={self.path('placement.json')}"

    def test_a_graph_without_devices_is_on_the_first_gpu(self):
        report = self.simulate()
        self.assertTrue(report["feasible"])
        self.assertEqual(report["busy_secs"][2], 0.0)
        self.assertEqual(report["peak_bytes"][2], 0)
        self.assertAllClose(report["busy_secs"][1], report["step_secs"])
        self.assertGreaterEqual(report["step_secs"], report["lower_bound_secs"])

    def test_a_placement_moves_what_it_names(self):
        moved = self.simulate(self.place(chain_0=_GPU_1, chain_1=_CPU))
        self.assertGreater(moved["busy_secs"][2], 0.0)
        self.assertGreater(moved["busy_secs"][0], 0.0)
        # Input and weights of a branch, 32 * 32 numbers each, are on its device.
        self.assertGreaterEqual(moved["peak_bytes"][0], 2 * 4096)
        self.assertGreaterEqual(moved["peak_bytes"][2], 2 * 4096)
        self.assertLess(moved["peak_bytes"][1], 4096)
        # The trace also shows the original.
        events = self.read("trace.json")["traceEvents"]
        steps = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual(steps, ["original", "placement"])

    def test_tensorboard_gets_the_original_and_the_placed_graph(self):
        tensorboard = f"--tensorboard={self.path('tb')}"
        self.simulate(self.place(chain_0=_GPU_1), tensorboard)
        self.assertEqual(sorted(os.listdir(self.path("tb"))), ["original", "placement"])
        self.simulate(f"--tensorboard={self.path('alone')}")
        self.assertEqual(os.listdir(self.path("alone")), ["step"])
        (self.directory / "file").touch()
        self.assert_refused(
            "file' is not a directory",
            *("simulate", *self.graph, f"--machine={_MACHINE}"),
            f"--tensorboard={self.path('file')}",
        )

    def test_a_placeholder_of_unknown_size_is_fed(self):
        with graph_parts.new_graph() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
            # The step needs no variable, and so no initializers.
            tf.compat.v1.get_variable("unused", initializer=1.0)
            tf.matmul(x, x, transpose_b=True, name="result")
        write_graph(self.path("graph.pb"), graph.as_graph_def())
        simulate = ("simulate", *self.graph, f"--machine={_MACHINE}")
        self.assert_refused("'x:0' has the shape .*pass one in feed_dict", *simulate)
        np.savez(self.path("feeds.npz"), x=np.ones([5, 8], np.float32))
        feeds = f"--feeds={self.path('feeds.npz')}"
        self.assertTrue(self.simulate(feeds)["feasible"])
        self.simulate(feeds, "--initializers=unused/Assign")
        self.assert_refused("initializer 'no' is not", *simulate, feeds, "--initializers=no")

    def test_names_operations_that_only_the_placement_has(self):
        placement = Placement("", (_GPU_1,), {"other": _GPU_1, "result": _GPU_1})
        write_placement(placement, self.path("placement.json"))
        with self.assertLogs(level="WARNING") as logs:
            report = self.simulate(f"--placement={self.path('placement.json')}")
        self.assertIn("lacks 1 operations of the placement: 'other'", logs.output[0])
        self.assertGreater(report["busy_secs"][2], 0.0)

    def test_a_wrong_input_is_refused_in_one_sentence(self):
        simulate = ("simulate", *self.graph, f"--machine={_MACHINE}")
        elsewhere = "/job:worker/replica:0/task:0/device:CPU:0"
        placement = self.place(chain_0=elsewhere)
        self.assert_refused(
            "placement.json' on '2xK80': the placement has 'chain_0/.* which is not there",
            *simulate,
            placement,
        )
        (self.directory / "placement.json").write_text("{}")
        self.assert_refused("cannot read the placement .*no entry", *simulate, placement)
        self.assert_refused("cannot write to", *simulate, f"--trace={self.directory}")
        self.assert_refused("--input_graph needs --machine", "simulate", *self.graph)


if __name__ == "__main__":
    tf.test.main()
