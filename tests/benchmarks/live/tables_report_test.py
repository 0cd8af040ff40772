"""Tests of the live table, on measurements made by hand."""

from __future__ import annotations

import csv
import pathlib

from absl.testing import absltest

from benchmarks.live.tables_report import LiveCell, live_table_markdown, write_live_csv
from tf_placer.environments.environment import Measurement
from tf_placer.live.confirmation import Comparison, Confirmation
from tf_placer.search.trial_log import ORIGINAL

_MADE_BY = {"command": "made", "commit": "", "versions": {"a": "1"}, "processor": "P", "cores": 2}

_SETTINGS = {"trials": 6, "max_secs": 9.0, "rounds": 2, "machine": "local:2"}


def _confirmation():
    steps = {ORIGINAL: 0.1, "metis": 0.2}
    measured = {label: Measurement((secs,)) for label, secs in steps.items()}
    comparison = Comparison(0.5, (0.4, 0.625), False, "slower")
    return Confirmation(ORIGINAL, (), (measured, measured), {"metis": comparison}, ORIGINAL)


_CELLS = [
    LiveCell("nmt_2", ORIGINAL, 0, 0, ORIGINAL, _confirmation()),
    LiveCell("nmt_2", "metis", 6, 1, "metis", _confirmation()),
    LiveCell("nmt_2", "post", 3, 0, ORIGINAL, _confirmation()),
    LiveCell("nmt_2", "scotch", 2, 2, None, _confirmation()),
]


class LiveTableTest(absltest.TestCase):
    def test_steps_speedups_and_trials_have_a_table_each(self):
        page = live_table_markdown(_CELLS, _MADE_BY, **_SETTINGS)
        lines = [line for line in page.splitlines() if line.startswith("| nmt_2")]
        self.assertEqual(
            lines,
            [
                "| nmt_2 | 100.0 ms | 200.0 ms | 100.0 ms | none ran |",
                "| nmt_2 |  | 0.500 (0.400–0.625) |  |  |",
                "| nmt_2 |  | 6, 1 | 3 | 2, 2 |",
            ],
        )
        self.assertIn("at most 6 live trials and 9 s", page)

    def test_a_model_on_which_nothing_runs_has_no_times(self):
        cells = [LiveCell("nmt_2", "post", 3, 3, None), LiveCell("bert", ORIGINAL, 0, 0, ORIGINAL)]
        page = live_table_markdown(cells, _MADE_BY, **_SETTINGS)
        self.assertIn("| nmt_2 | none ran |  |", page)

    def test_the_csv_has_every_cell_and_says_what_is_the_same(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "table.csv"
        write_live_csv(path, _CELLS)
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertLen(rows, 4)
        self.assertEqual(rows[1]["speedup_high"], "0.625")
        self.assertEqual(rows[2]["same_as"], ORIGINAL)
        self.assertEqual((rows[3]["same_as"], rows[3]["step_secs"]), ("", ""))


if __name__ == "__main__":
    absltest.main()
