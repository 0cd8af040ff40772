"""Tests of the results of `optimize`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import pathlib
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.tf_placer.scripted import confirmation, trial
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.live.result import (
    FunctionResult,
    ModelResult,
    OptimizeResult,
    SavedModelResult,
    make_result,
)
from tf_placer.report.explanation import Explanation
from tf_placer.report.limits import Limit, Limits
from tf_placer.report.page.run_view import view_step
from tf_placer.runs import result_html


class OptimizeResultTest(absltest.TestCase):
    def test_the_table_is_empty_without_a_confirmation(self):
        result = OptimizeResult("graph", False, "one device")
        self.assertEqual(result.table(), "")
        self.assertIsNone(result.original_secs)
        self.assertIsNone(result.placed_secs)
        self.assertEqual(result.trials, ())

    def test_a_model_that_is_slower_than_in_one_process_is_applied_with_a_warning(self):
        step, model = mock.Mock(), object()
        placed = confirmation({"random": 2.0})
        for one_process_secs, is_slower in ((0.04, True), (0.06, False), (None, False)):
            result = ModelResult(
                *("graph", True, "faster"),
                winner="random",
                confirmation=placed,
                speedup=2.0,
                one_process_secs=one_process_secs,
                step=step,
            )
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown):
                result.apply(model)
            step.apply.assert_called_with(model)
            self.assertEqual("in one process on all cores" in shown.getvalue(), is_slower)
            self.assertIn("evaluate, predict and the validation in fit", shown.getvalue())
            self.assertEqual("slower than one process" in repr(result), is_slower)

    def test_the_table_marks_the_winner(self):
        confirmed = confirmation({"random": 2.0, "expert": 1.25})
        result = OptimizeResult(
            "graph",
            True,
            "faster",
            winner="random",
            confirmation=confirmed,
            finalists={
                "original": trial(0, None),
                "expert": trial(2, [0, 1], placer="expert"),
                "random": trial(9, [1, 0], placer="random"),
                "random (2)": trial(4, [1, 1], 0.08, placer="random"),
            },
        )
        self.assertAlmostEqual(result.original_secs, 0.1)
        self.assertAlmostEqual(result.placed_secs, 0.05, delta=0.001)
        lines = result.table().splitlines()
        self.assertLen(lines, 6)
        self.assertEqual(lines[2].split(), ["original", "0", "100.0", "ms", "1"])
        # The fastest is first.
        self.assertRegex(lines[3], r"2\.000x +\d\.\d+ to \d\.\d+ +found: faster beyond the noise$")
        self.assertRegex(lines[4] + lines[5], r"1\.25.x +one round")
        # The table has finalists that were not confirmed, too.
        self.assertRegex(lines[4] + lines[5], r"80\.00 ms +1\.250x +in the search")
        for line in lines[3:]:
            finalist = line.split()[0]
            if "in the search" in line:
                continue
            secs, speedup = float(line.split()[2]), confirmed.comparisons[finalist].speedup
            self.assertAlmostEqual(secs, 100.0 / speedup, delta=0.01)

    def test_a_result_shows_itself_in_a_line_in_text_and_in_html(self):
        confirmed = confirmation({"random": 2.0})
        result = OptimizeResult(
            "graph" * 10_000,
            True,
            "random is <faster>",
            winner="random",
            speedup=2.0,
            confirmation=confirmed,
            finalists={"original": trial(0, None), "random": trial(9, [1, 0], 0.05)},
            trials=(trial(0, None), trial(9, [1, 0])),
        )
        self.assertEqual(repr(result), "<OptimizeResult: placed, 2.00 times as fast, 2 trials>")
        self.assertEqual(str(result), f"{result.table()}\n\nplaced: random is <faster>")
        page = result._repr_html_()
        self.assertIn("<b>placed: random is &lt;faster&gt;.</b>", page)
        self.assertIn("<td>random</td><td>9</td><td>50.0", page)
        self.assertEqual(
            repr(OptimizeResult("graph", False, "one device")),
            "<OptimizeResult: unchanged, 0 trials>",
        )

    def test_one_process_that_is_faster_is_a_row_and_stands_out_in_a_notebook(self):
        result = OptimizeResult(
            "graph",
            True,
            "random is faster. But one process on all cores takes about 20 ms. A <note>. More",
            winner="random",
            confirmation=confirmation({"random": 2.0}),
            finalists={"original": trial(0, None), "random": trial(9, [1, 0], 0.05)},
            one_process_secs=0.02,
        )
        first, second, third = result.table().splitlines()[2:5]
        self.assertStartsWith(first, "original ")
        self.assertRegex(second, r"^original, one process on all cores +20\.00 ms +measured at")
        self.assertStartsWith(third, "random ")
        page = result._repr_html_()
        first = "placed: random is faster, but slower than one process on all cores."
        self.assertIn(f"<p><b>{first}</b></p><p style=", page)
        self.assertIn("\u26a0 One process on all cores takes about 20 ms.</p>", page)
        self.assertIn("<p>A &lt;note&gt;. More.</p>", page)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_the_caption_tells_a_rejected_candidate_from_a_placement(self):
        step = view_step("auto", build_layered_problem(4, 2), np.zeros(4, np.int32))
        result = OptimizeResult("graph", False, "not faster", log_dir="run")
        for is_better, caption in ((True, "auto. "), (False, "auto, not placed. ")):
            view = mock.Mock(problem=step.trace.problem, steps=(step,), is_better=is_better)
            with mock.patch.object(result_html, "read_run_view", return_value=view):
                self.assertIn(f"<figcaption>{caption}", result._repr_html_())

    def test_a_winner_over_an_original_that_does_not_run_is_not_called_faster(self):
        result = OptimizeResult(
            "graph",
            True,
            "runs",
            winner="random",
            confirmation=confirmation({"random": 2.0}, original=None),
            finalists={"original": trial(0, None, None), "random": trial(9, [1, 0])},
        )
        lines = result.table().splitlines()
        self.assertRegex(lines[3], "ms +found: runs, as the original does not$")

    def test_shows_the_finalists_even_if_nothing_was_confirmed(self):
        finalists = {"original": trial(0, None), "expert": trial(1, [0, 1], 0.05, "expert")}
        lines = OptimizeResult("graph", False, "no time", finalists=finalists).table().splitlines()
        self.assertRegex(lines[0], "95 % interval +basis$")
        self.assertRegex(lines[2], r"original +0 +100\.0 ms +1")
        self.assertRegex(lines[3], r"expert +1 +50\.00 ms +2\.000x +in the search")

    def test_shows_the_original_where_nothing_else_ran(self):
        result = OptimizeResult("graph", False, "no time", trials=(trial(0, None),))
        self.assertRegex(result.table().splitlines()[2], r"^original +0 +100\.0 ms +1 *$")
        self.assertEqual(result.to_json()["placements"], [])
        failed = OptimizeResult("graph", False, "no", trials=(trial(0, None, None), trial(1, [1])))
        [_, _, row] = failed.table().splitlines()
        self.assertRegex(row, r"^original +0 +failed .*failed: out_of_memory$")

    def test_a_candidate_that_never_ran_is_shown_as_failed(self):
        confirmed = confirmation({"random": None})
        result = OptimizeResult(
            "graph",
            False,
            "slower",
            confirmation=confirmed,
            finalists={"original": trial(0, None), "random": trial(1, [0, 1])},
        )
        self.assertIn("failed", result.table())
        self.assertIsNone(result.placed_secs)

    def test_explains_a_lower_bound_above_a_measured_step(self):
        limits = Limits(0.09, 0.085, 0.05, (Limit("compute", "CPU:0", 1.0),))
        explained = Explanation("original", (), 0.07, limits, ())
        trials = (trial(0, None, 0.09), trial(1, [0, 1], 0.08))
        result = OptimizeResult("graph", False, "slower", explanation=explained, trials=trials)
        self.assertEndsWith(
            result.explanation_table(),
            "\npredicted steps are off by 7%\ntrial 1 took 80.00 ms, less than the lower bound: "
            "the bound is no more exact than predicted steps are",
        )
        # In this confirmation the original takes 100 ms.
        confirmed = dataclasses.replace(result, confirmation=confirmation({"random": 1.02}))
        self.assertEndsWith(
            confirmed.explanation_table(),
            "\ntrial 1 took 80.00 ms, less than the lower bound: the confirmation, which corrects "
            "the bound, was slower (the original took 100.0 ms there, and 90.00 ms in the search)",
        )
        above = dataclasses.replace(confirmed, trials=trials[:1])
        self.assertEndsWith(above.explanation_table(), "\npredicted steps are off by 7%")

    def test_the_kind_of_result_depends_on_the_target(self):
        values = {"graph_def": "graph", "changed": True, "reason": "faster"}
        for is_model, kind in ((True, ModelResult), (False, FunctionResult)):
            step = mock.Mock(spec=["traced", "function", "apply"])
            step.traced.is_model = is_model
            result = make_result(step, **values)
            self.assertIs(type(result), kind)
            self.assertIsInstance(result, OptimizeResult)
        self.assertIs(result.function, step.function)
        self.assertFalse(hasattr(result, "apply"))
        self.assertEqual(result.to_json(), make_result(None, **values).to_json())
        signature = mock.create_autospec(PlacedSignature, instance=True)
        saved = make_result(signature, **values)
        self.assertIsInstance(saved, SavedModelResult)
        saved.save("placed")
        signature.save.assert_called_once_with("placed", None)
        make_result(signature, log_dir=pathlib.Path("run"), **values).save("placed")
        # The search records what it writes, so that it may replace it.
        record = pathlib.Path("run").absolute() / "saved_models.json"
        signature.save.assert_called_with("placed", record)


if __name__ == "__main__":
    absltest.main()
