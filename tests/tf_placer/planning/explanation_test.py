"""Tests of explaining a placement."""

from __future__ import annotations

import os

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer.small_problem import small_problem
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.problem.problem_file import write_problem


class ExplainTest(absltest.TestCase):
    def test_lists_the_limits_of_a_step_and_helpful_changes(self):
        problem = two_chain_problem(2)
        explanation = tf_placer.explain(problem, [0, 0, 0, 0], max_secs=2.0)
        compute = {limit.where: limit.share for limit in explanation.limits.limits[:2]}
        self.assertEqual([*compute.values()], [1.0, 0.0])
        self.assertNotEmpty(explanation.changes)
        for change in explanation.changes:
            self.assertLessEqual(change.step_secs, explanation.limits.step_secs)
        self.assertIn("what if", str(explanation))
        self.assertIn("what if", explanation._repr_html_())
        self.assertRegex(
            repr(explanation), "^<PlacementExplanation: step .* ms, lower bound .* ms>$"
        )

    def test_reads_the_file_of_a_problem(self):
        problem = small_problem()
        path = os.path.join(self.create_tempdir().full_path, "problem.json")
        write_problem(problem, path)
        placement = np.zeros(problem.num_groups, np.int32)
        explanation = tf_placer.explain(path, placement, max_secs=0.1)
        step = tf_placer.simulate(problem, placement)
        self.assertEqual(explanation.limits.step_secs, step.step_secs)

    def test_refuses_a_placement_that_does_not_run(self):
        problem = small_problem(cpu_bytes=31, gpu_bytes=5)
        with self.assertRaisesRegex(ValueError, "does not run: .* has room for 31"):
            tf_placer.explain(problem, np.zeros(problem.num_groups, np.int32))


if __name__ == "__main__":
    absltest.main()
