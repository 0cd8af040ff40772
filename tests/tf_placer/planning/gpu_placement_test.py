"""Tests of the search for placements without work on CPUs."""

from unittest import mock

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.placers.auto.candidate import simulate_candidates
from tf_placer.planning import compare as compare_module
from tf_placer.planning import plan as plan_module
from tf_placer.planning.gpu_placement import WITH_CPU, prefer_gpus, search_on_gpus
from tf_placer.problem.problem_groups import group_graph
from tf_placer.simulation.simulator import Simulator


def build(cpu_secs: float, gpu_bytes: int = 100):
    """Builds four independent operations, three of 4 s on a GPU and one of 0.02 s."""
    secs = [(40.0, 4.0, 4.0)] * 2 + [(cpu_secs, 4.0, 4.0)]
    return build_task_problem(
        [*secs, (0.02, 0.02, 0.02)],
        resident_bytes=[10] * 4,
        memory_bytes=[100, gpu_bytes, gpu_bytes],
    )


def simulate(problem, *rows):
    return simulate_candidates(problem, Simulator(problem), np.array(rows, np.int32))


class GpuPlacementTest(absltest.TestCase):
    def search(self, problem, row):
        [best] = simulate(problem, row)
        return search_on_gpus(problem, group_graph(problem), best, max_secs=1.0, seed=0)

    def test_work_of_a_cpu_goes_to_gpus(self):
        # On GPUs alone a step takes 8.02 s, of which the CPU takes some away.
        row = self.search(build(4.0), [1, 2, 0, 1])
        self.assertNotIn(0, row)
        [found] = simulate(build(4.0), row)
        self.assertAlmostEqual(found.step_secs, 8.0)

    def test_nothing_is_searched_where_no_cpu_works_or_memory_is_short(self):
        self.assertIsNone(self.search(build(4.0), [1, 2, 1, 2]))
        self.assertIsNone(self.search(build(40.0, gpu_bytes=10), [1, 2, 0, 0]))

    def test_a_placement_without_cpus_is_chosen_if_it_is_hardly_slower(self):
        problem = build(4.0)
        on_cpu, on_gpus, slower = simulate(problem, [1, 1, 0, 0], [1, 1, 2, 2], [1, 1, 1, 2])
        self.assertEqual((on_cpu.step_secs, on_gpus.step_secs), (8.0, 8.0))
        self.assertIs(prefer_gpus(problem, on_cpu, [slower, on_gpus]), on_gpus)
        self.assertIs(prefer_gpus(problem, on_cpu, [slower]), on_cpu)
        self.assertIs(prefer_gpus(problem, on_gpus, [on_cpu]), on_gpus)

    def test_a_placement_with_less_work_on_the_cpu_is_no_placement_without(self):
        problem = build_task_problem(
            [(40.0, 4.0, 4.0)] * 2 + [(4.0, 4.0, 4.0), (0.4, 0.4, 0.4)],
            resident_bytes=[10] * 4,
            memory_bytes=[100, 100, 100],
        )
        # The CPU computes in 50 %, in 5 % and in nothing of 8 s.
        much, little, none = simulate(problem, [1, 1, 0, 0], [1, 1, 2, 0], [1, 1, 2, 2])
        self.assertEqual({each.step_secs for each in (much, little, none)}, {8.0})
        self.assertIs(prefer_gpus(problem, much, [little, none]), none)
        self.assertIs(prefer_gpus(problem, much, [little]), much)

    def test_a_plan_without_cpus_names_the_faster_one_with_them(self):
        # With the second operation on the CPU a step takes 4.02 s, and else 4.22 s.
        problem = build_task_problem(
            [(40.0, 4.0, 4.0)] * 2 + [(1.0, 0.2, 0.2), (0.02, 0.02, 0.02)],
            resident_bytes=[10] * 4,
            memory_bytes=[100, 100, 100],
        )
        plan = tf_placer.plan(problem, max_secs=2.0)
        self.assertNotIn(0, plan.assignment)
        with_cpu = dict(plan.auto.starts)[WITH_CPU]
        self.assertLess(with_cpu.step_secs, plan.step_secs)
        self.assertLess(plan.step_secs, 1.1 * with_cpu.step_secs)
        shown = " ".join(plan.table().split())
        self.assertIn(
            f"the CPU: has no work: with some on it a step takes {with_cpu.step_secs:.3f} s", shown
        )
        self.assertIsNone(plan.gpus_only_secs)
        compared = tf_placer.compare({"one": problem}, max_secs=1.0)
        self.assertNotIn(0, compared.plans["one"].assignment)

    def test_the_only_gpu_is_preferred_without_any_time(self):
        # Everything on the GPU takes 4.2 s, and 4 s with 0.2 s of it on the CPU at once.
        for cpu_secs, is_used in ((4.0, False), (3.0, True)):
            problem = build_task_problem(
                [(40.0, 4.0), (cpu_secs, 0.2 if cpu_secs == 4.0 else 3.0)],
                resident_bytes=[10] * 2,
                memory_bytes=[100, 100],
            )
            compared = tf_placer.compare({"one": problem}, max_secs=0.5)
            self.assertEqual(0 in compared.plans["one"].assignment, is_used)
            [machine] = compared.machines
            said = "a step is at most a tenth shorter: one 4.000 s;"
            self.assertEqual(machine.with_cpu_secs, None if is_used else 4.0)
            self.assertEqual(said in " ".join(compared.list_findings()), not is_used)
            self.assertEqual(machine.gpus_only_secs, 7.0 if is_used else None)

    def test_plans_and_comparisons_say_what_gpus_alone_take_where_a_cpu_works(self):
        # With the CPU a step takes 4 s, and without it 8 s.
        problem = build(4.0)
        plan = tf_placer.plan(problem, max_secs=2.0, log_dir=self.create_tempdir().full_path)
        self.assertEqual((plan.step_secs, plan.gpus_only_secs), (4.02, 8.0))
        self.assertIn("on GPUs alone, takes 8.000 s", " ".join(plan.table().split()))
        for source in (problem, plan, plan.log_dir):
            compared = tf_placer.compare({"one": source}, max_secs=1.0)
            self.assertIn(
                "the best step found on GPUs alone, without the CPU: one 8.000 s",
                compared.list_findings(),
            )

    def test_an_interrupt_keeps_what_was_found_with_cpus(self):
        problem = build(4.0)
        interrupted = mock.Mock(side_effect=KeyboardInterrupt)
        with mock.patch.object(plan_module, "search_on_gpus", interrupted):
            plan = tf_placer.plan(problem, max_secs=1.0)
        self.assertEqual((plan.step_secs, plan.outcome.interrupted), (4.02, True))
        with mock.patch.object(compare_module, "search_on_gpus", interrupted):
            compared = tf_placer.compare({"one": problem, "two": problem}, max_secs=1.0)
        self.assertEqual([machine.step_secs for machine in compared.machines], [4.02])
        self.assertEqual(compared.left_out, ("two",))

    def test_plans_and_comparisons_prefer_gpus_where_they_are_as_fast(self):
        # The CPU is of use for two operations of three only if it is as fast as a GPU.
        for cpu_secs, is_used in ((8.0, False), (4.0, True)):
            problem = build(cpu_secs)
            plan = tf_placer.plan(problem, max_secs=2.0)
            self.assertEqual(0 in plan.assignment[:3], is_used)
            compared = tf_placer.compare({"one": problem}, max_secs=1.0)
            self.assertEqual(0 in compared.plans["one"].assignment[:3], is_used)


if __name__ == "__main__":
    absltest.main()
