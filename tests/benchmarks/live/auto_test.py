"""Tests of what is told about live searches by `auto`, with an optimiser that pretends."""

from __future__ import annotations

import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.live import auto as auto_live
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.scripted import Script, search_config, trial
from tf_placer.confirmation.confirmation import Comparison, Confirmation
from tf_placer.environments.environment import Measurement
from tf_placer.inputs.sources import Source
from tf_placer.inputs.step import Step
from tf_placer.live.result import OptimizeResult
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import AUTO, granularity_of
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.trial_log import ORIGINAL


def made_up(winner, assignments=None, log_dir=None) -> OptimizeResult:
    """A result with finalists of these assignments."""
    assignments = assignments or {"single_device": [0], "expert": [1], "auto": [0]}
    return OptimizeResult(
        tf.compat.v1.GraphDef(),
        winner is not None,
        "because",
        winner=winner,
        finalists={
            ORIGINAL: trial(0, None),
            **{label: trial(1, row) for label, row in assignments.items()},
        },
        trials=(trial(0, None), trial(1, [0])),
        log_dir=log_dir,
    )


def against(found, speedups, secs=0.1) -> Confirmation:
    """What has these speed-ups over what was found, known to a factor of 2 in both directions."""
    comparisons = {
        label: Comparison(speedup, speedup and (speedup / 2, speedup * 2), False, "")
        for label, speedup in speedups.items()
    }
    return Confirmation(found, (), ({found: Measurement((secs,))},) * 4, comparisons, found)


class RowTest(absltest.TestCase):
    def test_the_others_are_compared_with_what_was_found_and_told_the_other_way_round(self):
        again = against("auto", {ORIGINAL: 0.625, "single_device": 0.5, "expert": None})
        row = auto_live.graph_row("graph", made_up("auto"), 12.34, again)
        self.assertEqual(row[:5], ["graph", "2", "12 s", "auto", "100.0 ms"])
        self.assertEqual(row[5:], ["1.600x (0.800 to 3.200)", "2.000x (1.000 to 4.000)", "-"])

    def test_where_nothing_was_found_nothing_is_compared(self):
        row = auto_live.graph_row("graph", made_up(None), 1.0, None)
        self.assertEqual(row[3:], ["as it came", "-", "-", "-", "-"])


class MeasureAgainTest(absltest.TestCase):
    def test_what_was_found_is_measured_beside_the_original_and_the_baselines(self):
        graph = graphs.two_branches()
        graph_def = graph.graph.as_graph_def()
        machine = find_machine("local:2")
        first, second = (device.name for device in machine.devices)
        directory = RunDirectory(self.create_tempdir().full_path)
        step = Step(graph.fetches, graph.feeds, graph.initializers)
        op_graph = OpGraph.from_graph_def(graph_def, graph.fetches, list(graph.feeds))
        config = search_config(machine=machine, placer=AUTO)
        directory.write_request(Source(op_graph, step), config)
        groups = group_operations(op_graph, granularity_of(AUTO)).group_graph.num_groups
        split = np.arange(groups) % 2
        script = Script(
            secs=lambda assignment: {
                (): 0.2,
                (first,): 0.25,
                (second,): 0.4,
                (first, second): 0.125,
            }[tuple(sorted(set(assignment.values())))]
        )
        result = made_up(
            "auto",
            {"single_device": [0] * groups, "expert": [1] * groups, "auto": split, "other": split},
            directory.path,
        )
        with mock.patch.object(auto_live, "SessionEnvironment", script.environment):
            again = auto_live.measure_again(result)
        [made] = script.made
        self.assertTrue(made["meta_optimizer"])
        self.assertEqual(made["machine"], machine)
        self.assertEqual(made["graph_path"], directory.graph)
        self.assertEqual(again.reference, "auto")
        # The last one is not asked about.
        self.assertCountEqual(again.comparisons, [ORIGINAL, "single_device", "expert"])
        for label, expected in ((ORIGINAL, 1.6), ("single_device", 2.0), ("expert", 3.2)):
            self.assertAlmostEqual(1 / again.comparisons[label].speedup, expected)


class MainTest(absltest.TestCase):
    def test_the_time_of_a_search_stands_if_measuring_again_is_broken_off(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        arguments = ["--graphs", "two_branches", f"--log_dir={directory}", f"--out_dir={directory}"]

        def optimize(graph, *arguments, log_dir, **settings):
            del graph, arguments, settings
            pathlib.Path(log_dir).mkdir(parents=True, exist_ok=True)
            return made_up("auto")

        with (
            mock.patch.object(auto_live.tf_placer, "optimize", optimize, create=True),
            mock.patch.object(auto_live, "measure_again") as again,
        ):
            again.side_effect = [KeyboardInterrupt(), against("auto", {ORIGINAL: 0.8})]
            with self.assertRaises(KeyboardInterrupt):
                auto_live.main(arguments)
            (directory / "two_branches" / "searched.json").write_text("77.0")
            # The third call finds the row.
            for _ in range(2):
                auto_live.main(arguments)
                self.assertRegex(
                    (directory / "auto_live.md").read_text(),
                    r"\| two_branches \| 2 \| 1 min 17 s \| auto \| .* \| 1\.250x \(",
                )


if __name__ == "__main__":
    absltest.main()
