"""Tests of the placers of benchmark runs."""

from __future__ import annotations

from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.harness.run_placers import (
    make_run_placer,
    run_granularity,
    uses_seed,
)
from benchmarks.problems import experts
from benchmarks.problems.paper import PaperProblem
from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.problem.problem_groups import group_graph, legal_devices


def _problem(name="heterogeneous"):
    problem = SMALL_PROBLEMS[name]
    return PaperProblem(group_graph(problem), legal_devices(problem), problem, "", 0)


def _propose(name, options=None, problem=None):
    placer = make_run_placer(name, options or {}, "rnnlm_2", problem or _problem(), seed=0)
    return placer.propose(100).tolist()


class RunPlacersTest(absltest.TestCase):
    def test_a_single_gpu_gets_all_but_what_must_be_elsewhere(self):
        self.assertEqual(_propose("single_gpu"), [[0, 1, 1, 1, 1, 1]])

    def test_the_experts_of_a_model_are_those_of_its_rules(self):
        rules = {"a": np.array([0, 1, 2, 1, 1, 1]), "b": np.array([0, 2, 2, 2, 2, 2])}
        with mock.patch.object(experts, "expert_placements", return_value=rules):
            self.assertEqual(_propose("model_expert"), [rules["a"].tolist(), rules["b"].tolist()])
            self.assertEqual(_propose("model_expert", {"rule": "b"}), [rules["b"].tolist()])
            with self.assertRaisesRegex(ValueError, "no rule 'c' for rnnlm_2; there are a, b"):
                _propose("model_expert", {"rule": "c"})

    def test_placers_that_group_operations_get_operations(self):
        self.assertEqual(run_granularity("hierarchical", {}), "fine")
        self.assertEqual(run_granularity("hierarchical", {"grouper": "metis"}), "fine")
        self.assertEqual(run_granularity("post", {}), "coarse")
        self.assertEqual(run_granularity("model_expert", {}), "coarse")

    def test_only_what_is_random_has_seeds(self):
        self.assertTrue(uses_seed("random"))
        self.assertTrue(uses_seed("post"))
        self.assertFalse(uses_seed("single_gpu"))
        self.assertFalse(uses_seed("heft"))


if __name__ == "__main__":
    absltest.main()
