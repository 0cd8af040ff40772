import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.heft import Heft, compute_upward_ranks, schedule_heft
from tf_placer.placers.heuristics.schedule_costs import read_schedule_costs
from tf_placer.problem.problem_groups import group_graph, legal_devices

# The example of the paper: ten tasks on three processors, figure 1 and table 2.
_SECS = [
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
]
_EDGES = [
    (0, 1, 18),
    (0, 2, 12),
    (0, 3, 9),
    (0, 4, 11),
    (0, 5, 14),
    (1, 7, 19),
    (1, 8, 16),
    (2, 6, 23),
    (3, 7, 27),
    (3, 8, 23),
    (4, 8, 13),
    (5, 7, 15),
    (6, 9, 17),
    (7, 9, 11),
    (8, 9, 13),
]


def schedule(problem):
    costs, allowed = read_schedule_costs(problem), legal_devices(problem)
    binding = GroupBinding(
        allowed, estimate_group_memories(problem), [np.inf] * problem.num_devices
    )
    return schedule_heft(costs, compute_upward_ranks(costs, allowed), binding)


class HeftScheduleTest(absltest.TestCase):
    def test_ranks_the_tasks_of_the_paper_as_published(self):
        problem = problems.build_task_problem(_SECS, _EDGES)
        ranks = compute_upward_ranks(read_schedule_costs(problem), legal_devices(problem))
        expected = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
        np.testing.assert_allclose(ranks, expected, atol=5e-4)

    def test_schedules_the_tasks_of_the_paper_as_published(self):
        devices, starts, ends = schedule(problems.build_task_problem(_SECS, _EDGES))
        self.assertEqual(devices, [2, 0, 2, 1, 2, 1, 2, 0, 1, 1])
        self.assertEqual(starts, [0, 27, 9, 18, 28, 26, 38, 57, 56, 73])
        self.assertEqual(ends, [9, 40, 28, 26, 38, 42, 49, 62, 68, 80])

    def test_starts_an_operation_in_a_gap_that_is_long_enough(self):
        # On device 0, operations 1 and 3 wait for 0 on device 1; 2 is scheduled last.
        inf = float("inf")
        for gap_secs, start in ((5, 0), (6, 19)):
            secs = [(inf, 1), (5, inf), (gap_secs, inf), (9, inf)]
            _, starts, _ = schedule(problems.build_task_problem(secs, [(0, 1, 4), (1, 3, 0)]))
            self.assertEqual(starts, [0, 5, start, 10])

    def test_slots_run_at_a_time(self):
        _, starts, ends = schedule(problems.build_task_problem([(1,)] * 5, slots=2))
        self.assertEqual(sorted(starts), [0, 0, 1, 1, 2])
        self.assertEqual(max(ends), 3)

    def test_the_first_operation_of_a_group_binds_the_others(self):
        secs = [(9, 1), (1, 9), (1, 9)]
        devices, _, ends = schedule(problems.build_task_problem(secs, groups=[0, 0, 1]))
        self.assertEqual(devices[:2], [1, 1])
        self.assertEqual(max(ends), 10)

    def test_every_schedule_is_possible(self):
        rng = np.random.default_rng(0)
        for slots in (1, 2):
            for _ in range(30):
                count = int(rng.integers(2, 30))
                edges = [
                    (before, after, int(rng.integers(0, 5)))
                    for after in range(count)
                    for before in range(after)
                    if rng.random() < 0.15
                ]
                secs = rng.integers(0, 5, [count, 3]).tolist()
                groups = rng.integers(0, count, count)
                groups[-1] = count - 1
                problem = problems.build_task_problem(
                    secs, edges, groups=groups, latency_secs=1, slots=slots
                )
                devices, starts, ends = schedule(problem)
                for before, after, size in edges:
                    there = ends[before] + (size + 1) * (devices[before] != devices[after])
                    self.assertGreaterEqual(starts[after], there)
                for device in range(3):
                    self.assertEqual(
                        sum(ends[i] - starts[i] for i in range(count) if devices[i] == device),
                        sum(secs[i][device] for i in range(count) if devices[i] == device),
                    )
                    for instant in np.arange(0, max(ends), 0.5):
                        running = sum(
                            devices[i] == device and starts[i] <= instant < ends[i]
                            for i in range(count)
                        )
                        self.assertLessEqual(running, slots)
                for group in set(groups.tolist()):
                    self.assertLen(
                        {d for d, g in zip(devices, groups, strict=True) if g == group}, 1
                    )


class HeftTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return Heft(groups, legal, seed=seed, problem=problem)

    def test_proposes_the_published_schedule_first_and_one_without_the_cpu(self):
        problem = problems.build_task_problem(_SECS, _EDGES)
        placer = Heft(group_graph(problem), legal_devices(problem), problem=problem)
        placements = placer.propose(99)
        self.assertEqual(placements[0].tolist(), [2, 0, 2, 1, 2, 1, 2, 0, 1, 1])
        self.assertIn(0, (placements == 0).sum(axis=1))

    def test_proposes_a_placement_that_fits_if_the_published_schedule_does_not(self):
        # All operations are fastest on device 1, which has room for two.
        problem = problems.build_task_problem(
            [(9, 1, 3)] * 5, resident_bytes=[4] * 5, memory_bytes=[99, 10, 10]
        )
        placer = Heft(group_graph(problem), legal_devices(problem), problem=problem)
        counts = [np.bincount(row, minlength=3).tolist() for row in placer.propose(99)]
        self.assertGreater(counts[0][1], 2)
        self.assertTrue(any(max(count[1:]) <= 2 for count in counts))


if __name__ == "__main__":
    absltest.main()
