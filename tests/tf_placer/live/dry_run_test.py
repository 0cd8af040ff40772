"""Tests of the plan that a dry run prints."""

from __future__ import annotations

import json
import os
import pathlib
from unittest import mock

import tensorflow as tf

from graph_passes.errors import GraphError
from tests import graphs
from tests.tf_placer.scripted import trial
from tf_placer.live import dry_run
from tf_placer.live.dry_run import SearchPlan, plan_search
from tf_placer.live.optimization_target import read_target
from tf_placer.live.preparation import prepare
from tf_placer.machines.machine import MachineError
from tf_placer.runs.header import live_header
from tf_placer.search.config import SearchConfig
from tf_placer.search.trial_log import LogError, TrialLog

TASKS = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]


class DryRunTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.given = graphs.two_branches()

    def plan(self, log_dir: str | None = None, graph: object = None, **changes) -> SearchPlan:
        settings = {
            "machine": "local:2",
            "placer": "random",
            "placer_options": {},
            "max_trials": 8,
            "max_secs": 90.0,
            "seed": 0,
        }
        step = read_target(graph or self.given.graph, self.given.fetches)
        return plan_search(step, SearchConfig(**settings | changes, log_dir=log_dir))

    def test_counts_groups_by_device(self):
        plan = self.plan()
        self.assertEqual(plan.operations, len(self.given.graph.as_graph_def().node))
        self.assertLess(plan.operations_in_step, plan.operations)
        self.assertBetween(plan.groups_to_place, 2, plan.groups)
        self.assertLessEqual(plan.groups, plan.colocation_groups)
        self.assertEqual(plan.groups_by_device, dict.fromkeys(TASKS, plan.groups))
        self.assertIsNone(plan.missing)
        self.assertIn("time:     1 min 30 s or 8 trials at most", plan.table())
        self.assertEqual(json.loads(json.dumps(plan.to_json()))["groups"], plan.groups)
        self.assertEqual(os.listdir(self.directory), [])

    def test_counts_groups_where_pins_let_them_go(self):
        free = self.plan().groups
        plan = self.plan(pin={"chain_0/*": "/task:1"})
        there, here = plan.groups_by_device[TASKS[1]], plan.groups_by_device[TASKS[0]]
        self.assertEqual(there, plan.groups)
        self.assertBetween(here, 1, plan.groups - 1)
        together = self.plan(placer="hill_climbing", keep_together=["chain_*"])
        self.assertLess(together.colocation_groups, free)
        with self.assertRaisesRegex(GraphError, "no operation of the step matches 'chain_2/.*'"):
            self.plan(pin={"chain_2/*": "/task:1"})

    def test_counts_the_same_groups_for_placers_of_any_granularity(self):
        fine = self.plan(placer="hill_climbing")
        self.assertEqual(fine.groups, self.plan().groups)

    def test_reports_profiling_before_the_placer(self):
        with mock.patch.object(dry_run, "find_links", return_value=None):
            plan = self.plan(placer="auto")
        self.assertEqual((plan.is_profiled, plan.are_links_measured), (True, True))
        self.assertIn("auto, which first profiles the graph and measures the links", plan.table())
        with mock.patch.object(dry_run, "find_links", return_value=object()):
            self.assertFalse(self.plan(placer="auto").are_links_measured)

    def test_reports_that_a_search_would_resume(self):
        log_dir = str(self.directory / "run")
        step = read_target(self.given.graph, self.given.fetches)
        grouped = dry_run.group_operations(step.workload.op_graph)
        legal = grouped.grouping.legal_devices(grouped.colocation, tuple(TASKS))
        config = prepare(step, SearchConfig("local:2", "random"))
        header = live_header(config, step.workload.step, grouped, legal)
        with TrialLog(f"{log_dir}/trials.jsonl", header) as log:
            log.append(trial(0, None))
        plan = self.plan(log_dir)
        self.assertEqual(plan.trials_there, 1)
        self.assertIn("has 1 trials of this search: it resumes them", plan.table())
        with self.assertRaisesRegex(LogError, "a log of another seed"):
            self.plan(log_dir, seed=1)

    def test_explains_why_there_is_nothing_to_search_for(self):
        self.assertRegex(str(self.plan(machine="local:1").missing), "one device only")
        with tf.Graph().as_default() as graph:
            weights = tf.compat.v1.get_variable("w", [1024, 1024], use_resource=True)
            tf.identity(weights, name="result")
        small = self.plan(graph=graph, machine="local:2,memory_mb=1")
        self.assertRegex(str(small.missing), "4.000 MiB, and all devices .* have 2.000 MiB")
        graph_def = self.given.graph.as_graph_def()
        for node in graph_def.node:
            node.device = TASKS[0]
        self.assertRegex(
            str(self.plan(graph=graph_def).missing), r"nothing to place\. .*clear_devices=True"
        )
        with self.assertRaisesRegex(MachineError, "is described, not attached"):
            self.plan(machine="2xK80")
        with self.assertRaisesRegex(ValueError, "max_secs must be positive"):
            self.plan(max_secs=0.0)
        for node in graph_def.node:
            node.device = "/job:other/replica:0/task:0/device:CPU:0"
        with self.assertRaisesRegex(GraphError, "local:2 has only"):
            self.plan(graph=graph_def)


if __name__ == "__main__":
    tf.test.main()
