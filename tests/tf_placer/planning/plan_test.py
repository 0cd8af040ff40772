"""Tests of planning by Python; tests of the command `search` cover the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import itertools
import json
import os
import pathlib
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

import tf_placer
from graph_passes.placement import read_placement
from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.simulation.training_steps import build_repeatable
from tests.tf_placer.small_problem import build_layered_problem, rename_devices, small_problem
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.files import read_json
from tf_placer.placers import Placer
from tf_placer.planning import plan as planning
from tf_placer.problem.memory_limits import limit_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.report.memory_curve import MoreMemory
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.search.config import SearchConfig
from tf_placer.search.distributed import workers
from tf_placer.simulation.simulator import Simulator


def find_best_secs(problem: PlacementProblem) -> float:
    """Computes the shortest step of all placements that fit, by trying all."""
    rows = itertools.product(range(problem.num_devices), repeat=problem.num_groups)
    batch = Simulator(problem).simulate(np.array(list(rows), np.int32))
    return float(batch.step_secs[batch.feasible].min())


class PlanTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def test_what_follows_a_search_that_its_trials_ended_takes_no_share_of_a_long_limit(self):
        with mock.patch.object(planning, "search_changed_machines", return_value=()) as search:
            config = SearchConfig(max_secs=600.0)
            tf_placer.plan(build_layered_problem(40, 3), max_trials=40, config=config)
        self.assertLessEqual(search.call_args.kwargs["search_secs"], 30.0)

    def test_auto_finds_the_optimum_of_small_problems(self):
        for problem in (small_problem(), two_chain_problem(2), two_chain_problem(3, 3)):
            result = tf_placer.plan(problem, max_trials=500, max_secs=5)
            self.assertTrue(result.feasible)
            self.assertAlmostEqual(result.step_secs, find_best_secs(problem))
            self.assertEqual(result.assignment.dtype, np.int32)
            step = tf_placer.simulate(problem, result.assignment)
            self.assertEqual(step.to_json()["step_secs"], result.step_secs)

    def test_the_bound_and_the_limits_do_not_depend_on_the_placer(self):
        # The only coarse group takes 4 ms, wherever it goes; the groups in it may take 2 ms.
        problem = dataclasses.replace(two_chain_problem(2), coarse_groups=np.zeros(4, np.int32))
        bounds = set()
        for placer in ("auto", "random", "expert"):
            result = tf_placer.plan(problem, placer=placer, max_trials=20, max_secs=2.0)
            bounds.add(result.outcome.lower_bound_secs)
            self.assertIn("found is bound by", result.table())
        [bound_secs] = bounds
        self.assertAlmostEqual(bound_secs, 2e-3)

    def test_says_how_much_memory_keeps_work_off_the_cpu(self):
        # Four operations of 10 s on the CPU and 1 s on the GPU, which has room for one of them.
        problem = build_task_problem(
            [(10.0, 1.0)] * 4, resident_bytes=[10] * 4, memory_bytes=[100, 10]
        )
        result = tf_placer.plan(problem, max_secs=3.0, log_dir=self.directory / "log")
        self.assertEqual(result.step_secs, 30.0)
        self.assertEqual(result.more_memory, MoreMemory(40, 4.0, 4.0))
        table = result.table()
        self.assertIn("found is bound by memory: 100% of the step is on device_0", table)
        self.assertIn(
            "more memory:  40 B on each GPU, perhaps less, would do for a step of 4.000 s", table
        )
        self.assertRegex(table, r"device_0 +3 +100% +30 B +100 B\n")
        self.assertEqual(result.to_json()["more_memory"]["peak_bytes"], 40)
        [remark] = PlanDirectory(self.directory / "log").read_record().remarks
        self.assertStartsWith(remark, "With more memory: 40 B on each GPU, perhaps less, would do")

    def test_says_whether_activations_on_the_cpu_would_make_it_fit(self):
        # A forward and a backward pass on a GPU of 10 bytes, which they exceed by 3.
        problem = build_task_problem(
            [(np.inf, 10.0)] * 6,
            [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 1), (4, 5, 1)],
            memory_bytes=[1000, 10],
        )
        problem = dataclasses.replace(
            problem,
            consumer_start=np.array([0, 2, 4, 5, 6, 7]),
            consumers=np.array([1, 5, 2, 4, 3, 4, 5]),
        )
        result = tf_placer.plan(problem, max_secs=2.0)
        self.assertFalse(result.feasible)
        self.assertIn(
            "13 B on device_1 would do; with 4 B of activations moved to the CPU and back it would "
            "fit: 60.00 s a step, 0% slower",
            result.table(),
        )
        values = result.to_json()["offload"]
        self.assertEqual(values["moved_bytes"], 4)
        self.assertEqual(values["assignment"], (1,) * 6)

    def test_the_same_seed_gives_the_same_result(self):
        plans = [
            tf_placer.plan(two_chain_problem(3, 4), placer="random", max_trials=40, seed=seed)
            for seed in (3, 3, 4)
        ]
        first, again, other = (each.outcome.assignment for each in plans)
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(plans[0].outcome.trials, 40)

    def test_keywords_override_the_config(self):
        config = tf_placer.SearchConfig(placer="post", max_trials=99, seed=8)
        result = tf_placer.plan(small_problem(), config=config, placer="random", max_trials=5)
        self.assertEqual(
            (result.outcome.placer, result.outcome.trials, result.outcome.seed), ("random", 5, 8)
        )

    def test_writes_a_report_from_the_log_directory(self):
        log_dir = self.directory / "log"
        result = tf_placer.plan(
            two_chain_problem(2), placer="random", max_trials=20, log_dir=log_dir
        )
        kept = json.loads((log_dir / "result.json").read_text())
        self.assertEqual(kept, {**result.outcome.to_json(), "has_ended": True, "placement": None})
        tf_placer.write_report(result, self.directory / "page.html")
        self.assertIn("<title>tf_placer: ", (self.directory / "page.html").read_text())
        # A file of the same problem resumes the same search.
        write_problem(two_chain_problem(2), self.directory / "problem.json")
        again = tf_placer.plan(
            self.directory / "problem.json", placer="random", max_trials=20, log_dir=log_dir
        )
        self.assertEqual(again.outcome.assignment, result.outcome.assignment)
        with self.assertRaisesRegex(ValueError, "a log of another seed"):
            tf_placer.plan(
                two_chain_problem(2), placer="random", max_trials=20, log_dir=log_dir, seed=1
            )

    def test_a_learned_placer_says_that_it_learns_its_samples_again(self):
        lines = []
        settings = {"placer": "post", "log_dir": self.directory / "log", "say": lines.append}
        tf_placer.plan(small_problem(), max_trials=24, **settings)
        self.assertNotIn("learns again", " ".join(lines))
        tf_placer.plan(small_problem(), max_trials=36, **settings)
        self.assertRegex(" ".join(lines), r"has \d+ updates of the placer, which it first learns")

    def test_the_plan_of_a_graph_has_the_device_of_each_operation(self):
        names = ["/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/device:GPU:0"]
        problem = rename_devices(small_problem(), names)
        result = tf_placer.plan(problem, max_trials=500, max_secs=5, output=self.directory / "r")
        devices = [names[result.assignment[group]] for group in problem.groups]
        expected = dict(zip(problem.operation_names, devices, strict=True))
        self.assertEqual(result.placement.assignment, expected)
        result.save(self.directory / "placement.json")
        for name in ("r", "placement.json"):
            read = read_placement(self.directory / name)
            self.assertEqual((read.assignment, read.devices), (expected, tuple(names)))
            self.assertEqual(
                read.measurement, {"simulated_step_secs": result.step_secs, "fits": True}
            )

    def test_the_file_of_the_result_says_whether_the_search_has_ended(self):
        output, seen = self.directory / "r.json", []
        result = tf_placer.plan(
            two_chain_problem(2),
            placer="random",
            max_trials=100,
            output=output,
            progress=lambda *_: seen.append(read_json(output)["has_ended"]),
        )
        self.assertEqual(set(seen), {False})
        written = read_json(output)
        self.assertTrue(written["has_ended"])
        self.assertEqual(written["trials"], result.trials)
        self.assertEqual(written["peak_bytes"], list(result.peak_bytes))
        self.assertEqual(written["lower_bound_secs"], result.lower_bound_secs)

    def test_the_plan_of_another_problem_has_no_operations(self):
        result = tf_placer.plan(small_problem(), max_trials=50, output=self.directory / "r")
        with self.assertRaisesRegex(tf_placer.ProblemError, "not that of a TensorFlow graph"):
            result.save(self.directory / "placement.json")
        self.assertFalse((self.directory / "placement.json").exists())
        with self.assertRaisesRegex(tf_placer.GraphError, "r': it has a device for each group"):
            read_placement(self.directory / "r")
        names = [f"/job:localhost/device:GPU:{number}" for number in range(2)]
        problem = rename_devices(small_problem(), names)
        problem = dataclasses.replace(problem, operation_names=("same",) * problem.num_operations)
        with self.assertRaises(tf_placer.ProblemError):
            _ = tf_placer.plan(problem, max_trials=50).placement

    def test_a_report_of_a_plan_in_memory_has_all_but_the_search_over_time(self):
        problem = two_chain_problem(2)
        kept = tf_placer.plan(problem, max_secs=2.0, log_dir=self.directory / "plan")
        in_memory = dataclasses.replace(kept, log_dir=None)
        pages = []
        for result in (in_memory, kept):
            tf_placer.write_report(result, self.directory / "page.html")
            pages.append((self.directory / "page.html").read_text())
        for part in ("Placement of the model", "this machine, searched as long", "of auto"):
            self.assertEqual([part in page for page in pages], [part in pages[1]] * 2, part)
        self.assertIn("this machine, searched as long", pages[0])
        self.assertNotIn("The record of the search was not kept", pages[0])

    def test_the_budget_of_live_searches_is_no_budget_of_a_plan(self):
        problem = two_chain_problem(3)
        for config, keywords, is_limited in (
            (tf_placer.SearchConfig(headroom=0.1), {}, False),
            (tf_placer.SearchConfig(max_trials=150), {}, True),
            (tf_placer.SearchConfig(max_trials=10), {"max_trials": 150}, True),
        ):
            config = dataclasses.replace(config, placer="random")
            result = tf_placer.plan(problem, config=config, **{"max_secs": 1.0, **keywords})
            self.assertEqual(result.trials == 150, is_limited, config)

    def test_progress_also_ends_what_follows_the_search(self):
        calls = []

        def stop_in_the_end(outcome, left_secs):
            del left_secs
            calls.append(outcome.trials)
            # The search has ended when the number of its trials stays.
            return calls[-3:] == [300] * 3

        problem = build_layered_problem(30, 3)
        result = tf_placer.plan(problem, max_trials=300, progress=stop_in_the_end)
        self.assertTrue(result.outcome.interrupted)
        self.assertTrue(result.feasible)
        self.assertEqual(calls[-3:], [300] * 3)

    def test_a_file_that_cannot_be_written_is_refused_before_the_search(self):
        with self.assertRaisesRegex(OSError, "nowhere"):
            tf_placer.plan(
                two_chain_problem(2), max_secs=60.0, output=self.directory / "nowhere" / "r.json"
            )

    def test_a_report_is_of_searches(self):
        page = self.directory / "page.html"
        with self.assertRaisesRegex(
            TypeError, "is made of the result of .* not of one of type int"
        ):
            tf_placer.write_report([3], page)
        with self.assertRaisesRegex(ValueError, "shows at most .* runs, not 0"):
            tf_placer.write_report([], page)

    def test_writes_a_report_of_several_plans_by_their_names_or_directories(self):
        page = self.directory / "page.html"
        plans = {
            name: tf_placer.plan(
                small_problem(), placer=placer, max_trials=5, log_dir=self.directory / placer
            )
            for name, placer in (("by chance", "random"), ("by layer", "expert"))
        }
        tf_placer.write_report(plans, page)
        self.assertRegex(page.read_text(), r"A · by chance · random(.|\n)*B · by layer · expert")
        self.assertNotIn("1M steps", page.read_text())
        tf_placer.write_report(plans, page, prices={"by layer": 3.6})
        self.assertIn("1M steps", page.read_text())
        with self.assertRaisesRegex(ValueError, "a price of .other., which is not compared"):
            tf_placer.write_report(plans, page, prices={"other": 3.6})
        tf_placer.write_report([*plans.values()], page)
        self.assertRegex(page.read_text(), r"A · [^<]*/random(.|\n)*B · [^<]*/expert")

    def test_the_page_of_a_plan_shows_each_baseline_once(self):
        log_dir = self.directory / "log"
        plan = tf_placer.plan(two_chain_problem(2), max_trials=100, max_secs=5, log_dir=log_dir)
        names = [name for name, _ in plan.auto.starts]
        self.assertIn("single_device", names)
        tf_placer.write_report(plan, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn("one device", page)
        self.assertNotIn("single_device", page)

    def test_says_how_many_coarse_groups_a_placer_sees(self):
        lines = []
        problem = dataclasses.replace(two_chain_problem(2), coarse_groups=np.zeros(4, np.int32))
        tf_placer.plan(problem, placer="expert", max_trials=2, say=lines.append)
        self.assertIn("'expert' places coarse groups: 1 of the 4 groups", lines[0])

    def test_reports_progress(self):
        reported = []
        tf_placer.plan(
            two_chain_problem(3, 4),
            placer="random",
            max_trials=200,
            progress=lambda outcome, eta_secs: reported.append((outcome.trials, eta_secs)),
        )
        self.assertEqual(reported[-1][0], 200)
        self.assertTrue(all(eta_secs >= 0 for _, eta_secs in reported))

    def test_the_directory_keeps_the_settings_that_the_placer_was_given(self):
        for options in ({}, {"rounds": 3}):
            directory = PlanDirectory(self.directory / f"{len(options)}")
            config = SearchConfig(
                None, "auto", placer_options=options, max_trials=50, log_dir=directory.path
            )
            tf_placer.plan(small_problem(), config=config)
            self.assertEqual(directory.read_record().placer_options, options)

    def test_no_search_is_expected_to_end_after_its_time(self):
        # The first of several workers reports a small share of all rounds.
        search, etas = planning.coarse_to_fine_search, []

        def search_slowly(*args, report, **kwargs):
            def report_small_share(progress):
                report(dataclasses.replace(progress, share=0.01, elapsed_secs=50.0))

            return search(*args, report=report_small_share, **kwargs)

        with (
            mock.patch.object(planning, "coarse_to_fine_search", search_slowly),
            mock.patch.object(planning, "_MIN_EXPLANATION_SECS", 0.1),
        ):
            tf_placer.plan(
                build_layered_problem(40, 3),
                max_trials=2000,
                max_secs=60.0,
                progress=lambda outcome, eta_secs: etas.append(eta_secs),
            )
        self.assertBetween(max(etas), 30.0, 60.0)

    def test_progress_may_end_the_search(self):
        fine = build_layered_problem(40, 3)
        # The search by coarse groups comes first.
        coarse = dataclasses.replace(
            fine, coarse_groups=np.arange(fine.num_operations, dtype=np.int32) // 2
        )
        for placer, problem in (("random", fine), ("auto", fine), ("auto", coarse)):
            reported = []

            def end_third(outcome, eta_secs, reported=reported):
                reported.append(outcome)
                return len(reported) == 3

            result = tf_placer.plan(problem, placer=placer, max_secs=60.0, progress=end_third)
            self.assertLen(reported, 3)
            self.assertTrue(result.outcome.interrupted)
            self.assertTrue(result.feasible)
            self.assertLess(result.outcome.elapsed_secs, 30.0)
            self.assertLessEqual(result.step_secs, reported[-1].step_secs)
            self.assertEqual(
                tf_placer.simulate(problem, result.assignment).step_secs, result.step_secs
            )

    def test_explains_keywords_of_other_functions(self):
        for keywords, message in (
            ({"callbacks": []}, "plan.. takes no callbacks, .* progress="),
            ({"progress": "page.html"}, "progress=.*not of type str: .* tf_placer.write_report"),
            ({"progress": 3}, "progress=.*is a function of .*, not of type int"),
            ({"progress": object()}, "progress=.*is a function of .*, not of type object"),
            ({"say": "yes"}, "say=.*is a function of a line, not of type str"),
            ({"machine": "local:2"}, "unexpected keyword argument 'machine'$"),
            ({"max_sec": 5}, r"unexpected keyword argument 'max_sec' \(did you mean 'max_secs'\?"),
            ({"headrom": 0.1}, r"argument 'headrom' \(did you mean 'headroom'\?\)"),
            ({"headroom": 0.1}, r"write config=tf_placer.SearchConfig\(headroom=...\)$"),
            (
                {"placer_options": {"rounds": 2}},
                r"write config=tf_placer.SearchConfig\(placer=..., placer_options=...\)$",
            ),
        ):
            with self.assertRaisesRegex(TypeError, message):
                tf_placer.plan(small_problem(), max_trials=1, **keywords)

    def test_ends_at_the_requested_gap(self):
        problem = two_chain_problem(6)
        for placer in ("random", "auto"):
            result = tf_placer.plan(problem, placer=placer, max_trials=10**5, stop_at_gap=20.0)
            self.assertLess(result.outcome.trials, 10**5)
            self.assertLessEqual(result.step_secs, 21.0 * result.outcome.lower_bound_secs)

    def test_limits_of_memory_hold_for_every_placer(self):
        problem = build_layered_problem(6, 2, seed=1)
        free_bytes = max(tf_placer.plan(problem, max_trials=500, max_secs=5).outcome.peak_bytes)
        limits = {"max_memory": {"device 0": free_bytes // 2}, "headroom": 0.5}
        best_secs = find_best_secs(limit_problem(problem, *limits.values()))
        self.assertGreater(best_secs, find_best_secs(problem))
        for placer, max_trials in (("auto", 1000), ("random", 3000)):
            config = tf_placer.SearchConfig(
                None, placer, max_trials=max_trials, max_secs=5, log_dir=self.directory, **limits
            )
            result = tf_placer.plan(problem, config=config)
            self.assertTrue(result.feasible)
            self.assertAlmostEqual(result.step_secs, best_secs)
            self.assertLessEqual(result.outcome.peak_bytes[0], free_bytes // 2)
            self.assertEqual(result.problem.devices[1].memory_bytes, 10**9 // 2)
            # A page shows the limits, too.
            kept = read_problem(self.directory / "problem.json")
            self.assertEqual(kept.devices, result.problem.devices)
            self.directory = self.directory / placer

    def test_a_limit_is_for_a_device_of_the_problem(self):
        config = tf_placer.SearchConfig(max_memory={"GPU:7": "4GB"})
        with self.assertRaisesRegex(ValueError, 'max_memory is for "GPU:7", .* one of cpu, gpu'):
            tf_placer.plan(small_problem(), config=config)

    def test_says_how_much_memory_would_do_if_nothing_fits(self):
        # By hand: 30 bytes on the GPU are enough; 40 on the CPU would be, too.
        result = tf_placer.plan(small_problem(31, 5), max_trials=50, max_secs=5)
        self.assertFalse(result.feasible)
        self.assertEqual(result.least_memory_bytes, 30)
        self.assertEqual(result.to_json()["least_memory_bytes"], 30)
        self.assertIn("with more memory: 30 B on gpu would do\n", result.table())
        enough = tf_placer.plan(small_problem(31, 30), max_trials=50, max_secs=2)
        self.assertTrue(enough.feasible)
        self.assertIsNone(enough.least_memory_bytes)

    def test_estimates_recomputation_if_nothing_fits(self):
        # The GPU has 12 B, where the step holds 13; the CPU may run nothing.
        result = tf_placer.plan(build_repeatable(12), max_trials=50, max_secs=5)
        self.assertFalse(result.feasible)
        self.assertEqual(result.to_json()["recomputation"]["num_operations"], 1)
        self.assertIn("recomputing:  it fits with recomputation of 1 operation", result.table())
        enough = tf_placer.plan(build_repeatable(13), max_trials=50, max_secs=2)
        self.assertIsNone(enough.to_json()["recomputation"])
        self.assertNotIn("recomput", enough.table())

    def test_a_search_for_what_fits_ends_with_the_first_placement_that_does(self):
        problem = build_layered_problem(30, 3)
        for placer in ("auto", "random"):
            config = tf_placer.SearchConfig(
                None, placer, max_trials=10**6, max_secs=15.0, objective="fit"
            )
            result = tf_placer.plan(problem, config=config)
            self.assertTrue(result.feasible)
            self.assertLess(result.outcome.trials, 10**4)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_a_notebook_shows_the_table_and_the_placement(self):
        result = tf_placer.plan(small_problem(), placer="random", max_trials=50)
        page = result._repr_html_()
        self.assertStartsWith(page, "<pre")
        self.assertIn("<figcaption>found. ", page)
        self.assertEqual(str(result), result.table())
        small = tf_placer.plan(small_problem(cpu_bytes=1, gpu_bytes=1), max_trials=50)
        self.assertIn("<figcaption>found, does not fit. ", small._repr_html_())

    def test_prints_how_far_it_is_unless_told_not_to(self):
        for keywords in ({}, {"verbose": False}, {"progress": lambda *state: None}):
            written = io.StringIO()
            written.isatty = lambda: True
            with contextlib.redirect_stderr(written):
                tf_placer.plan(small_problem(), placer="random", max_trials=50, **keywords)
            self.assertEqual("trials | best" in written.getvalue(), not keywords)

    def test_the_faster_placement_of_an_earlier_search_stays_in_the_directory(self):
        lines = []
        settings = {"placer": "random", "log_dir": self.directory / "log", "say": lines.append}
        problem = build_layered_problem(40, 3)
        best = tf_placer.plan(problem, max_trials=400, **settings)
        self.assertEmpty(lines)
        again = tf_placer.plan(problem, max_trials=1, **settings)
        self.assertGreater(again.step_secs, best.step_secs)
        self.assertIn("which stays there until a faster one is found", lines[0])
        kept = json.loads((self.directory / "log" / "result.json").read_text())
        self.assertEqual(kept["step_secs"], best.step_secs)
        tf_placer.plan(problem, max_trials=400, **settings)
        self.assertEqual(
            json.loads((self.directory / "log" / "result.json").read_text())["trials"], 400
        )

    def test_auto_goes_on_from_the_placement_of_an_earlier_search(self):
        lines = []
        settings = {"log_dir": self.directory / "log", "say": lines.append}
        problem = build_layered_problem(40, 3)
        best = tf_placer.plan(problem, max_trials=3000, max_secs=3.0, **settings)
        output = self.directory / "r"
        again = tf_placer.plan(problem, max_trials=1, max_secs=2.0, output=output, **settings)
        self.assertEqual(again.step_secs, best.step_secs)
        self.assertIn("from which this one goes on", lines[-1])
        self.assertIn("earlier search", again.table())
        self.assertEqual(json.loads(output.read_text())["step_secs"], best.step_secs)

    def test_auto_starts_from_a_placement_in_a_file_too(self):
        problem, path = build_layered_problem(40, 3), os.fspath(self.directory / "best.json")
        best = tf_placer.plan(problem, max_trials=3000, max_secs=3.0, output=path)
        config = SearchConfig(placer_options={"start": path})
        again = tf_placer.plan(problem, max_trials=1, max_secs=2.0, config=config)
        self.assertEqual(again.step_secs, best.step_secs)
        self.assertEqual(again.auto.starts[0][0], "given")
        for wrong in ("expert", "original"):
            with self.assertRaisesRegex(ValueError, "must be a file"):
                SearchConfig(placer_options={"start": wrong})

    def test_a_start_where_an_operation_may_not_go_is_refused(self):
        problem = build_layered_problem(40, 3)
        compute_secs = problem.compute_secs.copy()
        compute_secs[problem.groups == 5, 1] = np.inf
        problem = dataclasses.replace(problem, compute_secs=compute_secs)
        path = os.fspath(self.directory / "wrong.json")
        pathlib.Path(path).write_text(json.dumps({"assignment": [1] * problem.num_groups}))
        name = problem.operation_names[int(np.flatnonzero(problem.groups == 5)[0])]
        with self.assertRaisesRegex(ValueError, f"{path}' has '{name}' on .*, where it may not go"):
            tf_placer.plan(problem, config=SearchConfig(placer_options={"start": path}))

    def test_the_record_counts_the_samples_that_do_not_fit(self):
        log_dir = self.directory / "log"
        tf_placer.plan(small_problem(gpu_bytes=25), placer="random", max_trials=50, log_dir=log_dir)
        record = PlanDirectory(log_dir).read_record()
        failed = [sample for sample in record.samples if sample.step_secs is None]
        self.assertNotEmpty(failed)
        self.assertLen(failed, record.num_failed)

    def test_a_directory_has_one_search_at_a_time(self):
        problem, errors = build_layered_problem(40, 3), []
        for placer in ("random", "auto"):
            settings = {"placer": placer, "log_dir": self.directory / placer, "max_trials": 200}

            def search_again(*_, settings=settings):
                try:
                    tf_placer.plan(problem, **settings)
                except tf_placer.LogError as error:
                    errors.append(str(error))

            tf_placer.plan(problem, progress=search_again, **settings)
            self.assertIn(f"another search is writing {self.directory / placer}", errors[-1])
            self.assertTrue(tf_placer.plan(problem, **settings).feasible)

    def test_a_placer_without_a_seed_searches(self):
        class Same(Placer):
            name = "same"

            def __init__(self, groups, legal, seed=0):
                self.legal = legal

            def propose(self, count):
                return np.tile(self.legal.argmax(axis=1), [count, 1]).astype(np.int32)

            def observe(self, placements, measurements):
                pass

        result = tf_placer.plan(small_problem(), placer=Same, max_trials=3)
        self.assertEqual(result.assignment.tolist(), [0] * small_problem().num_groups)

    def test_repr_of_a_result_is_one_line(self):
        result = tf_placer.plan(small_problem(), placer="random", max_trials=50)
        self.assertRegex(
            repr(result),
            r"^<PlanResult of 'random': step .* s, groups per device \[.*\], 50 trials>$",
        )
        self.assertIn("lower bound", result.table())

    def test_refuses_invalid_arguments(self):
        for wrong in ({"4xK80": small_problem()}, 3, None):
            with self.assertRaisesRegex(TypeError, "what tf_placer.profile returns for one machin"):
                tf_placer.plan(wrong)
        with self.assertRaisesRegex(ValueError, "no placer 'best'"):
            tf_placer.plan(small_problem(), placer="best")
        for pins in ({"pin": {"a": "/CPU:0"}}, {"keep_together": ["a"]}):
            config = tf_placer.SearchConfig(**pins)
            with self.assertRaisesRegex(ValueError, "pin and keep_together are settings of prof"):
                tf_placer.plan(small_problem(), config=config)
        for answers in ({"answers": "store"}, {"require_answer": True}):
            config = tf_placer.SearchConfig(**answers)
            with self.assertRaisesRegex(ValueError, "a plan is always searched"):
                tf_placer.plan(small_problem(), config=config)
        with self.assertRaisesRegex(ValueError, "max_trials must be at least 1"):
            tf_placer.plan(small_problem(), max_trials=0)
        with self.assertRaisesRegex(FileNotFoundError, "missing.json"):
            tf_placer.plan(os.fspath(self.directory / "missing.json"))
        with (
            mock.patch.object(workers, "require_ray"),
            self.assertRaisesRegex(ValueError, "to workers"),
        ):
            config = tf_placer.SearchConfig(placer="random", workers="ray", num_workers=2)
            tf_placer.plan(small_problem(), config=config)


if __name__ == "__main__":
    absltest.main()
