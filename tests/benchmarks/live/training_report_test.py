"""Tests of the table of training to the end, on runs that are worked out by hand."""

from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.live.training_curves import ASYNCHRONOUS, EXPERT, FOUND, ORIGINAL, Curve, Found
from benchmarks.live.training_report import write_report

_STEPS = 41


def run(step_secs: float, factor: float = 1.0) -> Curve:
    """The loss falls by 1 in each step, from `_STEPS` on."""
    return Curve(
        tuple(step_secs * step for step in range(_STEPS)),
        tuple(factor * (_STEPS - step) for step in range(_STEPS)),
    )


def cells(text: str, variant: str) -> list[str]:
    [row] = [line for line in text.splitlines() if f"| {variant} |" in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


class TableTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path, "training.md")

    def report(self, curves, found=None) -> str:
        write_report(self.path, curves, found or {})
        return self.path.read_text()

    def test_a_placement_that_computes_the_same_saves_what_its_steps_save(self):
        curves = {("m", ORIGINAL, n): run(0.2 * (n + 1)) for n in range(3)}
        curves |= {("m", FOUND, n): run(0.1 * (n + 1)) for n in range(3)}
        text = self.report(curves, {"m": Found({"a": "b"}, "", 2.0, (1.6, 4.0))})
        original, found = cells(text, ORIGINAL), cells(text, FOUND)
        saved, said = "50.0% (50.0% to 50.0%)", "50.0% (37.5% to 75.0%)"
        self.assertEqual(found[3:6], ["200.0 ms", saved, said])
        # The loss of the original after 30 of 41 steps: it is reached after 29 more.
        self.assertEqual(original[6], "11.6 s (5.8 to 17.4)")
        self.assertEqual(found[6:], ["5.8 s (2.9 to 8.7)", saved, "0.0e+00"])

    def test_a_placement_that_computes_something_else_shows(self):
        curves = {("m", ORIGINAL, 0): run(0.2), ("m", EXPERT, 0): run(0.2, factor=1.01)}
        self.assertEqual(cells(self.report(curves), EXPERT)[8], "1.0e-02")

    def test_a_loss_that_is_never_reached_saves_nothing(self):
        slow = Curve(run(0.1).secs, (100.0,) * _STEPS)
        text = self.report({("m", ORIGINAL, 0): run(0.2), ("m", EXPERT, 0): slow})
        self.assertEqual(cells(text, EXPERT)[6:8], ["never", "-"])

    def test_an_asynchronous_batch_is_an_update_of_each_tower(self):
        updates = Curve(tuple(0.1 * i for i in range(2 * _STEPS)), (1.0,) * (2 * _STEPS))
        text = self.report({("m", ORIGINAL, 0): run(0.3), ("m", ASYNCHRONOUS, 0): updates})
        self.assertEqual(cells(text, ASYNCHRONOUS)[3], "200.0 ms")

    def test_what_stays_as_it_came_is_said(self):
        text = self.report(
            {("m", ORIGINAL, 0): run(0.2)}, {"m": Found({}, "too noisy", None, None)}
        )
        self.assertIn("- m: too noisy.", text)


if __name__ == "__main__":
    absltest.main()
