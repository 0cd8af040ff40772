import numpy as np
from absl.testing import absltest

from benchmarks.search_quality.random_steps import random_step
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator


def some_steps(count, num_groups=10, num_devices=3):
    return [
        random_step(np.random.default_rng(seed), num_groups, num_devices) for seed in range(count)
    ]


class RandomStepTest(absltest.TestCase):
    def test_has_the_groups_and_devices_that_were_asked_for(self):
        for num_groups in (4, 7, 50):
            for num_devices in (2, 8):
                problem = random_step(np.random.default_rng(0), num_groups, num_devices)
                self.assertEqual(np.unique(problem.groups).tolist(), list(range(num_groups)))
                self.assertEqual(problem.num_devices, num_devices)

    def test_the_same_seed_makes_the_same_step(self):
        first, second = (random_step(np.random.default_rng(5), 12, 3) for _ in range(2))
        np.testing.assert_array_equal(first.compute_secs, second.compute_secs)
        np.testing.assert_array_equal(first.edges, second.edges)
        np.testing.assert_array_equal(first.tensor_bytes, second.tensor_bytes)

    def test_all_groups_are_connected(self):
        for problem in some_steps(50):
            reached = {0}
            for _ in range(problem.num_groups):
                for a, b in problem.groups[problem.edges].tolist():
                    if a in reached or b in reached:
                        reached |= {a, b}
            self.assertLen(reached, problem.num_groups)

    def test_every_placement_fits(self):
        for problem in some_steps(20):
            placement = legal_devices(problem).argmax(axis=1)[None]
            self.assertTrue(Simulator(problem, threads=1).simulate(placement).feasible[0])

    def test_steps_are_of_many_kinds(self):
        problems = some_steps(200)
        operations = {problem.num_operations for problem in problems}
        self.assertIn(10, operations)
        self.assertGreater(max(operations), 40)
        for is_so in (
            [legal_devices(p).all() for p in problems],
            [bool(p.links[0].channel) for p in problems],
            [p.devices[0].kind == "CPU" for p in problems],
            [(p.compute_secs[:, 0] == p.compute_secs[:, 1]).all() for p in problems],
            [len(p.edges) == p.num_operations - 1 for p in problems],
        ):
            self.assertBetween(np.mean(is_so), 0.02, 0.98)
        # From transfers that hardly matter to those that take longer than operations.
        mean_secs = [p.tensor_bytes.mean() / p.links[0].bandwidth_bytes_per_sec for p in problems]
        self.assertLess(min(mean_secs), 3e-5)
        self.assertGreater(max(mean_secs), 3e-3)


if __name__ == "__main__":
    absltest.main()
