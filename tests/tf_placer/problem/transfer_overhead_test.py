"""Tests of the share of its overhead that a device loses to a transfer."""

from __future__ import annotations

import math

from absl.testing import absltest, parameterized

from tf_placer.problem.transfer_overhead import overhead_part


class OverheadPartTest(parameterized.TestCase):
    @parameterized.parameters(
        (-1.0, 0.25),
        (0.0, 0.25),
        (0.01 / 81, 1 / 3),
        (0.01 / 4, 0.625),
        (0.01, 1.0),
        (5.0, 1.0),
        (math.inf, 1.0),
    )
    def test_the_part_grows_up_to_ten_milliseconds(self, gap_secs, part):
        self.assertAlmostEqual(overhead_part(gap_secs), part)


if __name__ == "__main__":
    absltest.main()
