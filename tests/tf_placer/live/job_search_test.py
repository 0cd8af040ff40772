"""Tests of the stages of a live search, with scripted steps."""

from __future__ import annotations

import json
import pathlib
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from tests.graph_parts import new_graph
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, uses_two_devices
from tf_placer.confirmation.outcome import Outcome
from tf_placer.live import optimization, preparation
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import optimize
from tf_placer.live.optimization_target import read_target
from tf_placer.live.profiling import profile
from tf_placer.planning.plan import plan
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig

tf1 = tf.compat.v1


def build(size: int = 3) -> tf.Graph:
    """Builds two chains of products of different data, float32 [size, size]."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [size, size], name="x")
        ends = []
        for tower in range(2):
            value = x + float(tower)
            for k in range(4):
                value = tf.matmul(value, value, name=f"t{tower}_{k}")
            ends.append(tf.reduce_sum(value))
        tf.add_n(ends, name="loss")
    return graph


def split_is_faster(assignment) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


class JobSearchTest(tf.test.TestCase):
    def test_measures_a_given_plan_and_nothing_else(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        script, path = Script(secs=split_is_faster), directory / "best.json"

        def search_here(search_dir, given, callback, start_secs, host, forks, max_secs):
            del host, forks, max_secs
            return live_run.run(
                RunDirectory(given),
                search_dir,
                callback,
                script.environment,
                start_secs=start_secs,
            )

        feeds = {"x:0": np.ones([3, 3], np.float32)}
        problem = profile(
            *(build(), ["loss:0"], feeds),
            machine="2xEPYC-7742-socket",
            output=directory / "problem.json",
            verbose=False,
        )
        planned = plan(problem, placer="random", max_trials=1).placement
        names = [f"/job:worker/replica:0/task:{k}/device:CPU:0" for k in range(2)]
        self.assertEqual(list(planned.devices), names)
        self.assertLen(set(planned.assignment.values()), 2)
        plan(problem, placer="random", max_trials=1, output=path)
        config = SearchConfig("local:2", "given", {"start": str(path)})
        with mock.patch.object(optimization, "run_search", search_here):
            result = optimize(build(), ["loss:0"], feeds, config=config, verbose=False)
        self.assertEqual([each.placer for each in result.trials], ["original", "given"])
        self.assertEqual((result.outcome, result.winner), (Outcome.FASTER, "given"))
        for name in ("t0_0", "t0_3", "t1_0", "t1_3"):
            self.assertEqual(result.placement.assignment[name], planned.assignment[name], name)

    def test_says_where_a_given_plan_was_made_for_another_step(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        path = directory / "best.json"

        def plan_for(size: int) -> dict[str, Any]:
            problem = profile(
                *(build(size), ["loss:0"], {"x:0": np.ones([size, size], np.float32)}),
                machine="2xEPYC-7742-socket",
                output=directory / "problem.json",
                verbose=False,
            )
            plan(problem, placer="random", max_trials=1, output=path)
            return json.loads(path.read_text())

        def describe(values: dict[str, Any]) -> list[str]:
            path.write_text(json.dumps(values))
            feeds = {"x:0": np.ones([3, 3], np.float32)}
            given = read_target(build(), fetches=["loss:0"], feed_dict=feeds)
            config = SearchConfig("local:2", "given", {"start": str(path)})
            return preparation.describe_start(given, preparation.prepare(given, config))

        self.assertEmpty(describe(plan_for(3)))
        values = plan_for(5)
        [line] = describe(values)
        self.assertEqual(
            line,
            f"{str(path)!r} was made for another step: it was planned for a batch of 5, not of 3",
        )
        assignment = values["placement"]["assignment"]
        total = len(assignment)
        assignment["other"] = assignment.pop("t0_0")
        [line] = describe(values)
        self.assertIn(
            f"1 of its {total} operations are not in the graph, such as 'other'; it lacks 1 of the "
            f"{total} operations of the step, such as 't0_0'; it was planned for",
            line,
        )
        values["placement"]["assignment"] = {"other": assignment["other"]}
        with self.assertRaisesRegex(
            GraphError, "none of its 1 operations is in it, such as 'other'"
        ):
            describe(values)


if __name__ == "__main__":
    tf.test.main()
