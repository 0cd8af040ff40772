"""Tests of the tables of the papers: that each printed number has its cell."""

from __future__ import annotations

import collections

from absl.testing import absltest

from benchmarks.harness.run_placers import ALL_PLACERS
from benchmarks.models.catalog import MODELS
from benchmarks.paper_tables.published import read_published_results
from benchmarks.paper_tables.published_tables import TABLES
from tf_placer.machines.catalog import make_described_machine


class PublishedTablesTest(absltest.TestCase):
    def test_every_printed_step_time_of_a_table_has_one_cell(self):
        cells = collections.Counter(
            table.find_published_of(row, column)
            for table in TABLES.values()
            for row in table.rows
            for column in table.columns
        )
        del cells[None]
        printed = {(table.paper, table.table) for table in TABLES.values()}
        expected = [
            each
            for each in read_published_results()
            if (each.paper, each.table) in printed
            and each.metric == "per_step_time"
            and not each.note.startswith("repeats")
        ]
        self.assertCountEqual(cells, expected)
        self.assertEqual(set(cells.values()), {1})

    def test_every_method_of_a_paper_has_a_number_in_every_row(self):
        for table in TABLES.values():
            for row in table.rows:
                for column in table.columns:
                    if column.method is not None:
                        self.assertIsNotNone(
                            table.find_published_of(row, column), f"{table.name} {row}"
                        )

    def test_batches_are_those_of_the_catalog(self):
        for table in TABLES.values():
            for row in table.rows:
                for column in table.columns:
                    published = table.find_published_of(row, column)
                    if published is not None:
                        settings = MODELS[row.model].settings
                        self.assertEqual(settings["batch"], published.batch, row)

    def test_machines_have_as_many_gpus_as_the_paper_says(self):
        for table in TABLES.values():
            for row in table.rows:
                gpus = len(make_described_machine(row.machine).devices) - 1
                self.assertEqual(gpus, row.num_gpus or 4, row)

    def test_what_is_to_the_letter_is_there_as_it_is_by_default_too(self):
        for table in TABLES.values():
            columns = {column.title: column for column in table.columns}
            for column in table.columns:
                name, colon, _ = (column.placer or "").partition(":")
                if colon:
                    now = columns[f"{column.title}, now"]
                    self.assertEqual((now.placer, now.options), (name, column.options))

    def test_placers_exist(self):
        placers = {
            column.placer_for(row)[0]
            for table in TABLES.values()
            for row in table.rows
            for column in table.columns
            if column.placer_for(row) is not None
        }
        self.assertContainsSubset(placers, ALL_PLACERS)

    def test_gains_are_between_columns_of_their_table(self):
        for table in TABLES.values():
            if table.gain:
                titles = [column.title for column in table.columns]
                self.assertContainsSubset([table.gain.method, *table.gain.over], titles)


if __name__ == "__main__":
    absltest.main()
