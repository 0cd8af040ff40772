"""Tests of comparing machines."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import pathlib
import time
from unittest import mock

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.simulation.mixed_problems import make_mixed_problem
from tests.tf_placer.simulation.traces import make_problem
from tests.tf_placer.small_problem import build_layered_problem, small_problem
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.files import read_json
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.candidate import simulate_candidates
from tf_placer.planning import compare as compare_module
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.report.machine_comparison import MachineComparison
from tf_placer.report.page.page import write_page
from tf_placer.report.page.run_table import compare_views, list_run_remarks, make_run_table
from tf_placer.runs.run_page import read_run_view
from tf_placer.simulation.simulator import Simulator


def find_least_bytes(problem: PlacementProblem) -> int:
    """Finds the least memory of devices with less with which something fits, by trying all."""
    rows = itertools.product(range(problem.num_devices), repeat=problem.num_groups)
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])
    batch = Simulator(problem).simulate(np.array(list(rows), np.int32))
    peaks = batch.peak_bytes[np.isfinite(batch.step_secs)]
    needed = np.where(peaks > memory_bytes, peaks, 0).max(axis=1)
    return int(needed.min())


class CompareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def test_two_chains_need_two_devices(self):
        # Two chains of 3 ms: one device needs 6 ms, and more than two cannot help.
        problems = {
            name: two_chain_problem(3, count)
            for name, count in (("four", 4), ("one", 1), ("two", 2))
        }
        compared = tf_placer.compare(problems, max_secs=3.0, prices={"two": 3.6})
        four, one, two = compared.machines
        self.assertEqual([each.name for each in compared.machines], [*problems])
        self.assertEqual([each.accelerators for each in (four, one, two)], [4, 1, 2])
        steps = [each.step_secs for each in (four, one, two)]
        self.assertSequenceAlmostEqual(steps, [3e-3, 6e-3, 3e-3])
        speedups = [each.speedup for each in (four, one, two)]
        self.assertSequenceAlmostEqual(speedups, [2.0, 1.0, 2.0])
        # The search of the larger machine began with the placement for the smaller one.
        self.assertEqual([len(each.idle) for each in (four, one, two)], [2, 0, 0])
        self.assertEqual(four.spare, 2)
        # A million steps of 3 ms take 5/6 of an hour.
        self.assertAlmostEqual(two.cost_per_million_steps, 3.0)
        self.assertIn(
            "2 GPUs would do as well as 4 for a placed step: two is within 2 % of four",
            compared.table(),
        )

    def test_a_mix_is_compared_with_its_fastest_gpu(self):
        problem = make_mixed_problem(np.random.default_rng(0), "1xT4+1xV100", 6)
        on_one = np.tile(np.array([[1], [2]], np.int32), 6)
        slow_secs, fast_secs = Simulator(problem).simulate(on_one).step_secs
        self.assertLess(fast_secs, slow_secs)
        [mix] = tf_placer.compare({"mix": problem}, max_secs=1.0).machines
        self.assertEqual((mix.kind, mix.device_type, mix.accelerators), ("T4+V100", "GPU", 2))
        self.assertEqual(mix.one_device_secs, fast_secs)
        self.assertGreaterEqual(mix.speedup, 1.0)

    def test_two_sockets_are_compared_with_one(self):
        problems = {
            name: make_mixed_problem(np.random.default_rng(0), name, 6)
            for name in ("1xEPYC-7742-socket", "2xEPYC-7742-socket")
        }
        one, two = tf_placer.compare(problems, max_secs=1.0).machines
        self.assertEqual((one.accelerators, two.accelerators), (1, 2))
        self.assertEqual((two.device_type, two.kind), ("device", "EPYC-7742-socket"))
        self.assertEqual(one.one_device_secs, two.one_device_secs)
        self.assertLessEqual(two.step_secs, one.step_secs)

    def test_more_devices_are_never_slower(self):
        # The search has no time for more than a few starts.
        problems = {str(count): build_layered_problem(60, count) for count in (2, 3, 4)}
        first = problems["2"].compute_secs[:, :1]
        problems = {
            name: dataclasses.replace(
                problem, compute_secs=np.repeat(first, problem.num_devices, axis=1)
            )
            for name, problem in problems.items()
        }
        compared = tf_placer.compare(problems, max_secs=0.3)
        steps = [each.step_secs for each in compared.machines]
        self.assertEqual(steps, sorted(steps, reverse=True))

    def test_devices_with_little_work_are_spare_if_others_can_do_it(self):
        # The third operation takes 1 of 201 ms; behind another it takes the step to 201 of 200 ms.
        problem = make_problem([[0.2] * 3, [0.2] * 3, [0.001] * 3])
        for memory_bytes, spare in ((100, 1), (70, 0)):
            devices = [dataclasses.replace(d, memory_bytes=memory_bytes) for d in problem.devices]
            changed = dataclasses.replace(
                problem, devices=tuple(devices), resident_bytes=np.array([40, 40, 40])
            )
            apart = tf_placer.plan(changed, placer="random", max_trials=1)
            outcome = dataclasses.replace(apart.outcome, assignment=(0, 1, 2))
            placed = dataclasses.replace(apart, outcome=outcome)
            [compared] = tf_placer.compare({"three": placed}).machines
            self.assertEqual(compared.idle, ("D2",))
            self.assertEqual(compared.spare, spare)

    def test_searches_for_placements_on_fewer_devices(self):
        # Chains that change devices take 5 ms; one device takes 6 ms, and two take 3 ms.
        problem = two_chain_problem(3, 4)
        apart = np.array([0, 0, 0, 1, 2, 3], np.int32)
        [spread] = simulate_candidates(problem, Simulator(problem), apart[None])
        self.assertAlmostEqual(spread.step_secs, 5e-3)
        groups = group_graph(problem)
        search_fewer = compare_module._search_fewer
        fewest = search_fewer(problem, groups, spread, [], max_secs=2.0, seed=0)
        self.assertLen(set(fewest.tolist()), 2)
        # Without time, a known placement is as good.
        two = np.array([0, 0, 0, 3, 3, 3], np.int32)
        for known, expected in (([two], 2), ([], 4)):
            fewest = search_fewer(problem, groups, spread, known, max_secs=0.0, seed=0)
            self.assertLen(set(fewest.tolist()), expected)

    def test_a_smaller_machine_gets_what_was_found_for_a_larger_one(self):
        # The first search has no time, and the one for three devices finds two devices.
        apart = np.array([1, 1, 1, 2, 2, 2], np.int32)
        [start] = simulate_candidates(
            two_chain_problem(3, 3), Simulator(two_chain_problem(3, 3)), apart[None]
        )
        slow = np.zeros(6, np.int32)

        def search(problem, *_, **__):
            placement = apart if problem.num_devices == 3 else slow
            [best] = simulate_candidates(problem, Simulator(problem), placement[None])
            return AutoResult(best, (best,), (), 0.0, 1, 0.0, False, False, False)

        problems = {str(count): two_chain_problem(3, count) for count in (2, 3)}
        with mock.patch.object(compare_module, "coarse_to_fine_search", search):
            two, three = tf_placer.compare(problems, max_secs=1.0).machines
        self.assertEqual((two.step_secs, three.step_secs), (start.step_secs, start.step_secs))
        self.assertEqual((two.needed, three.needed), (2, 2))

    def test_names_searches_that_found_shorter_steps_until_their_end(self):
        rows = {"slow": [1, 1, 1, 1, 1, 1], "fast": [0, 0, 0, 1, 1, 1]}

        def search(problem, *_, report, **__):
            candidates = {
                name: simulate_candidates(problem, Simulator(problem), np.array([row], np.int32))[0]
                for name, row in rows.items()
            }
            # On three devices, the fast placement is found in the first half.
            found_at = 0.4 if problem.num_devices == 3 else 0.9
            for share in (0.1, 0.4, 0.7, 0.9):
                name = "fast" if share >= found_at else "slow"
                report(AutoProgress(candidates[name], share, 10, share))
            best = candidates["fast"]
            return AutoResult(best, (best,), (), 0.0, 1, 0.0, False, False, False)

        problems = {str(count): two_chain_problem(3, count) for count in (2, 3)}
        said: list[str] = []
        with mock.patch.object(compare_module, "coarse_to_fine_search", search):
            tf_placer.compare(problems, max_secs=1.0, say=said.append)
        # Steps of 6 ms became 3 ms.
        self.assertEndsWith(said[-1], "they may be shorter by as much again: 2 50.0%")

    def test_says_what_is_on_the_cpu_for_want_of_memory(self):
        # Each of two operations takes 1 s on the GPU, which has room for one, or 10 s on the CPU.
        for memory_bytes, cpu_share in ((10, 1.0), (20, 0.0)):
            problem = build_task_problem(
                [(10.0, 1.0)] * 2, resident_bytes=[10, 10], memory_bytes=[100, memory_bytes]
            )
            [machine] = tf_placer.compare({"one": problem}, max_secs=0.5).machines
            self.assertEqual((machine.cpu_share, machine.displaced_share), (cpu_share, cpu_share))

    def test_says_what_the_cpu_computes_beside_a_gpu_with_room(self):
        # Two products take 1 s each on the GPU or 1.5 s on the CPU: best at once, in 1.5 s.
        for cpu_only, cpu_work in ((False, "matrix product"), (True, "")):
            gpu_secs = np.inf if cpu_only else 1.0
            problem = build_task_problem(
                [(1.5, 1.0), (1.5, gpu_secs)], resident_bytes=[1, 1], memory_bytes=[100, 100]
            )
            problem = dataclasses.replace(problem, operation_types=("MatMul",) * 2)
            [machine] = tf_placer.compare({"one": problem}, max_secs=0.5).machines
            self.assertEqual((machine.step_secs, machine.cpu_share), (1.5, 1.0))
            self.assertEqual((machine.cpu_work, machine.displaced_share), (cpu_work, 0.0))

    def test_refuses_problems_of_different_graphs(self):
        other = two_chain_problem(3)
        other = dataclasses.replace(
            other, operation_names=tuple(f"other/{name}" for name in other.operation_names)
        )
        with self.assertRaisesRegex(ValueError, "^one and other are of different graphs.* have 0"):
            tf_placer.compare({"one": two_chain_problem(2), "other": other}, max_secs=1.0)

    def test_tells_what_does_not_fit(self):
        # Beside the source, the CPU has room for 15 bytes and the GPU for 10; `right` holds 20.
        problems = {"small": small_problem(25, 10), "medium": small_problem(25, 50)}
        compared = tf_placer.compare(problems, max_secs=2.0)
        small, medium = compared.machines
        self.assertIsNone(small.step_secs)
        self.assertEqual(medium.step_secs, 4.5)
        self.assertEqual((medium.fullest_device, medium.peak_bytes), ("cpu", 20))
        self.assertEqual(medium.one_device_secs, 4.5)
        # Beside the source, the CPU or the GPU needs room for `right`.
        best = find_least_bytes(problems["small"])
        self.assertEqual(small.least_memory_bytes, best)
        self.assertIsNone(medium.least_memory_bytes)
        self.assertIn(
            f"nothing fits on small: {best} B on each of cpu, gpu would do", str(compared)
        )
        [alone] = tf_placer.compare({"small": problems["small"]}, max_secs=1.0).list_findings()[1:]
        self.assertEqual(alone, f"nothing fits on small: {best} B on each of cpu, gpu would do")
        result = tf_placer.plan(problems["small"], max_secs=1.0)
        [planned] = tf_placer.compare({"plan": result}).machines
        self.assertEqual(planned.least_memory_bytes, result.least_memory_bytes)

    def test_compares_finished_searches_as_they_are(self):
        for count in (1, 2):
            tf_placer.plan(
                two_chain_problem(3, count),
                placer="single_device",
                max_trials=1,
                log_dir=self.directory / str(count),
            )
        paths = [self.directory / "1", self.directory / "2"]
        compared = tf_placer.compare(paths)
        self.assertEqual([each.name for each in compared.machines], [*map(os.fspath, paths)])
        # The second device of the second search is idle.
        steps = [each.step_secs for each in compared.machines]
        self.assertSequenceAlmostEqual(steps, [6e-3, 6e-3])
        result = tf_placer.plan(two_chain_problem(3, 2), max_secs=1.0)
        again = tf_placer.compare({"plan": result, "first": paths[0]})
        self.assertAlmostEqual(again.machines[0].step_secs, 3e-3)

    def test_a_page_of_plans_has_the_machines_and_the_sentences_of_the_comparison(self):
        # Four operations of 10 s on the CPU and 1 s on a GPU, which has room for one of them.
        paths = []
        for count in (1, 2):
            problem = build_task_problem(
                [(10.0, *[1.0] * count)] * 4,
                resident_bytes=[10] * 4,
                memory_bytes=[100, *[10] * count],
            )
            paths.append(self.directory / f"{count}gpu")
            tf_placer.plan(problem, max_secs=1.0, log_dir=paths[-1])
        compared = tf_placer.compare(paths, prices={"2gpu": 7.2})
        views = [
            dataclasses.replace(read_run_view(path), name=path.name, price_per_hour=price)
            for path, price in zip(paths, (None, 7.2), strict=True)
        ]
        machines = compare_views(views)
        names = [each.name for each in machines]
        self.assertEqual(names, ["A (1gpu)", "B (2gpu)"])
        renamed = [
            dataclasses.replace(each, name=name, log_dir=None)
            for each, name in zip(compared.machines, names, strict=True)
        ]
        self.assertEqual([each.log_dir for each in compared.machines], [*map(os.fspath, paths)])
        self.assertEqual(machines, renamed)
        headers, rows = make_run_table(views, machines)
        self.assertEqual(headers[4:], ["fullest device", "on CPU", "price/h", "1M steps"])
        # The model fits no GPU alone, so that nothing is compared with one.
        self.assertEqual([row[2] for row in rows], ["1 GPU is too small"] * 2)
        self.assertEqual(rows[1][4], "device_1 100% of 10 B")
        # 20 s a step at 7.2 an hour.
        self.assertEqual(rows[1][5:], ("100%", "7.20", "40,000"))
        remarks = list_run_remarks(views, machines)
        self.assertEqual(remarks, MachineComparison(tuple(renamed)).list_findings()[1:])
        self.assertIn("of the step on the CPU, because the memory of the GPUs is short", remarks[0])
        write_page(views[0], self.directory / "page.html", beside=views[1:])
        self.assertIn(
            "of the step on the CPU, because the memory of the GPUs is short",
            (self.directory / "page.html").read_text(),
        )

    def test_keeps_the_plan_of_each_machine(self):
        problems = {"one": two_chain_problem(3, 1), "at/two.json": two_chain_problem(3, 2)}
        compared = tf_placer.compare(
            problems, max_secs=2.0, prices={"two": 3.6, "one": 1.8}, log_dir=self.directory / "p"
        )
        expected = [os.fspath(self.directory / "p" / name) for name in ("one", "two")]
        self.assertEqual([each.log_dir for each in compared.machines], expected)
        for machine, problem in zip(compared.machines, problems.values(), strict=True):
            kept = read_json(self.directory / machine.log_dir / "result.json")
            step = tf_placer.simulate(problem, kept["assignment"])
            self.assertEqual(step.step_secs, machine.step_secs)
            self.assertTrue(kept["has_ended"])
        tf_placer.write_report(compared, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn("at/two.json", page)
        self.assertIn("3.60", page)
        # The plans are finished searches, from which another comparison goes on.
        again = tf_placer.compare(problems, max_secs=1e-3, log_dir=self.directory / "p")
        self.assertEqual(again.machines[1].step_secs, compared.machines[1].step_secs)
        of_plans = tf_placer.compare(expected)
        self.assertEqual(of_plans.machines[1].step_secs, compared.machines[1].step_secs)

    def test_a_page_of_kept_plans_knows_how_many_devices_are_enough(self):
        compared = tf_placer.compare(
            {"four": two_chain_problem(3, 4)},
            max_secs=1.0,
            log_dir=self.directory,
            prices={"four": 1.0},
        )
        self.assertEqual(compared.machines[0].needed, 2)
        path = compared.machines[0].log_dir
        self.assertEqual(read_run_view(path).needed, 2)
        tf_placer.write_report(compared, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn("would do as well, as a placement on so few is within 2 %", page)
        self.assertEqual(tf_placer.compare([path]).machines[0].needed, 2)

    def test_says_how_much_memory_would_make_a_step_shorter(self):
        # Four operations of 10 s on the CPU and 1 s on a GPU, which has room for one of them.
        problem = build_task_problem(
            [(10.0, 1.0)] * 4, resident_bytes=[10] * 4, memory_bytes=[100, 10]
        )
        compared = tf_placer.compare({"small": problem}, max_secs=1.0, log_dir=self.directory)
        [machine] = compared.machines
        self.assertEqual((machine.more_memory_bytes, machine.more_memory_secs), (40, 4.0))
        tf_placer.write_report(compared, self.directory / "page.html")
        self.assertIn("With more memory: 40 B", (self.directory / "page.html").read_text())
        [again] = tf_placer.compare([machine.log_dir]).machines
        self.assertEqual((again.more_memory_bytes, again.more_memory_secs), (40, 4.0))
        result = tf_placer.plan(problem, max_secs=2.0)
        compared = tf_placer.compare({"plan": result})
        self.assertEqual(compared.machines[0].more_memory_bytes, 40)
        self.assertIn(
            "memory that would do for a shorter step: 40 B on each GPU of plan for 4.000 s",
            compared.list_findings(),
        )

    def test_a_page_of_plans_that_are_not_kept_says_the_same(self):
        problems = {"four": two_chain_problem(3, 4)}
        for log_dir in (None, self.directory / "plans"):
            compared = tf_placer.compare(
                problems, max_secs=1.0, log_dir=log_dir, prices={"four": 1.0}
            )
            tf_placer.write_report(compared, self.directory / "page.html")
            page = (self.directory / "page.html").read_text()
            self.assertIn("would do as well, as a placement on so few is within 2 %", page)
            self.assertEqual(compared.plans["four"].step_secs, compared.machines[0].step_secs)

    def test_refuses_directories_of_other_searches_before_it_searches(self):
        two = two_chain_problem(3, 2)
        tf_placer.plan(two_chain_problem(2, 2), max_secs=0.5, log_dir=self.directory / "two")
        with self.assertRaisesRegex(tf_placer.LogError, "two"):
            tf_placer.compare({"two": two}, max_secs=1.0, log_dir=self.directory)
        with self.assertRaisesRegex(ValueError, "two machines would be kept in .*/both"):
            tf_placer.compare({"a/both": two, "both": two}, log_dir=self.directory)

    def test_reads_problem_files(self):
        path = self.directory / "two.json"
        write_problem(two_chain_problem(2), path)
        [compared] = tf_placer.compare([path], max_secs=0.5).machines
        self.assertAlmostEqual(compared.step_secs, 2e-3)

    def test_names_an_argument_that_cannot_be_called(self):
        for keywords, message in (
            ({"progress": "yes"}, "progress=.*a function, not of type str"),
            ({"progress": 3}, "progress=.*a function, not of type int"),
            ({"say": object()}, "say=.*a function, not of type object"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                tf_placer.compare({"two": two_chain_problem(2)}, max_secs=0.2, **keywords)

    def test_keeps_to_its_time(self):
        problems = {str(count): build_layered_problem(300, count) for count in (2, 3, 4)}
        start_secs = time.monotonic()
        said: list[str] = []
        shown: list[str] = []
        tf_placer.compare(problems, max_secs=3.0, say=said.append, progress=shown.append)
        self.assertLess(time.monotonic() - start_secs, 6.0)
        self.assertStartsWith(said[0], "searching on 3 machines for 3.0 s in all (max_secs), 1.0 s")
        self.assertRegex(said[1], r"^searched for .* s: 2 .* s, 3 .* s, 4 .* s$")
        self.assertRegex(" ".join(shown), r"\(\d of 3\): [0-9,]+ trials \| best .* of its time")

    def test_an_interrupt_leaves_out_the_machines_that_are_not_searched(self):
        problems = {str(count): two_chain_problem(2, count) for count in (4, 2, 3)}

        def search(problem, *_, **__):
            row = np.ones(problem.num_groups, np.int32)
            [best] = simulate_candidates(problem, Simulator(problem), row[None])
            return AutoResult(best, (best,), (), 0.0, 1, 0.0, False, False, interrupted=True)

        with mock.patch.object(compare_module, "coarse_to_fine_search", search):
            compared = tf_placer.compare(problems, max_secs=1.0)
        self.assertEqual([machine.name for machine in compared.machines], ["2"])
        self.assertEqual(compared.to_json()["left_out"], ["4", "3"])
        self.assertIn("interrupted: 4 and 3 not searched", compared.table())

    def test_plans_and_comparisons_repeat_the_notes_of_a_problem(self):
        note = "the layer 'lstm' would use cuDNN there"
        problem = dataclasses.replace(two_chain_problem(2), notes=(note,))
        write_problem(problem, self.directory / "problem.json")
        problem = read_problem(self.directory / "problem.json")
        self.assertEqual(problem.notes, (note,))
        result = tf_placer.plan(problem, max_trials=50, max_secs=1.0)
        self.assertIn(note, result.table())
        self.assertIn("The layer 'lstm' would use cuDNN there.", result.list_remarks())
        compared = tf_placer.compare({"a": result, "b": problem}, max_secs=0.5)
        self.assertEqual(compared.list_findings().count(note), 1)

    def test_prints_lines_unless_it_is_not_to(self):
        problems = {"two": two_chain_problem(2)}
        printed = []
        for verbose in (True, False):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                tf_placer.compare(problems, max_secs=0.2, verbose=verbose)
            printed.append(errors.getvalue())
        self.assertStartsWith(printed[0], "tf_placer: searching on 1 machine for 0.2 s in all")
        self.assertEqual(printed[1], "")

    def test_prices_are_also_by_the_last_part_of_a_path(self):
        names = ["plans/1xA100.json", "plans/4xA100/", "8xA100"]
        prices = {"1xA100": 1.0, "4xA100": 4.0, "8xA100": 8.0}
        self.assertEqual(
            compare_module.match_prices(prices, names),
            dict(zip(names, prices.values(), strict=True)),
        )
        # A whole name is meant before a part of another.
        both = ["old/a.json", "a"]
        self.assertEqual(compare_module.match_prices({"a": 2.0}, both), {"a": 2.0})
        with self.assertRaisesRegex(ValueError, '"a", which could be several of them: the mach'):
            compare_module.match_prices({"a": 2.0}, ["old/a.json", "new/a.json"])

    def test_refuses_invalid_arguments(self):
        problems = {"two": two_chain_problem(2)}
        with self.assertRaisesRegex(ValueError, "needs machines"):
            tf_placer.compare({})
        with self.assertRaisesRegex(ValueError, "needs machines"):
            tf_placer.compare("problem.json")
        with self.assertRaisesRegex(ValueError, "max_secs must be greater than 0, not 0"):
            tf_placer.compare(problems, max_secs=0)
        with self.assertRaisesRegex(
            ValueError, 'a price of "three", which is not compared: .* two'
        ):
            tf_placer.compare(problems, prices={"three": 1.0})
        with self.assertRaisesRegex(TypeError, "prices are by machine and per hour, .* unlike 3"):
            tf_placer.compare(problems, prices=3)
        with self.assertRaisesRegex(TypeError, "problems and results have names, .* PlacementPro"):
            tf_placer.compare([two_chain_problem(2)])
        with self.assertRaisesRegex(ValueError, "the price of two must be 0 or more, not -1"):
            tf_placer.compare(problems, prices={"two": -1})
        with self.assertRaisesRegex(ValueError, "has no problem.json: give the directory of"):
            tf_placer.compare([self.directory])
        with self.assertRaisesRegex((OSError, ValueError), "missing.json"):
            tf_placer.compare([self.directory / "missing.json"])


if __name__ == "__main__":
    absltest.main()
