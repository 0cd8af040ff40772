import itertools

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.search_quality.irregular_families import FAMILIES, irregular_problem
from tf_placer.simulation.simulator import Simulator


def make_problems(sizes=(20, 60), seeds=(0, 1)):
    for family, size, seed in itertools.product(FAMILIES, sizes, seeds):
        yield family, size, irregular_problem(family, size, seed)


class IrregularFamiliesTest(parameterized.TestCase):
    def test_there_are_about_as_many_groups_as_asked(self):
        for family, size, problem in make_problems((60, 250)):
            # A last cell, round or U-net may follow; recurrent cells come in whole columns.
            self.assertBetween(problem.num_groups, size - 10, size + 75, family)

    def test_a_group_has_a_forward_operation_and_its_backward_operation(self):
        for _, _, problem in make_problems():
            for group in range(problem.num_groups):
                names = [
                    problem.operation_names[k] for k in np.flatnonzero(problem.groups == group)
                ]
                self.assertEqual(names, [f"layer_{group}/forward", f"layer_{group}/backward"])

    def test_gradients_flow_back_along_all_edges(self):
        for family, _, problem in make_problems():
            forward, backward = set(), set()
            for before, after in problem.edges.tolist():
                pair = (problem.groups[before], problem.groups[after])
                if after < problem.num_groups:
                    forward.add(pair)
                elif before >= problem.num_groups:
                    backward.add(pair[::-1])
                else:
                    self.assertEqual(*pair)
            self.assertEqual(forward, backward, family)

    def test_the_loss_depends_on_all_layers(self):
        for family, _, problem in make_problems():
            reached = {problem.num_groups - 1}
            for before, after in sorted(problem.edges.tolist(), key=lambda edge: -edge[1]):
                if after in reached and after < problem.num_groups:
                    reached.add(before)
            self.assertLen(reached, problem.num_groups, family)

    def test_a_device_alone_takes_the_sum_of_all_times(self):
        for _, _, problem in make_problems(seeds=(0,)):
            placements = np.repeat(np.arange(problem.num_devices)[:, None], problem.num_groups, 1)
            batch = Simulator(problem, threads=1).simulate(placements)
            self.assertTrue(batch.feasible.all())
            np.testing.assert_allclose(batch.step_secs, problem.compute_secs.sum(axis=0))

    def test_the_seed_decides(self):
        for family in FAMILIES:
            one, same, other = (irregular_problem(family, 40, seed) for seed in (3, 3, 4))
            np.testing.assert_array_equal(one.compute_secs, same.compute_secs)
            np.testing.assert_array_equal(one.edges, same.edges)
            self.assertFalse(np.array_equal(one.compute_secs, other.compute_secs))

    def test_transfers_take_about_as_long_as_operations(self):
        for family, _, problem in make_problems():
            operation_secs = np.mean(problem.compute_secs.min(axis=1))
            for link in problem.links:
                transfer_secs = np.mean(problem.tensor_bytes) / link.bandwidth_bytes_per_sec
                self.assertBetween(transfer_secs / operation_secs, 0.05, 20.0, family)


if __name__ == "__main__":
    absltest.main()
