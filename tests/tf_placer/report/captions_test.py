"""Tests of the sentences that say what the charts of a page show."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tests.tf_placer.small_problem import rename_devices
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page import captions
from tf_placer.report.page.run_table import (
    compare_views,
    describe_runs,
    list_run_remarks,
    make_run_table,
)
from tf_placer.report.page.run_view import ComparedPlacement, Point, RunView, StepView, view_step
from tf_placer.report.page.tables import make_device_headers, make_device_rows


def make_step(problem: PlacementProblem, placement: list[int], label: str = "found") -> StepView:
    """Simulates a step of a legal placement."""
    step = view_step(label, problem, np.array(placement, np.int32))
    assert step is not None
    return step


def make_chain() -> PlacementProblem:
    """Makes two operations of 3 s and 1 s on any of three GPUs; the first sends 4 bytes in 4 s."""
    problem = make_problem([[3.0] * 3, [1.0] * 3], tensors=[(0, 4, [1])], memory_bytes=[8, 8, 8])
    return rename_devices(problem, [f"GPU:{number}" for number in range(3)])


class StepCaptionsTest(absltest.TestCase):
    def test_counts_the_devices_that_are_hardly_used(self):
        text = captions.describe_load(make_step(make_chain(), [0, 0]))
        self.assertEqual(
            text, "2 of 3 GPUs are busy less than 10% of the step; GPU:0 is busy 100% of the step."
        )

    def test_names_the_most_and_the_least_busy_device(self):
        problem = make_problem([[3.0, 3.0], [1.0, 1.0]])
        text = captions.describe_load(make_step(problem, [0, 1]))
        self.assertEqual(
            text, "D0 is busy 100% of the step, D1 33%: on average 1.3 of 2 devices compute."
        )

    def test_adds_up_transfers_between_devices(self):
        problem = make_chain()
        steps = [make_step(problem, [0, 0], "original"), make_step(problem, [0, 1])]
        self.assertEqual(
            captions.describe_transfers(steps),
            "Between devices, the original moves nothing, found 4 B in 1 transfer.",
        )
        self.assertEqual(
            captions.describe_copies(steps),
            "Of transfers, the original has none; found spends most on GPU → GPU, 4.000 s.",
        )

    def test_tells_what_crosses_the_network(self):
        for tasks, moved, slowest in (
            ([0, 0, 1], "4 B in 1 transfer, none over the network", "GPU → GPU"),
            ([0, 1, 1], "4 B in 1 transfer, 4 B of it over the network", "GPU → GPU, network"),
            # Each worker on the cores of one computer is a task.
            ([0, 1, 2], "4 B in 1 transfer", "GPU → GPU"),
        ):
            names = [
                f"/job:worker/replica:0/task:{task}/device:GPU:{number}"
                for number, task in enumerate(tasks)
            ]
            steps = [make_step(rename_devices(make_chain(), names), [0, 1])]
            self.assertEqual(
                captions.describe_transfers(steps), f"Between devices, found moves {moved}."
            )
            self.assertEqual(
                captions.describe_copies(steps),
                f"Of transfers, found spends most on {slowest}, 4.000 s.",
            )

    def test_shares_out_the_computing_time(self):
        self.assertEqual(
            captions.describe_placement(make_step(make_chain(), [0, 2])),
            "GPU:0 has 75%, GPU:2 has 25% of the computing time; 1 device has none.",
        )

    def test_names_the_fullest_memory(self):
        problem = make_problem([[1.0, 1.0]] * 2, resident_bytes=[30, 60], memory_bytes=[100, 50])
        self.assertEqual(
            captions.describe_memory(make_step(problem, [0, 1])),
            "D1 is the fullest: 60 B after 0 s, 120% of its memory, which is too much.",
        )
        problem = make_problem([[1.0]], resident_bytes=[3], memory_bytes=[1000])
        text = captions.describe_memory(make_step(problem, [0]))
        self.assertEndsWith(text, "0.3% of its memory.")

    def test_divides_the_time_by_direction(self):
        problem = make_problem([[3.0, 3.0], [1.0, 1.0]], names=["a/MatMul", "gradients/a/MatMul"])
        text = captions.describe_work(make_step(problem, [0, 0]), operation_kinds(problem))
        self.assertEqual(
            text,
            "found: 25% of the computing time is the backward pass and the update; nothing is "
            "copied.",
        )

    def test_a_graph_without_a_backward_pass_has_one_kind_of_work(self):
        problem = make_problem([[3.0, 3.0], [1.0, 1.0]], names=["a/MatMul", "b/MatMul"])
        step, kinds = make_step(problem, [0, 0]), operation_kinds(problem)
        self.assertEqual(
            captions.describe_work(step, kinds),
            "found: operations take 4.000 s in all; nothing is copied.",
        )
        headers = make_device_headers(step, kinds)
        self.assertEqual(headers[3:5], ["computing", "waiting"])
        [row, _] = make_device_rows(step, kinds)
        self.assertLen(row, len(headers))
        self.assertEqual(row[3:5], ("4.000 s", "0 s"))


class RunTableTest(absltest.TestCase):
    def test_several_runs_have_a_row_each_with_its_cost(self):
        # A million steps of 4 s take 10,000/9 hours.
        steps = (4.0, 2.0, 3.0)
        views = [
            RunView(
                title="t",
                verdict="",
                is_better=False,
                is_measured=True,
                compared=(ComparedPlacement("original", secs, speedup=1.0),),
                name=name,
                price_per_hour=price,
            )
            for name, secs, price in zip("xyz", steps, (0.9, 9.0, None), strict=True)
        ]
        machines = compare_views(views)
        headers, rows = make_run_table(views, machines)
        self.assertEqual(headers[-2:], ["price/h", "1M steps"])
        self.assertEqual(rows[0], ("A · x · t", "4.000 s", "1.00x", "-", "0.90", "1,000"))
        self.assertEqual(rows[2][-2:], ("-", "-"))
        self.assertEqual(
            describe_runs(views, machines),
            "B (y) is the fastest: 2.000 s a step. "
            "A (x) is the cheapest of the 2 with a price: 1,000 for a million steps",
        )
        self.assertNotIn("cheapest", describe_runs(views[1:], machines[1:]))
        self.assertNotIn("data parallelism", describe_runs(views, machines))
        shared = [dataclasses.replace(machines[0], data_parallel_secs=1.5), *machines[1:]]
        self.assertIn(
            "With data parallelism a step may take as little as 1.500 s, on A (x)",
            describe_runs(views, shared),
        )
        self.assertLen(make_run_table(views[2:], machines[2:])[0], 4)
        self.assertEmpty(list_run_remarks(views, machines))
        bounded = [dataclasses.replace(machines[0], data_parallel_secs=2.0), *machines[1:]]
        headers, rows = make_run_table(views, bounded)
        self.assertEqual(headers[4], "data par.")
        self.assertEqual([row[4] for row in rows], ["2.000 s", "-", "-"])

    def test_plans_of_one_graph_for_one_machine_have_the_remarks_of_the_fastest(self):
        problem = make_chain()
        steps = [make_step(problem, placement) for placement in ([0, 0], [0, 1])]
        views = [
            RunView(
                title="t",
                verdict="",
                is_better=False,
                is_measured=False,
                compared=(ComparedPlacement("found", step.trace.step_secs, is_found=True),),
                steps=(step,),
                problem=problem,
            )
            for step in steps
        ]
        machines = [
            dataclasses.replace(each, data_parallel_secs=0.5) for each in compare_views(views)
        ]
        # The transfer takes as long as both operations.
        self.assertEqual([each.step_secs for each in machines], [4.0, 8.0])
        remarks = " ".join(list_run_remarks(views, machines))
        self.assertIn("on A", remarks)
        self.assertNotIn("on B", remarks)
        others = [machines[0], dataclasses.replace(machines[1], lower_bound_secs=0.25)]
        remarks = " ".join(list_run_remarks(views, others))
        self.assertIn("on A", remarks)
        self.assertIn("on B", remarks)


class SearchCaptionsTest(absltest.TestCase):
    def test_compares_with_the_original(self):
        rows = [
            ComparedPlacement("original", 4.0, speedup=1.0),
            ComparedPlacement("auto", 2.0, speedup=2.0, interval=(1.9, 2.1), is_found=True),
            ComparedPlacement("slower", 8.0, speedup=0.5),
            ComparedPlacement("failed", None),
        ]
        self.assertEqual(
            captions.describe_comparison(RunView("", "", True, True, tuple(rows))),
            "1 of 2 other placements is more than 2 % faster than the original. auto, which was "
            "found, is 2.00 times as fast, with 95 % confidence 1.90 to 2.10 times.",
        )
        unconfirmed = dataclasses.replace(rows[1], is_found=False)
        self.assertEqual(
            captions.describe_comparison(RunView("", "", False, True, (rows[0], unconfirmed))),
            "1 of 1 other placement is more than 2 % faster than the original in the search, and "
            "none is confirmed.",
        )
        alone = RunView("", "", False, True, (rows[0],))
        self.assertEqual(captions.describe_comparison(alone), "")

    def test_counts_neither_noise_as_faster_nor_leaves_out_placements_silently(self):
        rows = [ComparedPlacement("original", 1.0, speedup=1.0)]
        rows += [ComparedPlacement("auto", 1 / ratio, speedup=ratio) for ratio in (1.007, 1.003)]
        measured = RunView("", "", False, True, tuple(rows), num_left_out=3)
        self.assertEqual(
            captions.describe_comparison(measured),
            "0 of 2 other placements are more than 2 % faster than the original. 3 that are slower "
            "or failed are left out.",
        )
        # Simulated steps have no noise.
        self.assertEqual(
            captions.describe_comparison(dataclasses.replace(measured, is_measured=False)),
            "2 of 2 other placements are faster than the original. 3 that are slower or failed are "
            "left out.",
        )

    def test_tells_the_last_improvement(self):
        points = tuple(Point(n, 10.0 * n, secs, "auto") for n, secs in enumerate((4.0, 2.0, 3.0)))
        failed = dataclasses.replace(points[-1], number=3, step_secs=None, failure="crash")
        view = RunView(
            "", "", True, True, (), points=(*points, failed), best=(points[0], points[1])
        )
        self.assertEqual(
            captions.describe_search(view),
            "The best step fell from 4.000 s to 2.000 s: the last improvement is trial 1 of 3, "
            "after 10 s. 4 trials are shown, 1 of them failed.",
        )

    def test_compares_two_runs(self):
        def view(secs: float | None, *, is_measured: bool = True) -> RunView:
            return RunView("", "", True, is_measured, (ComparedPlacement("original", secs),))

        self.assertEqual(
            captions.describe_pair(view(3.0), view(2.0)),
            "B is 1.50 times as fast: 3.000 s a step in A (the original), 2.000 s in B (the "
            "original). They were measured at different times, so small differences may be noise",
        )
        self.assertStartsWith(
            captions.describe_pair(view(2.0), view(2.0)), "A and B are as fast: 2.000 s"
        )
        self.assertIn(
            "the other simulated", captions.describe_pair(view(1), view(1, is_measured=False))
        )
        self.assertStartsWith(captions.describe_pair(view(None), view(2.0)), "Only one")
        plans = [
            dataclasses.replace(
                view(secs, is_measured=False), points=(Point(number, 1.0, secs, "eagle"),)
            )
            for secs, number in ((3.0, 300), (2.0, 200), (1.0, 200))
        ]
        self.assertEndsWith(
            captions.describe_pair(*plans[:2]),
            "Both are simulated, with 300 samples in A and 200 in B",
        )
        self.assertEndsWith(captions.describe_pair(*plans[1:]), "Both are simulated")

    def test_compares_two_runs_by_what_both_have_measured(self):
        found = ComparedPlacement(
            "auto", 2.0, speedup=2.0, interval=(1.9, 2.1), is_found=True, searched_secs=3.0
        )
        original = ComparedPlacement("original", 6.0, searched_secs=6.0)
        confirmed = RunView("", "", True, True, (original, found))
        searched = RunView("", "", False, True, (original,))
        self.assertEqual(
            captions.describe_pair(confirmed, searched),
            "A is 2.00 times as fast: 3.000 s a step in A, 6.000 s in B (the original). B was not "
            "confirmed, so both steps are those of the search, one trial each",
        )
        faster = ComparedPlacement("auto (trial 2)", 2.5, searched_secs=2.5)
        running = dataclasses.replace(searched, compared=(original, faster), has_ended=False)
        self.assertStartsWith(
            captions.describe_pair(confirmed, running),
            "B is 1.20 times as fast: 3.000 s a step in A, 2.500 s in B (auto (trial 2)). B was",
        )
        self.assertStartsWith(
            captions.describe_pair(confirmed, confirmed), "A and B are as fast: 2.000 s a step in A"
        )

    def test_compares_two_runs_of_one_original_by_their_speedups(self):
        def view(original_secs: float, *others: ComparedPlacement, **values: bool) -> RunView:
            original = ComparedPlacement("original", original_secs, speedup=1.0)
            return RunView(
                *("", "", True, True, (original, *others)),
                original_id=("fingerprint", "local:2"),
                **values,
            )

        found = ComparedPlacement(
            *("auto", 2.0), speedup=1.5, interval=(1.4, 1.6), is_found=True, searched_secs=2.1
        )
        trial = ComparedPlacement("expert", 5.0, speedup=1.4, searched_secs=5.0)
        placed, searched = view(3.0, found), view(7.0, trial)
        self.assertEqual(
            captions.describe_pair(placed, searched),
            "A is 1.50 times as fast as the original, B is 1.40 times as fast. A step takes "
            "2.000 s in A, where the original takes 3.000 s, and 5.000 s in B (expert), where the "
            "original takes 7.000 s. B is not confirmed, so its speed-up may be noise. The same "
            "original took 2.33 times as long in B: the computer was slower then, so that only "
            "speed-ups compare",
        )
        # A confirmation that finds nothing faster leaves the original.
        refuted = view(3.1, dataclasses.replace(found, is_found=False))
        self.assertEqual(
            captions.describe_pair(refuted, placed),
            "A keeps the original, B is 1.50 times as fast. A step takes 3.100 s in A (the "
            "original), and 2.000 s in B, where the original takes 3.000 s. They were measured at "
            "different times, so small differences may be noise",
        )
        self.assertStartsWith(
            captions.describe_pair(refuted, view(3.0)), "A and B keep the original. A step takes"
        )
        # Without a step of the original, or on another machine, there is no common measure.
        failed = ComparedPlacement("original", None)
        unfit = dataclasses.replace(placed, compared=(failed, found))
        self.assertStartsWith(captions.describe_pair(unfit, placed), "A and B are as fast: 2.000")
        elsewhere = dataclasses.replace(searched, original_id=("fingerprint", "local:4"))
        self.assertIn(" times as fast: ", captions.describe_pair(placed, elsewhere))

    def test_compares_two_batch_sizes_by_example(self):
        def view(secs: float, **feeds: str) -> RunView:
            return RunView("", "", True, True, (ComparedPlacement("original", secs),), feeds=feeds)

        a = view(3.0, x="float32[512, 4]", y="int32[512]", scale="float32[]")
        b = view(2.0, x="float32[256, 4]", y="int32[256]", scale="float32[]")
        self.assertStartsWith(
            captions.describe_pair(a, b),
            "A is 1.33 times as fast per example: 3.000 s a step of 512 in A (the original), "
            "2.000 s of 256 in B (the original). They were measured",
        )
        self.assertIn(
            ". Their steps differ: 'x' is float32[512, 4] in A and float32[512, 5] in B. They were",
            captions.describe_pair(a, view(2.0, x="float32[512, 5]")),
        )
        self.assertIn(
            "Their steps differ in the sizes of what is fed",
            captions.describe_pair(a, view(2.0, x="float32[256, 4]", y="int32[128]")),
        )


if __name__ == "__main__":
    absltest.main()
