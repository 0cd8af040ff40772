"""Tests of which runs the tables of the papers are made of."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.paper_tables.published_tables import TABLES
from benchmarks.paper_tables.tables import row_keys


class RowKeysTest(absltest.TestCase):
    def test_only_random_placers_run_with_all_seeds(self):
        table = TABLES["post_1"]
        runs = {column.title: row_keys(table.rows[0], column, [3, 4]) for column in table.columns}
        self.assertEqual([key.seed for key in runs["Post"]], [3, 4])
        self.assertEqual([key.seed for key in runs["Single GPU"]], [3])

    def test_a_row_without_an_expert_has_no_run_of_one(self):
        table = TABLES["eagle_4"]
        without = [row for row in table.rows if row.expert is None]
        self.assertEqual(row_keys(without[0], table.columns[1], [0]), [])


if __name__ == "__main__":
    absltest.main()
