"""Tests of the table of models in GPUs that are too small for them."""

from __future__ import annotations

import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.search_quality import short_memory
from benchmarks.search_quality.short_memory import (
    RULES,
    fill_like_accelerate,
    measure_row,
    shrink_gpus,
)
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

    def test_a_row_has_the_best_placement_of_each_method(self):
        row = measure_row(shrink_gpus(build_problem(), 0.6), max_simulated=100, seeds=(0, 1))
        self.assertEqual(list(row), [*RULES, "auto"])
        # Two of four in a row on each GPU, and one transfer of a second.
        self.assertEqual([each.step_secs for each in row["layers"]], [5.0])
        self.assertEqual([each.step_secs for each in row["auto"]], [5.0, 5.0])
        self.assertTrue(all(not each.excess_bytes for each in row["auto"]))

    def test_a_row_has_the_excess_of_methods_that_do_not_fit(self):
        row = measure_row(shrink_gpus(build_problem(), 0.1), max_simulated=50)
        self.assertGreater(row["metis"][0].excess_bytes, 0)
        # All on the CPU fits.
        self.assertEqual([each.step_secs for each in row["auto"]], [36.0])
        self.assertEqual(row["auto"][0].excess_bytes, 0)

    def test_layers_fill_gpus_in_order_or_about_equally(self):
        layers = np.array([4, 4, 4, 4])
        in_order = fill_like_accelerate(layers, [99, 99], is_balanced=False)
        self.assertEqual(in_order.tolist(), [0, 0, 0, 0])
        # Each GPU may exceed its 8 bytes by 1.25 layers; a layer's room stays free on the first.
        balanced = fill_like_accelerate(layers, [99, 99], is_balanced=True)
        self.assertEqual(balanced.tolist(), [0, 0, 1, 1])

    def test_a_layer_is_never_split_and_what_is_left_goes_to_the_cpu(self):
        layers = np.array([3, 6, 3, 3, 3])
        # The first GPU keeps 6 bytes free, so that it takes 3; the second has room for 6 of 9.
        devices = fill_like_accelerate(layers, [9, 9], is_balanced=False)
        self.assertEqual(devices.tolist(), [0, 1, 1, 2, 2])

    def test_the_table_says_by_how_much_a_rule_does_not_fit(self):
        out = pathlib.Path(self.create_tempdir().full_path)
        read = mock.Mock(return_value=mock.Mock(problem=build_problem()))
        with (
            mock.patch.object(short_memory, "make_problems", return_value={}),
            mock.patch.object(short_memory, "read_paper_problem", read),
        ):
            short_memory.main(
                ["--models=m", "--shares=0.6,0.1", "--max_trials=50", f"--out_dir={out}"]
            )
        fits, short = (
            line for line in (out / "table.md").read_text().splitlines() if line.startswith("| m ")
        )
        self.assertNotIn("does not fit", fits)
        self.assertRegex(short, r"does not fit: \d+ B too much .* 36\.\d* s")


if __name__ == "__main__":
    absltest.main()
