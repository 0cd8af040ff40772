"""Tests of the table of models in GPUs that are too small for them."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.search_quality.short_memory import RULES, measure_row, shrink_gpus
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.simulation.simulator import Simulator


def build_problem():
    """Builds four operations in a row on a CPU and two GPUs, with 5 bytes each."""
    return build_task_problem(
        [(9, 1, 1)] * 4, [(0, 1, 1), (1, 2, 1), (2, 3, 1)], resident_bytes=[5] * 4
    )


class ShortMemoryTest(absltest.TestCase):
    def test_gpus_get_a_share_of_the_memory_of_all_on_one(self):
        problem = build_problem()
        needed = Simulator(problem).simulate(np.ones([1, 4], np.int32)).peak_bytes[0, 1]
        small = shrink_gpus(problem, 0.5)
        self.assertEqual([d.memory_bytes for d in small.devices[1:]], [needed // 2] * 2)
        self.assertEqual(small.devices[0].memory_bytes, problem.devices[0].memory_bytes)

    def test_a_row_has_the_fastest_step_that_fits(self):
        row = measure_row(shrink_gpus(build_problem(), 0.6), max_secs=1.0)
        self.assertEqual(list(row), [*RULES, "auto"])
        # Two of four in a row on each GPU, and one transfer of a second.
        self.assertEqual(row["expert"], 5.0)
        self.assertEqual(row["auto"], 5.0)
        # There is no table to keep on the CPU.
        self.assertEqual(row["host_embeddings"], np.inf)

    def test_nothing_fits_into_too_little(self):
        row = measure_row(shrink_gpus(build_problem(), 0.1), max_secs=0.5)
        self.assertEqual(row["metis"], np.inf)
        # All on the CPU fits.
        self.assertEqual(row["auto"], 36.0)


if __name__ == "__main__":
    absltest.main()
