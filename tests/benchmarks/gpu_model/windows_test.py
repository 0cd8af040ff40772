from __future__ import annotations

from absl.testing import absltest

from benchmarks.gpu_model.windows import Window, data_sizes


class WindowTest(absltest.TestCase):
    def test_even_padding_is_the_same_at_both_ends(self):
        window = Window.of((14, 14), (14, 14), (3, 3), (1, 1), (1, 1))
        self.assertEqual((window.padding, window.extra, window.note), ((1, 1), (0, 0), ""))

    def test_odd_padding_makes_the_image_larger_beforehand(self):
        window = Window.of((32, 32), (16, 16), (7, 7), (2, 2), (1, 1))
        self.assertEqual((window.padding, window.extra), ((0, 0), (5, 5)))
        self.assertEqual(window.padded((1, 3, 32, 32)), (1, 3, 37, 37))
        self.assertNotEmpty(window.note)

    def test_nothing_is_padded_where_windows_fit(self):
        window = Window.of((147, 147), (73, 73), (3, 3), (2, 2), (1, 1))
        self.assertEqual((window.padding, window.extra), ((0, 0), (0, 0)))

    def test_dilation_widens_the_window(self):
        window = Window.of((9, 9), (9, 9), (3, 3), (1, 1), (2, 2))
        self.assertEqual(window.padding, (2, 2))

    def test_sizes_come_in_the_order_of_cudnn(self):
        self.assertEqual(data_sizes((8, 5, 6, 3), "NHWC"), (8, 3, 5, 6))
        self.assertEqual(data_sizes((8, 3, 5, 6), "NCHW"), (8, 3, 5, 6))


if __name__ == "__main__":
    absltest.main()
