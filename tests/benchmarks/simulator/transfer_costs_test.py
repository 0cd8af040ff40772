"""Tests of what sent tensors are said to cost, with times made by hand."""

from __future__ import annotations

import itertools

from absl.testing import absltest

from benchmarks.simulator.transfer_costs import costs
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
        # 16 tensors of 4 bytes take 5 ms each on the link. Task 0 loses 1 ms, task 1 3 ms.
        times = {}
        for products, (source, destination), sent in itertools.product(
            (0, 5), itertools.permutations("ab"), (True, False)
        ):
            used = {f"task {k}": 1.0 + sent * 16 * (0.001 + 0.002 * k) for k in range(2)}
            kept_secs = 16 * 0.1 if products else 0.016
            times[products, source, destination, 4, sent] = OperationTimes((kept_secs,), used)
        at_once, apart = costs(machine, times)
        for cost in (at_once, apart):
            self.assertAlmostEqual(cost.lost_secs, 0.002)
            self.assertEqual(cost.size_bytes, 4)
        # Half of 5 ms, and the overhead if the last one is long ago.
        self.assertAlmostEqual(at_once.rule_secs, 0.0025)
        self.assertAlmostEqual(apart.rule_secs, 0.0065)
        self.assertAlmostEqual(apart.apart_secs, 0.1)
        self.assertEqual((at_once.products_each, apart.products_each), (0, 5))


if __name__ == "__main__":
    absltest.main()
