"""Tests of the report of causes, on steps made by hand."""

from __future__ import annotations

import math

from absl.testing import absltest

from benchmarks.paper_tables.cause_placements import FOUND, Placed
from benchmarks.paper_tables.cause_report import causes_markdown
from benchmarks.paper_tables.step_causes import StepCauses


def _causes(step_secs, fits=True, **changes):
    settings = {
        "bound_secs": 1.0,
        "free_secs": step_secs,
        "busiest_secs": step_secs,
        "chain_secs": 0.5,
        "on_cpu": False,
        "busy": [0.0, 1.0],
        "sent_bytes": 2048,
        "num_transfers": 1234,
        "fullest": "/device:GPU:0",
        "full": 0.5 if fits else 1.5,
    } | changes
    return StepCauses(step_secs=step_secs, fits=fits, **settings)


_SENDS = _causes(3.0, free_secs=1.5, busiest_secs=1.5)
_PLACED = [
    Placed("nmt_2", "2xK80", "single_gpu", causes=_causes(0.5, fits=False)),
    Placed("nmt_2", "2xK80", "metis", causes=_SENDS, break_even=4.0),
    Placed("nmt_2", "2xK80", "m_etf", causes=_causes(2.0), break_even=math.inf),
    Placed("nmt_2", "2xK80", "scotch", failure="not installed"),
    Placed("nmt_2", "2xK80", FOUND, "auto", causes=_causes(1.04), break_even=12345.0),
    Placed("bert", "2xK80", "single_gpu", causes=_causes(9.0, fits=False)),
]


def _lines(title, page):
    return [line for line in page.split(title)[1].splitlines() if line.startswith("| ")][2:]


class MarkdownTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.page = causes_markdown(_PLACED)

    def test_a_problem_has_its_fastest_that_fits_and_all_that_do_not(self):
        self.assertEqual(
            _lines("## Problems", self.page)[:2],
            [
                "| nmt_2 on 2xK80 | 1.00 | OOM (0.500) | m_etf 2.00 | auto 1.04 | 1.04 | "
                "at the bound | single_gpu |",
                "| bert on 2xK80 | 1.00 | OOM (9.00) | none fits |  |  |  | single_gpu |",
            ],
        )

    def test_placements_come_in_the_order_of_their_steps_and_those_that_do_not_fit_last(self):
        lines = _lines("### nmt_2 on 2xK80", self.page.split("### bert")[0])
        first = [line.split(" | ")[0] for line in lines]
        self.assertEqual(first, ["| found by auto", "| m_etf", "| metis", "| single_gpu"])
        self.assertIn("| transfers | transfers 1.500, turns 0.000, imbalance 0.500 |", lines[2])
        self.assertEndsWith(lines[1], "| 2.000 KiB | 1,234 | 50% of GPU:0 | > 10,000 × |")
        self.assertEndsWith(lines[2], "| 4 × |")

    def test_failures_are_listed(self):
        self.assertIn("- scotch: not installed", self.page)


if __name__ == "__main__":
    absltest.main()
