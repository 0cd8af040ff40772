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

from benchmarks.comparison.comparison import COMPARISONS

# Under Bazel this file is a link into the source tree.
_RESULTS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_COMPARISON = "benchmarks.comparison.comparison"
_READINGS = "benchmarks.comparison.readings"


def _lines(path: pathlib.Path) -> list[str]:
    """Reads a page without what made it."""
    lines = [line.partition("Made by `")[0].rstrip() for line in path.read_text().splitlines()]
    return [line for line in lines if line]


class KeptPagesTest(parameterized.TestCase):
    @parameterized.parameters(
        *((_COMPARISON, name, name) for name in COMPARISONS),
        (_READINGS, "readings"),
        (_READINGS, "readings", "--full_size"),
        (_READINGS, "readings", "--repairs"),
        ("benchmarks.distributed.waiting_workers", "distributed"),
        ("benchmarks.paper_tables.model_table", "models"),
        ("benchmarks.paper_tables.tables", "tables"),
        ("benchmarks.search_quality.auto_small_problems", "auto_small_problems"),
        ("benchmarks.search_quality.published_optima", "published_optima"),
    )
    def test_pages_are_those_of_their_runs(self, module, folder, *flags):
        out = pathlib.Path(self.create_tempdir().full_path)
        for pattern in ("*runs.*", "*.json"):
            for path in (_RESULTS / folder).glob(pattern):
                shutil.copy(path, out)
        with (
            mock.patch.object(sys, "argv", ["command", "--only_kept", f"--out_dir={out}", *flags]),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            importlib.import_module(module).main()
        pages = list(out.glob("*.md"))
        self.assertNotEmpty(pages)
        for page in pages:
            self.assertEqual(_lines(page), _lines(_RESULTS / folder / page.name), page.name)


if __name__ == "__main__":
    absltest.main()
