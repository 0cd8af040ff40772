import dataclasses
import itertools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.simulation import oracle
from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation import lower_bounds as lower_bounds_module
from tf_placer.simulation.lower_bounds import lower_bounds

INF = math.inf


def all_placements(problem):
    choices = [np.flatnonzero(row) for row in legal_devices(problem)]
    return [np.array(placement) for placement in itertools.product(*choices)]


def best_split_secs(secs):
    """Computes the best balance on two devices exactly.

    With weights w and 1 - w the bound is concave in w and bends only where a group costs the same
    on both.
    """
    bends = [b / (a + b) for a, b in secs] + [0.0, 1.0]
    return max(sum(min(w * a, (1 - w) * b) for a, b in secs) for w in bends)


class LowerBoundsTest(parameterized.TestCase):
    def test_no_simulated_step_of_any_placement_is_shorter(self):
        rng = np.random.default_rng(1)
        num_problems = num_reached = 0
        while num_problems < 60:
            problem = random_problem(rng, max_operations=7)
            if legal_devices(problem).sum(axis=1).prod() > 150:
                continue
            bounds = lower_bounds(problem)
            step_secs = min(
                oracle.simulate(problem, placement).step_secs
                for placement in all_placements(problem)
            )
            for part, secs in bounds.by_part.items():
                self.assertGreaterEqual(step_secs, secs, part)
            self.assertEqual(bounds.step_secs, max(bounds.by_part.values()))
            self.assertEqual(bounds.by_part[bounds.binding], bounds.step_secs)
            num_problems += 1
            num_reached += step_secs <= bounds.step_secs * 1.001
        # They are not merely low: for many small problems some placement reaches them.
        self.assertGreater(num_reached, 20)

    def test_the_critical_path_takes_the_fastest_device_of_each_group(self):
        # op0 -> op1 by a tensor, op1 -> op3 by a control edge; op2 is alone. op0 and op1 are one
        # group, and op1 may not go to D1, so op0 takes 5 s though it would take 1 s there.
        problem = make_problem(
            [[5.0, 1.0], [2.0, INF], [7.0, 6.0], [4.0, 3.0]],
            tensors=[(0, 10, [1])],
            control_edges=[(1, 3)],
            groups=[0, 0, 1, 2],
        )
        self.assertEqual(lower_bounds(problem).critical_path_secs, 5 + 2 + 3)

    def test_a_join_waits_for_its_turn_or_for_a_transfer(self):
        # op0 and op1 end at 2 s if they are apart, and one of them is then sent for 5 s.
        problem = make_problem(
            [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]],
            tensors=[(0, 4, [2]), (1, 4, [2])],
            latency_secs=1.0,
        )
        bounds = lower_bounds(problem)
        self.assertEqual(bounds.critical_path_secs, 3.0)
        self.assertAlmostEqual(bounds.joins_secs, 5.0)
        self.assertEqual(bounds.binding, "joins")

    def test_a_group_waits_for_its_inputs_and_runs_on_one_device(self):
        # Three operations of one group behind one of another.
        problem = make_problem(
            [[1.0, 1.0], *[[2.0, 2.0]] * 3],
            tensors=[(0, 0, [1, 2, 3])],
            groups=[0, 1, 1, 1],
        )
        bounds = lower_bounds(problem)
        self.assertAlmostEqual(bounds.groups_secs, 7.0)
        self.assertAlmostEqual(bounds.work_secs, 6.0)

    def test_a_window_holds_no_more_work_than_devices(self):
        # Four operations of a second between one that comes first and one that comes last.
        problem = make_problem(
            [[3.0, 3.0], *[[1.0, 1.0]] * 4, [4.0, 4.0]],
            control_edges=[(0, k) for k in range(1, 5)] + [(k, 5) for k in range(1, 5)],
            latency_secs=0.0,
        )
        bounds = lower_bounds(problem)
        self.assertEqual(bounds.critical_path_secs, 8.0)
        self.assertAlmostEqual(bounds.windows_secs, 9.0)

    def test_merging_many_groups_loosens_the_bound_little(self):
        rng = np.random.default_rng(3)
        sizes = rng.lognormal(0, 1, [5000, 1])
        for speeds in (np.ones([5000, 3]), rng.lognormal(0, 1, [5000, 3])):
            secs = (sizes * speeds).tolist()
            unmerged = dataclasses.replace(lower_bounds_module._MERGING, max_groups=10**6)
            work_secs = lower_bounds(make_problem(secs)).work_secs
            with mock.patch.object(lower_bounds_module, "_MERGING", unmerged):
                exact = lower_bounds(make_problem(secs)).work_secs
            self.assertLessEqual(work_secs, exact * (1 + 1e-3))
            self.assertGreater(work_secs, exact * 0.999)

    def test_many_groups_that_all_differ_are_merged(self):
        # Measured times make all groups slightly different.
        rng = np.random.default_rng(3)
        secs = rng.lognormal(0, 1, [20_000, 5])
        kinds = lower_bounds_module._merge_similar(secs)
        self.assertLessEqual(len(kinds), 4096)
        np.testing.assert_allclose(kinds.sum(axis=0), secs.sum(axis=0))

    def test_the_bounds_of_a_problem_are_computed_once(self):
        problem = make_problem([[1.0, 2.0], [3.0, 1.0]])
        self.assertIs(lower_bounds(problem), lower_bounds(problem))

    @parameterized.parameters(1, 2, 3, 4)
    def test_equal_groups_on_equal_devices_need_their_share(self, num_devices):
        problem = make_problem(np.full([12, num_devices], 0.1).tolist())
        bounds = lower_bounds(problem)
        self.assertAlmostEqual(bounds.work_secs, 12 * 0.1 / num_devices, places=12)
        step = oracle.simulate(problem, np.arange(12) % num_devices)
        self.assertAlmostEqual(step.step_secs, bounds.work_secs, places=12)
        self.assertGreaterEqual(step.step_secs, bounds.work_secs)

    def test_slots_share_the_work_of_a_device(self):
        problem = make_problem([[1.0, 1.0]] * 10, slots=[1, 4])
        self.assertAlmostEqual(lower_bounds(problem).work_secs, 2.0)

    def test_a_slow_device_takes_its_share_of_the_work(self):
        # In 9 s D0 does nine of the ten groups and D1, which is nine times slower, the tenth.
        problem = make_problem([[1.0, 9.0]] * 10)
        self.assertAlmostEqual(lower_bounds(problem).work_secs, 9.0)

    def test_a_device_without_legal_groups_does_not_help(self):
        problem = make_problem([[1.0, INF, 1.0]] * 4)
        self.assertAlmostEqual(lower_bounds(problem).work_secs, 2.0)

    def test_one_group_is_not_split(self):
        # The four operations of one group could run at the same time; the device has two slots.
        problem = make_problem([[3.0, 4.0]] * 4, groups=[0] * 4, slots=[2, 2])
        self.assertAlmostEqual(lower_bounds(problem).work_secs, 6.0)

    def test_the_balance_on_two_devices_is_almost_the_best(self):
        rng = np.random.default_rng(2)
        for num_groups in (2, 5, 40, 300):
            sizes = rng.lognormal(0, 1, [num_groups, 1])
            secs = sizes * rng.lognormal(0, 1, [num_groups, 2]) * [1.0, 10 ** rng.uniform(-2, 2)]
            exact = max(best_split_secs(secs.tolist()), secs.min(axis=1).max())
            work_secs = lower_bounds(make_problem(secs.tolist())).work_secs
            self.assertLessEqual(work_secs, exact)
            self.assertGreater(work_secs, exact * 0.998)

    def test_operations_that_take_no_time_need_none(self):
        bounds = lower_bounds(make_problem([[0.0, 1.0], [0.0, INF]]))
        self.assertEqual(bounds.step_secs, 0.0)

    def test_a_group_number_without_operations_changes_nothing(self):
        problem = make_problem([[1.0, 1.0], [1.0, 1.0]], groups=[0, 3], resident_bytes=[5, 6])
        bounds = lower_bounds(problem)
        self.assertAlmostEqual(bounds.work_secs, 1.0)
        self.assertTrue(bounds.fits)

    @parameterized.named_parameters(
        ("all of it", [60, 40], [100, 0], True),
        ("too much in all", [60, 41], [70, 30], False),
        ("one group too large", [60, 41], [100, 1000], False),
    )
    def test_resident_memory_must_fit(self, resident_bytes, memory_bytes, fits):
        # The first operation may go anywhere; the second and third are a group that needs D0.
        problem = make_problem(
            [[1.0, 1.0], [1.0, INF], [1.0, INF]],
            groups=[0, 1, 1],
            resident_bytes=[0, *resident_bytes],
            memory_bytes=memory_bytes,
        )
        bounds = lower_bounds(problem)
        self.assertEqual(bounds.resident_bytes, sum(resident_bytes))
        self.assertEqual(bounds.memory_bytes, sum(memory_bytes))
        self.assertEqual(bounds.fits, fits)


if __name__ == "__main__":
    absltest.main()
