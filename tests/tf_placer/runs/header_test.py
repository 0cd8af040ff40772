"""Tests of the header and the digest of a live search."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.scripted import search_config
from tf_placer.environments.measuring_protocol import COLOCRL
from tf_placer.environments.paired import PAIRED
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import find_granularity
from tf_placer.runs.header import live_header, mark_costs_known, request_digest, select_cost_fields
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import LogMismatchError, check_header

tf1 = tf.compat.v1


def make_config(**changes) -> SearchConfig:
    values = {
        "machine": find_machine("local:2,memory_mb=10"),
        "placer": "post",
        "placer_options": {"learning_rate": 0.5},
        "max_trials": 7,
        "max_secs": 12.5,
        "seed": 3,
    }
    return search_config(**{**values, **changes})


class HeaderTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        given = graphs.resource_variables()
        self.workload = read_workload(given.graph, given.fetches, given.feeds)

    def header(
        self,
        graph_def: tf1.GraphDef | None = None,
        step: Step | None = None,
        legal_devices: int = 2,
        **changes,
    ) -> dict:
        config, step = make_config(**changes), step or self.workload.step
        op_graph = OpGraph.from_graph_def(graph_def or self.workload.graph_def, step.fetches)
        granularity = find_granularity(config.placer, config.placer_options)
        grouped = group_operations(op_graph, granularity)
        legal = np.ones([grouped.group_graph.num_groups, legal_devices], bool)
        return live_header(config, step, grouped, legal)

    def digest(
        self, graph_def: tf1.GraphDef | None = None, step: Step | None = None, **changes
    ) -> str:
        step = step or self.workload.step
        op_graph = OpGraph.from_graph_def(graph_def or self.workload.graph_def, step.fetches)
        return request_digest(make_config(**changes), Workload(op_graph, step))

    def build_placed_graph(self) -> tf1.GraphDef:
        """Returns the graph with an original device."""
        graph_def = tf1.GraphDef()
        graph_def.CopyFrom(self.workload.graph_def)
        graph_def.node[0].device = "/job:worker/task:1"
        return graph_def

    def test_a_header_is_json_and_describes_the_search(self):
        header = self.header()
        self.assertEqual(json.loads(json.dumps(header)), header)
        self.assertLen(header["graph_fingerprint"], 64)
        self.assertEqual(header["fetches"], list(self.workload.step.fetches))
        self.assertSameElements(header["feeds"], self.workload.step.feeds)
        for name, value in self.workload.step.feeds.items():
            self.assertStartsWith(header["feeds"][name], value.dtype.name)
        # The blocks of long steps are not named, so that logs of earlier versions go on.
        turns = dataclasses.asdict(PAIRED)
        del turns["most_long_blocks"], turns["long_burst_secs"]
        self.assertEqual(header["protocol"], dataclasses.asdict(COLOCRL) | turns)
        self.assertEqual(header["machine"]["spec"], "local:2,memory_mb=10")
        self.assertEqual(header["placer"], "post")
        self.assertNotIn("unknown", header["versions"].values())

    def test_a_paper_s_protocol_is_another_protocol_than_turns(self):
        header = self.header(protocol="post")
        self.assertEqual(header["protocol"], {"name": "post", "steps": 11, "dropped": 1})
        with self.assertRaisesRegex(LogMismatchError, 'another measuring protocol.* "post"'):
            check_header("x.jsonl", self.header(), header)
        with self.assertRaisesRegex(LogMismatchError, "another measuring protocol"):
            check_header("x.jsonl", header, self.header())

    def test_a_header_has_all_settings_of_the_placer(self):
        configuration = self.header()["configuration"]
        self.assertEqual(configuration["learning_rate"], 0.5)
        self.assertGreater(len(configuration), 1)

    def test_budgets_may_change_between_runs(self):
        other = {"max_trials": 9, "max_secs": 2.0}
        self.assertEqual(self.header(**other), self.header())
        self.assertEqual(self.digest(**other), self.digest())

    def test_all_other_settings_change_header_and_digest(self):
        header, digest = self.header(), self.digest()
        for change in (
            {"seed": 4},
            {"placer": "expert", "placer_options": {}},
            {"machine": find_machine("local:3")},
            {"placer_options": {}},
            {"pin": {"layer_0/*": "/job:worker/task:1"}},
            {"keep_together": ["layer_0/*"]},
            {"protocol": "colocrl"},
            {"step": Step(self.workload.step.fetches[:1])},
        ):
            self.assertNotEqual(self.header(**change), header, change)
            self.assertNotEqual(self.digest(**change), digest, change)

    def test_former_names_of_options_leave_header_and_digest_unchanged(self):
        today, former = (
            {"placer_options": {"reward": "sqrt"}},
            {"placer_options": {"signal": "sqrt"}},
        )
        self.assertEqual(self.header(**former), self.header(**today))
        self.assertEqual(self.digest(**former), self.digest(**today))

    def test_results_of_versions_with_former_names_still_match(self):
        digested, sha256 = [], hashlib.sha256

        def note(data=b""):
            digested.append(data)
            return sha256(data)

        with mock.patch.object(hashlib, "sha256", note):
            self.digest()
        [request] = [data for data in digested if data.startswith(b"{")]
        configuration = json.loads(request)["configuration"]
        self.assertIn("failing_signal", configuration)
        self.assertNotIn("failure_reward", configuration)

    def test_optional_fields_are_present_only_if_the_step_has_them(self):
        plain = self.header()
        runner = QueueRunner("q", ("a",), "b", "c", (11,))
        for field, change in (
            ("initializer_feeds", {"x:0": np.ones([2], np.float32)}),
            ("queue_runners", (runner,)),
            ("restored", {"w": np.zeros([])}),
        ):
            self.assertNotIn(field, plain)
            step = dataclasses.replace(self.workload.step, **{field: change})
            header = self.header(step=step)
            self.assertIn(field, header)
            self.assertEqual(json.loads(json.dumps(header)), header)
            self.assertIn(field, select_cost_fields(header))
            self.assertNotEqual(self.digest(step=step), self.digest())

    def test_original_devices_change_header_and_digest(self):
        header, digest = self.header(), self.digest()
        other = self.header(graph_def=self.build_placed_graph())
        self.assertEqual(other["graph_fingerprint"], header["graph_fingerprint"])
        self.assertNotEqual(other["grouping_fingerprint"], header["grouping_fingerprint"])
        self.assertNotEqual(self.digest(graph_def=self.build_placed_graph()), digest)

    def test_groups_and_legal_devices_change_the_header(self):
        header = self.header()
        self.assertEqual(header["granularity"], "coarse")
        for other in (
            self.header(placer_options={"grouper": "fine"}),
            self.header(legal_devices=3),
        ):
            self.assertNotEqual(other["grouping_fingerprint"], header["grouping_fingerprint"])

    def test_the_session_configuration_changes_header_and_digest(self):
        config = tf1.ConfigProto(inter_op_parallelism_threads=3)
        self.assertNotEqual(self.header(session_config=config), self.header())
        self.assertNotEqual(self.digest(session_config=config), self.digest())

    def test_known_costs_change_the_header_but_not_its_cost_fields(self):
        header = self.header()
        self.assertNotEqual(mark_costs_known(header), header)
        self.assertEqual(select_cost_fields(mark_costs_known(header)), select_cost_fields(header))
        self.assertEqual(select_cost_fields(self.header(seed=4)), select_cost_fields(header))
        other = self.header(machine=find_machine("local:3"))
        self.assertNotEqual(select_cost_fields(other), select_cost_fields(header))


if __name__ == "__main__":
    tf.test.main()
