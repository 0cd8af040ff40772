from absl.testing import absltest, parameterized

from tf_placer.text.table import table


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


if __name__ == "__main__":
    absltest.main()
