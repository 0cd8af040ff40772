from __future__ import annotations

from absl.testing import absltest

from benchmarks.gpu_model.windows import padding_of


class PaddingTest(absltest.TestCase):
    def test_even_padding_is_the_same_at_both_ends(self):
        self.assertEqual(padding_of((14, 14), (14, 14), (3, 3), (1, 1)), ([1, 1], [0, 0]))

    def test_odd_padding_makes_the_image_larger_beforehand(self):
        self.assertEqual(padding_of((32, 32), (16, 16), (7, 7), (2, 2)), ([0, 0], [5, 5]))

    def test_nothing_is_padded_where_windows_fit(self):
        self.assertEqual(padding_of((147, 147), (73, 73), (3, 3), (2, 2)), ([0, 0], [0, 0]))


if __name__ == "__main__":
    absltest.main()
