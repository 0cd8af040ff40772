"""Tests of whether two problems are of one graph."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest

from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.problem.common_operations import describe_difference


def name_operations(*names):
    return dataclasses.replace(two_chain_problem(2), operation_names=names)


class CommonOperationsTest(absltest.TestCase):
    def test_half_of_the_smaller_graph_is_enough(self):
        four = name_operations("a", "b", "c", "d")
        self.assertIsNone(describe_difference(four, name_operations("a", "b", "x", "y")))
        self.assertEqual(
            describe_difference(four, name_operations("a", "w", "x", "y")),
            "of 4 operations they have 1 in common",
        )


if __name__ == "__main__":
    absltest.main()
