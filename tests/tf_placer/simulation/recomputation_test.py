"""Tests of steps in which activations are computed again."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.training_steps import build_repeatable
from tf_placer.simulation.recomputation import (
    Recomputation,
    find_recomputation,
    recompute_tensors,
)
from tf_placer.simulation.simulator import Simulator

ON_GPU = np.ones(6, np.int32)


class RecomputationTest(absltest.TestCase):
    def test_repeats_nothing_where_all_fits(self):
        self.assertEqual(
            recompute_tensors(build_repeatable(13), ON_GPU), Recomputation(0, 52.0, 52.0)
        )

    def test_repeats_the_cheapest_operation_for_its_bytes(self):
        # The output of operation 1 is freed after operation 2, and computed again for operation 4
        # from that of operation 0, which operation 5 still needs.
        self.assertEqual(Simulator(build_repeatable(99)).trace(ON_GPU).peak_bytes[1], 13)
        self.assertEqual(
            recompute_tensors(build_repeatable(12), ON_GPU), Recomputation(1, 54.0, 52.0)
        )

    def test_repeats_no_random_numbers_and_nothing_with_state(self):
        for kind in ("RandomUniform", "VariableV2", "Switch", "AssignAddVariableOp"):
            types = f"MatMul {kind} Tanh MatMul Mul Mul"
            found = recompute_tensors(build_repeatable(12, types), ON_GPU)
            # Operation 0 runs again instead, from nothing, for 10 s.
            self.assertEqual(found, Recomputation(1, 62.0, 52.0), kind)

    def test_says_that_it_is_not_enough(self):
        # An operation reads and writes 4 bytes each.
        self.assertIsNone(recompute_tensors(build_repeatable(7), ON_GPU))
        held = dataclasses.replace(build_repeatable(13), resident_bytes=np.array([0] * 5 + [9]))
        self.assertIsNone(recompute_tensors(held, ON_GPU))

    def test_is_unknown_without_the_types_of_operations(self):
        plain = dataclasses.replace(build_repeatable(12), operation_types=None)
        self.assertIsNone(recompute_tensors(plain, ON_GPU))

    def test_finds_the_shortest_of_several_placements(self):
        problem = build_repeatable(12)
        free = dataclasses.replace(
            problem, compute_secs=np.where(np.isinf(problem.compute_secs), 99.0, 1.0)
        )
        placements = [np.zeros(6, np.int32), ON_GPU]
        found = find_recomputation(free, placements, max_secs=60.0)
        self.assertEqual(found, Recomputation(1, 7.0, 6.0))
        self.assertIsNone(find_recomputation(free, placements, max_secs=0.0))

    def test_describes_the_operations_and_the_loss(self):
        self.assertEqual(
            Recomputation(3, 1.04, 1.0).describe(),
            "fits with recomputation of 3 operations: 1.040 s a step, 4.0% slower than with "
            "enough memory (an estimate)",
        )


if __name__ == "__main__":
    absltest.main()
