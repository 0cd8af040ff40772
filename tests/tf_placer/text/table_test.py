import contextlib
import io
import os
from unittest import mock

from absl.testing import absltest, parameterized

from tf_placer.text.table import table, terminal_width


class TableTest(parameterized.TestCase):
    def test_columns_are_as_wide_as_their_widest_cell(self):
        text = table(["a", "long header", "c"], [["wide cell", 1, None], ["x", 22, "z"]], "lrl")
        self.assertEqual(
            text.split("\n"),
            [
                "a          long header  c",
                "---------  -----------  -",
                "wide cell            1",
                "x                   22  z",
            ],
        )

    def test_text_is_wrapped_to_the_width_of_a_line(self):
        rows = [["x", 1, "it does not fit into the memory of the device"], ["y", 22, "fine"]]
        self.assertEqual(
            table(["name", "n", "note"], rows, "lrl", width=26).split("\n"),
            [
                "name   n  note",
                "----  --  ----------------",
                "x      1  it does not fit",
                "          into the memory",
                "          of the device",
                "y     22  fine",
            ],
        )
        whole = table(["name", "n", "note"], rows, "lrl")
        self.assertEqual(table(["name", "n", "note"], rows, "lrl", width=55), whole)

    def test_only_names_of_great_length_are_broken_and_numbers_never(self):
        text = table(["name", "number"], [["a" * 40, "9" * 40], ["b" * 20, "1"]], "lr", width=5)
        self.assertEqual(
            [line.split() for line in text.split("\n")[2:]],
            [["a" * 30, "9" * 40], ["a" * 10], ["b" * 20, "1"]],
        )

    def test_leaves_optional_columns_out_of_short_lines(self):
        headers, rows = ["id", "spread", "note"], [["1", "2.0 ms", "a note of some length"]]
        optional = ["spread", "id"]
        whole = table(headers, rows)
        self.assertEqual(table(headers, rows, width=33, optional=optional), whole)
        self.assertEqual(
            table(headers, rows, width=32, optional=optional).split("\n"),
            [
                "id  note",
                "--  ---------------------",
                "1   a note of some length",
                "no room here for: spread",
            ],
        )
        self.assertEndsWith(table(headers, rows, width=9, optional=optional), "spread, id")

    def test_other_outputs_than_a_terminal_have_lines_of_any_length(self):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertIsNone(terminal_width())
            with (
                mock.patch.object(output, "isatty", return_value=True),
                mock.patch.dict(os.environ, {"COLUMNS": "72"}),
            ):
                self.assertEqual(terminal_width(), 72)

    def test_is_left_aligned_by_default_and_may_have_no_rows(self):
        self.assertEqual(table(["a", "bb"], []), "a  bb\n-  --")
        self.assertEqual(table(["aaa"], [[1]]), "aaa\n---\n1")

    @parameterized.parameters("l", "lrl", "lc")
    def test_an_alignment_that_does_not_fit_is_refused(self, alignment):
        with self.assertRaisesRegex(ValueError, "alignment"):
            table(["a", "b"], [], alignment)

    def test_a_row_that_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ValueError, "one cell for each"):
            table(["a", "b"], [["x"]])

    def test_escapes_control_characters(self):
        text = table(["name", "n"], [["a\x1b[2J\nb\u202e", 1], ["c", 2]], "lr")
        self.assertEqual(
            text.splitlines(),
            [
                r"name               n",
                r"-----------------  -",
                r"a\x1b[2J\nb\u202e  1",
                r"c                  2",
            ],
        )


if __name__ == "__main__":
    absltest.main()
