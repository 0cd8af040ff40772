"""Tests of the tables that explain the result of a search."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.placers.auto.candidate import simulate_candidates
from tf_placer.report.auto_table import (
    auto_table,
    changes_table,
    explanation_table,
    limits_table,
)
from tf_placer.report.explanation import Explanation, MeasuredCandidate
from tf_placer.report.limits import Limit, Limits
from tf_placer.report.what_if import THIS_MACHINE, WhatIf
from tf_placer.simulation.simulator import Simulator

_A, _B = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))


def limits(
    step_secs=0.1,
    path_secs=0.05,
    work_secs=0.05,
    compute=(0.5, 0.5),
    link=0.1,
    memory=0.1,
    transfers=0.2,
) -> Limits:
    return Limits(
        step_secs,
        path_secs,
        work_secs,
        (
            Limit("compute", _A, compute[0]),
            Limit("compute", _B, compute[1]),
            Limit("link", f"{_A} -> {_B}", link),
            Limit("critical path", "", 1.0 - transfers),
            Limit("transfers on it", "", transfers),
            Limit("memory", _A, memory),
            Limit("memory", _B, 0.1),
        ),
    )


def text(of: Limits, changes=(), label="auto") -> str:
    candidates = (MeasuredCandidate("original", None, 0.2), MeasuredCandidate("auto", 0.11, 0.1))
    return explanation_table(
        Explanation(label, (*candidates, MeasuredCandidate("expert", 0.3, None)), 0.07, of, changes)
    )


class ExplanationTableTest(absltest.TestCase):
    def test_has_limits_and_the_error_of_predictions(self):
        lines = text(limits()).splitlines()
        self.assertStartsWith(
            lines[0], "lower bound 50.00 ms (by costs that all measurements have corrected); "
        )
        self.assertEqual(lines[-1], "predicted steps are off by 7%")

    def test_many_unused_devices_share_a_row(self):
        names = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(8)]
        shares = (0.5, 0.004, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0)
        of = dataclasses.replace(
            limits(),
            limits=tuple(
                Limit(kind, name, share)
                for kind in ("compute", "memory")
                for name, share in zip(names, shares, strict=True)
            ),
        )
        rows = [line.split() for line in limits_table(of, "found").splitlines()]
        self.assertEqual(
            [" ".join(row) for row in rows[rows.index(["limit", "where", "used"]) + 2 :]],
            [
                "compute task:0/CPU:0 50% of the step",
                "compute task:5/CPU:0 20% of the step",
                "compute 6 others 0% of the step",
                "memory task:0/CPU:0 50% of it",
                "memory task:5/CPU:0 20% of it",
                "memory 6 others 0% of it",
            ],
        )
        self.assertNotIn("others", limits_table(limits(compute=(0.0, 0.0)), "found"))

    def test_the_part_of_the_lower_bound_that_binds_is_named(self):
        of = dataclasses.replace(limits(), bound="joins", bound_secs=0.08)
        self.assertIn(
            "lower bound 80.00 ms (inputs of an operation wait for their turn or", text(of)
        )
        self.assertIn("lower bound 50.00 ms (by costs", text(limits()))

    def test_near_the_bound_it_is_the_part_that_binds(self):
        of = dataclasses.replace(limits(work_secs=0.05), bound="joins", bound_secs=0.098)
        self.assertIn("the critical path: operations that wait for each other", text(of))
        of = dataclasses.replace(limits(work_secs=0.098), bound="work", bound_secs=0.098)
        self.assertIn("compute: the devices share the work", text(of))

    def test_a_sentence_says_what_bounds_the_step(self):
        for of, expected in (
            (limits(path_secs=0.098), "the critical path: operations that wait for each other"),
            (limits(work_secs=0.098), "compute: the devices share the work, and hardly ever wait"),
            (limits(compute=(0.5, 0.95)), "compute on task:1/CPU:0"),
            (limits(link=0.95), "the link task:0/CPU:0 -> task:1/CPU:0"),
            (
                limits(path_secs=0.092),
                "the critical path: operations that wait for each other, wherever they are",
            ),
            (limits(), "the critical path: operations wait for each other, and for transfers"),
            (
                limits(compute=(0.84, 0.4)),
                "the critical path: operations wait for each other, and for transfers; "
                "task:0/CPU:0 computes in 84% of it, no other in half as much",
            ),
            (
                limits(transfers=0.04),
                "the critical path: operations wait for each other",
            ),
            (
                limits(compute=(0.95, 0.5), memory=0.93),
                "compute on task:0/CPU:0; memory is nearly full on task:0/CPU:0",
            ),
        ):
            parts = text(of).partition("lower bound")[2].partition("\nlimit ")
            self.assertEndsWith(parts[0].replace("\n", " "), f"; auto is bound by {expected}")

    def test_other_machines_have_a_speedup_of_the_step(self):
        shown = text(limits(), (WhatIf("one more CPU", 0.05, 0.04),))
        self.assertRegex(shown, r"one more CPU +50\.00 ms +2\.00x +40\.00 ms")

    def test_speedups_of_other_machines_are_over_the_better_step_of_this_one(self):
        sentence = "a longer search is faster without another machine, too"
        for here_secs, gain, more_gain in ((0.08, "1.25x", "1.60x"), (0.1, "1.00x", "2.00x")):
            changes = (
                WhatIf(THIS_MACHINE, here_secs, 0.04),
                WhatIf("one more CPU", 0.05, 0.04),
                WhatIf("twice the memory", None, None),
            )
            shown = text(limits(), changes)
            self.assertRegex(shown, rf"this machine, searched as long +\S+ ms +{gain} +40")
            self.assertRegex(shown, rf"one more CPU +50\.00 ms +{more_gain} +40")
            self.assertEqual(sentence in shown, here_secs < 0.1)

    def test_a_gain_of_this_machine_within_the_error_of_the_prediction_may_be_none(self):
        changes = (WhatIf(THIS_MACHINE, 0.08, 0.04), WhatIf("one more CPU", 0.05, 0.04))
        for error, is_doubtful in ((math.inf, True), (0.2, True), (0.1, False)):
            shown = changes_table(changes, 0.1, error=error)
            self.assertEqual("may not be faster when it is measured" in shown, is_doubtful)
            self.assertEqual("a longer search is faster" in shown, not is_doubtful)
        # The original stays if measured placements are not faster.
        for label, is_doubtful in (("original", True), ("auto", False)):
            shown = text(limits(), changes, label=label)
            self.assertEqual("may not be faster when it is measured" in shown, is_doubtful)

    def test_says_why_a_candidate_does_not_fit(self):
        # Two devices of 10 and 100 bytes hold 30 and 90.
        problem = build_task_problem(
            [(1.0, 1.0)] * 4, resident_bytes=[10, 20, 40, 50], memory_bytes=[10, 100]
        )
        placements = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [1, 0, 1, 0]], np.int32)
        close, over, both = simulate_candidates(problem, Simulator(problem), placements)
        starts = (("b", over), ("c", both))
        result = AutoResult(close, (close,), starts, 1.0, 3, 1.0, False, False, False)
        shown = auto_table(problem, result, ())
        self.assertRegex(shown, r"found +2\.000 s +2\.00x +no: device_0 lacks 20 B\n")
        self.assertRegex(shown, r"\nb .* no: device_1 lacks 10 B\n")
        self.assertRegex(shown, r"\nc .* no: device_0 lacks 60 B$")
        of_placer = dataclasses.replace(result, starts=(("heft", over), ("single_device", both)))
        self.assertEndsWith(auto_table(problem, of_placer, ()), "it may find others")

    def test_a_plan_has_more_time_for_other_machines_if_it_is_allowed_more(self):
        shown = changes_table((WhatIf("one more GPU", None, None),), 0.1)
        self.assertIn("\nnot searched: there was no time; allow more seconds\n", shown)

    def test_says_which_machines_were_not_searched(self):
        shown = text(limits(), (WhatIf("one more CPU", None, None), WhatIf("b", 0.05, 0.04)))
        self.assertRegex(shown, r"one more CPU +not searched +- +-\n")
        self.assertIn("not searched: there was no time\n", shown)
        self.assertIn("more memory would not help: all that the step needs, on all", shown)
        memory = text(limits(), (WhatIf("twice the memory", 0.05, 0.04),))
        self.assertNotIn("would not help", memory)
        self.assertNotIn("not searched", memory)


if __name__ == "__main__":
    absltest.main()
