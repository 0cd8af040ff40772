"""Tests of the variants of `auto`; `kept_pages_test` has their table."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.paper import PaperProblem
from benchmarks.problems.synthetic import unrolled_lstm
from benchmarks.search_quality import auto_ablation
from benchmarks.search_quality.auto_ablation import VARIANTS, run_variant
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator


def lstm() -> PaperProblem:
    """Makes an unrolled LSTM with its cells as coarse groups."""
    cells = unrolled_lstm(2, 3)
    single = np.arange(cells.num_operations)
    problem = dataclasses.replace(cells, groups=single, coarse_groups=cells.groups)
    return PaperProblem(group_graph(problem), legal_devices(problem), problem, "digest", 0)


class AutoAblationTest(parameterized.TestCase):
    @parameterized.parameters("auto", "whole groups", "single groups")
    def test_what_is_found_is_no_slower_than_one_gpu(self, name):
        problem = lstm()
        run = run_variant(name, "lstm", problem, 1, 0.3)
        self.assertEqual((run.problem, run.variant, run.seed), ("lstm", name, 1))
        legal = problem.legal
        on_gpu = np.where(legal[:, 1], 1, legal.argmax(axis=1)).astype(np.int32)
        one_gpu_secs = Simulator(problem.problem).simulate(on_gpu[None]).step_secs[0]
        self.assertLessEqual(run.step_secs, one_gpu_secs)

    def test_variants_differ_in_how_the_search_is_done(self):
        searches = {}
        for name in VARIANTS:
            with (
                mock.patch.object(auto_ablation, "refined_search", side_effect=KeyError) as search,
                self.assertRaises(KeyError),
            ):
                run_variant(name, "lstm", lstm(), 0, 0.3)
            placed, groups = search.call_args.args
            about = placed.num_groups, placed.coarse_groups is None, search.call_args.kwargs
            searches[name] = groups.num_groups, *about
        for name, each in searches.items():
            self.assertEqual([other for other in searches if searches[other] == each], [name])


if __name__ == "__main__":
    absltest.main()
