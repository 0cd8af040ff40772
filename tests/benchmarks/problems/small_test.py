import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator

_MIB = 2**20


def _transfer_secs(size):
    return 1e-3 + size / 1e9


class SmallProblemsTest(parameterized.TestCase):
    @parameterized.parameters(
        # Each chain on a device of its own.
        ("two chains", 4 * 0.1),
        # All on one device.
        ("chain", 8 * 0.1),
        # The longest branch stays with source and sink; the second has a device of its own, and the
        # other two share one. What is sent is hidden behind the longest.
        ("fork and join", 0.05 + 0.3 + 0.05),
        # Cut in the middle, where 1 MiB is sent.
        ("memory", 8 * 0.1 + _transfer_secs(_MIB)),
        # The longer branch on the fast GPU, beside it the other one on the slower, where it takes
        # less; each then ends on the CPU, the shorter first.
        ("heterogeneous", 0.02 + 0.05 + 0.1 + 0.02 + 2 * _transfer_secs(_MIB)),
    )
    def test_the_fastest_step_is_the_one_worked_out_by_hand(self, name, expected_secs):
        self.assertAlmostEqual(all_step_secs(SMALL_PROBLEMS[name])[0], expected_secs, places=9)

    @parameterized.parameters(*SMALL_PROBLEMS)
    def test_tries_every_legal_placement_once(self, name):
        problem = SMALL_PROBLEMS[name]
        legal = legal_devices(problem)
        secs = all_step_secs(problem)
        self.assertLen(secs, np.prod(legal.sum(axis=1)))
        self.assertTrue(np.all(secs[:-1] <= secs[1:]))
        rng = np.random.default_rng(0)
        devices = [rng.choice(np.flatnonzero(row), size=200) for row in legal]
        batch = Simulator(problem).simulate(np.stack(devices, axis=1).astype(np.int32))
        for value in batch.step_secs[batch.feasible]:
            self.assertTrue(np.isclose(secs, value, rtol=1e-12).any())

    def test_only_the_memory_of_one_problem_is_too_small_for_some_placements(self):
        fits = {name: np.isfinite(all_step_secs(p)).all() for name, p in SMALL_PROBLEMS.items()}
        self.assertEqual(fits, {name: name != "memory" for name in SMALL_PROBLEMS})

    def test_what_is_optimal_may_differ_by_rounding_only(self):
        secs = np.array([0.3, 0.1 + 0.2, 0.3001, np.inf])
        self.assertEqual(is_optimal(secs, 0.3).tolist(), [True, True, False, False])


if __name__ == "__main__":
    absltest.main()
