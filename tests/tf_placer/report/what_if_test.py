import dataclasses
import itertools
import time
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.simulation.traces import make_problem
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.placers.auto.candidate import simulate_candidates
from tf_placer.problem.problem_groups import group_graph
from tf_placer.report import what_if as what_if_module
from tf_placer.report.what_if import THIS_MACHINE, add_device, search_changed_machines
from tf_placer.simulation.host_offload import offload_to_host
from tf_placer.simulation.simulator import Simulator


def two_halves():
    """Makes a problem 0 -> 1, with a transfer of 3 s if they are on different devices."""
    return make_problem([[2.0, 2.0], [4.0, 4.0]], tensors=[(0, 3, [1])])


class WhatIfTest(absltest.TestCase):
    def test_steps_on_machines_with_faster_parts(self):
        # 0 takes 2 s, 1 and 2 take 4 s each; what 1 reads takes 3 s from device to device.
        problem = make_problem([[2.0, 2.0], [4.0, 4.0], [4.0, 4.0]], tensors=[(0, 3, [1])])
        results = {
            result.change: result
            for result in search_changed_machines(
                problem, group_graph(problem), np.array([0, 0, 1], np.int32), search_secs=1.0
            )
        }
        self.assertEqual(results["transfers twice as fast"].step_secs, 6.0)
        self.assertEqual(results["every GPU twice as fast"].step_secs, 3.0)
        self.assertEqual(results["every GPU twice as fast"].lower_bound_secs, 3.0)
        # The longest chain takes 6 s whatever there is.
        self.assertEqual(results["one more GPU, like D1"].step_secs, 6.0)

    def test_a_placement_is_searched_for_the_other_machine(self):
        # Apart, the two operations behind the first wait 3 s for what they read: together is best.
        problem = make_problem([[2.0, 2.0], [4.0, 4.0], [4.0, 4.0]], tensors=[(0, 8, [1, 2])])
        now = np.array([0, 0, 0], np.int32)
        faster = search_changed_machines(problem, group_graph(problem), now, search_secs=1.0)
        found = {change.change: change.step_secs for change in faster}
        # 10 s stay 10 s where nothing moves; with one of the two apart, 2 + 4 + 4 is no better,
        # and 2 + 4 beside 2 + 0 + 4 is.
        self.assertEqual(found["transfers twice as fast"], 10.0)
        self.assertAlmostEqual(found["transfers that take no time"], 6.0, places=4)

    def test_says_which_machine_it_searches_for(self):
        problem, lines = two_halves(), []
        apart = np.array([0, 1], np.int32)
        changes = search_changed_machines(
            problem, group_graph(problem), apart, search_secs=1.0, progress=lines.append
        )
        shown = list(dict.fromkeys(lines))
        self.assertEqual(shown[0], f"what if: {THIS_MACHINE} (1 of {len(shown)})")
        self.assertEqual(
            [line.removeprefix("what if: ").partition(" (")[0] for line in shown],
            [change.change for change in changes],
        )

    def test_nothing_is_slower_on_a_faster_machine(self):
        problem = two_halves()
        apart = np.array([0, 1], np.int32)
        for change in search_changed_machines(
            problem, group_graph(problem), apart, search_secs=1.0
        ):
            self.assertLessEqual(change.step_secs, 9.0)

    def test_nothing_is_slower_than_a_placement_that_runs_on_this_machine(self):
        # Apart takes 2 + 3 + 4 s, together 6 s, and there is no time to search.
        problem = two_halves()
        apart, together = np.array([0, 1], np.int32), np.array([0, 0], np.int32)

        def search_nothing(machine, _, *, starts, **__):
            asked.append([placement.tolist() for _, placement in starts])
            found = simulate_candidates(machine, Simulator(machine), apart[None])[0]
            return mock.Mock(best=found, interrupted=False)

        for running, expected_secs in (([], 7.5), ([together], 6.0)):
            asked: list[list[list[int]]] = []
            with mock.patch.object(what_if_module, "coarse_to_fine_search", search_nothing):
                results = search_changed_machines(
                    problem, group_graph(problem), apart, running=running, search_secs=5.0
                )
            by_change = {each.change: each.step_secs for each in results}
            self.assertEqual(by_change["transfers twice as fast"], expected_secs)
            self.assertEqual(asked[0], [[0, 1], *([0, 0] for _ in running)])

    def test_other_machines_get_no_credit_for_a_better_placement(self):
        # The second of two devices is idle, and no placement is faster than one operation on each.
        problem = make_problem([[1.0, 1.0]] * 2)
        here, more, *others = search_changed_machines(
            problem, group_graph(problem), np.array([0, 0], np.int32), search_secs=1.0
        )
        self.assertEqual((here.change, here.step_secs), (THIS_MACHINE, 1.0))
        self.assertEqual(here.lower_bound_secs, 1.0)
        self.assertEqual((more.change, more.step_secs), ("one more GPU, like D1", 1.0))
        self.assertEqual([each.step_secs for each in others], [1.0, 1.0, 0.5])

    def test_searches_of_other_machines_begin_with_the_placement_found_for_this_one(self):
        problem = make_problem([[1.0, 1.0]] * 2)
        now, apart = np.array([0, 0], np.int32), np.array([0, 1], np.int32)

        def find_apart_here(machine, _, *, starts, **__):
            placement = apart if machine is problem else now
            asked.append([each.tolist() for _, each in starts])
            [best] = simulate_candidates(machine, Simulator(machine), placement[None])
            return mock.Mock(best=best, interrupted=False)

        asked: list[list[list[int]]] = []
        with mock.patch.object(what_if_module, "coarse_to_fine_search", find_apart_here):
            found = search_changed_machines(problem, group_graph(problem), now, search_secs=5.0)
        first, *others = asked
        self.assertEqual(first, [[0, 0]])
        self.assertLen(others, 4)
        for starts in others:
            self.assertEqual(starts[:2], [[0, 0], [0, 1]])
        # No other machine is reported as slower than this one.
        self.assertEqual([each.step_secs for each in found], [1.0, 1.0, 1.0, 1.0, 0.5])

    def test_another_device_helps_independent_operations(self):
        problem = make_problem([[1.0, 1.0]] * 3)
        _, more, *_ = search_changed_machines(
            problem, group_graph(problem), np.array([0, 0, 1], np.int32), search_secs=0.5
        )
        self.assertEqual(more.step_secs, 1.0)

    def test_activations_may_wait_on_the_cpu_where_memory_is_short(self):
        # A forward and a backward pass: all on one GPU take 60 s and 13 of its 10 bytes.
        problem = build_task_problem(
            [(np.inf, 10.0, 10.0)] * 6,
            [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 1), (4, 5, 1)],
            memory_bytes=[1000, 10, 10],
        )
        problem = dataclasses.replace(
            problem,
            consumer_start=np.array([0, 2, 4, 5, 6, 7]),
            consumers=np.array([1, 5, 2, 4, 3, 4, 5]),
        )
        now = np.array([1, 1, 2, 2, 1, 1], np.int32)
        changes = search_changed_machines(problem, group_graph(problem), now, search_secs=1.0)
        found = {change.change: change.step_secs for change in changes}
        self.assertEqual(found["twice the memory"], 60.0)
        self.assertEqual(found["4 B moved to the CPU and back"], 60.0)
        [moved] = [change for change in changes if change.assignment]
        again = offload_to_host(problem, np.array(moved.assignment, np.int32))
        self.assertEqual((again.moved_bytes, again.step_secs), (4, moved.step_secs))

    def test_memory_matters_where_it_is_short(self):
        # Apart, 0 and 1 take 2 + 3 + 4 s; one device has no room for both.
        problem = make_problem(
            [[2.0, 2.0], [4.0, 4.0]],
            tensors=[(0, 3, [1])],
            resident_bytes=[60, 60],
            memory_bytes=[100, 100],
        )
        changes = search_changed_machines(
            problem, group_graph(problem), np.array([0, 1], np.int32), search_secs=1.0
        )
        found = {change.change: change for change in changes}
        self.assertEqual(found["twice the memory"].step_secs, 6.0)
        self.assertEqual(found["twice the memory"].lower_bound_secs, 6.0)
        # Together they take 6 s with room for both, and then memory is not short.
        roomy = make_problem(
            [[2.0, 2.0], [4.0, 4.0]], tensors=[(0, 3, [1])], resident_bytes=[60, 60]
        )
        changes = search_changed_machines(
            roomy, group_graph(roomy), np.array([0, 0], np.int32), search_secs=1.0
        )
        self.assertNotIn("twice the memory", [change.change for change in changes])

    def test_more_memory_begins_with_what_did_not_fit(self):
        # All work of a chain is on the CPU, because the GPU has no room for its variables.
        count = 60
        problem = build_task_problem(
            [(10.0, 1.0)] * count,
            [(number, number + 1, 1) for number in range(count - 1)],
            resident_bytes=[10] * count,
            memory_bytes=[10**6, 305],
        )
        now = np.zeros(count, np.int32)

        def only_start(machine, _, *, starts, **__):
            placements = np.stack([placement for _, placement in starts])
            found = simulate_candidates(machine, Simulator(machine), placements)
            best = min(found, key=lambda each: each.rank)
            return mock.Mock(best=best, interrupted=False)

        with mock.patch.object(what_if_module, "coarse_to_fine_search", only_start):
            _, _, more, *_ = search_changed_machines(
                problem, group_graph(problem), now, search_secs=5.0
            )
        self.assertEqual(more.change, "twice the memory")
        self.assertAlmostEqual(more.step_secs, 60.0)

    def test_keeps_to_its_time(self):
        problem = build_layered_problem(2000, 4)
        placement = np.zeros(problem.num_groups, np.int32)
        groups = group_graph(problem)
        for search_secs in (0.01, 1.0):
            start_secs = time.monotonic()
            search_changed_machines(problem, groups, placement, search_secs=search_secs)
            self.assertLess(time.monotonic() - start_secs, search_secs + 1.0)

    def test_machines_that_there_is_no_time_for_are_left_out(self):
        problem, apart = two_halves(), np.array([0, 1], np.int32)
        now_secs = [0.0]

        def simulate_now(*_):
            now_secs[0] += 1.0
            return 9.0, False

        def search(*_, max_secs, **__):
            given_secs.append(max_secs)
            now_secs[0] += max_secs
            return mock.Mock(best=mock.Mock(step_secs=5.0), interrupted=False)

        # To simulate a step takes 1 s, so to prepare a search takes about 5 s; there are four.
        for search_secs, shares in ((2.0, []), (6.0, []), (9.0, [5.0]), (21.0, [5.0, 6.0, 5.0])):
            given_secs: list[float] = []
            with (
                mock.patch.object(what_if_module, "time", mock.Mock(monotonic=lambda: now_secs[0])),
                mock.patch.object(what_if_module, "_simulate_now", simulate_now),
                mock.patch.object(what_if_module, "coarse_to_fine_search", search),
            ):
                found = search_changed_machines(
                    problem, group_graph(problem), apart, search_secs=search_secs
                )
            self.assertEqual(given_secs, shares)
            # Those that there is no time for follow, if there was time for any.
            self.assertLen(found, 5 if shares else 0)
            self.assertTrue(not found or found[0].change == THIS_MACHINE)
            self.assertTrue(not found or found[1].change.startswith("one more"))
            searched = [each.step_secs is not None for each in found]
            self.assertEqual(searched, [number < len(shares) for number in range(len(found))])

    def test_the_copy_of_a_device_is_like_it(self):
        problem = two_halves()
        larger = add_device(problem)
        self.assertEqual([device.name for device in larger.devices], ["D0", "D1", "D1+1"])
        np.testing.assert_array_equal(larger.compute_secs[:, 2], larger.compute_secs[:, 1])
        pairs = {(link.source, link.destination) for link in larger.links}
        self.assertEqual(pairs, set(itertools.permutations(["D0", "D1", "D1+1"], 2)))
        even_larger = add_device(larger)
        self.assertLen({device.name for device in even_larger.devices}, 4)
        self.assertLen(even_larger.links, 12)

    def test_one_device_gets_another(self):
        problem = make_problem([[1.0], [1.0]])
        _, more, *_ = search_changed_machines(
            problem, group_graph(problem), np.zeros(2, np.int32), search_secs=0.5
        )
        self.assertEqual(more.step_secs, 1.0)


if __name__ == "__main__":
    absltest.main()
