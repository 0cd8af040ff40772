"""Tests of the share of convolutions."""

import dataclasses

from absl.testing import absltest

import tf_placer
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.report.convolutions import CONVOLUTION_CAVEAT, compute_convolution_share


class ConvolutionsTest(absltest.TestCase):
    def make(self, *types):
        # An operation takes 3 s, 1 s and 1 s on the GPU, and ten times as long on the CPU.
        secs = [(30.0, 3.0), (10.0, 1.0), (10.0, 1.0)]
        return dataclasses.replace(build_task_problem(secs), operation_types=types)

    def test_the_share_is_of_the_time_on_a_gpu(self):
        problem = self.make("Conv2D", "MatMul", "Relu")
        self.assertEqual(compute_convolution_share(problem), 0.6)
        self.assertEqual(compute_convolution_share(self.make("MatMul", "Relu", "Relu")), 0.0)

    def test_comparisons_and_plans_warn_where_convolutions_are_a_large_part(self):
        for types, is_warned in ((("Conv2D", "MatMul", "Relu"), True), (("MatMul",) * 3, False)):
            result = tf_placer.plan(self.make(*types), max_trials=20, max_secs=1.0)
            said = [CONVOLUTION_CAVEAT in line for line in result.list_remarks()]
            self.assertEqual(any(said), is_warned)
            findings = tf_placer.compare({"one": result}).list_findings()
            expected = f"convolutions are 60% of the work: {CONVOLUTION_CAVEAT}"
            self.assertEqual(expected in findings, is_warned)


if __name__ == "__main__":
    absltest.main()
