"""Tests of what sent tensors are said to cost, with times made by hand."""

from __future__ import annotations

import itertools

from absl.testing import absltest

from benchmarks.simulator.transfer_costs import Cost, costs, fit_growth
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.machines.machine import Device, Link, Machine


class CostsTest(absltest.TestCase):
    def test_it_is_the_processor_time_beside_that_of_the_products(self):
        machine = Machine(
            "local:2",
            "local",
            tuple(
                Device(name, "CPU", transfer_share=0.5, transfer_overhead_secs=0.004)
                for name in "ab"
            ),
            (Link("a", "b", 1e-3, 1e3), Link("b", "a", 1e-3, 1e3)),
        )
        # Tensors of 4 bytes take 5 ms each on the link. Task 0 loses 1 ms, task 1 3 ms. The
        # products of 128, or of 4, take so long that they are on their way in turns, or that 100 ms
        # are in between.
        num_tensors = {(1, 4): 32, (64, 128): 64}
        times = {}
        for manner, (source, destination), sent in itertools.product(
            num_tensors, itertools.permutations("ab"), (True, False)
        ):
            lost = [sent * num_tensors[manner] * (0.001 + 0.002 * k) for k in range(2)]
            # Products take as long as what disturbs them lets them.
            used = {f"task {k}": (1.0 + lost[k], 9.0 + lost[k], 2.0 + lost[k]) for k in range(2)}
            kept_secs = 32 * 0.103 if manner == (1, 4) else 0.064
            times[manner, source, destination, 4, sent] = OperationTimes((kept_secs,), used)
        apart, at_once = costs(machine, times)
        for cost in (apart, at_once):
            self.assertAlmostEqual(cost.lost_secs, 0.002)
            self.assertEqual(cost.size_bytes, 4)
        self.assertEqual((apart.at_a_time, apart.products_between), (1, 4))
        self.assertEqual((at_once.at_a_time, at_once.products_between), (64, 128))
        self.assertAlmostEqual(apart.gap_secs, 0.1)
        self.assertEqual(at_once.gap_secs, 0.0)
        # Half of 4 ms, and the overhead if the last one is long ago, else a quarter of it.
        self.assertAlmostEqual(apart.rule_secs, 0.006)
        self.assertAlmostEqual(at_once.rule_secs, 0.003)


class FitGrowthTest(absltest.TestCase):
    def test_it_finds_the_power_that_costs_were_made_with(self):
        found = []
        for at_a_time, gap_secs in ((1, 0.0), (1, 0.0005), (1, 0.002), (1, 0.02), (4, 0.005)):
            lost_secs = 1e-4 + 3e-4 * min(gap_secs / 0.01, 1.0) ** 0.7 / at_a_time
            found.append(Cost(at_a_time, 1, 4, gap_secs, lost_secs, 0.0))
        growth = fit_growth(found)
        self.assertAlmostEqual(growth.power, 0.7)
        self.assertAlmostEqual(growth.least_secs, 1e-4)
        self.assertAlmostEqual(growth.most_secs, 4e-4)


if __name__ == "__main__":
    absltest.main()
