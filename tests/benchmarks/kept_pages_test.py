"""Every page of results that is made of kept runs is printed again from them."""

from __future__ import annotations

import contextlib
import importlib
import io
import pathlib
import shutil
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from benchmarks.paper_tables.published_tables import TABLES

# Under Bazel this file is a link into the source tree.
_RESULTS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_COMPARISON = "benchmarks.comparison.comparison"
_K80 = "--problems=rnnlm_2:4xK80,nmt_2:4xK80,inception_v3:4xK80"


def _lines(path: pathlib.Path) -> list[str]:
    """Reads a page without what made it."""
    return [line.partition("Made by `")[0] for line in path.read_text().splitlines()]


class KeptPagesTest(parameterized.TestCase):
    def print_again(self, module, folder, *flags):
        """Runs a program with the runs of a folder, and gives the folder of the page."""
        out = pathlib.Path(self.create_tempdir().full_path)
        for pattern in ("*runs.*", "*.json"):
            for path in (_RESULTS / folder).glob(pattern):
                shutil.copy(path, out)
        argv = ["command", f"--out_dir={out}", *flags]
        with (
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            importlib.import_module(module).main()
        return out

    @parameterized.parameters(
        ("benchmarks.comparison.readings", "readings", "readings.md", "--only_kept"),
        (
            "benchmarks.comparison.readings",
            "readings",
            "full_size.md",
            "--only_kept",
            "--full_size",
        ),
        ("benchmarks.distributed.waiting_workers", "distributed", "tables.md"),
        ("benchmarks.paper_tables.model_table", "models", "table.md"),
        ("benchmarks.search_quality.auto_ablation", "auto_ablation", "table.md", "--only_kept"),
        ("benchmarks.search_quality.auto_small_problems", "auto_small_problems", "table.md"),
        ("benchmarks.search_quality.auto_tight_memory", "auto_tight_memory", "table.md"),
        (
            "benchmarks.search_quality.known_placements",
            "known_placements",
            "table.md",
            "--only_kept",
        ),
    )
    def test_a_page_is_that_of_its_runs(self, module, folder, page, *flags):
        out = self.print_again(module, folder, *flags)
        self.assertEqual(_lines(out / page), _lines(_RESULTS / folder / page))

    def test_the_tables_of_the_papers_are_those_of_their_runs(self):
        out = self.print_again("benchmarks.paper_tables.tables", "tables", "--only_kept")
        for name in TABLES:
            page = f"{name}.md"
            self.assertEqual(_lines(out / page), _lines(_RESULTS / "tables" / page))

    def test_the_same_60_seconds_are_those_of_their_runs(self):
        flags = ("--core_secs=60", "--seeds=0,1,2", "--only_kept")
        out = self.print_again(_COMPARISON, "comparison", *flags)
        page = "60-core-secs.md"
        self.assertEqual(_lines(out / page), _lines(_RESULTS / "comparison" / page))

    def test_runs_of_systems_are_read(self):
        flags = ("--samples=2400", "--max_secs=3600", "--seeds=0,1,2", "--only_kept", _K80)
        out = self.print_again(_COMPARISON, "systems_on_k80", *flags, "--placers=eagle,post")
        page = (out / "2400-samples-3600-core-secs.md").read_text()
        self.assertIn("| eagle | 0.510 (", page)


if __name__ == "__main__":
    absltest.main()
