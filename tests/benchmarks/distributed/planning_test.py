import heapq

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.distributed.planning import plan, slowest_share


def played(controllers, batch_size, updates, *, slowest_secs, learn_secs, apply_secs):
    """Plays the two phases through: controllers, and one server after which they go on.

    Returns:
        The seconds until the server has applied so many updates.
    """
    # Controllers do not begin at the same moment.
    cycle_secs = slowest_secs + learn_secs
    ready = [cycle_secs * number / controllers for number in range(controllers)]
    heapq.heapify(ready)
    free_secs = 0.0
    for _ in range(updates):
        free_secs = max(free_secs, heapq.heappop(ready)) + apply_secs
        heapq.heappush(ready, free_secs + cycle_secs - apply_secs)
    return free_secs


class PlanningTest(parameterized.TestCase):
    def test_a_single_worker_measures_one_after_the_other(self):
        costs = {"trial_secs": 10.0, "slowest": 1.5, "learn_secs": 2.0, "apply_secs": 0.1}
        found = plan(1, 4, 400, **costs)
        self.assertAlmostEqual(found.wall_secs, 100 * (4 * 10.0 + 2.0))
        self.assertAlmostEqual(found.idle_share, 2.0 / 42.0)

    def test_workers_wait_for_the_slowest_and_for_what_is_learned(self):
        costs = {"trial_secs": 10.0, "slowest": 1.5, "learn_secs": 2.0, "apply_secs": 0.1}
        found = plan(16, 4, 400, **costs)
        self.assertAlmostEqual(found.updates_per_sec, 4 / 17.0)
        self.assertAlmostEqual(found.idle_share, 1.0 - 10.0 / 17.0)
        self.assertAlmostEqual(found.wall_secs, 100 / (4 / 17.0))
        self.assertAlmostEqual(found.server_load, 0.4 / 17.0)

    def test_a_server_that_is_slower_than_the_controllers_is_what_counts(self):
        costs = {"trial_secs": 1.0, "slowest": 1.0, "learn_secs": 0.0, "apply_secs": 0.5}
        found = plan(80, 8, 800, **costs)
        self.assertAlmostEqual(found.updates_per_sec, 2.0)
        self.assertEqual(found.server_load, 1.0)
        self.assertAlmostEqual(found.idle_share, 0.8)

    @parameterized.parameters((4, 0.01), (20, 0.01), (20, 1.5))
    def test_it_is_what_playing_it_through_gives(self, controllers, apply_secs):
        updates, size = 4000, 8
        secs = played(
            controllers, size, updates, slowest_secs=12.0, learn_secs=1.0, apply_secs=apply_secs
        )
        costs = {"trial_secs": 10.0, "slowest": 1.2, "learn_secs": 1.0, "apply_secs": apply_secs}
        found = plan(controllers * size, size, updates * size, **costs)
        self.assertLess(abs(found.wall_secs / secs - 1.0), 0.02)

    def test_the_slowest_of_a_batch_takes_so_much_longer(self):
        self.assertAlmostEqual(slowest_share([1.0, 3.0, 2.0, 2.0, 9.0], 2), 5.0 / 4.0)
        draws = np.random.default_rng(0).uniform(0.0, 1.0, 40_000)
        # The mean of the largest of n is n / (n + 1).
        self.assertAlmostEqual(slowest_share(draws, 4), 0.8 / 0.5, delta=0.01)


if __name__ == "__main__":
    absltest.main()
