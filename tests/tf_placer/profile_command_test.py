"""Tests of the commands that turn graphs into problems, on machines that are not there."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib

import numpy as np
import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests import graphs
from tf_placer import cli
from tf_placer.machine import Link, Machine
from tf_placer.machine_lookup import find_machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.profile_command import CostedGraph, cost_graph
from tf_placer.sources import read_source, write_graph

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
        """A bad command says one sentence, fails and writes nothing."""
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
        self.assertNotIn("did not run", printed)
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
        """A placement with everything below a name, such as a branch, on one device."""
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
        # Input and weights of a branch, 32 * 32 numbers each, are where the branch is.
        self.assertGreaterEqual(moved["peak_bytes"][0], 2 * 4096)
        self.assertGreaterEqual(moved["peak_bytes"][2], 2 * 4096)
        self.assertLess(moved["peak_bytes"][1], 4096)

    def test_what_a_placement_has_too_much_is_told(self):
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


class CostedGraphTest(tf.test.TestCase):
    def costed(self, graph: tf.Graph, fetches, machine: Machine | None = None) -> CostedGraph:
        source = read_source(graph, fetches)
        return cost_graph(source, machine or find_machine(_MACHINE), steps=1)

    def devices(self, problem: PlacementProblem, placement: np.ndarray) -> dict[str, int]:
        """Where each operation is."""
        return dict(zip(problem.operation_names, placement[problem.groups].tolist(), strict=True))

    def test_what_no_step_needs_has_no_device(self):
        graph = graphs.saver_and_summaries()
        problem, placement = self.costed(graph.graph, graph.fetches).placed(None)
        self.assertEqual(placement.shape, (problem.num_groups,))
        self.assertEqual(placement.dtype, np.int32)
        self.assertLess(problem.num_operations, len(graph.graph.get_operations()))

    def test_operations_are_where_the_graph_has_them_or_where_tensorflow_puts_them(self):
        with tf.Graph().as_default() as graph:
            words = tf.constant(["a", "b"], name="words")
            a = tf.random.uniform([2], name="a")
            with tf.device("/gpu:1"):
                b = tf.add(a, 1.0, name="b")
            with tf.device("/cpu:0"):
                c = tf.add(b, 1.0, name="c")
            with tf.device("/gpu:7"):
                d = tf.add(c, 1.0, name="d")
            lengths = tf.strings.length(words, name="lengths")
            tf.group(d, lengths, name="all")
        problem, placement = self.costed(graph, ["all"]).placed(None)
        devices = self.devices(problem, placement)
        wanted = {"a/RandomUniform": 1, "b": 2, "c": 0, "lengths": 0, "words": 0}
        self.assertEqual({name: devices[name] for name in wanted}, wanted)
        # A device that is not there is the first, as for a session with soft placement.
        self.assertEqual(devices["d"], 0)
        secs = problem.compute_secs[np.arange(len(devices)), list(devices.values())]
        self.assertTrue(np.isfinite(secs).all())

    def test_the_groups_of_a_search_are_fewer_than_those_of_a_placement(self):
        graph = graphs.lstm()
        costed = self.costed(graph.graph, graph.fetches)
        self.assertLess(costed.problem().num_groups, costed.placed(None)[0].num_groups)
        self.assertEqual(costed.problem().operation_names, costed.placed(None)[0].operation_names)

    def test_without_gpus_everything_is_on_the_first_cpu(self):
        known = find_machine(_MACHINE)
        names = (_CPU, f"{_CPU[:-1]}1")
        devices = tuple(
            dataclasses.replace(known.devices[0], name=name, memory_bytes=10**9) for name in names
        )
        links = (Link(*names, 1e-5, 1e9), Link(*names[::-1], 1e-5, 1e9))
        machine = Machine("two CPUs", "described", devices, links, known.classes)
        graph = graphs.two_branches()
        _, placement = self.costed(graph.graph, graph.fetches, machine).placed(None)
        self.assertEqual(set(placement.tolist()), {0})


if __name__ == "__main__":
    tf.test.main()
