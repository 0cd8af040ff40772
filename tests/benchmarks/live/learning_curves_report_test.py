"""Tests of the page of learning curves, on runs that are worked out by hand."""

from __future__ import annotations

import dataclasses
import gzip
import pathlib

from absl.testing import absltest

from benchmarks.live.learning_curves_report import (
    KeptCurves,
    LearningRun,
    draw_pictures,
    write_report,
)

# Two samples for each tenth; the steps fall from 2 s to 1 s.
_FALLING = [2.0 - 0.1 * (n // 2) for n in range(18)] + [1.0, 1.0]


def make_run(**changes) -> LearningRun:
    values = {
        "model": "m",
        "machine": "emulated:4xK80",
        "system": "post",
        "protocol": "post",
        "seed": 0,
        "wanted": 20,
        "one_gpu_secs": None,
        "simulated_one_gpu_secs": 3.0,
        "live_secs": _FALLING,
        "simulated_secs": [secs / 1.25 for secs in _FALLING],
        "searched_secs": [secs / 2 for secs in _FALLING],
        "measured": 10,
        "elapsed_secs": 123.0,
    }
    return LearningRun(**{**values, **changes})


class ReportTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def cells(self, *runs: LearningRun) -> list[dict[str, str]]:
        """Writes the page, and reads the lines of its first table by their headers."""
        write_report(self.folder / "README.md", runs)
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in (self.folder / "README.md").read_text().splitlines()
            if line.startswith("|")
        ]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[2 : 2 + len(runs)]]

    def test_the_same_placements_are_compared_sample_by_sample(self):
        [row] = self.cells(make_run())
        self.assertEqual(row["samples"], "20")
        self.assertEqual((row["failures"], row["failures simulated"]), ("0", "0"))
        self.assertEqual((row["one GPU"], row["one GPU simulated"]), ("fails", "3.000 s"))
        self.assertEqual((row["best"], row["the same simulated"]), ("1.000 s", "800.0 ms"))
        self.assertEqual(row["best of the simulated search"], "500.0 ms")
        self.assertEqual((row["live / simulated"], row["rank correlation"]), ("1.250", "1.000"))
        self.assertEqual(row["tenths apart"], "25.0%")
        self.assertEqual((row["learned"], row["learned simulated"]), ("0.50x", "0.50x"))
        self.assertEqual(row["agree"], "yes")
        # Repeated placements take no time.
        self.assertEqual(row["s a sample"], "12.3")

    def test_searches_that_learn_differently_do_not_agree(self):
        [row] = self.cells(make_run(searched_secs=[1.0] * 20))
        self.assertEqual((row["learned"], row["learned simulated"]), ("0.50x", "1.00x"))
        self.assertEqual(row["agree"], "no")

    def test_failures_are_counted_and_left_out_of_means(self):
        live = [None, *_FALLING[1:]]
        same = [1.0, None, *(secs / 1.25 for secs in _FALLING[2:])]
        [row] = self.cells(make_run(live_secs=live, simulated_secs=same))
        self.assertEqual((row["failures"], row["failures simulated"]), ("1", "1"))
        # The first tenth has no placement that ran both live and in simulation.
        self.assertEqual((row["live / simulated"], row["tenths apart"]), ("1.250", "25.0%"))
        self.assertEqual(row["learned"], "0.50x")

    def test_a_run_in_which_all_failed_has_nothing_to_compare(self):
        nothing = [None] * 20
        [row] = self.cells(make_run(live_secs=nothing, simulated_secs=nothing))
        self.assertEqual((row["failures"], row["best"], row["agree"]), ("20", "", ""))

    def test_the_best_may_be_a_placement_that_does_not_fit_by_simulation(self):
        same = [*(secs / 1.25 for secs in _FALLING[:-2]), None, None]
        [row] = self.cells(make_run(simulated_secs=same))
        self.assertEqual(row["the same simulated"], "does not fit")

    def test_a_run_under_way_says_how_far_it_is(self):
        few = {name: [2.0, 1.0, 1.0] for name in ("live_secs", "simulated_secs", "searched_secs")}
        [row] = self.cells(make_run(**few, measured=3))
        self.assertEqual((row["samples"], row["learned"]), ("3 of 20", "0.50x"))
        self.assertLen(list(draw_pictures(self.folder, [make_run(**few)])), 1)

    def test_a_machine_has_a_picture_with_all_of_its_models(self):
        runs = [
            make_run(),
            make_run(model="n", live_secs=[None] * 20),
            make_run(machine="emulated:eagle-4xP100,slowdown=2", system="eagle"),
        ]
        paths = list(draw_pictures(self.folder, runs))
        self.assertEqual(
            [path.name for path in paths],
            ["curves-4xK80.png", "curves-eagle-4xP100-slowdown=2.png"],
        )
        self.assertTrue(all(path.read_bytes().startswith(b"\x89PNG") for path in paths))

    def test_kept_runs_are_read_again_and_a_shorter_run_replaces_none(self):
        path = self.folder / "new" / "runs.json.gz"
        kept = KeptCurves(path)
        self.assertEmpty(kept.runs)
        whole, other = make_run(), make_run(seed=1, live_secs=[None, 1.0])
        for run in (whole, other, dataclasses.replace(whole, live_secs=[1.0])):
            kept.add(run)
        self.assertEqual(KeptCurves(path).runs, [whole, other])

    def test_a_file_of_another_version_is_named(self):
        path = self.folder / "runs.json.gz"
        path.write_bytes(gzip.compress(b'[{"system": "post"}]'))
        with self.assertRaisesRegex(ValueError, "runs.json.gz has no runs of this version"):
            KeptCurves(path)


if __name__ == "__main__":
    absltest.main()
