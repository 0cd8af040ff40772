import numpy as np
from absl.testing import absltest

from benchmarks.search_quality.auto_tight_memory import (
    packed_placement,
    run_one,
    tight_problem,
)
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.simulation.simulator import Simulator


class AutoTightMemoryTest(absltest.TestCase):
    def test_weights_fill_most_of_all_memory(self):
        random = np.random.default_rng(0)
        for _ in range(50):
            tight = tight_problem(random, 60)
            problem = tight.problem
            memory = sum(device.memory_bytes for device in problem.devices)
            full = problem.resident_bytes.sum() / memory
            self.assertAlmostEqual(full, tight.full, delta=0.001)
            self.assertBetween(full, 0.849, 0.981)
            beside = problem.tensor_bytes.sum() + problem.temp_bytes.sum()
            self.assertAlmostEqual((1.0 - full) * memory / beside, tight.room, delta=1.0)

    def test_the_check_finds_what_fits_and_nothing_else(self):
        for sizes, fits in (([30, 25, 15, 10], True), ([35, 25, 15, 10], False)):
            problem = make_problem([[1.0, 1.0]] * 4, resident_bytes=sizes, memory_bytes=[40, 40])
            packed = packed_placement(problem)
            self.assertEqual(packed is not None, fits)
            if fits:
                self.assertTrue(Simulator(problem, threads=1).simulate(packed[None]).feasible[0])

    def test_the_check_counts_what_a_step_needs_beside(self):
        # 30 and 30 fit on 35 and 35 without the tensor of 10 only.
        for size, fits in ((5, True), (10, False)):
            problem = make_problem(
                [[1.0, 1.0]] * 2,
                tensors=[(0, size, [1])],
                resident_bytes=[30, 30],
                memory_bytes=[35, 35],
            )
            self.assertEqual(packed_placement(problem, 1.0) is not None, fits)

    def test_auto_fits_in_what_the_check_fits_in(self):
        for number in range(10):
            run = run_one(number, 600.0, max_simulated=2000, max_groups=60)
            self.assertEqual(run.excess_bytes, 0, run)


if __name__ == "__main__":
    absltest.main()
