"""Tests of profiling with real processes: a graph, links, and the command that does both."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
from collections.abc import Mapping
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.environments.shared_template import share_template
from tf_placer.cli import main as cli
from tf_placer.costs import costed_graph, link_calibration
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.profiling import profile_graph
from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine
from tf_placer.problem.problem_file import read_problem

setUpModule = share_template


class LiveProfileTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.path = str(self.directory / "graph.pb")
        self.cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.cache}))

    def test_every_operation_of_a_small_graph_has_costs(self):
        graph = graphs.v1_ref_variables("rmsprop")
        write_graph(self.path, graph.graph.as_graph_def())
        op_graph = OpGraph.from_graph_def(
            graph.graph.as_graph_def(), graph.fetches, list(graph.feeds)
        )
        whole_steps = []
        measure = SessionEnvironment.measure_assignment

        def measure_and_record(
            environment: SessionEnvironment, assignment: Mapping[str, str]
        ) -> Measurement:
            whole_steps.append(measure(environment, assignment))
            return whole_steps[-1]

        machine = find_machine("local:2")
        with (
            mock.patch.object(SessionEnvironment, "measure_assignment", measure_and_record),
            SessionEnvironment(
                self.path,
                Step(graph.fetches, graph.feeds, graph.initializers),
                machine,
                lambda _: {},
                work_dir=self.directory,
            ) as environment,
        ):
            costs = profile_graph(environment, group_operations(op_graph), machine, steps=4)
            # All measurements ran in one set of processes.
            self.assertEqual(environment.processes.generation, 1)
        self.assertEqual(costs.source, "profiled")
        self.assertEqual(costs.compute_secs.shape, (op_graph.num_operations, 2))
        self.assertAllGreaterEqual(costs.compute_secs, 0.0)
        [whole_step] = whole_steps
        self.assertAllClose(costs.compute_secs.sum(axis=0), [whole_step.median_secs] * 2)
        for name in ("layer_0/MatMul", "train/update_layer_0/weights/ApplyRMSProp"):
            self.assertGreater(costs.compute_secs[op_graph.index[name], 0], 0.0)
        # Unneeded operations, fed placeholders and folded constants take no time.
        self.assertEqual(np.sum(costs.compute_secs[~op_graph.needed]), 0.0)
        self.assertEqual(costs.compute_secs[op_graph.index["x"], 0], 0.0)
        constants = op_graph.needed & op_graph.has_type(["Const"])
        self.assertIn(0.0, costs.compute_secs[constants, 0])
        # No other file is left.
        self.assertEqual([path.name for path in self.directory.iterdir()], ["graph.pb"])

    def test_the_command_profiles_a_graph_and_the_links_between_processes(self):
        write_graph(self.path, graphs.two_branches().graph.as_graph_def())
        output = str(self.directory / "problem.json")
        argv = [
            *("profile", f"--input_graph={self.path}", "--fetches=result:0"),
            *("--machine=local:2,memory_mb=500", "--steps=3", f"--output={output}"),
        ]
        printed, said = io.StringIO(), io.StringIO()
        found = []

        def profile_and_record(*args, **settings) -> OperationCosts:
            found.append(profile_graph(*args, **settings))
            return found[-1]

        with (
            mock.patch.object(costed_graph, "profile_graph", profile_and_record),
            # A short measurement suffices, because the test ignores its precision.
            mock.patch.object(
                link_calibration,
                "_PROTOCOL",
                dataclasses.replace(link_calibration._PROTOCOL, enough_timing_secs=0.1),
            ),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            cli.main(argv)
        self.assertRegex(printed.getvalue(), "costs: profiled; [0-9]+ operations take no time")
        self.assertIn("measuring the links of local:2,memory_mb=500", said.getvalue())
        problem = read_problem(output)
        self.assertEqual([device.memory_bytes for device in problem.devices], [500 * 2**20] * 2)
        self.assertIn("chain_0/MatMul", problem.operation_names)
        self.assertAllGreaterEqual(problem.compute_secs, 0.0)
        self.assertAllGreater(problem.compute_secs.sum(axis=0), 0.0)
        self.assertLen(problem.links, 2)
        for link in problem.links:
            self.assertBetween(link.latency_secs, 1e-7, 1.0)
            self.assertBetween(link.bandwidth_bytes_per_sec, 1e6, 1e13)

        # A second call reuses the links; the costs of the graph are given, to save time.
        with (
            mock.patch.object(costed_graph, "profile_graph", lambda *_, **__: found[0]),
            mock.patch.object(costed_graph, "calibrate_links", None),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            cli.main(argv)
            # Their age matters only when they are old.
            self.assertNotIn("ago", said.getvalue())
            with mock.patch.object(
                costed_graph,
                "_LINK_TIME",
                dataclasses.replace(costed_graph._LINK_TIME, old_secs=-1.0),
            ):
                cli.main(argv)
            self.assertRegex(said.getvalue(), "the links of .* were measured .* ago. If the mach")
            self.assertEqual(read_problem(output).links, problem.links)
            # With --measure_links they are measured again.
            with self.assertRaisesRegex(TypeError, "'NoneType' object is not callable"):
                cli.main([*argv, "--measure_links"])


if __name__ == "__main__":
    tf.test.main()
