"""Tests of the page about a search: its contents, and its behavior in a browser."""

from __future__ import annotations

import base64
import dataclasses
import fcntl
import gzip
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import unittest
from collections.abc import Sequence
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.models.catalog import build_model
from tests.browser import Browser, find_chromium
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.files import make_persistent_directory, write_json
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page.captions import describe_comparison
from tf_placer.report.page.page import require_page_libraries, write_page
from tf_placer.report.page.run_table import name_run, title_page
from tf_placer.report.page.run_view import Point, RunView, baseline_placements
from tf_placer.report.page.tables import omit_repeated_columns
from tf_placer.report.pictures.run_pictures import write_searches
from tf_placer.report.plan_directory import PlanCandidate, PlanDirectory, PlanRecord
from tf_placer.report.step_boxes import box_colors
from tf_placer.report.what_if import WhatIf
from tf_placer.runs.explanation import explain_trials
from tf_placer.runs.followed_page import follow_search
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_page import check_comparable, read_run_view, write_report
from tf_placer.runs.search_state import read_search_state
from tf_placer.search.sampled_steps import Sample

_KEPT = pathlib.Path(__file__).parent / "testdata" / "language_model"
_SECTIONS = ["compared", "placement", "time", "devices", "candidates", "search", "limits"]
_SECTIONS += ["operations", "facts"]
_MOST_BYTES = 6e6
# Bokeh puts its texts into shadow trees.
_DEEP_TEXT = """(() => {
  const texts = [];
  const visit = (node) => {
    if (node.shadowRoot) visit(node.shadowRoot);
    for (const child of node.childNodes)
      child.nodeType === 3 ? texts.push(child.data) : visit(child);
  };
  visit(document.body);
  return texts.join(" ");
})()"""


def live_run(directory: pathlib.Path) -> pathlib.Path:
    """Writes the directory of a live search on two worker processes."""
    run = directory / "live"
    run.mkdir()
    for name in ("result.json", "trials.jsonl", "request.json"):
        shutil.copy(_KEPT / name, run / name)
    (run / "problem.json").write_bytes(gzip.decompress((_KEPT / "problem.json.gz").read_bytes()))
    return run


def plan(directory: pathlib.Path, problem: PlacementProblem) -> pathlib.Path:
    """Writes the directory of a simulated search that found a split by layer."""
    kept = PlanDirectory(directory)
    kept.path.mkdir()
    write_problem(problem, kept.problem)
    found = baseline_placements(problem)[-1][1]
    write_json(
        kept.result,
        {"assignment": found.tolist(), "placer": "post", "seed": 3, "trials": 4, "elapsed_secs": 9},
    )
    samples = (Sample(1, 1.0, 0.9), Sample(2, 2.0, None), Sample(3, 3.0, 0.5), Sample(4, 4.0, 0.7))
    kept.write_record(
        PlanRecord(
            header={"placer": "post", "versions": {"numpy": "2.0"}},
            command="tf_placer search --placer=post",
            time="2026-01-02T03:04:05+00:00",
            samples=samples,
            best=(samples[0], samples[2]),
            candidates=(PlanCandidate("metis", 0.8, True),),
            changes=(WhatIf("transfers twice as fast", 0.001, 0.0005),),
        )
    )
    return kept.path


def set_result(run: pathlib.Path, **entries: object) -> None:
    """Changes entries of the result in the directory of a simulated search."""
    path = PlanDirectory(run).result
    write_json(path, {**json.loads(path.read_text()), **entries})


def build_problem(name: str) -> PlacementProblem:
    """Builds the problem of a small catalog model on four described K80."""
    model = build_model(name, small=True)
    workload = read_workload(model.graph, [model.train_op, model.loss])
    return cost_graph(workload, find_machine("4xK80"), steps=1).problem()


def setUpModule():
    try:
        require_page_libraries()
    except ImportError as error:
        raise unittest.SkipTest(str(error)) from error


class RunViewTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def test_a_live_run_shows_the_confidence_of_its_verdict(self):
        view = read_run_view(live_run(self.directory))
        self.assertStartsWith(view.verdict, "Placed: auto is 1.17")
        [found] = [each for each in view.compared if each.is_found]
        self.assertEqual(found.label, "auto")
        self.assertAlmostEqual(found.speedup, 1.173, places=3)
        np.testing.assert_allclose(found.interval, (1.061, 1.298), atol=1e-3)
        self.assertEqual([step.label for step in view.steps], ["original", "auto"])
        # The original graph has no devices: it runs on the first.
        self.assertEqual(set(view.steps[0].trace.operation_devices), {0})
        self.assertLess(view.steps[1].trace.step_secs, view.steps[0].trace.step_secs)
        self.assertLen(view.points, 12)
        self.assertContainsSubset(
            {"command", "seed", "tensorflow", "machine"}, {name for name, _ in view.facts}
        )

    def test_the_timeline_agrees_with_predictions_and_limits(self):
        run = live_run(self.directory)
        directory = RunDirectory(run)
        state = read_search_state(run)
        result = state.result
        problem = read_problem(os.fspath(directory.problem))
        explanation = explain_trials(
            problem,
            group_graph(problem),
            state.trials,
            {label: state.trials[index] for label, index in result.finalists.items()},
            result.confirmation,
            result.winner,
            original_assignment=result.original_assignment,
            search_secs=1e-3,
            seed=0,
        )
        kept = dataclasses.replace(result, explanation=explanation.to_json())
        directory.write_result(kept)
        view = read_run_view(run)
        predicted = {each.label: each.predicted_secs for each in view.compared}
        for step in view.steps:
            self.assertAlmostEqual(step.trace.step_secs, predicted[step.label])
        self.assertEqual(view.limits.lower_bound_secs, explanation.limits.lower_bound_secs)
        # The error is that of all placements in the table that were predicted and measured.
        ratios = [
            each.measured_secs / each.predicted_secs
            for each in explanation.candidates
            if each.measured_secs and each.predicted_secs
        ]
        error = float(np.sqrt(np.mean(np.log(ratios) ** 2)))
        self.assertAlmostEqual(explanation.error, error)
        self.assertIn(f"whole steps are off by {error:.0%}.", " ".join(view.notes))

    def test_the_page_of_an_unchanged_search_is_about_the_placement_of_its_verdict(self):
        # Other trials were faster than `auto`, which was measured in the rounds.
        run = live_run(self.directory)
        value = json.loads((run / "result.json").read_text())
        value |= {"outcome": "not_faster", "winner": None}
        value["confirmation"]["comparisons"]["auto"] |= {
            "faster": False,
            "interval": [0.96, 1.3],
            "speedup": 1.01,
        }
        (run / "result.json").write_text(json.dumps(value))
        view = read_run_view(run)
        self.assertIn("The best is 0.96 to 1.30 times as fast", view.verdict)
        self.assertEqual([step.label for step in view.steps], ["original", "auto"])
        write_page(view, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        section = page.partition('<section id="compared">')[2].partition("</section>")[0]
        rows = re.findall(r'<td data-label="placement">(.*?)</td>', section)
        fastest = view.compared[1].label
        self.assertNotEqual(fastest, "auto")
        self.assertEqual(rows, ["original", fastest, "auto"])
        self.assertIn("0.960 to 1.300", section)
        self.assertIn("The pictures and the timeline are of auto.", section)

    def test_counts_the_placements_that_are_left_out(self):
        run = live_run(self.directory)
        header, *trials = (run / "trials.jsonl").read_text().splitlines()
        value = json.loads(trials[-1])
        more = [json.dumps(value | {"index": number}) for number in range(12, 26)]
        (run / "trials.jsonl").write_text("\n".join([header, *trials, *more]) + "\n")
        view = read_run_view(run)
        others = sum(trial.placer != "original" for trial in view.points)
        self.assertLen(view.compared, 1 + 20)
        self.assertEqual(view.num_left_out, others - 20)

    def test_the_headline_leaves_out_what_tensorflow_says_of_a_failure(self):
        view = dataclasses.replace(
            read_run_view(live_run(self.directory)),
            verdict="Placed: expert runs, and the original does not: original does not run "
            "(out_of_memory): in the warm-up steps: OOM when allocating tensor with shape[32,256]",
        )
        write_page(view, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn(">Placed: expert runs, and the original does not</h1>", page)
        self.assertIn(">Original does not run (out_of_memory): in the warm-up steps: OOM", page)

    def test_the_headline_says_that_one_process_is_faster(self):
        run = live_run(self.directory)
        usual = read_run_view(run)
        result = json.loads((run / "result.json").read_text()) | {"one_process_secs": 1e-6}
        (run / "result.json").write_text(json.dumps(result))
        view = read_run_view(run)
        headline = "Placed on workers, slower than one process on all cores: "
        self.assertStartsWith(view.verdict, headline)
        self.assertEqual(
            [each.label for each in view.compared[:2]],
            ["original", "original, one process on all cores"],
        )
        self.assertEqual((view.compared[1].step_secs, view.compared[1].speedup), (1e-6, None))
        # The color of a headline is that of a speed-up only where the placement is worth using.
        for seen, kind in ((view, "same"), (usual, "better")):
            write_page(seen, self.directory / "page.html")
            page = (self.directory / "page.html").read_text()
            self.assertIn(f'<h1 class="verdict {kind}">Placed', page)

    def test_says_why_trials_took_less_than_the_bound(self):
        view = read_run_view(live_run(self.directory))
        limits = dataclasses.replace(view.limits, bound_secs=1e3)
        for bounded, is_said in ((view, False), (dataclasses.replace(view, limits=limits), True)):
            write_page(bounded, self.directory / "page.html")
            page = (self.directory / "page.html").read_text()
            self.assertEqual("trials that took less ran while" in page, is_said)

    def test_a_search_that_has_not_ended_has_no_verdict(self):
        run = live_run(self.directory)
        (run / "result.json").unlink()
        view = read_run_view(run)
        self.assertStartsWith(view.verdict, "The search has not ended: after 12")
        self.assertFalse(view.has_ended)

    def test_the_page_follows_a_search_until_it_ends(self):
        run, page = live_run(self.directory), self.directory / "page.html"
        log, result = run / "trials.jsonl", (run / "result.json").read_bytes()
        (run / "result.json").unlink()
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(lines[0])
        pages = follow_search(run, page)
        with mock.patch.object(time, "sleep"), log.open("ab") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            next(pages)
            self.assertIn("no trial has ended yet", page.read_text())
            self.assertIn("location.reload", page.read_text())
            writer.write(b"".join(lines[1:]))
            writer.flush()
            next(pages)
            self.assertIn("The search has not ended: after 12 trials", page.read_text())
            (run / "result.json").write_bytes(result)
            fcntl.flock(writer, fcntl.LOCK_UN)
            self.assertLen(list(pages), 1)
        self.assertRegex(page.read_text(), r"<h1[^>]*>\s*Placed: auto is \d\.\d\d times as fast")
        self.assertNotIn("location.reload", page.read_text())

    def test_waits_for_a_search_to_follow(self):
        run, page = self.directory / "later", self.directory / "page.html"

        def begin(_: float) -> None:
            shutil.copytree(live_run(self.directory), run)

        with mock.patch.object(time, "sleep", begin):
            self.assertLen(list(follow_search(run, page)), 1)
        self.assertRegex(page.read_text(), r"<h1[^>]*>\s*Placed: auto is \d\.\d\d times as fast")

    def test_only_searches_with_common_operations_are_comparable(self):
        view = read_run_view(live_run(self.directory))
        other = read_run_view(plan(self.directory / "plan", make_problem([[1.0, 1.0]])))
        check_comparable(view, view)
        check_comparable(other, dataclasses.replace(other, graph_fingerprint="f"))
        # The steps of the same graph are comparable without costs.
        check_comparable(view, dataclasses.replace(view, problem=None))
        with self.assertRaisesRegex(ValueError, "of 1 operations they have 0 in common"):
            check_comparable(view, other)
        unknown = dataclasses.replace(view, problem=None, graph_fingerprint="another")
        with self.assertRaisesRegex(ValueError, "the operations of /.*live are not known"):
            check_comparable(view, unknown)
        with self.assertRaisesRegex(ValueError, "the operations of B are not known"):
            check_comparable(view, dataclasses.replace(unknown, facts=()))

    def test_long_lists_of_names_are_shortened(self):
        run = live_run(self.directory)
        header, *trials = (run / "trials.jsonl").read_text().splitlines()
        fetches = [f"fetch_{number}" for number in range(20)]
        changed = json.dumps({**json.loads(header), "fetches": fetches})
        (run / "trials.jsonl").write_text("\n".join([changed, *trials]) + "\n")
        facts = dict(read_run_view(run).facts)
        self.assertEqual(facts["fetches"], "fetch_0, fetch_1, fetch_2 and 17 more")

    def test_a_run_without_costs_has_no_steps(self):
        run = live_run(self.directory)
        (run / "problem.json").unlink()
        view = read_run_view(run)
        self.assertEqual((view.steps, view.problem), ((), None))
        self.assertEqual(
            view.notes,
            (
                "The search ended before the placer auto had the costs of the operations profiled, "
                "so the page has no steps.",
            ),
        )
        write_page(view, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn('id="compared"', page)
        self.assertNotIn('<section id="time"', page)

    def test_a_placer_without_costs_is_named(self):
        run = live_run(self.directory)
        (run / "problem.json").unlink()
        header, *trials = (run / "trials.jsonl").read_text().splitlines()
        changed = json.dumps({**json.loads(header), "placer": "random"})
        (run / "trials.jsonl").write_text("\n".join([changed, *trials]) + "\n")
        [note] = read_run_view(run).notes
        self.assertStartsWith(note, "The placer random needs no costs of operations, so none were")

    def test_a_plan_is_compared_with_the_baselines(self):
        # Two independent halves take 3 s on two devices, and 6 s on one.
        problem = make_problem([[3.0, 3.0], [3.0, 3.0]])
        view = read_run_view(plan(self.directory / "plan", problem))
        self.assertEqual(
            [each.label for each in view.compared[:2]], ["one device (D1)", "split by layer"]
        )
        self.assertStartsWith(view.verdict, "Planned: 3.000 s a step, 2.00 times as fast as one")
        self.assertEqual([point.step_secs for point in view.points], [0.9, None, 0.5, 0.7])

    def test_a_plan_that_is_slower_than_a_baseline_says_so(self):
        # By hand: 8 s on the first device, 9 s on the second, and 5 s for the split by layer.
        problem = make_problem([[2.0, 3.0], [3.0, 4.0], [2.0, 1.0], [1.0, 1.0]])
        for number, (assignment, verdict, remark) in enumerate(
            (
                (
                    [1, 1, 1, 1],
                    "The placement found (9.000 s) is slower than one device (8.000 s) and than "
                    "the split by layer (5.000 s). It is simulated, not measured; no placement can "
                    "be more than ",
                    "1 of 2 other placements is faster than one device",
                ),
                (
                    [0, 0, 0, 0],
                    "The placement found (8.000 s) is slower than the split by layer (5.000 s).",
                    "1 of 2 other placements is faster than one device",
                ),
                (
                    [0, 0, 0, 1],
                    "Planned: 7.000 s a step, 1.14 times as fast as one device (D0) (8.000 s a "
                    "step), but slower than the split by layer (5.000 s).",
                    "2 of 2 other placements are faster than one device",
                ),
            )
        ):
            path = plan(self.directory / str(number), problem)
            set_result(path, assignment=assignment)
            (path / "search.json").unlink()
            view = read_run_view(path)
            self.assertStartsWith(view.verdict, verdict)
            self.assertRegex(view.verdict, r"more than [\d.]+ times as fast as the placement found")
            self.assertStartsWith(describe_comparison(view), remark)
            self.assertEqual(view.is_better, assignment[3] != assignment[0])

    def test_a_plan_as_fast_as_one_device_says_so(self):
        # The second operation takes far longer anywhere but on the first device.
        problem = make_problem([[1.0, 9.0], [5.0, 90.0]])
        path = plan(self.directory / "plan", problem)
        set_result(path, assignment=[0, 0])
        verdict = read_run_view(path).verdict
        self.assertStartsWith(verdict, "The placement found is as fast as one device (D0): 6.000 s")

    def test_runs_of_one_graph_on_one_machine_are_told_apart_by_their_placers(self):
        problem = make_problem([[2.0, 3.0], [3.0, 4.0]])
        for name, placer in (("a", "metis"), ("b", "post"), ("c", "post")):
            set_result(plan(self.directory / name, problem), placer=placer)
        other = plan(self.directory / "d", make_problem([[2.0, 3.0]]))
        views = [
            dataclasses.replace(read_run_view(path), name=f"runs/{path.name}")
            for path in (*(self.directory / name for name in "abc"), other)
        ]
        self.assertEqual(
            [name_run(views, number) for number in range(4)],
            ["A · metis", "B · post · b", "C · post · c", f"D · {views[3].title}"],
        )
        views = [
            dataclasses.replace(view, notes=("As in all.", f"In {view.name}.")) for view in views
        ]
        write_page(views[0], self.directory / "page.html", beside=views[1:])
        page = (self.directory / "page.html").read_text()
        self.assertEqual(page.count("As in all."), 1)
        self.assertEqual(page.count('<p class="note">In runs/'), 4)
        self.assertIn('<p class="run-name">A · metis</p>', page)
        self.assertIn(f'<p class="eyebrow">A · runs/a · metis · {views[0].title}</p>', page)
        self.assertIn(f'<p class="eyebrow">D · runs/d · {views[3].title}</p>', page)

    def test_the_page_of_one_run_has_the_name_of_its_directory(self):
        view = read_run_view(plan(self.directory / "gnmt", make_problem([[2.0, 3.0]])))
        for name, expected in (("", view.title), ("runs/gnmt", f"gnmt · {view.title}")):
            write_page(dataclasses.replace(view, name=name), self.directory / "page.html")
            page = (self.directory / "page.html").read_text()
            self.assertIn(f"<title>tf_placer: {expected}</title>", page)
            self.assertIn(f'<p class="eyebrow">tf_placer · {expected}</p>', page)
        temporary = make_persistent_directory()
        self.addCleanup(shutil.rmtree, temporary)
        shutil.copytree(self.directory / "gnmt", temporary, dirs_exist_ok=True)
        write_report(temporary, self.directory / "page.html")
        page = (self.directory / "page.html").read_text()
        self.assertIn(f"<title>tf_placer: {view.title}</title>", page)

    def test_the_axes_of_a_search_have_no_powers_of_ten(self):
        from tf_placer.report.page.charts import draw_search_chart

        view = read_run_view(plan(self.directory / "plan", make_problem([[3.0, 3.0]])))
        self.assertFalse(draw_search_chart(view, by_time=True).xaxis[0].formatter.use_scientific)
        by_number = draw_search_chart(view, by_time=False)
        self.assertEqual(by_number.xaxis[0].formatter.format, "0,0[.]0")

    def test_searches_beside_each_other_have_one_chart_of_their_samples(self):
        from tf_placer.report.page.charts import draw_searches_chart

        def search(placer: str, steps: Sequence[float | None]) -> RunView:
            points = tuple(
                Point(number, float(number), secs, placer) for number, secs in enumerate(steps, 1)
            )
            view = RunView("", "", False, False, (), points=points, best=points[:1])
            return dataclasses.replace(view, placer=placer)

        # The last ten of 60 samples take 2 s, so that the mean of 50 ends at 1.2 s.
        learns = search("eagle", [None, *([1.0] * 50), *([2.0] * 10)])
        learns = dataclasses.replace(learns, best=(learns.points[1],))
        views = [learns, search("eagle", [3.0]), search("post", [4.0])]
        chart = draw_searches_chart(views, ["A · eagle", "B", "C"], ("ms", 1e3))
        lines = [each.glyph for each in chart.renderers]
        data = [each.data_source.data for each in chart.renderers]
        self.assertEqual([each["y"][-1] for each in data], [1000.0, 1200.0, 3000.0, 4000.0])
        self.assertEqual([list(each["x"])[-1] for each in data], [61, 61, 1, 1])
        self.assertLen(data[1]["x"], 11)
        # The runs of a placer share a color, and differ in their dashes.
        colors = [each.line_color for each in lines]
        self.assertEqual(colors[0], colors[1])
        self.assertEqual(colors[0], colors[2])
        self.assertNotEqual(colors[0], colors[3])
        self.assertNotEqual(lines[0].line_dash, lines[2].line_dash)
        labels = [each.label.value for each in chart.legend[0].items]
        self.assertEqual(labels, ["A · eagle", "B", "C"])
        alone = draw_searches_chart(views[:2], ["A", "B"], ("ms", 1e3)).renderers
        self.assertNotEqual(alone[0].glyph.line_color, alone[-1].glyph.line_color)
        self.assertIsNone(draw_searches_chart(views[:1], ["A"], ("ms", 1e3)))

    def test_settings_that_were_given_tell_runs_apart(self):
        problem = make_problem([[2.0, 3.0], [3.0, 4.0]])
        path = plan(self.directory / "plan", problem)
        record = json.loads((path / "search.json").read_text())
        record["placer_options"] = {"rounds": 7}
        (path / "search.json").write_text(json.dumps(record))
        set_result(path, placer="auto")
        view = read_run_view(path)
        self.assertEqual(view.placer, "auto with rounds=7")
        self.assertIn(("settings", "rounds=7"), view.facts)

    def test_charts_have_the_units_of_the_tables(self):
        from tf_placer.report.page.charts import draw_search_chart, draw_timeline, make_time_axis

        for secs, unit in ((3.0, "s"), (3e-3, "ms"), (3e-6, "µs")):
            with self.subTest(unit):
                problem = make_problem([[secs, secs]] * 2)
                view = read_run_view(plan(self.directory / unit, problem))
                axis = make_time_axis([view.steps])
                self.assertEqual(axis.unit, unit)
                # The longest step has both operations on one device.
                self.assertAlmostEqual(axis.per_ms * axis.x_range.end, 6.0)
                senders = np.zeros(0, int)
                chart = draw_timeline(view.steps[-1], axis, senders)
                self.assertEqual(chart.xaxis[0].axis_label, unit)
        # The steps of the search take 0.5 s to 0.9 s, as its caption says.
        search = draw_search_chart(view, by_time=True)
        self.assertEqual(search.yaxis[0].axis_label, "ms a step")

    def test_the_picture_of_searches_has_ticks_above_a_power_of_ten(self):
        view = read_run_view(plan(self.directory / "run", make_problem([[3.0, 3.0]] * 2)))
        steps = [(1, 1.7), (20, 1.1), (300, 0.4)]
        best = tuple(Point(number, float(number), secs, "post") for number, secs in steps)
        path = self.directory / "curves.svg"
        write_searches([dataclasses.replace(view, best=best, points=())], ["post"], path)
        # Labels are drawn as outlines, with their text as comments.
        labels = set(re.findall(r"<!-- (\S+) -->", path.read_text()))
        self.assertContainsSubset({"0.6", "0.8", "1", "1.2", "1.4"}, labels)

    def test_a_plan_counts_its_devices_in_words_that_do_not_read_as_names(self):
        # The name of the processor is a kind with a number of sockets.
        problem = make_problem([[3.0, 3.0, 3.0]] * 2)
        kinds = ("2xE5-2650v4", "P100", "P100")
        devices = [
            dataclasses.replace(device, kind=kind)
            for device, kind in zip(problem.devices, kinds, strict=True)
        ]
        problem = dataclasses.replace(problem, devices=tuple(devices))
        title = "2 operations planned on one 2xE5-2650v4 and 2 P100"
        self.assertEqual(read_run_view(plan(self.directory / "plan", problem)).title, title)
        problem = dataclasses.replace(problem, graph_name="the model 'm'", batch_size=32)
        view = read_run_view(plan(self.directory / "named", problem))
        self.assertEqual(title_page([view]), f"the model 'm', batch of 32: {title}")
        self.assertEqual(title_page([view, view]), "the model 'm', batch of 32, 2 runs")

    def test_a_model_that_fits_no_device_is_compared_with_a_split(self):
        problem = make_problem(
            [[3.0, 3.0], [3.0, 3.0]], resident_bytes=[60, 60], memory_bytes=[100, 100]
        )
        view = read_run_view(plan(self.directory / "plan", problem))
        self.assertEqual(view.compared[0].label, "split by layer")
        [one] = [each for each in view.compared if each.label == "one device (D1)"]
        self.assertIsNone(one.step_secs)
        self.assertIn("does not fit: 20 B too much", one.basis)

    def test_a_plan_that_does_not_fit_is_not_offered(self):
        for fits, size in ((True, 100), (False, 50)):
            problem = make_problem(
                [[3.0, 3.0], [3.0, 3.0]], resident_bytes=[60, 60], memory_bytes=[size] * 2
            )
            view = read_run_view(plan(self.directory / f"plan_{size}", problem))
            self.assertEqual("puts the plan on the graph" in view.notes[0], fits)
            self.assertEqual("No placement that fits was found" in view.verdict, not fits)

    def test_refuses_invalid_input(self):
        empty = self.directory / "empty"
        empty.mkdir()
        with self.assertRaisesRegex(ValueError, "empty' is no directory of a search"):
            read_run_view(empty)
        text = self.directory / "text.json"
        text.write_text("hello")
        with self.assertRaisesRegex(ValueError, "text.json is not a JSON file"):
            read_run_view(text)
        text.write_text("{}")
        with self.assertRaisesRegex(ValueError, "text.json' is not the result of a search"):
            read_run_view(text)
        text.write_text('{"assignment": [0, 1]}')
        with self.assertRaisesRegex(ValueError, "give the problem, too"):
            read_run_view(text)
        with self.assertRaises(FileNotFoundError):
            read_run_view(self.directory / "no")
        run = plan(self.directory / "plan", make_problem([[1.0, 1.0]]))
        (run / "search.json").write_text('{"format": 1}')
        with self.assertRaisesRegex(ValueError, "search.json is not the record of a search"):
            read_run_view(run)

    def test_refuses_an_invalid_header(self):
        run = plan(self.directory / "plan", make_problem([[1.0, 1.0]]))
        record = json.loads((run / "search.json").read_text())
        record["header"]["versions"] = [1]
        (run / "search.json").write_text(json.dumps(record))
        with self.assertRaisesRegex(ValueError, "search.json is not .*: versions is a list: it"):
            read_run_view(run)
        run = live_run(self.directory)
        header, *trials = (run / "trials.jsonl").read_text().splitlines()
        damaged = json.dumps({**json.loads(header), "machine": {"spec": "x"}})
        (run / "trials.jsonl").write_text("\n".join([damaged, *trials]) + "\n")
        with self.assertRaisesRegex(ValueError, 'trials.jsonl is not .*no entry "devices"'):
            read_run_view(run)

    def test_names_are_escaped(self):
        problem = make_problem([[1.0, 1.0]])
        names = ("</script><script>document.title='x'</script>",)
        object.__setattr__(problem, "operation_names", names)
        path = self.directory / "page.html"
        write_page(read_run_view(plan(self.directory / "plan", problem)), path)
        self.assertNotIn("</script><script>document.title", path.read_text())


class RepeatedColumnsTest(absltest.TestCase):
    def test_later_runs_have_only_what_is_not_as_in_the_first(self):
        first = {"names": ["a"], "layers": [0], "steps": [{"secs": [1]}, {"secs": [2]}]}
        again = {"names": ["a"], "layers": [1], "steps": [{"secs": [1]}, {"secs": [3]}, {}]}
        self.assertEqual(
            omit_repeated_columns([None, first, again, None]),
            [None, first, {"layers": [1], "steps": [None, {"secs": [3]}, {}]}, None],
        )
        self.assertEqual(omit_repeated_columns([None]), [None])


@unittest.skipUnless(find_chromium(), "there is no Chromium")
class BrowserTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        runs = {
            "live": live_run(cls.directory),
            "nmt": plan(cls.directory / "nmt", build_problem("nmt_2")),
        }
        cls.pages = {name: cls.directory / f"{name}.html" for name in runs}
        for name, run in runs.items():
            write_page(read_run_view(run), cls.pages[name])
        cls.pages["pair"] = cls.directory / "pair.html"
        live = read_run_view(runs["live"])
        # The steps of the second run are of the original alone.
        beside = dataclasses.replace(live, title="again", steps=live.steps[:1])
        write_page(live, cls.pages["pair"], beside=[beside])
        cls.pages["four"] = cls.directory / "four.html"
        planned = read_run_view(runs["nmt"])
        four = [
            dataclasses.replace(
                view, name=f"runs/of_a_model_with_a_long_name_{n}", price_per_hour=n
            )
            for n, view in enumerate((live, beside, planned, planned), start=1)
        ]
        write_page(four[0], cls.pages["four"], beside=four[1:])
        cls.four = four
        problem = make_problem(
            [[3.0, 3.0], [3.0, 3.0]],
            names=[
                "StatefulPartitionedCall_1/user/MatMul",
                "StatefulPartitionedCall_1/item/MatMul",
            ],
        )
        cls.pages["served"] = cls.directory / "served.html"
        write_page(read_run_view(plan(cls.directory / "served", problem)), cls.pages["served"])
        cls.browser = Browser(find_chromium())
        cls.addClassCleanup(cls.browser.close)

    def open(self, name: str, width: int = 1280, dark: bool = False) -> None:
        self.browser.open(self.pages[name], width=width, dark=dark)

    def test_pages_are_complete_without_errors_and_fit_every_window(self):
        for name, path in self.pages.items():
            with self.subTest(name):
                self.open(name, 400)
                others = [url for url in self.browser.requests if not url.startswith("data:")]
                self.assertEqual(others, [path.as_uri()])
                wide = "document.documentElement.scrollWidth"
                self.assertLessEqual(self.browser.evaluate(wide), 400)
                for width in (1600, 800):
                    self.browser.resize(width)
                    self.browser.wait(f"innerWidth === {width} && {wide} <= {width}")
                ids = "[...document.querySelectorAll('section')].map((s) => s.id)"
                self.assertEqual(self.browser.evaluate(ids), _SECTIONS)
                empty = """[...document.querySelectorAll('.chart')].filter(
                    (c) => c.getBoundingClientRect().height < 60).map((c) => c.id)"""
                self.assertEqual(self.browser.evaluate(empty), [])
                self.assertLess(os.path.getsize(path), _MOST_BYTES)
                self.assertEqual(self.browser.complaints, [])

    def test_no_table_is_cut_on_a_phone(self):
        unfold = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        cut = """new Promise((done) => setTimeout(() => done(
            [...document.querySelectorAll('.wide, nav')].map((e) => e.scrollWidth - e.clientWidth)
        ), 300))"""
        for name in self.pages:
            self.open(name, 500)
            self.browser.evaluate(unfold)
            for width in (500, 390):
                self.browser.resize(width)
                self.browser.wait(f"innerWidth === {width}")
                self.assertLessEqual(max(self.browser.evaluate(cut)), 0, (name, width))
        # Stacked cells have the headers of their columns.
        self.open("live", 390)
        label = "getComputedStyle(document.querySelector('.stacked td:nth-child(2)'), '::before')"
        self.assertEqual(self.browser.evaluate(f"{label}.content"), '"step "')
        self.browser.resize(1600)
        stacked = "document.querySelectorAll('#compared .stacked').length"
        self.browser.wait(f"innerWidth === 1600 && {stacked} === 0")

    def test_a_served_model_has_neither_calls_nor_directions(self):
        self.open("served")
        heads = "[...document.querySelectorAll('th, option')].map((e) => e.textContent).join()"
        self.assertNotRegex(self.browser.evaluate(heads), "backward|direction")
        name = "document.querySelector('#rows tbody td')"
        self.assertRegex(self.browser.evaluate(f"{name}.textContent"), "^(user|item)/MatMul$")
        self.assertStartsWith(self.browser.evaluate(f"{name}.title"), "StatefulPartitionedCall_1/")
        text = self.browser.evaluate("document.querySelector('main').innerText")
        self.assertNotIn("StatefulPartitionedCall", text)
        self.assertEqual(self.browser.complaints, [])

    def test_follows_the_color_scheme(self):
        colors = {}
        for dark in (False, True):
            self.open("live", dark=dark)
            style = "getComputedStyle(document.body)"
            colors[dark] = [
                sum(map(int, re.findall(r"\d+", self.browser.evaluate(f"{style}.{what}"))[:3]))
                for what in ("backgroundColor", "color")
            ]
            axis = """Bokeh.documents[0].roots().flatMap((r) => [...r.references()])
                .find((m) => m.type === 'LinearAxis').major_label_text_color"""
            colors[dark].append(self.browser.evaluate(axis))
        self.assertGreater(colors[False][0], colors[False][1])
        self.assertLess(colors[True][0], colors[True][1])
        self.assertNotEqual(colors[False][2], colors[True][2])

    def test_rows_are_filtered_and_sorted(self):
        self.open("live")
        self.browser.evaluate("document.querySelector('input[value=operations]').click()")
        count = "document.getElementById('count').textContent"
        self.assertStartsWith(self.browser.evaluate(count), "1,565 of 1,565 operations")
        self.browser.evaluate(
            "(() => { const f = document.getElementById('filter');"
            "f.value = 'MatMul layer_0 backward'; f.dispatchEvent(new Event('input')); })()"
        )
        names = self.browser.evaluate(
            "[...document.querySelectorAll('#rows tbody td:first-child')].map((c) => c.textContent)"
        )
        view = read_run_view(self.directory / "live")
        expected = [
            name
            for name in view.problem.operation_names
            if "MatMul" in name and "gradients" in name and "layer_0" in name
        ]
        self.assertContainsSubset(expected, names)
        self.assertTrue(all("layer_0" in name for name in names))
        times = self.browser.evaluate("document.querySelectorAll('#rows thead button').length")
        self.assertEqual(times, 12)

    def test_tooltips_name_the_item_under_the_mouse(self):
        self.open("live")
        self.browser.evaluate(
            "document.getElementById('chart-time-0-0')"
            ".scrollIntoView({behavior: 'instant', block: 'center'})"
        )
        box = json.loads(
            self.browser.evaluate(
                "JSON.stringify(document.getElementById('chart-time-0-0').getBoundingClientRect())"
            )
        )
        before = self.browser.evaluate(_DEEP_TEXT).count("on task:0/CPU:0 from")
        for share in (0.3, 0.5, 0.7):
            self.browser.move_mouse(box["x"] + share * box["width"], box["y"] + 45)
            self.browser.evaluate("new Promise((done) => setTimeout(done, 150))")
            if self.browser.evaluate(_DEEP_TEXT).count("on task:0/CPU:0 from") > before:
                return
        self.fail("no operation was named")

    def test_all_steps_have_one_time_axis(self):
        for name, count in (("live", 4), ("pair", 6)):
            self.open(name)
            frames = """Object.values(Bokeh.index.roots ?? Bokeh.index)
                .filter((v) => v.el.parentElement.id.match(/chart-(time|memory)/)).map((v) => {
                  const box = v.frame.bbox, left = v.el.getBoundingClientRect().left;
                  return [Math.round(left + box.left), Math.round(left + box.right),
                    v.model.x_range.start, v.model.x_range.end];
                })"""
            axes = self.browser.evaluate(frames)
            self.assertLen(axes, count)
            self.assertLen(set(map(tuple, axes)), 1, axes)

    def test_the_table_of_operations_shows_the_chosen_run(self):
        self.open("pair")
        self.browser.evaluate(
            "(() => { const s = document.getElementById('rows-run'); s.value = '1';"
            "s.dispatchEvent(new Event('change')); })()"
        )
        heads = "[...document.querySelectorAll('#rows thead button')].map((b) => b.textContent)"
        self.assertEqual(
            self.browser.evaluate(heads)[-3:],
            ["on, original", "takes, original ▾", "waits, original"],
        )
        self.assertEqual(self.browser.complaints, [])

    def test_prints_every_chart_and_the_complete_table(self):
        for name, dark in (("live", False), ("nmt", True)):
            with self.subTest(name):
                self.open(name, 1280, dark)
                pdf = base64.b64decode(self.browser.call("Page.printToPDF")["data"])
                self.assertStartsWith(pdf, b"%PDF")
                charts = self.browser.evaluate("document.querySelectorAll('.chart').length")
                shown = "[...document.querySelectorAll('.printed + .chart')].length"
                self.assertEqual(self.browser.evaluate(shown), charts)
                widths = "[...document.querySelectorAll('.printed')].map((i) => i.naturalWidth)"
                self.assertGreater(min(self.browser.evaluate(widths)), 300)
                self.browser.call("Emulation.setEmulatedMedia", media="print")
                wide = "getComputedStyle(document.querySelector('.tall')).maxHeight"
                self.assertEqual(self.browser.evaluate(wide), "none")
                self.browser.call("Emulation.setEmulatedMedia", media="")
                self.assertEqual(self.browser.complaints, [])

    def test_operations_can_be_colored_by_layer(self):
        self.open("nmt")
        self.browser.evaluate(
            "(() => { const s = document.getElementById('color-by'); s.value = 'layer';"
            "s.dispatchEvent(new Event('change')); })()"
        )
        legend = self.browser.evaluate("document.querySelector('.legend').textContent")
        self.assertIn("encoder/layer_0", legend)
        self.assertEqual(self.browser.complaints, [])

    def test_operations_have_the_colors_of_their_own_run(self):
        self.open("four")
        painted = """Bokeh.documents.flatMap((d) => d.roots()).flatMap((r) => [...r.references()])
            .filter((m) => m.type === 'GlyphRenderer' && m.name === 'operations')
            .map((m) => [m.glyph.tags, [...m.data_source.data.number], m.data_source.data.color])"""
        for by in ("kind", "layer", "device", "direction"):
            self.browser.evaluate(
                f"(() => {{ const s = document.getElementById('color-by'); s.value = '{by}';"
                "s.dispatchEvent(new Event('change')); })()"
            )
            charts = self.browser.evaluate(painted)
            self.assertLen(charts, sum(len(view.steps) for view in self.four))
            for (run, step), numbers, colors in charts:
                view = self.four[run]
                kinds = operation_kinds(view.problem)
                expected = box_colors(view.steps[step].trace, kinds, np.array(numbers))[by]
                self.assertEqual(colors, expected, (by, run, step))


if __name__ == "__main__":
    absltest.main()
