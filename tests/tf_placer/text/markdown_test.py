"""Tests of tables in Markdown."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.text.markdown import markdown_table


class MarkdownTableTest(absltest.TestCase):
    def test_columns_are_aligned_as_asked(self):
        text = markdown_table(["a", "b"], [["x", "1"], ["y", "2"]], "lr")
        self.assertEqual(text, "| a | b |\n| --- | ---: |\n| x | 1 |\n| y | 2 |")

    def test_a_cell_cannot_end_its_row(self):
        text = markdown_table(["a"], [["x|y\nz"]])
        self.assertEqual(text.splitlines()[2:], ["| x\\|y z |"])

    def test_rows_and_alignment_must_fit_the_headers(self):
        with self.assertRaisesRegex(ValueError, "has not one cell"):
            markdown_table(["a"], [["x", "y"]])
        with self.assertRaisesRegex(ValueError, "alignment 'lc'"):
            markdown_table(["a", "b"], [], "lc")

    def test_escapes_control_characters(self):
        text = markdown_table(["name"], [["a\x1b[2J|\nb"]])
        self.assertEqual(text.splitlines()[-1], r"| a\x1b[2J\| b |")


if __name__ == "__main__":
    absltest.main()
