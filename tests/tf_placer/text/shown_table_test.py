"""Tests of results that are shown as their table."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.text.shown_table import ShownTable


class Shown(ShownTable):
    def table(self) -> str:
        return "a  b\n1  <2>"


class ShownTableTest(absltest.TestCase):
    def test_print_shows_the_table(self):
        self.assertEqual(str(Shown()), "a  b\n1  <2>")

    def test_a_notebook_keeps_its_columns(self):
        self.assertRegex(Shown()._repr_html_(), "^<pre style=.*>a  b\n1  &lt;2&gt;</pre>$")


if __name__ == "__main__":
    absltest.main()
