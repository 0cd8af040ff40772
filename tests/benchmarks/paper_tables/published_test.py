"""Tests of the numbers that the papers print."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.paper_tables.published import (
    COLOCRL,
    EAGLE,
    POST,
    find_published,
    read_published_results,
)


class PublishedTest(absltest.TestCase):
    def test_all_three_papers_are_there(self):
        self.assertEqual({each.paper for each in read_published_results()}, {COLOCRL, POST, EAGLE})

    def test_a_cell_has_its_number_and_its_machine(self):
        cell = find_published(COLOCRL, "Table 2", "NMT", "RL-based", num_gpus=4)
        self.assertEqual((cell.value, cell.unit, cell.batch), (3.92, "s", 64))
        self.assertEqual(cell.machine, "1xHaswell+4xK80")
        self.assertFalse(cell.out_of_memory)

    def test_out_of_memory_is_no_number(self):
        cell = find_published(POST, "Table 1", "NMT (8-layer)", "Single GPU", num_gpus=8)
        self.assertIsNone(cell.value)
        self.assertTrue(cell.out_of_memory)

    def test_printed_reductions_follow_from_the_printed_times(self):
        reductions = [
            each
            for each in read_published_results()
            if (each.table, each.metric) == ("Table 1", "reduction_vs_policy_gradient")
        ]
        self.assertLen(reductions, 11)
        for each in reductions:
            ours, theirs = (
                find_published(POST, "Table 1", each.model, method, num_gpus=each.num_gpus).value
                for method in ("Post", "Policy Gradient")
            )
            self.assertAlmostEqual(each.value, 100 * (1 - ours / theirs), delta=0.1)


if __name__ == "__main__":
    absltest.main()
