from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from unittest import mock

from absl.testing import absltest

from benchmarks.models.catalog import MODELS
from benchmarks.paper_tables import model_table

COUNTS = model_table.ModelCounts(
    name="rnnlm_2",
    operations=5_000,
    step_operations=4_000,
    colocation_groups=3_000,
    groups=120,
    parameters=1_500_000,
    step_secs=0.25,
    peak_bytes=2 << 30,
    capacity_bytes=3 << 30,
)


class ModelTableTest(absltest.TestCase):
    def test_published_counts_stand_beside_ours(self):
        other = dataclasses.replace(COUNTS, name="gnmt_4", peak_bytes=4 << 30)
        lines = model_table.model_table([COUNTS, other]).splitlines()
        self.assertLen(lines, 4)
        cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
        self.assertEqual(cells[:3], ["RNNLM, 2 layers", "5,000", "8,943"])
        self.assertEqual(cells[5:8], ["120", "188", "1.5 M"])
        self.assertEqual(cells[-1], "yes")
        # Only three models are in the paper's table.
        cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
        self.assertEqual((cells[2], cells[6], cells[-1]), ("", "", "no"))

    def test_counts_of_a_small_model_add_up(self):
        counts = model_table.count_model("rnnlm_2", "1xK80", small=True)
        # Embedding, two layers of kernel and bias, softmax.
        layer = 64 * 128 + 128
        self.assertEqual(counts.parameters, 100 * 32 + 2 * layer + 32 * 100 + 100)
        # Two layers, six steps: cells and softmax steps, the lookup, and what is left.
        self.assertBetween(counts.groups, 12 + 6 + 1, 40)
        self.assertLess(counts.groups, counts.colocation_groups)
        self.assertLess(counts.colocation_groups, counts.step_operations)
        self.assertLess(counts.step_operations, counts.operations)
        # Variables and Adam's two moments of each.
        self.assertGreater(counts.peak_bytes, 3 * 4 * counts.parameters)
        self.assertTrue(counts.fits)
        self.assertGreater(counts.step_secs, 0)

    def test_rows_of_another_commit_are_counted_again(self):
        path = pathlib.Path(self.create_tempdir(), "table.json")
        asked = []

        def count(names: Sequence[str]) -> Iterator[model_table.ModelCounts]:
            asked.append(list(names))
            yield dataclasses.replace(COUNTS, name=names[0])

        for commit in ("old", "new", "new", "new+", "new+"):
            with mock.patch.object(model_table, "provenance", return_value={"commit": commit}):
                model_table.count_missing(path, count)
        everything = list(MODELS)
        # The first one of the second call is kept in the third.
        self.assertEqual(asked, [everything] * 2 + [everything[1:]] + [everything] * 2)
        written = json.loads(path.read_text())
        self.assertEqual((written["commit"], len(written["models"])), ("new+", 1))


if __name__ == "__main__":
    absltest.main()
