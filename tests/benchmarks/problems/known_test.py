import itertools

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.known import FAMILIES, known_problem, stretches
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

# What a known placement of a small problem, where pipelines hardly fill, may take by the bound.
_WORST = 1.5


class KnownTest(parameterized.TestCase):
    @parameterized.parameters(*FAMILIES)
    def test_the_known_placement_is_near_the_bound_and_better_than_one_device(self, family):
        known = known_problem(family, 1000)
        one_device = np.zeros_like(known.placement)
        simulator = Simulator(known.problem, threads=1)
        step_secs, one_secs = simulator.simulate(np.stack([known.placement, one_device])).step_secs
        bound_secs = lower_bounds(known.problem).step_secs
        self.assertBetween(step_secs, bound_secs, _WORST * bound_secs)
        self.assertLess(2 * step_secs, one_secs)

    @parameterized.parameters(*FAMILIES)
    def test_there_are_about_as_many_operations_as_asked_for(self, family):
        for size in (1000, 6000):
            count = known_problem(family, size).problem.num_operations
            self.assertBetween(count, 0.9 * size, 1.1 * size)

    def test_the_known_placement_gets_better_with_size(self):
        ratios = []
        for size in (600, 3000):
            known = known_problem("grid", size)
            step_secs = Simulator(known.problem, threads=1).simulate(known.placement[None])
            ratios.append(step_secs.step_secs[0] / lower_bounds(known.problem).step_secs)
        self.assertLess(ratios[1], ratios[0])

    def test_numbers_and_names_tell_nothing(self):
        known = known_problem("grid", 2000)
        problem, count = known.problem, known.problem.num_operations
        self.assertIsNone(problem.layers)
        self.assertIsNone(problem.coarse_groups)
        self.assertEqual(problem.operation_names[7], "operation_7")
        order = np.empty(count)
        order[problem.order] = np.arange(count)
        for numbers in (problem.groups, order):
            self.assertLess(abs(np.corrcoef(np.arange(count), numbers)[0, 1]), 0.1)
        device_of_operation = known.placement[problem.groups]
        self.assertLess(abs(np.corrcoef(np.arange(count), device_of_operation)[0, 1]), 0.1)

    def test_the_heaviest_stretch_is_as_light_as_possible(self):
        random = np.random.default_rng(0)
        for num_places, num_parts in itertools.product((1, 3, 7), (1, 2, 4)):
            loads = random.lognormal(size=num_places)
            parts = stretches(loads.tolist(), num_parts)
            self.assertTrue((np.diff(parts, prepend=0) >= 0).all())
            self.assertLess(parts.max(), num_parts)
            all_cuts = itertools.combinations_with_replacement(range(num_places + 1), num_parts - 1)
            least = min(max(part.sum() for part in np.split(loads, cut)) for cut in all_cuts)
            self.assertAlmostEqual(np.bincount(parts, loads).max(), least)


if __name__ == "__main__":
    absltest.main()
